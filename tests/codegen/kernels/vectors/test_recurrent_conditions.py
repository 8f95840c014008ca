"""Recurrent vectors where errors hide: free sizes, several threads, values that are not finite, undefined behaviour."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.codegen.isa import PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import runnable
from tests.codegen.kernels.vectors.test_recurrent import GATES, built

FAMILY = "recurrent vectors"
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-O1")
KINDS = [("RNN", {}), ("GRU", {}), ("GRU", {"after": 1}), ("LSTM", {})]
BOTH = {"direction": "bidirectional", "bias": True}


def close(compiled: CModel, model: onnx.ModelProto, feeds: dict[str, Any], atol: float = 2e-6) -> None:
    """The kernels are of the family, and what they compute is what ONNX Runtime computes."""
    families = [k.family for k in compiled.emitted.kernels if k.task.operator.name in GATES]
    assert families == [FAMILY]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for wanted, (name, found) in zip(session.run(None, feeds), compiled.run(feeds).items(), strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=2e-5, atol=atol, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_free_steps_and_batch(kind: str, more: dict[str, Any], direction: str) -> None:
    model, _ = built(kind, (5, 3, 6, 19), {"bias": True, "direction": direction} | more, 1)
    axes = {"x": {0: "s", 1: "b"}, "y": {0: "s", 2: "b"}, "h": {1: "b"}, "c": {1: "b"}}
    for value in (*model.graph.input, *model.graph.output):
        for axis, symbol in axes[value.name].items():
            value.type.tensor_type.shape.dim[axis].dim_param = symbol
    compiled = CModel(load(model), dims={"s": (1, 20, 7), "b": (1, 9, 2)}, flags=(*STRICT, *UNDEFINED))
    for steps, batch in ((1, 1), (7, 2), (20, 9)):
        x = np.random.default_rng(steps).standard_normal((steps, batch, 6)).astype(np.float32)
        close(compiled, model, {"x": x})


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_threads_do_not_change_a_bit(kind: str, more: dict[str, Any]) -> None:
    model, feeds = built(kind, (20, 4, 32, 72), BOTH | more | {"given": (5, 6)}, 2)
    shared = CModel(load(model), threads=3)
    close(shared, model, feeds)
    alone = CModel(load(model)).run(feeds)
    for name, found in shared.run(feeds).items():
        np.testing.assert_array_equal(found, alone[name], err_msg=name)


@pytest.mark.parametrize("names", [["Sigmoid", "Tanh", "Tanh"], ["HardSigmoid", "Softsign", "LeakyRelu"]])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_values_that_are_not_finite(kind: str, more: dict[str, Any], names: list[str]) -> None:
    """NaN and infinity reach the same elements as in numpy; ONNX Runtime clips the arguments of its activations."""
    model, feeds = built(kind, (6, 2, 7, 21), {"bias": True, "names": names} | more, 3)
    feeds["x"][1, 0, 0], feeds["x"][2, 1, 3] = np.inf, np.nan
    with np.errstate(all="ignore"):
        wanted = Executor(load(model)).run(feeds)
    for name, found in CModel(load(model)).run(feeds).items():
        np.testing.assert_allclose(found, np.asarray(wanted[name]), rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_saturated_gates(kind: str, more: dict[str, Any]) -> None:
    """Sums of terms up to a thousand are exact to about 1e-4, and so is a gate whose terms cancel."""
    model, feeds = built(kind, (6, 3, 7, 21), BOTH | more, 4)
    feeds = {name: array * np.float32(300) for name, array in feeds.items()}
    close(CModel(load(model)), model, feeds, atol=1e-4)


@pytest.mark.parametrize("isa", [*runnable()], ids=lambda isa: isa.name)
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_undefined_behaviour(kind: str, more: dict[str, Any], isa: Isa) -> None:
    model, feeds = built(kind, (3, 2, 5, 19), BOTH | more | {"given": (5,)}, 5)
    isas, flags = ((PORTABLE, SCALAR), ("-DMODEL_SCALAR",)) if isa is SCALAR else ((isa,), ())
    close(CModel(load(model), isas=isas, flags=(*STRICT, *UNDEFINED, *flags)), model, feeds)


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_scalar_kernels_are_standard_c(kind: str, more: dict[str, Any]) -> None:
    model, feeds = built(kind, (3, 2, 5, 19), BOTH | more, 6)
    flags = (*STRICT, "-pedantic", "-Wshadow", "-Wconversion", "-DMODEL_SCALAR")
    close(CModel(load(model), isas=(PORTABLE, SCALAR), flags=flags), model, feeds)
