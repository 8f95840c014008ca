"""Products with weights of 4 and 8 bits in C for every instruction set, against the numpy executor and ONNX Runtime."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.kernels.joined_cases import Built, Joined, joined

FAMILY = "product with packed bits"


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
def every_case() -> Joined:
    return joined(cases())


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_values(isa: Isa) -> None:
    compiled = every_case().compiled(isa)
    assert [k.family for k in compiled.emitted.kernels] == [FAMILY] * len(cases())
    every_case().check(compiled, lambda size: 5e-6 * size)


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
