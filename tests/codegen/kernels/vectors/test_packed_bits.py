"""Products with weights of 4 and 8 bits in C for every instruction set, against the numpy executor and ONNX Runtime."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat.codegen.isa import ALL, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import runnable

FAMILY = "product with packed bits"
Built = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def built(
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    bits: int = 4,
    block: int = 32,
    zeros: type | None = None,
    bias: bool = False,
) -> Built:
    """A model of one node, and its input."""
    rng = np.random.default_rng(11)
    blocks = -(-depth // block)
    weights = {
        "b": rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "scales": rng.random(columns * blocks).astype(np.float32),
    }
    if zeros is np.uint8:
        weights["zeros"] = rng.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8)
    elif zeros is not None:
        weights["zeros"] = (rng.random(columns * blocks) * 15).astype(np.float32)
    if bias:
        weights["bias"] = rng.standard_normal(columns).astype(np.float32)
    names = [n if n in weights else "" for n in ("b", "scales", "zeros", "groups", "bias")]
    node = helper.make_node(
        "MatMulNBits",
        ["x", *names],
        ["y"],
        domain="com.microsoft",
        K=depth,
        N=columns,
        bits=bits,
        block_size=block,
    )
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*rows, columns])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model, {"x": rng.standard_normal((*rows, depth)).astype(np.float32)}


def cases() -> dict[str, Built]:
    return {
        "one_row": built((1,), 64, 40),
        "last_block_is_short": built((7,), 72, 19, zeros=np.uint8),
        "bytes": built((3,), 64, 33, 8, 16, np.uint8, bias=True),
        "real_zeros": built((1,), 64, 16, 4, 16, np.float32),
        "bytes_without_zeros": built((5,), 96, 50, 8),
        "one_block": built((2, 3), 128, 21, 4, 128, bias=True),
        "one_column": built((1,), 16, 1, 4, 16, np.uint8),
    }


@functools.cache
def joined() -> tuple[Any, dict[str, np.ndarray], dict[str, list[np.ndarray]]]:
    """All cases as one model, its inputs, and for each of its results what ONNX Runtime and numpy say."""
    whole: onnx.ModelProto | None = None
    feeds: dict[str, np.ndarray] = {}
    expected: dict[str, list[np.ndarray]] = {}
    for name, (model, given) in cases().items():
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        expected[f"{name}_y"] = [np.asarray(Executor(load(model)).run(given)["y"]), session.run(None, given)[0]]
        feeds[f"{name}_x"] = given["x"]
        model = onnx.compose.add_prefix(model, f"{name}_")
        whole = model if whole is None else onnx.compose.merge_models(whole, model, io_map=[])
    assert whole is not None
    return load(whole), feeds, expected


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_values(isa: Isa) -> None:
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    model, feeds, expected = joined()
    isas, flags = ((PORTABLE, SCALAR), ("-DMODEL_SCALAR",)) if isa is SCALAR else ((isa,), ())
    compiled = CModel(model, isas=isas, flags=flags)
    assert [k.family for k in compiled.emitted.kernels] == [FAMILY] * len(cases())
    found = compiled.run(feeds)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        for other in expected[name]:
            np.testing.assert_allclose(array, other, rtol=2e-5, atol=5e-6 * np.abs(other).max(), err_msg=name)


def test_threads_share_columns() -> None:
    model, feeds = built((2,), 2048, 1500, zeros=np.uint8)
    alone, shared = CModel(load(model)), CModel(load(model), threads=2)
    assert shared.emitted.shared == 1
    np.testing.assert_array_equal(shared.run(feeds)["y"], alone.run(feeds)["y"])


def test_rows_may_be_free() -> None:
    model, _ = built((5,), 64, 40, zeros=np.uint8)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    loaded = load(model)
    compiled = CModel(loaded, dims={"rows": (1, 9, 1)})
    assert [k.family for k in compiled.emitted.kernels] == [FAMILY]
    for rows in (1, 2, 7, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
        expected = np.asarray(Executor(loaded).run({"x": x})["y"])
        np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, rtol=2e-5, atol=5e-5)


def test_words_that_blocks_share_are_left_to_the_definition() -> None:
    model, feeds = built((2,), 67, 5)
    compiled = CModel(load(model))
    assert FAMILY not in [k.family for k in compiled.emitted.kernels]
    expected = np.asarray(Executor(load(model)).run(feeds)["y"])
    np.testing.assert_allclose(compiled.run(feeds)["y"], expected, rtol=2e-5, atol=5e-5)
