"""How large the numbers of a value may be, as rules ask for it with ``x.bound``."""

from __future__ import annotations

import math

import numpy as np
import pytest

import eqsat
from eqsat.egraph.magnitudes import UNBOUNDED, bound, exponent
from eqsat.egraph.snapshot import Reader
from tests.egraph.helpers import model, saturated

LOWEST = "low = Constant<value_float = -3.4028234663852886e38>()"
ZERO = "zero = Constant<value_float = 0.0>()"
INPUTS = "float[2,3] x, float[2,3] z, bool[2,3] b, int64[2,3] i, uint8[2,3] u"

CASES = {
    "an input": ("v = Neg(x)", UNBOUNDED),
    "a choice of the lowest": (f"{ZERO} {LOWEST} v = Where(b, zero, low)", 128),
    "a choice of the half": (f"{ZERO} l = Constant<value_float = -1.7e38>() v = Where(b, zero, l)", 127),
    "a choice of an input": (f"{ZERO} v = Where(b, zero, x)", UNBOUNDED),
    "a choice of a small number": (f"{ZERO} t = Constant<value_float = -1e4>() v = Where(b, t, zero)", 14),
    "of a sigmoid": ("v = Sigmoid(x)", 96),
    "of a product of matrices": ("t = Transpose(z) m = MatMul(x, t) v = Neg(m)", 96),
    "two that hide": (f"{ZERO} {LOWEST} c = Where(b, zero, low) n = Not(b) d = Where(n, zero, low) v = Add(c, d)", 129),
    "what does not count": (f"{ZERO} {LOWEST} c = Where(b, zero, low) s = Sigmoid(x) v = Add(s, c)", 128),
    "a multiple": (f"{LOWEST} c = Cast<to = 1>(b) v = Mul(c, low)", 130),
    "integers": ("v = Cast<to = 1>(i)", 65),
    "integers that wrap around": ("k = Cast<to = 3>(x) w = Cast<to = 12>(k) v = Cast<to = 1>(w)", 33),
    "a difference that wraps around": (
        "t = Cast<to = 9>(x) k = Cast<to = 12>(t) m = Cast<to = 12>(b) w = Sub(k, m) v = Cast<to = 1>(w)",
        33,
    ),
    "moved": (f"{ZERO} {LOWEST} c = Where(b, zero, low) v = Transpose(c)", 128),
    "the larger": (f"{LOWEST} v = Max(x, low)", UNBOUNDED),
    "limited": (f"{LOWEST} {ZERO} v = Clip(x, low, zero)", 128),
    "scaled integers": ("s = Constant<value_float = 1e36>() v = DequantizeLinear(u, s)", 129),
    "sums of unknown length": ("a = Constant<value_ints = [0]>() v = ReduceSum(x, a)", UNBOUNDED),
}


def exponents(body: str) -> dict[str, int]:
    """By name of a value."""
    saturation = saturated(model(body, INPUTS, "float[A, B] v"))
    reader = Reader(saturation)
    egraph = reader.read()
    found = {egraph.ids[row.inputs[0]]: reader.to_int(row.output) for row in reader.tables["magnitude"].rows}
    return {value.name or "": found[c] for value, c in egraph.refs.items() if c in found}


@pytest.mark.parametrize(("body", "expected"), CASES.values(), ids=CASES)
def test_what_is_known_of_a_value(body: str, expected: int) -> None:
    assert exponents(body)["v"] == expected


def test_bounds_are_above_the_numbers() -> None:
    for number in (0.3, 1.0, 1.5, 65504.0, float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)):
        assert number < bound(exponent(number)) or bound(exponent(number)) == math.inf
    assert bound(exponent(0.0)) == bound(exponent(0.0) + 1) == 0
    assert exponent(math.inf) == exponent(math.nan) == UNBOUNDED
    assert bound(UNBOUNDED) == math.inf


def test_zeros_that_are_products_of_themselves_have_a_bound() -> None:
    """The smallest bound counts, and must not become smaller without end."""
    zeros = f"{ZERO} a = Mul(x, zero) w = Mul(a, a) v = Add(w, x)"
    result = eqsat.optimize(model(zeros, "float[2,3] x", "float[2,3] v"))
    assert result.summary.saturation is not None and result.summary.saturation.stop_reason == "saturated"
    assert [node.op_type for node in result.model.graph] == ["Identity"]
