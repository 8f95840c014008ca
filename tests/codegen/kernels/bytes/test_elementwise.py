"""Chains on bytes, tables, pooling and concatenation in C for every instruction set, to the bit of the executor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from eqsat.schema.types import OpKey
from tests.codegen.kernels.bytes.harness import MS, Case, run, step

IDENTITY = OpKey("", "Identity")
CHAIN, TABLE = "elementwise bytes", "table of bytes"
f4 = np.float32


def draw(rng, shape, dtype):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def chain(x, steps, operands=(), constants=None, family=CHAIN):
    """A chain; operands of one element are constant unless told otherwise."""
    if constants is None:
        constants = [k for k, o in enumerate(operands) if np.size(o) == 1]
    operands = [np.asarray(o) for o in operands]
    return Case(IDENTITY, {}, [x], frozenset(), family, steps, operands, frozenset(constants))


SHAPES = [(1, 20, 7, 5), (3, 130), (2, 3, 31), (1, 1, 1, 17)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_and_products(dtype):
    rng = np.random.default_rng(1)
    cases = []
    for shape, name in itertools.product(SHAPES, ("QLinearAdd", "QLinearMul")):
        scales = [f4(rng.uniform(0.3, 2)), f4(rng.uniform(0.3, 2)), f4(1.7 if name == "QLinearAdd" else 60)]
        zeros = [draw(rng, (), dtype) for _ in range(3)]
        for other in (shape, (1, *shape[1:2], *[1] * (len(shape) - 2)), (1,) * len(shape)):
            operands = [draw(rng, other, dtype), scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2]]
            op = step(name, 0, 2, 3, 1, 4, 5, 6, 7, dtype=dtype, domain=MS)
            cases.append(chain(draw(rng, shape, dtype), [op], operands, range(1, 7)))
        without = step(name, 0, 2, None, 1, 3, None, 4, dtype=dtype, domain=MS)
        cases.append(chain(draw(rng, shape, dtype), [without], [draw(rng, shape, dtype), *scales], range(1, 4)))
    run(cases, rng=rng)


def test_sums_with_awkward_scales():
    """Every pair of bytes, with scales for which sums lie next to halves."""
    rng = np.random.default_rng(2)
    a, b = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    cases = []
    for _ in range(12):
        sa, sb, sc = (f4(rng.choice([0.1, 0.5, 0.25, 1 / 3, 0.0234567])) * f4(rng.uniform(0.9, 1.1)) for _ in range(3))
        zeros = [np.asarray(rng.integers(0, 256), np.uint8) for _ in range(3)]
        operands = [b, sa, zeros[0], sb, zeros[1], sc, zeros[2]]
        op = step("QLinearAdd", 0, 2, 3, 1, 4, 5, 6, 7, dtype=np.uint8, domain=MS)
        cases.append(chain(a, [op], operands, range(1, 7)))
    run(cases)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantization(dtype):
    rng = np.random.default_rng(3)
    cases = []
    special = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.5, 1.5, -0.5, 2.5, 1e9, -1e9, 3e6, -3e6, 0.0, -0.0], f4)
    for shape in SHAPES:
        x = (rng.standard_normal(shape) * 3).astype(f4)
        flat = x.reshape(-1)
        flat[: min(len(special), flat.size)] = special[: flat.size]
        scale, zero = f4(0.0371), draw(rng, (), dtype)
        cases.append(chain(x, [step("QuantizeLinear", 0, 1, 2, dtype=dtype)], [scale, zero]))
        cases.append(chain(x, [step("QuantizeLinear", 0, 1, 2, dtype=dtype)], [f4(1), zero]))
        q = draw(rng, shape, dtype)
        cases.append(chain(q, [step("DequantizeLinear", 0, 1, 2, dtype=f4)], [scale, zero]))
        axis = (1, shape[1], *[1] * (len(shape) - 2))
        scales, zeros = rng.uniform(0.01, 0.1, axis).astype(f4), draw(rng, axis, dtype)
        every = (0, 1)
        cases.append(chain(x, [step("QuantizeLinear", 0, 1, 2, dtype=dtype)], [scales, zeros], every))
        cases.append(chain(q, [step("DequantizeLinear", 0, 1, 2, dtype=f4)], [scales, zeros], every))
        requantize = step("Requantize", 0, 1, 2, 3, 4, dtype=np.int8, domain="eqsat", axis=1)
        numbers = [scale, zero, f4(0.05), np.array(3, np.int8)]
        cases.append(chain(q, [requantize], numbers))
        low, high = np.sort(draw(rng, 2, dtype))
        cases.append(chain(q, [step("Clip", 0, 1, 2, dtype=dtype)], [low, high]))
        steps = [
            step("DequantizeLinear", 0, 1, 2, dtype=f4),
            step("Add", 6, 5, dtype=f4),
            step("Relu", 7, dtype=f4),
            step("QuantizeLinear", 8, 3, 4, dtype=dtype),
        ]
        cases.append(chain(q, steps, [scale, zero, f4(0.11), zero, rng.standard_normal(shape).astype(f4)]))
    run(cases, rng=rng)


def test_tables():
    rng = np.random.default_rng(4)
    cases = []
    for dtype, shape in itertools.product((np.uint8, np.int8), (*SHAPES, ())):
        x, zero = draw(rng, shape, dtype), draw(rng, (), dtype)
        sigmoid = step("QLinearSigmoid", 0, 1, 2, 3, 4, dtype=dtype, domain=MS)
        cases.append(chain(x, [sigmoid], [f4(0.05), zero, f4(1 / 256), zero], family=TABLE))
        leaky = step("QLinearLeakyRelu", 0, 1, 2, 3, 4, dtype=dtype, domain=MS, alpha=0.1)
        cases.append(chain(x, [leaky], [f4(0.05), zero, f4(0.03), zero], family=TABLE))
        steps = [
            step("DequantizeLinear", 0, 1, 2, dtype=f4),
            step("HardSwish", 4, dtype=f4),
            step("Tanh", 5, dtype=f4),
            step("QuantizeLinear", 6, 1, 3, dtype=np.int8),
        ]
        cases.append(chain(x, steps, [f4(0.02), zero, np.array(-4, np.int8)], family=TABLE))
    run(cases, rng=rng)


@pytest.mark.slow
def test_rows_of_tables():
    """Around multiples of what registers hold, and of the pieces of a long row; bits that only change their type."""
    rng = np.random.default_rng(14)
    cases = []
    for dtype, other in itertools.product((np.uint8, np.int8), repeat=2):
        zero, out, number = (
            np.array(3, dtype),
            np.array(-3 if other == np.int8 else 117, other),
            3 if other == np.int8 else 2,
        )
        steps = [
            step("DequantizeLinear", 0, 1, 2, dtype=f4),
            step("Sin", 5, dtype=f4),
            step("QuantizeLinear", 6, 3, 4, dtype=other),
        ]
        for shape in (63, 64, 65, 127, 128, 129, 4096, 4097, 9000, (5, 200), (3, 4099), (2, 1, 3, 64)):
            cases.append(chain(draw(rng, shape, dtype), steps, [f4(0.013), zero, f4(0.008), out], family=TABLE))
            if dtype != other:
                cases.append(chain(draw(rng, shape, dtype), [step("Cast", 0, dtype=other, to=number)], family=TABLE))
    run(cases, rng=rng)
    run(cases, optimization="-O3")


def test_copies():
    rng = np.random.default_rng(5)
    cases = [chain(draw(rng, shape, dtype), []) for shape in SHAPES for dtype in (np.uint8, np.int8)]
    run(cases, rng=rng)


POOLS = {
    "plain": ((1, 70, 8, 9), dict(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    "exact": ((2, 16, 6, 6), dict(kernel_shape=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))),
    "narrow": ((1, 3, 7, 5), dict(kernel_shape=(3, 2), strides=(1, 1), pads=(0, 1, 2, 0))),
    "ceil": ((1, 33, 7, 8), dict(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 0, 1, 0), ceil_mode=1)),
    "one_axis": ((2, 130, 17), dict(kernel_shape=(4,), strides=(3,), pads=(1, 2))),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_maximum_pooling(dtype):
    rng = np.random.default_rng(6)
    cases = []
    for shape, attrs in POOLS.values():
        rank = len(shape) - 2
        for dilations in ((1,) * rank, (2,) * rank):
            given = {"ceil_mode": 0, **attrs, "dilations": dilations, "auto_pad": "NOTSET", "storage_order": 0}
            cases.append(
                Case(OpKey("", "MaxPool"), given, [draw(rng, shape, dtype)], frozenset(), "integer maximum pooling")
            )
    run(cases, rng=rng)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_mean_pooling(dtype):
    rng = np.random.default_rng(7)
    cases = []
    family = "integer mean pooling"
    for shape, attrs in POOLS.values():
        numbers = [np.asarray(f4(0.037)), draw(rng, (), dtype), np.asarray(f4(0.021)), draw(rng, (), dtype)]
        constant = frozenset({1, 2, 3, 4})
        x = draw(rng, shape, dtype)
        for include in (0, 1):
            given = {"ceil_mode": 0, **attrs, "count_include_pad": include, "auto_pad": "NOTSET", "channels_last": 0}
            cases.append(Case(OpKey(MS, "QLinearAveragePool"), given, [x, *numbers], constant, family))
        whole = OpKey(MS, "QLinearGlobalAveragePool")
        cases.append(Case(whole, dict(channels_last=0), [x, *numbers], constant, family))
        last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        cases.append(Case(whole, dict(channels_last=1), [last, *numbers], constant, family))
    run(cases, rng=rng)
