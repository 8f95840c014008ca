"""Integer convolutions in C for every instruction set, to the bit of the numpy executor."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from eqsat.codegen.isa import PORTABLE, SCALAR
from eqsat.schema.types import OpKey
from tests.codegen.kernels.bytes.harness import MS, Case, isas, run, step

pytestmark = pytest.mark.slow

QLINEAR = OpKey("", "QLinearConv")
INTEGER = OpKey("", "ConvInteger")
GEMM, DEPTHWISE = "integer convolution", "integer depthwise convolution"


def draw(rng, shape, dtype, narrow=False):
    """Random bytes; ``narrow`` without the outermost values."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if narrow:
        low, high = low // 2, high // 2
    return rng.integers(low, high + 1, shape).astype(dtype)


def attributes(rank, kernel, strides=None, dilations=None, pads=None, group=1, **more):
    return dict(
        kernel_shape=kernel,
        strides=strides or (1,) * rank,
        dilations=dilations or (1,) * rank,
        pads=pads or (0,) * (2 * rank),
        group=group,
        auto_pad="NOTSET",
        **more,
    )


def conv_case(
    rng, shape, outputs, kernel, *, x_type: Any = np.uint8, w_type: Any = np.int8, y_type: Any = None,
    per_channel=True, bias=True,
    x_zero=None, w_zero: Any = 0, y_zero=None, family=GEMM, fill=None, channels_last=False, spread=3.0, **more
):  # fmt: skip
    """A QLinearConv whose results fill the range of their type."""
    rank = len(kernel)
    geometry = {k: more.pop(k) for k in ("strides", "dilations", "pads", "group") if k in more}
    attrs = attributes(rank, kernel, **geometry)
    y_type = y_type or x_type
    x = draw(rng, shape, x_type)
    w = draw(rng, (outputs, shape[1] // attrs["group"], *kernel), w_type)
    if fill is not None:
        x[...], w[...] = fill
    zero = draw(rng, (), x_type) if x_zero is None else np.array(x_zero, x_type)
    y_zero = draw(rng, (), y_type, True) if y_zero is None else np.array(y_zero, y_type)
    channels = outputs if per_channel else 1
    w_scale = rng.uniform(0.5, 2, channels).astype(np.float32)
    wz = np.full(channels, w_zero, w_type) if np.ndim(w_zero) == 0 else np.array(w_zero, w_type)
    if not per_channel:
        w_scale, wz = w_scale.reshape(()), wz.reshape(())
    depth = int(np.prod(w.shape[1:]))
    b = rng.integers(-4000, 4000, outputs).astype(np.int32) if bias else None
    x_scale = np.float32(0.02)
    y_scale = np.float32(0.02 * 75 * 75 * np.sqrt(depth) * spread / 128)
    if channels_last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        attrs["channels_last"] = 1
    operator = OpKey(MS, "QLinearConv") if channels_last else QLINEAR
    inputs = [x, np.array(x_scale), zero, w, w_scale, wz, np.array(y_scale), y_zero, b]
    return Case(operator, attrs, inputs, frozenset(range(1, 9)), family, **more)


SHAPES = {
    "pointwise": ((1, 24, 5, 7), 40, (1, 1), {}),
    "pointwise_batch": ((3, 16, 4, 4), 64, (1, 1), {}),
    "pointwise_strided": ((2, 20, 9, 6), 17, (1, 1), dict(strides=(2, 2))),
    "odd_channels": ((1, 5, 6, 6), 19, (1, 1), {}),
    "window": ((1, 16, 8, 9), 24, (3, 3), dict(pads=(1, 1, 1, 1))),
    "window_odd": ((2, 7, 7, 6), 33, (3, 3), dict(pads=(1, 0, 0, 1), strides=(2, 1))),
    "first_layer": ((1, 3, 17, 19), 32, (7, 7), dict(pads=(3, 3, 3, 3), strides=(2, 2))),
    "one_channel": ((1, 1, 12, 10), 8, (5, 3), dict(pads=(2, 1, 2, 1))),
    "dilated": ((1, 12, 11, 12), 16, (3, 3), dict(pads=(2, 2, 2, 2), dilations=(2, 2))),
    "groups": ((1, 24, 6, 6), 36, (3, 3), dict(pads=(1, 1, 1, 1), group=3)),
    "narrow_groups": ((2, 16, 5, 5), 16, (3, 3), dict(pads=(1, 1, 1, 1), group=4)),
    "one_axis": ((2, 9, 31), 20, (5,), dict(pads=(2, 2))),
    "three_axes": ((1, 6, 4, 5, 6), 18, (2, 3, 2), dict(pads=(1, 1, 0, 0, 1, 1))),
    "crop": ((1, 8, 9, 9), 16, (3, 3), dict(pads=(-1, 0, 1, -2))),
    "many_channels": ((1, 32, 3, 14), 80, (3, 3), dict(pads=(1, 1, 1, 1))),
    "tall": ((1, 8, 12, 2), 96, (3, 3), dict(pads=(1, 1, 1, 1))),
    "large_weights": ((1, 128, 3, 3), 400, (3, 3), dict(pads=(1, 1, 1, 1))),
}
TYPES = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)]


@pytest.mark.parametrize("types", TYPES, ids=["u8s8", "s8s8", "u8u8"])
def test_shapes(types):
    rng = np.random.default_rng(1)
    x_type, w_type = types
    zero = 128 if w_type == np.uint8 else 0
    cases = [
        conv_case(rng, shape, outputs, kernel, x_type=x_type, w_type=w_type, w_zero=zero, **more)
        for shape, outputs, kernel, more in SHAPES.values()
    ]
    run(cases, rng=rng, chosen=isas(all_widths=types == TYPES[0]))


def test_scales_and_zero_points():
    """One scale or one a channel, with and without bias, weights whose zero points do not fit into a byte."""
    rng = np.random.default_rng(2)
    shape, outputs, kernel, more = SHAPES["window_odd"]
    cases = [
        conv_case(rng, shape, outputs, kernel, x_type=x, w_type=w, per_channel=p, bias=b, w_zero=z, **more)
        for x, w in TYPES
        for p in (True, False)
        for b, z in ((True, 7), (False, 100))
    ]
    each = rng.integers(0, 256, outputs)
    cases.append(conv_case(rng, shape, outputs, kernel, w_type=np.uint8, w_zero=each, **more))
    shape, outputs, kernel, more = SHAPES["groups"]
    cases.append(conv_case(rng, shape, outputs, kernel, w_type=np.uint8, w_zero=rng.integers(0, 256, outputs), **more))
    run(cases, rng=rng)


@pytest.mark.parametrize("x_type,w_type", TYPES)
def test_extremes_do_not_saturate_inside(x_type, w_type):
    """All products at their extremes: pairs of them leave 16 bits."""
    rng = np.random.default_rng(3)
    x, w = np.iinfo(x_type), np.iinfo(w_type)
    cases = [
        conv_case(
            rng, (1, 36, 4, 5), 20, (3, 3), x_type=x_type, w_type=w_type, fill=(a, b), x_zero=z, w_zero=w_zero,
            pads=(1, 1, 1, 1), spread=60.0,
        )
        for a, z in ((x.max, x.min), (x.min, x.max))
        for b, w_zero in ((w.min, 0), (w.max, 0), (w.max, w.min))
    ]  # fmt: skip
    run(cases, rng=rng)


def test_integer_sums():
    rng = np.random.default_rng(4)
    cases = []
    for x_type, w_type in TYPES:
        for zeros in ((), (5,), (3, 9)):
            x, w = draw(rng, (2, 10, 6, 7), x_type), draw(rng, (18, 10, 3, 3), w_type)
            given = [np.array(zeros[0], x_type) if zeros else None, None]
            if len(zeros) > 1:
                given[1] = draw(rng, 18, w_type)
            attrs = attributes(2, (3, 3), pads=(1, 1, 1, 1))
            cases.append(Case(INTEGER, attrs, [x, w, *given], frozenset({1, 2, 3}), GEMM))
    run(cases, rng=rng)


def test_zero_points_that_are_computed():
    """The padding holds the zero point, and the bias is computed from it; also of grouped convolutions."""
    rng = np.random.default_rng(14)
    cases = []
    for (x_type, w_type), name in itertools.product(TYPES, ("window_odd", "groups", "first_layer", "one_axis")):
        shape, outputs, kernel, more = SHAPES[name]
        attrs = attributes(len(kernel), kernel, **more)
        w = draw(rng, (outputs, shape[1] // attrs["group"], *kernel), w_type)
        zero, w_zero = draw(rng, (), x_type), draw(rng, outputs, w_type)
        inputs = [draw(rng, shape, x_type), w, zero, w_zero]
        cases.append(Case(INTEGER, attrs, inputs, frozenset({1, 3}), GEMM))
        steps = [step("Cast", 0, dtype=np.float32, to=1), step("Mul", 2, 1, dtype=np.float32)]
        scale = [np.full((1,) * len(shape), 0.013, np.float32)]
        cases.append(Case(INTEGER, attrs, [*inputs[:3], None], frozenset({1}), GEMM, steps, scale))
    run(cases, rng=rng)


def test_channels_last():
    rng = np.random.default_rng(5)
    names = ("window_odd", "groups", "first_layer", "pointwise_strided")
    cases = [conv_case(rng, *SHAPES[n][:3], channels_last=True, family=GEMM, **SHAPES[n][3]) for n in names]
    run(cases, rng=rng)


def add_step(dtype, rng, value=0, other=1, first=2):
    """QLinearAdd of two values; its six numbers are the operands from ``first`` on."""
    low = np.iinfo(dtype).min
    numbers = [np.float32(rng.uniform(0.2, 2)), np.array(low + 100, dtype), np.float32(rng.uniform(0.2, 2))]
    numbers += [np.array(low + 30, dtype), np.float32(rng.uniform(0.5, 2)), np.array(low + 120, dtype)]
    at = [first + i for i in range(6)]
    inputs = (value, at[0], at[1], other, at[2], at[3], at[4], at[5])
    return step("QLinearAdd", *inputs, dtype=dtype, domain=MS), [np.asarray(n) for n in numbers]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_epilogues(dtype):
    rng = np.random.default_rng(6)
    f4, limits = np.float32, np.iinfo(dtype)
    names = ("window_odd", "groups") if dtype == np.uint8 else ("pointwise",)
    cases = []
    for name in names:
        shape, outputs, kernel, more = SHAPES[name]
        y = conv_case(rng, shape, outputs, kernel, x_type=dtype, **more).reference()[1]
        residual = draw(rng, y.shape, dtype)
        add, numbers = add_step(dtype, rng)
        low, high = np.array(limits.min + 60, dtype), np.array(limits.max - 20, dtype)

        def case(steps, operands, constants, shape=shape, outputs=outputs, kernel=kernel, more=more):
            return conv_case(
                rng, shape, outputs, kernel, x_type=dtype, steps=steps, operands=operands,
                constant_operands=frozenset(constants), **more,
            )  # fmt: skip

        cases.append(case([step("Clip", 0, 1, 2, dtype=dtype)], [low, high], {0, 1}))
        cases.append(case([add], [residual, *numbers], range(1, 7)))
        cases.append(
            case(
                [add, step("Clip", 9, 8, None, dtype=dtype)],
                [residual, *numbers, low],
                range(1, 8),
            )
        )
        channel = (1, outputs, *[1] * (len(shape) - 2))
        scale = rng.uniform(0.01, 0.1, channel).astype(f4)
        floats = rng.standard_normal(y.shape).astype(f4)
        cases.append(
            case(
                [
                    step("DequantizeLinear", 0, 1, 2, dtype=f4),
                    step("Mul", 5, 3, dtype=f4),
                    step("Add", 6, 4, dtype=f4),
                    step("Relu", 7, dtype=f4),
                ],
                [np.asarray(f4(0.03)), np.array(limits.min + 9, dtype), scale, floats],
                {0, 1, 2},
            )
        )
        cases.append(
            case(
                [step("DequantizeLinear", 0, 1, 2, dtype=f4), step("QuantizeLinear", 5, 3, 4, dtype=np.int8)],
                [np.asarray(f4(0.03)), np.array(limits.min + 9, dtype), scale, np.zeros(channel, np.int8)],
                {0, 1, 2, 3},
            )
        )
        mul = step("QLinearMul", 0, 2, 3, 1, 4, 5, 6, 7, dtype=dtype, domain=MS)
        numbers[4] = np.asarray(f4(60))
        cases.append(case([mul], [residual, *numbers], range(1, 7)))
        swapped, numbers = add_step(dtype, rng, value=1, other=0)
        cases.append(case([swapped], [residual[:1, :, :1], *numbers], range(1, 7)))
    run(cases, rng=rng)


def test_sums_become_floats():
    """Dynamic quantization: ConvInteger, Cast, scale of the input and of the weights, bias."""
    rng = np.random.default_rng(7)
    f4 = np.float32
    x, w = draw(rng, (2, 10, 6, 7), np.uint8), draw(rng, (18, 10, 3, 3), np.int8)
    steps = [
        step("Cast", 0, dtype=f4, to=1),
        step("Mul", 4, 1, dtype=f4),
        step("Mul", 5, 2, dtype=f4),
        step("Add", 6, 3, dtype=f4),
    ]
    operands = [
        np.asarray(f4(0.013)),
        rng.uniform(0.01, 0.1, (1, 18, 1, 1)).astype(f4),
        rng.standard_normal((1, 18, 1, 1)).astype(f4),
    ]
    attrs = attributes(2, (3, 3), pads=(1, 1, 1, 1))
    inputs = [x, w, np.array(17, np.uint8), None]
    run(
        [Case(INTEGER, attrs, inputs, frozenset({1, 2, 3}), GEMM, steps, operands, frozenset({1, 2}))],
        rng=rng,
    )


def test_dense_and_optimized():
    rng = np.random.default_rng(8)
    cases = [conv_case(rng, *s[:3], **s[3]) for s in SHAPES.values()]
    run(cases, optimization="-O3", chosen=[i for i in isas() if i not in (SCALAR, PORTABLE)])


DEPTHWISE_SHAPES = {
    "three": ((1, 32, 7, 9), (3, 3), dict(pads=(1, 1, 1, 1))),
    "strided": ((2, 24, 9, 8), (3, 3), dict(pads=(0, 0, 1, 1), strides=(2, 2))),
    "narrow": ((1, 3, 6, 5), (3, 3), dict(pads=(1, 1, 1, 1))),
    "odd": ((1, 37, 5, 5), (3, 5), dict(pads=(1, 2, 1, 2))),
    "five": ((1, 16, 8, 8), (5, 5), dict(pads=(2, 2, 2, 2))),
    "seven": ((1, 20, 9, 11), (7, 7), dict(pads=(3, 3, 3, 3), strides=(1, 2))),
    "dilated": ((1, 17, 9, 10), (3, 3), dict(pads=(2, 2, 2, 2), dilations=(2, 2), strides=(1, 2))),
    "one_axis": ((2, 19, 21), (5,), dict(pads=(2, 2), strides=(2,))),
}


@pytest.mark.parametrize("types", TYPES, ids=["u8s8", "s8s8", "u8u8"])
def test_depthwise(types):
    rng = np.random.default_rng(9)
    x_type, w_type = types
    zero = 128 if w_type == np.uint8 else 0
    cases = [
        conv_case(
            rng, shape, shape[1], kernel, x_type=x_type, w_type=w_type, w_zero=zero, group=shape[1], family=DEPTHWISE,
            **more,
        )
        for shape, kernel, more in DEPTHWISE_SHAPES.values()
    ]  # fmt: skip
    shape, kernel, more = DEPTHWISE_SHAPES["odd"]
    y = cases[3].reference()[1]
    residual = draw(rng, y.shape, x_type)
    add, numbers = add_step(x_type, rng)
    cases.append(
        conv_case(
            rng, shape, shape[1], kernel, x_type=x_type, w_type=w_type, w_zero=zero, group=shape[1], family=DEPTHWISE,
            steps=[add], operands=[residual, *numbers], constant_operands=frozenset(range(1, 7)), **more,
        )
    )  # fmt: skip
    x, w = draw(rng, (1, 21, 6, 7), x_type), draw(rng, (21, 1, 3, 3), w_type)
    attrs = attributes(2, (3, 3), pads=(1, 1, 1, 1), group=21)
    zeros = [np.array(5, x_type), np.array(zero, w_type)]
    cases += [Case(INTEGER, attrs, [x, w, *zeros], frozenset(c), DEPTHWISE) for c in ({1, 2, 3}, {1, 3})]
    # Weights that only fit without their zero point into 9 bits: one for all, and one for each channel.
    for shape, kernel, more in DEPTHWISE_SHAPES.values():
        given: dict[str, Any] = dict(x_type=x_type, w_type=w_type, group=shape[1], family=DEPTHWISE, **more)
        for w_zero in (90, draw(rng, shape[1], w_type)):
            cases.append(conv_case(rng, shape, shape[1], kernel, w_zero=w_zero, **given))
    run(cases, rng=rng)
