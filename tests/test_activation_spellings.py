"""Activations, softmax and norms written out, as frameworks without the operator do: one operator, in each type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import eqsat
from eqsat import op

Number = Callable[[float], np.ndarray]
Written = Callable[[Any, Number], Any]

LAST = np.array([2])


def softmax(x: Any) -> Any:
    raised = op.Exp(x)
    return raised / op.ReduceSum(raised, LAST, keepdims=1)


def shifted(x: Any) -> Any:
    return x - op.ReduceMax(x, LAST, keepdims=1)


def log_softmax(x: Any) -> Any:
    return x - op.Log(op.ReduceSum(op.Exp(x), LAST, keepdims=1))


def six(x: Any, c: Number) -> Any:
    return op.Clip(x + c(3), c(0), c(6))


def cubic(x: Any, c: Number) -> Any:
    return x + x * x * x * c(0.044715)


def slopes(c: Number) -> np.ndarray:
    return np.stack([c(0.25), c(-0.5), c(1.5), c(0.125)]).reshape(4, 1)


WRITTEN: dict[str, tuple[str, Written]] = {
    "elu by choice": ("Elu", lambda x, c: op.Where(op.Greater(x, c(0)), x, op.Exp(x) - c(1))),
    "elu by choice of the minimum": (
        "Elu",
        lambda x, c: op.Where(op.GreaterOrEqual(x, c(0)), x, op.Exp(op.Min(x, c(0))) - c(1)),
    ),
    "elu with alpha": ("Elu", lambda x, c: op.Where(op.Greater(x, c(0)), x, (op.Exp(x) - c(1)) * c(0.5))),
    "elu by sum": ("Elu", lambda x, c: op.Relu(x) + (op.Exp(op.Min(x, c(0))) - c(1))),
    "selu by sum": ("Selu", lambda x, c: (op.Relu(x) + (op.Exp(op.Min(x, c(0))) - c(1)) * c(1.5)) * c(1.25)),
    "leaky relu by choice": ("LeakyRelu", lambda x, c: op.Where(op.Greater(x, c(0)), x, x * c(0.125))),
    "leaky relu by choice of the negative": ("LeakyRelu", lambda x, c: op.Where(op.Less(x, c(0)), x * c(0.125), x)),
    "leaky relu by two": ("LeakyRelu", lambda x, c: op.Relu(x) - op.Relu(-x) * c(0.125)),
    "prelu by absolute": ("PRelu", lambda x, c: op.Relu(x) + (x - op.Abs(x)) * slopes(c) * c(0.5)),
    "prelu by difference": ("PRelu", lambda x, c: op.Relu(x) - slopes(c) * op.Relu(-x)),
    "prelu by sum": ("PRelu", lambda x, c: op.Relu(x) + slopes(c) * op.Relu(-x)),
    "prelu by minimum": ("PRelu", lambda x, c: op.Max(x, c(0)) + op.Min(x, c(0)) * slopes(c)),
    "abs by choice": ("Abs", lambda x, c: op.Where(op.Less(x, c(0)), -x, x)),
    "relu by absolute": ("Relu", lambda x, c: (x + op.Abs(x)) * c(0.5)),
    "relu by mask": ("Relu", lambda x, c: x * op.Cast(op.Greater(x, c(0)), to=x.dtype)),
    "softplus without overflow": ("Softplus", lambda x, c: op.Relu(x) + op.Log(op.Exp(-op.Abs(x)) + c(1))),
    "tanh by exponentials": ("Tanh", lambda x, c: (op.Exp(x) - op.Exp(-x)) / (op.Exp(x) + op.Exp(-x))),
    "hard swish by product": ("HardSwish", lambda x, c: x * six(x, c) * c(1 / 6)),
    "hard swish by quotient": ("HardSwish", lambda x, c: x * six(x, c) / c(6)),
    "hard swish by scaled input": ("HardSwish", lambda x, c: (x * c(1 / 6)) * six(x, c)),
    "hard sigmoid by product": ("HardSigmoid", lambda x, c: six(x, c) * c(1 / 6)),
    "gelu by erf": ("Gelu", lambda x, c: x * (op.Erf(x * c(0.7071067812)) + c(1)) * c(0.5)),
    "gelu by erf of a quotient": ("Gelu", lambda x, c: x * (op.Erf(x / c(1.4142135624)) + c(1)) * c(0.5)),
    "gelu by tanh": ("Gelu", lambda x, c: x * (op.Tanh(cubic(x, c) * c(0.7978845608)) + c(1)) * c(0.5)),
    "softmax": ("Softmax", lambda x, c: softmax(x)),
    "softmax without overflow": ("Softmax", lambda x, c: softmax(shifted(x))),
    "log of softmax": ("LogSoftmax", lambda x, c: op.Log(op.Softmax(x, axis=2))),
    "log softmax by difference": ("LogSoftmax", lambda x, c: log_softmax(x)),
    "log softmax without overflow": ("LogSoftmax", lambda x, c: log_softmax(shifted(x))),
    "log of a sum": ("ReduceLogSumExp", lambda x, c: op.Log(op.ReduceSum(op.Exp(x), LAST, keepdims=0))),
    "root of a sum of squares": ("ReduceL2", lambda x, c: op.Sqrt(op.ReduceSum(x * x, LAST, keepdims=1))),
    "root of a sum of powers": ("ReduceL2", lambda x, c: op.Sqrt(op.ReduceSum(op.Pow(x, c(2)), LAST, keepdims=1))),
}
TOLERANCES = {"float16": 4e-3, "float32": 2e-6}


def run(model: bytes, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0]).astype(np.float64)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_one_operator(name: str, dtype: str, tmp_path: Path) -> None:
    wanted, write = WRITTEN[name]
    x = eqsat.input("x", (3, 4, 5), dtype)
    graph = eqsat.graph(write(x, lambda value: np.asarray(value, dtype)))
    result = eqsat.optimize(graph)
    assert [node.op.name for node in result.plan.nodes] == [wanted]
    seen = result.summary.verification
    assert seen is not None and seen.agrees and not seen.skipped and seen.executed
    eqsat.save(graph, tmp_path / "in.onnx")
    result.save(tmp_path / "out.onnx")
    rng = np.random.default_rng(0)
    for scale in (1, 4):
        given = (rng.standard_normal((3, 4, 5)) * scale).astype(dtype)
        given[0, 0, :2] = 0.0
        before = run((tmp_path / "in.onnx").read_bytes(), given)
        for found in (run((tmp_path / "out.onnx").read_bytes(), given), result.run({"x": given})["output"]):
            error = np.abs(found.astype(np.float64) - before).max()
            assert error <= TOLERANCES[dtype] * max(1.0, np.abs(before).max()), name
