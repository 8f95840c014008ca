"""Determinants, inverses, deformable convolutions and columns to images in C, beside ONNX Runtime and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load

FLAGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsanitize=undefined",
         "-fsanitize-undefined-trap-on-error")  # fmt: skip


def model_of(
    op: str, inputs: list[np.ndarray], constants: dict[int, np.ndarray], domain: str = "", opset: int = 22, **attrs: Any
) -> onnx.ModelProto:
    """One operator and a step after it, so that its epilogue is executed as well."""
    names = [f"x{k}" for k in range(len(inputs) + len(constants))]
    given = [name for k, name in enumerate(names) if k not in constants]
    types = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    nodes = [helper.make_node(op, names, ["h"], domain=domain, **attrs), helper.make_node("Neg", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, x.shape) for n, t, x in zip(given, types, inputs, strict=True)],
        [helper.make_tensor_value_info("y", types[0], None)],
        [onnx.numpy_helper.from_array(x, names[k]) for k, x in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def compare(model: onnx.ModelProto, inputs: list[np.ndarray], tolerance: float) -> None:
    names = [value.name for value in model.graph.input]
    feeds = dict(zip(names, inputs, strict=True))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, feeds)
    wanted = np.asarray(wanted)
    for run in (CModel(load(model), flags=FLAGS).run, Executor(load(model)).run):
        found = run(feeds)["y"]
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, tolerance, tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 5, 5), (2, 3, 4, 4), (9, 9)])
def test_determinants_and_inverses(shape: tuple[int, ...], dtype: type) -> None:
    n = shape[-1]
    x = (np.random.default_rng(n).standard_normal(shape) / np.sqrt(n)).astype(dtype)
    if dtype is np.float32:
        compare(model_of("Det", [x], {}), [x], 1e-4)
    x = x + 2 * np.eye(n, dtype=dtype)[::-1]
    compare(model_of("Inverse", [x], {}, domain="com.microsoft"), [x], 1e-4 if dtype is np.float32 else 1e-10)


def test_a_singular_matrix_has_determinant_zero() -> None:
    x = np.array([[1, 2, 3], [2, 4, 6], [0, 1, 5]], np.float32)
    assert CModel(load(model_of("Det", [x], {}))).run({"x0": x})["y"] == 0


IMAGES = [
    ((5, 4), (2, 3), {}),
    ((6, 6), (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ((7, 5), (2, 2), {"dilations": [3, 2], "pads": [0, 1, 2, 0]}),
    ((4, 4), (1, 1), {"strides": [3, 2]}),
    ((3, 4, 5), (2, 1, 3), {"pads": [1, 0, 1, 0, 0, 2]}),
    ((3, 3), (3, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 1]}),
    ((2, 9), (3, 2), {"pads": [3, 0, 3, 1], "dilations": [2, 4], "strides": [1, 3]}),
]


@pytest.mark.parametrize(("image", "block", "attrs"), IMAGES)
def test_columns_to_images(image: tuple[int, ...], block: tuple[int, ...], attrs: dict[str, list[int]]) -> None:
    axes = len(image)
    pads, strides = attrs.get("pads", [0] * 2 * axes), attrs.get("strides", [1] * axes)
    spans = [d * (k - 1) + 1 for k, d in zip(block, attrs.get("dilations", [1] * axes), strict=True)]
    counts = [(n + pads[a] + pads[a + axes] - spans[a]) // strides[a] + 1 for a, n in enumerate(image)]
    x = np.random.default_rng(1).standard_normal((2, 3 * int(np.prod(block)), int(np.prod(counts)))).astype(np.float32)
    compare(model_of("Col2Im", [x], {1: np.array(image), 2: np.array(block)}, **attrs), [x], 1e-5)


SHIFTED = [
    ((1, 2, 5, 6), (2, 2, 3, 3), {}),
    ((2, 4, 6, 5), (6, 2, 3, 2), {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}),
    ((1, 6, 7, 7), (4, 6, 2, 2), {"offset_group": 3, "dilations": [2, 3]}),
    ((1, 1, 2, 3), (1, 1, 1, 1), {}),
]


@pytest.mark.parametrize("parts", [3, 4, 5])
@pytest.mark.parametrize(("image", "weights", "attrs"), SHIFTED)
def test_deformable_convolutions(
    image: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any], parts: int
) -> None:
    rng = np.random.default_rng(parts)
    pads, strides, dilations = (
        attrs.get(k, d) for k, d in (("pads", [0] * 4), ("strides", [1, 1]), ("dilations", [1, 1]))
    )
    places = [
        (image[2 + a] + pads[a] + pads[a + 2] - dilations[a] * (weights[2 + a] - 1) - 1) // strides[a] + 1
        for a in (0, 1)
    ]
    taps = attrs.get("offset_group", 1) * weights[2] * weights[3]
    scale = 1 / np.sqrt(weights[1] * weights[2] * weights[3])
    inputs = [
        rng.standard_normal(image),
        rng.standard_normal(weights) * scale,
        2 * rng.standard_normal((image[0], 2 * taps, *places)),
        rng.standard_normal(weights[0]),
        rng.uniform(0, 1, (image[0], taps, *places)),
    ]
    given = [x.astype(np.float32) for x in inputs[:parts]]
    model = model_of("DeformConv", given, {}, **attrs)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {f"x{k}": x for k, x in enumerate(given)}
    wanted = np.asarray(session.run(None, feeds)[0])
    found = CModel(load(model), flags=FLAGS).run(feeds)["y"]
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("bias", [(2, 3, 4, 5), (1, 1, 4, 5), (2, 1, 1, 5), (5,)])
def test_biased_softmax(axis: int, bias: tuple[int, ...]) -> None:
    """ONNX Runtime has it for other processors only, so that numpy is asked."""
    rng = np.random.default_rng(3)
    x, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4, 5), bias))
    total = (x.astype(np.float64) + b).reshape(int(np.prod(x.shape[:axis])), -1)
    powers = np.exp(total - total.max(1, keepdims=True))
    wanted = -(powers / powers.sum(1, keepdims=True)).reshape(x.shape)
    model = model_of("BiasSoftmax", [x, b], {}, domain="com.microsoft", axis=axis, is_inner_broadcast=1)
    for run in (CModel(load(model), flags=FLAGS).run, Executor(load(model)).run):
        np.testing.assert_allclose(run({"x0": x, "x1": b})["y"], wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 2, 3, 4, 2)])
def test_affine_grids(size: tuple[int, ...]) -> None:
    axes = len(size) - 2
    theta = np.random.default_rng(axes).standard_normal((size[0], axes, axes + 1)).astype(np.float32)
    for corners in (0, 1):
        model = model_of("AffineGrid", [theta], {1: np.array(size)}, align_corners=corners)
        wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": theta})[0]
        found = CModel(load(model), flags=FLAGS).run({"x0": theta})["y"]
        np.testing.assert_allclose(found, np.asarray(wanted), 1e-5, 1e-5)
