"""Shapes that models compute from free sizes, in C: their values beside ONNX Runtime, where rules are easily wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from eqsat.codegen.runtime import CModel
from eqsat.errors import ExecutionError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.model.running import run_ort

HEAD = '<ir_version: 10, opset_import: ["": 21]> g '
RANGES = {"n": (1, 9, 4), "m": (1, 9, 4)}
SIZES = ({"n": 1, "m": 1}, {"n": 1, "m": 6}, {"n": 5, "m": 1}, {"n": 5, "m": 5}, {"n": 9, "m": 4}, {"n": 2, "m": 9})


def ints(name: str, *values: int) -> str:
    return f"{name} = Constant<value_ints=[{','.join(map(str, values))}]>() "


SHAPES = {
    "remainders of the dividend's sign": ints("a", 7) + "d = Sub(h, a) r = Mod<fmod=1>(d, c)",
    "remainders of the divisor's sign": ints("a", 7) + "d = Sub(h, a) r = Mod(d, c)",
    "quotients rounded to zero": ints("a", 12) + "d = Sub(h, a) r = Div(d, c)",
    "quotients by negative numbers": ints("a", -3) + "r = Div(h, a)",
    "from the end": ints("z", -1) + "r = Gather<axis=0>(h, z)",
    "backwards": ints("z", -1) + ints("e", -9999) + ints("i", 0) + "r = Slice(h, z, e, i, z)",
    "before the beginning": ints("z", -9) + ints("e", 1) + "r = Slice(h, z, e)",
    "nothing": ints("z", 2) + "r = Slice(h, z, z)",
    "in the shape of another": ints("z", 0, -1, 1)
    + "u = Unsqueeze(h, one) v = Reshape(u, z) "
    + ints("f", -1)
    + "r = Reshape(v, f)",
    "transposed": ints("z", 0)
    + "u = Unsqueeze(h, z) k = Concat<axis=0>(u, u) t = Transpose<perm=[1,0]>(k) "
    + ints("f", -1)
    + "r = Reshape(t, f)",
    "running sum": ints("z", 0) + "r = CumSum(h, z)",
    "repeated": ints("z", 2) + "r = Tile(h, z)",
    "in parts": "r, q = Split<axis=0, num_outputs=2>(h)",
    "without a sign": ints("a", 5) + "d = Sub(h, a) r = Abs(d)",
    "squares": ints("a", 2) + "r = Pow(h, a)",
    "the sum along one axis": ints("z", 0) + "u = Unsqueeze(h, z) k = Concat<axis=0>(u, u) "
    "r = ReduceSum<keepdims=0>(k, z)",
    "in the type of others": "a = CastLike(h, c) b = CastLike(c, h) r = Mul(a, b)",
    "in another type and back": "a = Cast<to=6>(h) b = Neg(a) r = Cast<to=7>(b)",
    "truth values as numbers": ints("a", 0) + "e = Greater(h, a) r = Cast<to=7>(e)",
    "a choice": ints("a", 0) + "e = Greater(h, a) r = Where(e, h, c)",
}
"""Arithmetic on ``h``, the sizes (n, m, 3), with ``c = [2]``: its result is ``r``."""
RESULTS = {
    "no zero that keeps a size": "(float[n,m,3] x) => (float[?,?] y) {e = Shape<start=0,end=1>(x) "
    + ints("z", 0)
    + "t = Slice(x, z, z) f = Concat<axis=0>(z, e) y = Reshape<allowzero=1>(t, f)}",
    "a zero that keeps a size": "(float[n,m,3] x) => (float[n,?] y) {" + ints("z", 0, -1) + "y = Reshape(x, z)}",
    "to an end far away": "(float[n,m,3] x) => (float[n,?,3] y) {"
    + ints("a", 1)
    + ints("e", 2147483647)
    + "t = Slice(x, a, e, a) y = Neg(t)}",
    "to an end that is near": "(float[n,m,3] x) => (float[n,?,3] y) {"
    + ints("a", 0)
    + ints("e", 4)
    + ints("i", 1)
    + "t = Slice(x, a, e, i) y = Neg(t)}",
    "every second from the end": "(float[n,m,3] x) => (float[n,?,3] y) {"
    + ints("a", -1)
    + ints("e", -(2**31))
    + ints("i", 1)
    + ints("k", -2)
    + "t = Slice(x, a, e, i, k) y = Neg(t)}",
    "a number beside a size": "(float[n,m] x, float[n,3] z) => (float[n,?] y) {y = Concat<axis=1>(x, z)}",
    "repeated by sizes": "(float[n,3] x, float[m] z) => (float[?,?] y) {"
    + ints("o", 1)
    + "h = Shape(z) f = Concat<axis=0>(h, o) t = Tile(x, f) y = Neg(t)}",
    "one axis or the other": "(float[n] x, float[m] z) => (float[?,?] y) {h = Shape(z) "
    + ints("o", 1)
    + "f = Concat<axis=0>(h, o) k = Expand(x, f) y = Neg(k)}",
}


def check(text: str, every: tuple[dict[str, int], ...] = SIZES) -> CModel:
    proto = onnx.parser.parse_model(HEAD + text)
    loaded = load(proto)
    names = sorted({d.dim_param for v in proto.graph.input for d in v.type.tensor_type.shape.dim} & {*RANGES})
    compiled = CModel(loaded, dims={name: RANGES[name] for name in names})
    for sizes in every:
        inputs = complete_inputs(loaded, dims={name: sizes[name] for name in names}, seed=sum(sizes.values()))
        for wanted, found in zip(run_ort(proto, inputs), compiled.run(inputs).values(), strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), sizes
            np.testing.assert_array_equal(found, wanted, err_msg=str(sizes))
    return compiled


@pytest.mark.parametrize("name", SHAPES)
def test_arithmetic_on_shapes(name: str) -> None:
    given = ints("c", 2) + ints("one", 1)
    check(f"(float[n,m,3] x) => (int64[?] y) {{h = Shape(x) {given} {SHAPES[name]} y = Identity(r)}}")


@pytest.mark.parametrize("name", RESULTS)
def test_shapes_of_results(name: str) -> None:
    check(RESULTS[name])


def test_a_received_size_or_a_found_one_repeats() -> None:
    """The result has as many elements as the operand where the mask selects one."""
    text = "(float[n] x, bool[m] c) => (float[?] y) {i = NonZero(c) h = Shape<start=1>(i) k = Expand(x, h) y = Neg(k)}"
    proto = onnx.parser.parse_model(HEAD + text)
    compiled = CModel(load(proto), dims=RANGES)
    for n, ones in ((5, 1), (1, 1), (1, 4), (4, 4), (9, 9), (1, 0)):
        inputs = {"x": np.arange(n, dtype=np.float32), "c": np.arange(9) < ones}
        (found,) = compiled.run(inputs).values()
        np.testing.assert_array_equal(found, run_ort(proto, inputs)[0], err_msg=f"{n} and {ones}")
    with pytest.raises(ExecutionError):
        compiled.run({"x": np.zeros(5, np.float32), "c": np.arange(9) < 3})
