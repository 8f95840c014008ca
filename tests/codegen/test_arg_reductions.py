"""Places of extremes in C beside numpy: any axis, first and last of equals, NaN, with each instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from eqsat.codegen.isa import ALL, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.kernel_cases import runnable

SHAPES = [
    ((3, 70), 1),
    ((3, 70), 0),
    ((2, 21, 9, 11), 1),
    ((2, 5, 37), 2),
    ((6,), 0),
    ((130, 3), 0),
    ((2, 1, 19), 1),
    ((3, 50, 3), 2),
    ((101, 4), 1),
]


def _model(name: str, shape: tuple[int, ...], axis: int, keep: bool, last: bool, before: str = "") -> onnx.ModelProto:
    result = [1 if a == axis else n for a, n in enumerate(shape) if keep or a != axis]
    nodes = [helper.make_node(name, ["t" if before else "x"], ["y"], axis=axis, keepdims=keep, select_last_index=last)]
    if before:
        nodes.insert(0, helper.make_node("Transpose", ["x"], ["t"], perm=[int(p) for p in before]))
    inner = [shape[int(before.index(str(a)))] for a in range(len(shape))] if before else shape
    graph = helper.make_graph(
        nodes,
        "place",
        [helper.make_tensor_value_info("x", 1, inner)],
        [helper.make_tensor_value_info("y", 7, result)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _expected(name: str, x: np.ndarray, axis: int, last: bool) -> np.ndarray:
    find = np.argmax if name == "ArgMax" else np.argmin
    return x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis) if last else find(x, axis=axis)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_values(name: str, last: bool, isa: Isa):
    if isa not in runnable():
        pytest.skip(f"this machine does not have {isa.name}")
    rng = np.random.default_rng(1)
    for shape, axis in SHAPES:
        model = load(_model(name, shape, axis, bool(rng.integers(2)), last))
        scalar = isa is SCALAR
        flags = ("-DMODEL_SCALAR",) if scalar else ()
        compiled = CModel(model, isas=[PORTABLE, SCALAR] if scalar else [isa], flags=flags)
        assert [k.family for k in compiled.emitted.kernels] == ["arg-reducing vectors"]
        normal = rng.standard_normal(shape).astype(np.float32)
        equal = rng.integers(0, 3, shape).astype(np.float32)
        special = rng.choice(np.array([np.nan, 1, -np.inf, np.inf, -0.0, 0.0], np.float32), shape)
        for x in (normal, equal, special, np.full(shape, -np.inf, np.float32)):
            found = compiled.run({"x": x})["y"]
            expected = _expected(name, x, axis, last).reshape(found.shape)
            np.testing.assert_array_equal(found, expected, f"{shape} {axis}")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_transposed_operand(axis: int):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((18, 5, 33)).astype(np.float32)
    t = x.transpose(2, 0, 1)
    compiled = CModel(load(_model("ArgMax", t.shape, axis, keep=False, last=False, before="201")))
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], t.argmax(axis))


@pytest.mark.slow
@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
def test_rows_of_other_types(isa: Isa):
    """Longer and shorter than what is compared at once, with equal elements, NaN and the greatest numbers."""
    if isa not in runnable():
        pytest.skip(f"this machine does not have {isa.name}")
    rng, nodes, inputs, outputs, feeds, wanted = np.random.default_rng(2), [], [], [], {}, {}
    for dtype in ("float64", "float16", "int8", "uint8", "int16", "int32", "int64"):
        for size in (31, 32, 33, 70, 128):
            x = rng.integers(0, 9, (6, size)).astype(dtype)
            x[1] = 5
            if x.dtype.kind == "f":
                x[2], x[3, size // 2] = rng.standard_normal(size), np.nan
                x[4], x[5] = np.nan, rng.choice([np.inf, -np.inf, -0.0, 0.0], size)
            else:
                x[2], x[3, size // 2], x[4, -1] = np.iinfo(dtype).min, np.iinfo(dtype).max, np.iinfo(dtype).max
            feeds[f"{dtype}_{size}"] = x
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            inputs.append(helper.make_tensor_value_info(f"{dtype}_{size}", kind, x.shape))
            for name, last in (("ArgMax", 0), ("ArgMax", 1), ("ArgMin", 0), ("ArgMin", 1)):
                y = f"{dtype}_{size}_{name}_{last}"
                given: dict[str, Any] = dict(axis=1, keepdims=0, select_last_index=last)
                nodes.append(helper.make_node(name, [f"{dtype}_{size}"], [y], **given))
                outputs.append(helper.make_tensor_value_info(y, 7, x.shape[:1]))
                wanted[y] = _expected(name, x, 1, bool(last))
    graph = helper.make_graph(nodes, "places", inputs, outputs)
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    scalar = isa is SCALAR
    compiled = CModel(model, isas=[PORTABLE, SCALAR] if scalar else [isa], flags=("-DMODEL_SCALAR",) if scalar else ())
    for name, found in compiled.run(feeds).items():
        np.testing.assert_array_equal(found, wanted[name], name)
