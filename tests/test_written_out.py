"""Operators written out, as frameworks without them do: activations, softmax, blocks of pixels, padding apart."""

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
    "elu by sum from the left": ("Elu", lambda x, c: (op.Relu(x) + op.Exp(op.Min(x, c(0)))) - c(1)),
    "sigmoid by quotient": ("Sigmoid", lambda x, c: op.Exp(x) / (op.Exp(x) + c(1))),
    "sigmoid by complement": ("Sigmoid", lambda x, c: c(1) - op.Sigmoid(-x)),
    "limit of relu": ("Clip", lambda x, c: op.Clip(op.Relu(x), None, c(6))),
    "relu of limit": ("Clip", lambda x, c: op.Relu(op.Clip(x, None, c(6)))),
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


def pixels(x: Any, shape: list[int], perm: list[int], result: list[int]) -> Any:
    return op.Reshape(op.Transpose(op.Reshape(x, np.array(shape)), perm=perm), np.array(result))


def padded(x: Any, value: float | None) -> Any:
    widths = np.array([0, 0, 1, 0, 0, 0, 1, 2])
    return op.Pad(x, widths) if value is None else op.Pad(x, widths, np.asarray(value, np.float32))


POOL: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 1]}
# The operator, the shape and the type of x, and what is written.
MOVED: dict[str, tuple[str, tuple[int, ...], str, Callable[[Any], Any]]] = {
    "pixel shuffle": (
        "DepthToSpace",
        (2, 12, 3, 5),
        "float32",
        lambda x: pixels(x, [2, 3, 2, 2, 3, 5], [0, 1, 4, 2, 5, 3], [2, 3, 6, 10]),
    ),
    "pixel shuffle of blocks": (
        "DepthToSpace",
        (1, 18, 4, 2),
        "float64",
        lambda x: pixels(x, [1, 3, 3, 2, 4, 2], [0, 3, 4, 1, 5, 2], [1, 2, 12, 6]),
    ),
    "pixels to channels": (
        "SpaceToDepth",
        (2, 3, 6, 4),
        "float32",
        lambda x: pixels(x, [2, 3, 3, 2, 2, 2], [0, 3, 5, 1, 2, 4], [2, 12, 3, 2]),
    ),
    "padding before a maximum": ("MaxPool", (1, 2, 7, 6), "float32", lambda x: op.MaxPool(padded(x, -np.inf), **POOL)),
    "padding by the lowest number": (
        "MaxPool",
        (1, 2, 7, 6),
        "float32",
        lambda x: op.MaxPool(padded(x, float(np.finfo(np.float32).min)), **POOL),
    ),
    "padding before a mean": (
        "AveragePool",
        (1, 2, 7, 6),
        "float32",
        lambda x: op.AveragePool(padded(x, None), **POOL),
    ),
    "casts to a wider type and back": ("Relu", (3, 4), "float32", lambda x: op.Relu(op.Cast(op.Cast(x, to=11), to=1))),
}


@pytest.mark.parametrize("name", MOVED)
def test_movement_and_padding(name: str, tmp_path: Path) -> None:
    wanted, shape, dtype, write = MOVED[name]
    graph = eqsat.graph(write(eqsat.input("x", shape, dtype)))
    result = eqsat.optimize(graph)
    assert [node.op.name for node in result.plan.nodes] == [wanted]
    eqsat.save(graph, tmp_path / "in.onnx")
    result.save(tmp_path / "out.onnx")
    given = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    before = run((tmp_path / "in.onnx").read_bytes(), given)
    for found in (run((tmp_path / "out.onnx").read_bytes(), given), result.run({"x": given})["output"]):
        np.testing.assert_allclose(found, before, rtol=1e-6, atol=1e-6)


# Alike, and something else.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "channels in another order": lambda x: pixels(x, [2, 3, 2, 2, 4, 4], [0, 1, 5, 2, 4, 3], [2, 3, 8, 8]),
    "blocks that are not square": lambda x: pixels(x, [2, 3, 4, 1, 4, 4], [0, 1, 4, 2, 5, 3], [2, 3, 16, 4]),
    "padding by zeros before a maximum": lambda x: op.MaxPool(padded(x, 0.0), **POOL),
    "padding by ones before a mean": lambda x: op.AveragePool(padded(x, 1.0), **POOL),
    "padding as wide as the window": lambda x: op.MaxPool(
        op.Pad(x, np.array([0, 0, 2, 2, 0, 0, 2, 2]), np.float32(-np.inf)), kernel_shape=[2, 2]
    ),
    "casts to a narrower type and back": lambda x: op.Cast(op.Cast(x, to=10), to=1),
    "softmax over another axis": lambda x: op.Exp(x) / op.ReduceSum(op.Exp(x), np.array([1, 2]), keepdims=1),
    "slopes that enlarge": lambda x: op.Relu(x) - np.ones((3, 1, 1, 1, 1), np.float32) * op.Relu(-x),
    "a sixth that is none": lambda x: x * op.Clip(x + np.float32(3), np.float32(0), np.float32(6)) * np.float32(0.166),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_alike_keeps_its_values(name: str) -> None:
    graph = eqsat.graph(OTHERS[name](eqsat.input("x", (2, 12, 4, 4))))
    result = eqsat.optimize(graph)
    new = {"DepthToSpace", "SpaceToDepth", "Softmax", "PRelu", "HardSwish"} & {n.op.name for n in result.plan.nodes}
    assert not new
    given = {"x": np.random.default_rng(0).standard_normal((2, 12, 4, 4)).astype(np.float32)}
    (wanted,), (found,) = eqsat.run(graph, given).values(), result.run(given).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
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
