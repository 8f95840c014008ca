"""Deformable convolution in C for every instruction set, against float64, ONNX Runtime and single samples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.isa import SCALAR
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNDEFINED, UNIT, Case, run
from tests.codegen.kernels.vectors.test_random import with_epilogue

NAME, LOOPS = "deformable convolution", "deformable loops"
OPERANDS: tuple[str, ...] = ("x", "w", "offset", "b", "mask")
_CONSTANTS = (frozenset({1, 3}), frozenset[int](), frozenset({1, 2}), frozenset({3}), frozenset({1, 4}))
_ABSENT = (frozenset[int](), frozenset({4}), frozenset({3}), frozenset({3, 4}))
Shapes = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
SHAPES: dict[str, Shapes] = {
    "plain": ((1, 5, 9, 11), (16, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    "strides": ((2, 7, 12, 13), (21, 7, 3, 2), {"strides": (2, 3), "pads": (0, 1, 2, 1)}),
    "dilations": ((1, 19, 10, 8), (9, 19, 2, 3), {"dilations": (3, 2)}),
    "groups": ((2, 8, 7, 6), (40, 4, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    "offset_groups": ((1, 36, 6, 7), (8, 36, 2, 2), {"offset_group": 2}),
    "groups_that_overlap": ((1, 30, 6, 5), (20, 15, 1, 2), {"group": 2, "offset_group": 3}),
    "one_channel_a_group": ((1, 6, 8, 9), (6, 1, 3, 3), {"group": 6, "pads": (1, 1, 1, 1)}),
    "one_channel_a_part": ((2, 3, 5, 5), (18, 3, 2, 2), {"offset_group": 3}),
    "blocks_of_rows": ((2, 3, 23, 29), (17, 3, 3, 3), {"pads": (1, 1, 1, 1)}),
    "blocks_of_a_row": ((1, 2, 2, 301), (5, 2, 1, 3), {"pads": (0, 1, 0, 1)}),
    "many_channels": ((1, 130, 7, 9), (33, 130, 3, 3), {"pads": (1, 1, 1, 1)}),
    "one_window": ((1, 16, 3, 3), (16, 16, 3, 3), {}),
}


def convolved(
    x: np.ndarray, w: np.ndarray, offset: np.ndarray, b: np.ndarray | None, mask: np.ndarray | None, **given: Any
) -> np.ndarray:
    """The definition in float64, tap by tap; pixels around the image are zero."""
    images, channels, height, width = x.shape
    group, parts = given.get("group", 1), given.get("offset_group", 1)
    strides, dilations = given.get("strides", (1, 1)), given.get("dilations", (1, 1))
    pads, (rows, columns), (high, wide) = given.get("pads", (0,) * 4), offset.shape[2:], w.shape[2:]
    around = np.zeros((images, channels, height + 2, width + 2))
    around[:, :, 1:-1, 1:-1] = x
    filters = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
    y = np.zeros((images, w.shape[0], rows, columns))
    for n, i, j, k, s in itertools.product(*map(range, (images, rows, columns, high, wide))):
        column = np.zeros(channels)
        for part, some in enumerate(np.split(np.arange(channels), parts)):
            tap = (part * high + k) * wide + s
            v = i * strides[0] - pads[0] + k * dilations[0] + float(offset[n, 2 * tap, i, j])
            u = j * strides[1] - pads[1] + s * dilations[1] + float(offset[n, 2 * tap + 1, i, j])
            if -1 < v < height and -1 < u < width:
                top, left = int(np.floor(v)), int(np.floor(u))
                corner = around[n, some, top + 1 : top + 3, left + 1 : left + 3]
                down, across = np.array([1 - (v - top), v - top]), np.array([1 - (u - left), u - left])
                column[some] = np.einsum("cij,i,j->c", corner, down, across)
            column[some] *= 1 if mask is None else float(mask[n, tap, i, j])
        y[n, :, i, j] += np.einsum("gc,gmc->gm", column.reshape(group, -1), filters[..., k, s]).ravel()
    return y if b is None else y + b.astype(np.float64).reshape(-1, 1, 1)


def operands(name: str) -> list[np.ndarray]:
    """All five in float32. Offsets have few bits, so that places are exact; some lie outside of the image."""
    shape, weights, given = SHAPES[name]
    rng = np.random.default_rng(len(name))
    strides, dilations, pads = (
        given.get(n, d) for n, d in (("strides", (1, 1)), ("dilations", (1, 1)), ("pads", (0,) * 4))
    )
    places = [
        (shape[2 + a] + pads[a] + pads[a + 2] - dilations[a] * (weights[2 + a] - 1) - 1) // strides[a] + 1
        for a in (0, 1)
    ]
    taps = given.get("offset_group", 1) * weights[2] * weights[3]
    found = (
        rng.standard_normal(shape),
        rng.standard_normal(weights),
        rng.integers(-4096, 4097, (shape[0], 2 * taps, *places)) / 1024,
        rng.standard_normal(weights[0]),
        rng.uniform(0, 1, (shape[0], taps, *places)),
    )
    return [x.astype(np.float32) for x in found]


def cases() -> list[Case]:
    """By turns with other operands constant or absent."""
    made = []
    for number, (name, (_, weights, given)) in enumerate(SHAPES.items()):
        absent, constant = _ABSENT[number % 4], _CONSTANTS[number % 5]
        x, w, offset, *rest = operands(name)
        b, mask = (None if k in absent else v for k, v in enumerate(rest, start=3))
        inputs = [x, w, offset, b, mask]
        scale = convolved(np.abs(x), np.abs(w), offset, None if b is None else np.abs(b), mask, **given)
        tolerance = (12 + 2 * np.sqrt(np.prod(weights[1:]))) * UNIT * scale
        expected = convolved(x, w, offset, b, mask, **given)
        made.append(Case(OpKey("", "DeformConv"), given, inputs, constant - absent, expected, tolerance, chosen=NAME))
    return made


@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps: bool) -> None:
    run(cases(), rng=np.random.default_rng(2) if gaps else None)


def test_epilogues() -> None:
    rng = np.random.default_rng(3)
    run([with_epilogue(rng, case) for case in cases()[::2]], rng=rng)


@pytest.mark.slow
def test_undefined_behaviour() -> None:
    run(cases()[1::3], rng=np.random.default_rng(5), optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c() -> None:
    flags = ["-pedantic", "-Wshadow", "-Wconversion"]
    run(cases()[::2], rng=np.random.default_rng(6), isas=[SCALAR], optimization="-O3", flags=flags)


def graph_of(values: dict[str, np.ndarray], given: dict[str, Any]) -> ir.Model:
    """The operator with a step after it; weights are constant, operands without a value absent."""

    def operand(name: str) -> eqsat.Tensor:
        return eqsat.input(name, values[name].shape, str(values[name].dtype))

    b, mask = (operand(name) if name in values else None for name in ("b", "mask"))
    attributes: dict[str, Any] = {n: list(v) if isinstance(v, tuple) else v for n, v in given.items()}
    y = op.DeformConv(operand("x"), values["w"], operand("offset"), b, mask, **attributes)
    return eqsat.graph(op.Relu(y))


@pytest.mark.parametrize("name", SHAPES)
def test_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them, beside one and ONNX Runtime."""
    for limit in ("WORTH", "ENOUGH"):
        monkeypatch.setattr(sharing, limit, 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    values = dict(zip(OPERANDS, operands(name), strict=True))
    graph = graph_of(values, SHAPES[name][2])
    inputs = {n: x for n, x in values.items() if n != "w"}
    loaded = load(graph)
    compiled = CModel(loaded, threads=3)
    assert NAME in [kernel.family for kernel in compiled.emitted.kernels]
    (found,), (alone,) = compiled.run(inputs).values(), CModel(loaded).run(inputs).values()
    np.testing.assert_array_equal(found, alone)
    want = onnxruntime.InferenceSession(ir.to_proto(graph).SerializeToString()).run(None, inputs)[0]
    scale = np.sqrt(np.prod(SHAPES[name][1][1:]))
    np.testing.assert_allclose(found, np.asarray(want), rtol=1e-5, atol=2e-6 * scale)


def sampled(image: np.ndarray, v: float, u: float) -> float:
    """One sample of an image, neighbour by neighbour, in the type of its elements."""
    (height, width), kind = image.shape, image.dtype.type
    if not (-1 < v < height and -1 < u < width):
        return kind(0)
    total, top, left = kind(0), np.floor(v), np.floor(u)
    with np.errstate(invalid="ignore"):
        for i, of_row in ((int(top), 1 - (v - top)), (int(top) + 1, v - top)):
            for j, of_column in ((int(left), 1 - (u - left)), (int(left) + 1, u - left)):
                if 0 <= i < height and 0 <= j < width:
                    total += kind(of_row) * kind(of_column) * image[i, j]
    return total


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_at_borders_and_beyond(dtype: str) -> None:
    """Places next to the border of the image, at no number, and pixels that are no numbers."""
    kind, (height, width) = np.dtype(dtype).type, (4, 3)
    image = np.arange(1, 13, dtype=dtype).reshape(1, 1, height, width)
    image[0, 0, 1, 1], image[0, 0, 2, 2] = np.inf, np.nan

    def places(size: int) -> list[Any]:
        ends = [np.nextafter(kind(e), kind(to)) for e in (-1, 0, size - 1, size) for to in (-9, 9)]
        return [-1, -0.0, 0, 0.5, 1, size - 1, size - 0.5, size, *ends, np.nan, np.inf, -np.inf, 1e30, -1e30]

    v, u = (np.array(x, dtype).ravel() for x in np.meshgrid(places(height), places(width), indexing="ij"))
    want = np.array([sampled(image[0, 0], *p) for p in zip(v.tolist(), u.tolist(), strict=True)], dtype)
    # An image for each place: strides as long as the image leave one window of one tap.
    values = {
        "x": np.broadcast_to(image, (len(want), 1, height, width)).copy(),
        "w": np.ones((1, 1, 1, 1), dtype),
        "offset": np.stack([v, u], axis=1).reshape(-1, 2, 1, 1),
    }
    loaded = load(graph_of(values, {"strides": [height, width]}))
    compiled = CModel(loaded, flags=UNDEFINED)
    assert compiled.emitted.kernels[0].family == (NAME if dtype == "float32" else LOOPS)
    inputs = {n: x for n, x in values.items() if n != "w"}
    for executed in (compiled.run, Executor(loaded).run):
        (found,) = executed(inputs).values()
        np.testing.assert_allclose(found.ravel(), want, rtol=1e-6, atol=1e-6)


def test_half_precision_is_computed_in_floats() -> None:
    given = SHAPES["groups"][2]
    values = {n: x.astype(np.float16) for n, x in zip(OPERANDS, operands("groups"), strict=True)}
    wide = {n: x.astype(np.float32) for n, x in values.items()}
    compiled = CModel(load(graph_of(values, given)))
    assert NAME in [kernel.family for kernel in compiled.emitted.kernels]
    (found,) = compiled.run({n: x for n, x in values.items() if n != "w"}).values()
    x, w, offset, b, mask = wide.values()
    want = np.maximum(convolved(x, w, offset, b, mask, **given), 0)
    # Sums of float32 are rounded once.
    np.testing.assert_allclose(found, want, rtol=2.0**-11 * 1.01, atol=1e-5)


def test_convolutions_around_it_need_no_conversions() -> None:
    """Neither of the image nor of the offsets, which another convolution computes."""
    rng = np.random.default_rng(1)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    image = op.Relu(op.Conv(eqsat.input("x", (1, 16, 12, 12)), weights(16, 16, 3, 3), pads=[1] * 4))
    offset = op.Conv(image, weights(18, 16, 3, 3), pads=[1] * 4)
    mask = op.Sigmoid(op.Conv(image, weights(9, 16, 3, 3), pads=[1] * 4))
    y = op.Relu(op.DeformConv(image, weights(16, 16, 3, 3), offset, None, mask, pads=[1] * 4))
    graph = eqsat.graph(op.GlobalAveragePool(op.Conv(y, weights(16, 16, 1, 1))))
    compiled = CModel(load(graph))
    families = [kernel.family for kernel in compiled.emitted.kernels]
    copy, convolution = "elementwise vectors", "direct convolution"
    # Those of the input and of the result.
    assert families == [copy, *[convolution] * 3, NAME, convolution, "average pooling of channel vectors", copy]
    x = rng.standard_normal((1, 16, 12, 12)).astype(np.float32)
    want = onnxruntime.InferenceSession(ir.to_proto(graph).SerializeToString()).run(None, {"x": x})[0]
    (found,) = compiled.run({"x": x}).values()
    np.testing.assert_allclose(found, np.asarray(want), rtol=1e-5, atol=1e-5)
