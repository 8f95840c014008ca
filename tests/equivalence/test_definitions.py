"""Programs that prefer different operators for the same: proven equal, and those that differ a little are not."""

from __future__ import annotations

import pytest

import eqsat

ALONG = "k = Constant<value_ints = [1]>()"
EQUAL = {
    "ceil": ("y = Ceil(x)", "a = Neg(x) b = Floor(a) y = Neg(b)"),
    "floor": ("y = Floor(x)", "a = Neg(x) b = Ceil(a) y = Neg(b)"),
    "least": (
        f"{ALONG} y = ReduceMin<keepdims = 0>(x, k)",
        f"{ALONG} a = Neg(x) b = ReduceMax(a, k) c = Neg(b) y = Squeeze(c, k)",
    ),
    "place": ("y = ArgMax<axis = 1, keepdims = 0>(x)", f"{ALONG} a = ArgMax<axis = -1>(x) y = Squeeze(a, k)"),
    "place of least": ("y = ArgMin<axis = 1>(x)", "a = Neg(x) y = ArgMax<axis = 1>(a)"),
    "absolute values": (f"{ALONG} y = ReduceL1(x, k)", f"{ALONG} a = Abs(x) y = ReduceSum(a, k)"),
    "squares": (f"{ALONG} y = ReduceSumSquare(x, k)", f"{ALONG} a = Mul(x, x) y = ReduceSum(a, k)"),
    "logarithm": (f"{ALONG} y = ReduceLogSum(x, k)", f"{ALONG} a = ReduceSum(x, k) y = Log(a)"),
    "mean": (
        f"{ALONG} y = ReduceMean(x, k)",
        f"{ALONG} a = ReduceSum(x, k) c = Constant<value_float = 4.0>() y = Div(a, c)",
    ),
    "crop": (
        "p = Constant<value_ints = [0, -1, 0, -1]>() y = Pad(x, p)",
        f"{ALONG} e = Constant<value_ints = [3]>() y = Slice(x, k, e, k)",
    ),
    "clip": ("l = Constant<value_float = -1.0>() y = Clip(x, l)", "l = Constant<value_float = -1.0>() y = Max(l, x)"),
    "mask": (
        "c = Greater(x, w) t = Cast<to = 1>(c) y = Mul(x, t)",
        "c = Less(w, x) z = Constant<value_float = 0.0>() y = Where(c, x, z)",
    ),
    "sigmoid": ("a = Sigmoid(x) c = Constant<value_float = 1.0>() y = Sub(c, a)", "a = Neg(x) y = Sigmoid(a)"),
    "sigmoid's logarithm": ("a = Sigmoid(x) y = Log(a)", "a = Neg(x) b = Softplus(a) y = Neg(b)"),
    "vector": ("y = MatMul(x, v)", f"{ALONG} a = Mul(x, v) y = ReduceSum<keepdims = 0>(a, k)"),
    "normalization": (
        "y = LayerNormalization<axis = 1>(x, v, u)",
        f"{ALONG} m = ReduceMean(x, k) d = Sub(x, m) q = Mul(d, d) s = ReduceMean(q, k) "
        "e = Constant<value_float = 1e-5>() t = Add(s, e) r = Sqrt(t) n = Div(d, r) p = Mul(n, v) y = Add(p, u)",
    ),
    "computed scale": (
        f"{ALONG} q = Mul(x, x) s = ReduceMean(q, k) e = Constant<value_float = 1e-5>() t = Add(s, e) r = Sqrt(t) "
        "n = Div(x, r) o = Constant<value_float = 1.0>() g = Add(o, v) y = Mul(n, g)",
        "o = Constant<value_float = 1.0>() g = Add(o, v) y = RMSNormalization<axis = -1, epsilon = 1e-5>(x, g)",
    ),
    "complement": ("a = Greater(x, w) b = Not(a) y = Where(b, x, w)", "a = Less(w, x) y = Where(a, w, x)"),
    "exponentials": ("a = Exp(x) b = Exp(w) y = Div(a, b)", "a = Sub(x, w) y = Exp(a)"),
    "compression": (
        "c = Constant<value = bool[4] {1, 0, 1, 0}>() y = Compress<axis = 1>(x, c)",
        "i = Constant<value_ints = [0, 2]>() y = Gather<axis = -1>(x, i)",
    ),
    "tiles": (
        "r = Constant<value_ints = [2, 3]>() y = Tile(f, r)",
        "a = Concat<axis = 1>(f, f, f) y = Concat<axis = 0>(a, a)",
    ),
    "triangle": (
        "y = Trilu<upper = 0>(square)",
        "c = Constant<value = bool[3, 3] {1, 0, 0, 1, 1, 0, 1, 1, 1}>() z = Constant<value_float = 0.0>() "
        "y = Where(c, square, z)",
    ),
    "running sum": (
        "k = Constant<value_int = -1>() y = CumSum<exclusive = 1>(square, k)",
        "c = Constant<value = float[3, 3] {0, 1, 1, 0, 0, 1, 0, 0, 0}>() y = MatMul(square, c)",
    ),
    "remainders": (
        "c = Constant<value_int = -6>() d = Constant<value_int = 3>() a = Mod(counts, c) y = Mod(a, d)",
        "d = Constant<value_int = 3>() y = Mod(counts, d)",
    ),
    "no bias": (
        "b = Constant<value = float[5] {0, 0, 0, 0, 0}>() y = Conv(image, kernel, b)",
        "y = Conv(image, kernel)",
    ),
    "pointwise convolution": (
        "y = Conv(image, kernel)",
        "s = Constant<value_ints = [0, 0, -1]>() a = Reshape(image, s) t = Constant<value_ints = [5, 4]>() "
        "b = Reshape(kernel, t) c = MatMul(b, a) r = Constant<value_ints = [0, 5, 2, 3]>() y = Reshape(c, r)",
    ),
    "normalization of each channel": (
        "y = InstanceNormalization(image, v, u)",
        "k = Constant<value_ints = [2, 3]>() m = ReduceMean(image, k) d = Sub(image, m) q = Mul(d, d) "
        "s = ReduceMean(q, k) e = Constant<value_float = 1e-5>() t = Add(s, e) r = Sqrt(t) n = Div(d, r) "
        "a = Constant<value_ints = [1, 2]>() v2 = Unsqueeze(v, a) u2 = Unsqueeze(u, a) g = Mul(n, v2) y = Add(g, u2)",
    ),
    "same size": ('s = Constant<value_ints = [7, 4]>() y = Resize<mode = "linear">(f, , , s)', "y = Identity(f)"),
}
DIFFERENT = {
    "ceil": ("y = Ceil(x)", "y = Floor(x)"),
    "place of least": ("y = ArgMin<axis = 1>(x)", "y = ArgMax<axis = 1>(x)"),
    "crop": (
        "p = Constant<value_ints = [0, -1, 0, -1]>() y = Pad(x, p)",
        "p = Constant<value_ints = [0, -2, 0, 0]>() y = Pad(x, p)",
    ),
    "running sum": (
        "k = Constant<value_int = -1>() y = CumSum(square, k)",
        "c = Constant<value = float[3, 3] {1, 0, 0, 1, 1, 0, 1, 1, 1}>() y = MatMul(square, c)",
    ),
    "mask": ("c = Greater(x, w) y = Where(c, x, w)", "c = Greater(x, w) d = Not(c) y = Where(d, x, w)"),
    "computed scale": (
        "y = RMSNormalization<axis = -1>(x, v)",
        "o = Constant<value_float = 1.0>() g = Add(o, v) y = RMSNormalization<axis = -1>(x, g)",
    ),
}


def model(body: str) -> str:
    inputs = (
        "float[N, 4] x, float[N, 4] w, float[4] v, float[4] u, float[7, 4] f, float[3, 3] square, int64[N] counts, "
        "float[N, 4, 2, 3] image, float[5, 4, 1, 1] kernel"
    )
    return f'<ir_version: 10, opset_import: ["": 23]> g ({inputs}) => (y) {{ {body} }}'


@pytest.mark.parametrize("name", EQUAL)
def test_one_of_two_spellings_is_the_other(name: str) -> None:
    found = eqsat.prove(*map(model, EQUAL[name]))
    assert found.verdict == "equal", found.places


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_only_looks_alike_is_told_apart(name: str) -> None:
    assert eqsat.prove(*map(model, DIFFERENT[name])).verdict == "different"
