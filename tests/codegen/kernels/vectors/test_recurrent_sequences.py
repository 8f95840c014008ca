"""Recurrent vectors on sequences of unequal lengths, and on batches that come first in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat.codegen.isa import PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import runnable
from tests.codegen.kernels.vectors.test_recurrent import built
from tests.codegen.kernels.vectors.test_recurrent_conditions import BOTH, KINDS, STRICT, UNDEFINED, close

AXES = {"x": (1, 0, 2), "h0": (1, 0, 2), "c0": (1, 0, 2), "y": (2, 0, 1, 3), "h": (1, 0, 2), "c": (1, 0, 2)}
"""From tensors whose first axis is time, or the direction, to tensors whose first axis is the batch."""


def batch_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same operator with ``layout=1``."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    for value in (*made.graph.input, *made.graph.output):
        if value.name in AXES:
            sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
            changed = [sizes[a] for a in AXES[value.name]]
            value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, changed))
    for tensor in made.graph.initializer:
        if tensor.name in AXES:
            array = numpy_helper.to_array(tensor).transpose(AXES[tensor.name])
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("isa", [*runnable()], ids=lambda isa: isa.name)
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_batch_first(kind: str, more: dict[str, Any], isa: Isa) -> None:
    way = {"fixed": (5, 6)} if isa is SCALAR else {"given": (5, 6), "lengths": "given"}
    model, feeds = built(kind, (5, 3, 6, 19), BOTH | more | way, 1)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in model.graph.output]
    wanted = {k: np.transpose(np.asarray(y), AXES[k]) for k, y in zip(names, session.run(None, feeds), strict=True)}
    isas, flags = ((PORTABLE, SCALAR), ("-DMODEL_SCALAR",)) if isa is SCALAR else ((isa,), ())
    compiled = CModel(load(batch_first(model)), isas=isas, flags=(*STRICT, *UNDEFINED, *flags))
    assert {k.family for k in compiled.emitted.kernels} == {"recurrent vectors"}
    given = {k: np.ascontiguousarray(x.transpose(AXES[k])) if k in AXES else x for k, x in feeds.items()}
    for name, found in compiled.run(given).items():
        np.testing.assert_allclose(found, wanted[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("isa", [*runnable()], ids=lambda isa: isa.name)
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_lengths(kind: str, more: dict[str, Any], isa: Isa) -> None:
    """Each sequence ends by itself, the shortest after one step."""
    model, feeds = built(kind, (6, 5, 4, 21), BOTH | more | {"given": (5, 6), "lengths": "given"}, 2)
    feeds["n"] = np.array([6, 1, 3, 5, 2], np.int32)
    isas, flags = ((PORTABLE, SCALAR), ("-DMODEL_SCALAR",)) if isa is SCALAR else ((isa,), ())
    close(CModel(load(model), isas=isas, flags=(*STRICT, *UNDEFINED, *flags)), model, feeds)


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_empty_sequences_keep_their_state(kind: str, more: dict[str, Any]) -> None:
    model, feeds = built(kind, (4, 3, 5, 17), BOTH | more | {"given": (5, 6), "lengths": "given"}, 3)
    feeds["n"] = np.array([0, 4, 0], np.int32)
    wanted = Executor(load(model)).run(feeds)
    found = CModel(load(model)).run(feeds)
    for name, array in found.items():
        np.testing.assert_allclose(array, np.asarray(wanted[name]), rtol=2e-5, atol=2e-6, err_msg=name)
    np.testing.assert_array_equal(found["h"][:, ::2], feeds["h0"][:, ::2])


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_all_sequences_end_early(kind: str, more: dict[str, Any]) -> None:
    """Nothing is computed after the longest; results are zero there."""
    for way in (BOTH, {"direction": "reverse"}):
        model, feeds = built(kind, (40, 3, 5, 17), way | more | {"given": (5, 6), "lengths": "given"}, 5)
        compiled = CModel(load(model), flags=(*STRICT, *UNDEFINED))
        for lengths in ((0, 0, 0), (3, 9, 1), (40, 2, 7), (12, 13, 11)):
            feeds["n"] = np.array(lengths, np.int32)
            wanted, made = Executor(load(model)).run(feeds), compiled.run(feeds)
            for name, found in made.items():
                np.testing.assert_allclose(found, np.asarray(wanted[name]), rtol=2e-5, atol=2e-6, err_msg=name)
            assert not made["y"][max(lengths) :].any()


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_free_steps(kind: str, more: dict[str, Any]) -> None:
    model, _ = built(kind, (5, 3, 6, 19), {"bias": True, "lengths": "given"} | more, 1)
    axes = {"x": {0: "s", 1: "b"}, "n": {0: "b"}, "y": {0: "s", 2: "b"}, "h": {1: "b"}, "c": {1: "b"}}
    for value in (*model.graph.input, *model.graph.output):
        for axis, symbol in axes[value.name].items():
            value.type.tensor_type.shape.dim[axis].dim_param = symbol
    compiled = CModel(load(model), dims={"s": (1, 20, 7), "b": (1, 9, 2)}, flags=(*STRICT, *UNDEFINED))
    for steps, batch in ((1, 1), (7, 2), (20, 9)):
        rng = np.random.default_rng(steps)
        x = rng.standard_normal((steps, batch, 6)).astype(np.float32)
        close(compiled, model, {"x": x, "n": rng.integers(1, steps + 1, batch).astype(np.int32)})


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_threads_do_not_change_a_bit(kind: str, more: dict[str, Any]) -> None:
    model, feeds = built(kind, (20, 4, 32, 72), BOTH | more | {"lengths": "given"}, 4)
    model = batch_first(model)
    feeds["x"] = np.ascontiguousarray(feeds["x"].transpose(AXES["x"]))
    alone = CModel(load(model)).run(feeds)
    for name, found in CModel(load(model), threads=3).run(feeds).items():
        np.testing.assert_array_equal(found, alone[name], err_msg=name)
