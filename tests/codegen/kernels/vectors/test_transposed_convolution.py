"""Transposed convolution in C for every instruction set, against float64."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat.codegen.isa import SCALAR
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNDEFINED, UNIT, Case, run, step
from tests.codegen.kernels.vectors.test_random import with_epilogue

TRANSPOSED = OpKey("", "ConvTranspose")


def scattered(x, w, strides, dilations, pads, extra, group):
    """Each input adds its window to the result, in float64."""
    rank = x.ndim - 2
    n, c, *space = x.shape
    per_group = w.shape[1]
    full = [
        (s - 1) * t + (k - 1) * d + 1 + e
        for s, t, k, d, e in zip(space, strides, w.shape[2:], dilations, extra, strict=True)
    ]
    y = np.zeros((n, group * per_group, *full))
    parts = x.astype(np.float64).reshape(n, group, c // group, *space)
    kernels = w.astype(np.float64).reshape(group, c // group, per_group, *w.shape[2:])
    for tap in itertools.product(*(range(k) for k in w.shape[2:])):
        added = np.einsum("ngc...,gcm->ngm...", parts, kernels[(..., *tap)])
        place = tuple(
            slice(t * d, t * d + (s - 1) * stride + 1, stride)
            for t, d, s, stride in zip(tap, dilations, space, strides, strict=True)
        )
        y[(slice(None), slice(None), *place)] += added.reshape(n, group * per_group, *space)
    crop = tuple(slice(pads[i], size - pads[rank + i]) for i, size in enumerate(full))
    return y[(slice(None), slice(None), *crop)]


def transposed_case(
    rng, shape, outputs, kernel, *, strides=None, dilations=None, pads=None, extra=None, group=1, bias=True, **more
):
    """A case with random data."""
    rank = len(kernel)
    strides, dilations, extra = strides or (1,) * rank, dilations or (1,) * rank, extra or (0,) * rank
    pads = pads or (0,) * (2 * rank)
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.standard_normal((shape[1], outputs // group, *kernel)).astype(np.float32)
    b = rng.standard_normal(outputs).astype(np.float32) if bias else None
    y = scattered(x, w, strides, dilations, pads, extra, group)
    scale = scattered(np.abs(x), np.abs(w), strides, dilations, pads, extra, group)
    if b is not None:
        offset = b.astype(np.float64).reshape(1, -1, *[1] * rank)
        y, scale = y + offset, scale + np.abs(offset)
    attributes = dict(
        strides=strides, dilations=dilations, pads=pads, group=group, output_padding=extra, auto_pad="NOTSET",
        kernel_shape=kernel,
    )  # fmt: skip
    terms = int(np.prod(kernel)) * shape[1] // group + 2
    tolerance = (4 + 2 * np.sqrt(terms)) * UNIT * scale
    return Case(TRANSPOSED, attributes, [x, w, b], frozenset({1, 2}), y, tolerance, **more)


SHAPES = {
    "doubled": ((1, 24, 5, 7), 40, (2, 2), dict(strides=(2, 2))),
    "doubled_smoothly": ((2, 16, 4, 5), 20, (4, 4), dict(strides=(2, 2), pads=(1, 1, 1, 1))),
    "odd": ((1, 9, 5, 6), 33, (3, 3), dict(strides=(2, 2), pads=(1, 1, 1, 1), extra=(1, 1))),
    "not_strided": ((1, 10, 6, 6), 17, (3, 3), dict(pads=(1, 1, 1, 1))),
    "pointwise": ((1, 12, 4, 5), 19, (1, 1), {}),
    "gaps_of_bias": ((1, 6, 4, 4), 18, (1, 2), dict(strides=(3, 3), extra=(2, 0))),
    "gaps_without_bias": ((1, 6, 4, 4), 18, (1, 1), dict(strides=(2, 2), bias=False)),
    "one_channel": ((1, 24, 6, 6), 1, (2, 2), dict(strides=(2, 2))),
    "many_phases": ((1, 5, 4, 4), 5, (16, 16), dict(strides=(8, 8), pads=(4, 4, 4, 4))),
    "uneven": ((1, 7, 5, 4), 12, (5, 3), dict(strides=(3, 2), pads=(0, 1, 2, 0), extra=(1, 0))),
    "dilated": ((1, 8, 5, 6), 16, (3, 3), dict(strides=(2, 3), dilations=(3, 2), pads=(1, 0, 2, 3))),
    "dilated_alike": ((1, 8, 5, 6), 16, (3, 3), dict(strides=(2, 2), dilations=(2, 4))),
    "groups": ((1, 24, 5, 5), 36, (3, 3), dict(strides=(2, 2), group=3)),
    "each_channel": ((2, 19, 5, 6), 19, (4, 4), dict(strides=(2, 2), pads=(1, 1, 1, 1), group=19)),
    "one_axis": ((2, 10, 20), 20, (8,), dict(strides=(4,), pads=(2, 2))),
    "three_axes": ((1, 6, 3, 4, 5), 18, (2, 3, 2), dict(strides=(2, 2, 2), pads=(0, 1, 0, 0, 1, 0))),
    "cropped_beyond": ((1, 6, 5, 5), 8, (3, 3), dict(strides=(2, 2), pads=(4, 3, 3, 4))),
    "single": ((1, 32, 1, 1), 24, (4, 4), dict(strides=(1, 1))),
    "single_cropped": ((2, 12, 1, 1), 20, (5, 3), dict(strides=(3, 2), pads=(1, 0, 2, 1), extra=(2, 1))),
    "single_dilated": ((1, 12, 1, 1), 18, (3, 3), dict(dilations=(2, 3), group=3)),
    "single_row": ((1, 8, 1, 6), 16, (3, 4), dict(strides=(1, 2), pads=(0, 1, 1, 1))),
}


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps):
    rng = np.random.default_rng(1)
    cases = [transposed_case(rng, shape, outputs, kernel, **rest) for shape, outputs, kernel, rest in SHAPES.values()]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


def test_windows_of_one_input_read_no_padding():
    case = transposed_case(np.random.default_rng(4), (1, 8, 1, 1), 16, (4, 4), strides=(1, 2), pads=(1, 0, 0, 1))
    family, task = case.build(None)
    assert family.wants(task).input(0).halo == ((0, 0),) * 4


def test_what_no_tap_reaches_is_the_bias():
    """An infinite input does not spread to outputs that it has no part in."""
    rng = np.random.default_rng(3)
    case = transposed_case(rng, (1, 4, 3, 3), 16, (2, 2), strides=(3, 3))
    x = case.inputs[0]
    assert x is not None
    x[0, 0, 1, 1] = np.inf
    found = run([_with_expected(case)])
    for y in found.values():
        assert np.isfinite(y).sum() == y.size - 16 * 4


def _with_expected(case: Case) -> Case:
    x, w, b = case.inputs
    assert x is not None and w is not None and b is not None
    y = scattered(np.where(np.isfinite(x), x, 0), w, (3, 3), (1, 1), (0,) * 4, (0, 0), 1) + b.reshape(1, -1, 1, 1)
    with np.errstate(invalid="ignore"):
        y[:, :, 3:5, 3:5] = np.inf * w[0].astype(np.float64)
    case.expected = y
    case.tolerance = np.where(np.isfinite(y), 1e-5, np.inf)
    return case


NARROW = {
    "mask": ((1, 24, 6, 40), 1, (2, 2), dict(strides=(2, 2))),
    "image": ((2, 5, 4, 33), 3, (4, 4), dict(strides=(2, 2), pads=(1, 1, 1, 1))),
    "three_phases": ((1, 4, 5, 18), 2, (3, 5), dict(strides=(2, 3), pads=(0, 2, 1, 1), extra=(1, 2))),
    "gaps": ((1, 3, 4, 19), 4, (2, 2), dict(strides=(3, 4), extra=(1, 3))),
    "not_strided": ((1, 6, 7, 70), 4, (3, 3), dict(pads=(1, 1, 1, 1))),
    "each_channel": ((2, 19, 5, 23), 19, (4, 4), dict(strides=(2, 2), pads=(1, 1, 1, 1), group=19)),
    "many_phases": ((1, 5, 4, 20), 2, (16, 16), dict(strides=(8, 8), pads=(4, 4, 4, 4))),
    "long_window": ((1, 3, 50), 1, (43,), dict(strides=(2,), pads=(20, 20))),
    "solid": ((1, 4, 3, 4, 17), 2, (2, 3, 3), dict(strides=(1, 2, 2), dilations=(2, 1, 3))),
    "cropped": ((1, 4, 6, 21), 3, (3, 3), dict(strides=(2, 2), pads=(2, 5, 1, 9))),
}


@pytest.mark.parametrize("gaps", [False, True])
def test_few_channels(gaps):
    rng = np.random.default_rng(12)
    cases = [transposed_case(rng, *given, rank=12, **rest) for *given, rest in NARROW.values()]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


def random_case(rng: np.random.Generator) -> Case:
    """All attributes, sizes around those of vectors, a random epilogue."""
    rank = int(rng.choice([1, 2, 2, 2, 3]))
    kernel = tuple(int(k) for k in rng.integers(1, 6, rank))
    dilations = tuple(int(d) for d in rng.integers(1, 4, rank))
    strides = tuple(int(s) for s in rng.integers(1, 5, rank))
    extra = tuple(int(rng.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True))
    space = [int(s) for s in rng.integers(1, 7, rank)]
    space[-1] = int(rng.choice([space[-1], 9, 17, 34]))
    full = [
        (s - 1) * t + (k - 1) * d + 1 + e
        for s, t, k, d, e in zip(space, strides, kernel, dilations, extra, strict=True)
    ]
    before = [int(rng.integers(0, min(3, n))) for n in full]
    after = [int(rng.integers(0, min(3, n - b))) for n, b in zip(full, before, strict=True)]
    group = int(rng.choice([1, 1, 1, 2, 3]))
    outputs = group * int(rng.choice([1, 2, 3, 8, 15, 16, 17, 31, 33]))
    channels = group * int(rng.integers(1, 20))
    if rng.random() < 0.25:
        channels = outputs = group = int(rng.integers(2, 40))
    case = transposed_case(
        rng, (int(rng.integers(1, 3)), channels, *space), outputs, kernel, strides=strides, dilations=dilations,
        pads=(*before, *after), extra=extra, group=group, bias=bool(rng.integers(2)),
    )  # fmt: skip
    return with_epilogue(rng, case)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random(seed):
    rng = np.random.default_rng([7, seed])
    run([random_case(rng) for _ in range(8)], rng=rng)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(16))
def test_many(seed):
    rng = np.random.default_rng([8, seed])
    cases = [random_case(rng) for _ in range(12)]
    run(cases, rng=rng if seed % 2 else None, optimization="-O2" if seed % 3 else "-O3")


@pytest.mark.slow
def test_undefined_behaviour():
    rng = np.random.default_rng(9)
    run([random_case(rng) for _ in range(3)], rng=rng, optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c():
    rng = np.random.default_rng(10)
    cases = [random_case(rng) for _ in range(4)]
    run(cases, rng=rng, isas=[SCALAR], optimization="-O3", flags=["-pedantic", "-Wshadow", "-Wconversion"])


def test_a_parameter_of_each_channel_after_merged_phases():
    """The phases of a row are one run of channels, unless an operand repeats for each of them."""
    rng = np.random.default_rng(11)
    case = transposed_case(rng, (1, 8, 4, 4), 5, (2, 2), strides=(2, 2))
    slope = rng.uniform(0, 1, (5, 1, 1)).astype(np.float32)
    case.operands, case.constant_operands, case.steps = [slope], frozenset({0}), [step("PRelu", 0, 1)]
    case.expected = np.where(case.expected < 0, case.expected * slope, case.expected)
    run([case])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "strides", "extra"), [((1, 1), (3, 3), (0, 0)), ((2, 1), (3, 2), (1, 0))])
def test_windows_that_do_not_reach_the_size_of_auto_pad(
    kernel: tuple[int, int], strides: tuple[int, int], extra: tuple[int, int], mode: str
) -> None:
    # ONNX's types and ONNX Runtime end with the last window; the program must not write beyond that.
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 6, 5, 4)).astype(np.float32), rng.standard_normal((6, 2, *kernel)).astype(np.float32)
    attributes = {"kernel_shape": kernel, "strides": strides, "output_padding": extra, "auto_pad": mode, "group": 3}
    y = eqsat.op.ConvTranspose(eqsat.input("x", x.shape), w, **attributes)
    model = eqsat.graph({"y": y})
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    for backend in ("numpy", "c"):
        found = eqsat.run(model, {"x": x}, backend=backend)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
