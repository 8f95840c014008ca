"""Loops in C whose states change their sizes between rounds, and whose rows have sizes that only the body finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.executor import Executor
from eqsat.model.load import load

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
UNDEFINED = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsanitize=undefined",
             "-fsanitize-undefined-trap-on-error")  # fmt: skip
Dims = Mapping[str, tuple[int, int, int]]

CASES: dict[str, tuple[str, Dims, Sequence[Mapping[str, object]]]] = {
    "a Concat that adds one": (
        """g (float[b] x, int64 m) => (float[r] y) {
        yes = Constant<value = bool {1}>()
        y = Loop (m, yes, x) <body = l (int64 i, bool go, float[k] h) => (bool on, float[k2] next) {
            on = Identity(go)  f = Cast<to=1>(i)  z = Constant<value_ints=[0]>()  u = Unsqueeze(f, z)
            next = Concat<axis=0>(h, u) }>
        }""",
        {"b": (1, 8, 4), "y": (1, 24, 8)},
        [{"x": [b], "m": m} for b in (1, 3, 8) for m in (0, 1, 2, 5, 16)],
    ),
    "a constant number of rounds, from nothing": (
        """g (float[b,s] x) => (float[b,r] y, int64[2] n) {
        yes = Constant<value = bool {1}>()  m = Constant<value_int=5>()  e0 = Constant<value_ints=[0]>()
        d = Shape<start=0,end=1>(x)  e = Concat<axis=0>(d, e0)  first = ConstantOfShape(e)
        y = Loop (m, yes, first) <body = l (int64 i, bool go, float[p,q] h) => (bool on, float[p,q2] next) {
            on = Identity(go)  one = Constant<value_ints=[1]>()
            f = Cast<to=1>(i)  a = Mul(x, f)  r = ReduceSum<keepdims=1>(a, one)  next = Concat<axis=1>(h, r) }>
        n = Shape(y)
        }""",
        {"b": (1, 8, 4), "s": (1, 9, 4)},
        [{"x": [b, s]} for b in (1, 3, 8) for s in (1, 2, 9)],
    ),
    "a round for each column, more than one at a time": (
        """g (float[b,s] x) => (float[r,s] y, float[s,r2] z) {
        yes = Constant<value = bool {1}>()  zero = Constant<value_ints=[0]>()
        n0 = Shape<start=1,end=2>(x)  n = Squeeze(n0, zero)
        y = Loop (n, yes, x) <body = l (int64 i, bool go, float[p,q] h) => (bool on, float[p2,q] next) {
            on = Identity(go)  a = Sin(h)  t = Concat<axis=0>(a, x)  next = Add(t, one)
            one = Constant<value_float=1.0>() }>
        z = Transpose<perm=[1,0]>(y)
        }""".replace(
            "t = Concat<axis=0>(a, x)  next = Add(t, one)\n            one = Constant<value_float=1.0>()",
            "one = Constant<value_float=1.0>()  t = Concat<axis=0>(a, x)  next = Add(t, one)",
        ),
        {"b": (1, 5, 2), "s": (1, 6, 4)},
        [{"x": [b, s]} for b in (1, 2, 5) for s in (1, 3, 6)],
    ),
    "doubled in each round": (
        """g (float[b] x, float[c] w) => (float[r] y) {
        yes = Constant<value = bool {1}>()  m = Constant<value_int=3>()
        y = Loop (m, yes, x) <body = l (int64 i, bool go, float[p] h) => (bool on, float[p2] next) {
            on = Identity(go)  a = Neg(h)  next = Concat<axis=0>(h, a, w) }>
        }""",
        {"b": (1, 5, 2), "c": (1, 3, 2)},
        [{"x": [b], "w": [c]} for b in (1, 2, 5) for c in (1, 3)],
    ),
    "one less in each round, until a condition": (
        """g (float[b] x, float top) => (float[r] y) {
        yes = Constant<value = bool {1}>()  m = Constant<value_int=4>()
        y = Loop (m, yes, x) <body = l (int64 i, bool go, float[p] h) => (bool on, float[p2] next) {
            one = Constant<value_ints=[1]>()  far = Constant<value_ints=[1000]>()  next = Slice(h, one, far)
            s = ReduceSum<keepdims=0>(next)  on = Less(s, top) }>
        }""",
        {"b": (5, 9, 6)},
        [{"x": [b], "top": top} for b in (5, 6, 9) for top in (-99.0, 0.5, 99.0)],
    ),
    "a size that the body finds": (
        """g (float[b] x) => (float[r] y, int64[1] n) {
        yes = Constant<value = bool {1}>()  m = Constant<value_int=2>()
        y = Loop (m, yes, x) <body = l (int64 i, bool go, float[p] h) => (bool on, float[p2] next) {
            on = Identity(go)  zero = Constant<value_float=-1.0>()  c = Greater(h, zero)
            part = Compress<axis=0>(h, c)  f = Cast<to=1>(i)  half = Constant<value_float=0.4>()  t = Sub(part, half)
            next = Add(t, f) }>
        n = Shape(y)
        }""",
        {"b": (1, 20, 9)},
        [{"x": [b]} for b in (1, 2, 5, 13, 20)],
    ),
    "two states that grow beside one that does not": (
        """g (float[b,3] x, int64 first, int64 m) => (float[r,3] y, int64[q] ids, int64 last, float[t,2] rows) {
        yes = Constant<value = bool {1}>()  zero = Constant<value_ints=[0]>()  f1 = Unsqueeze(first, zero)
        y, ids, last, rows = Loop (m, yes, x, f1, first) <body = l (int64 i, bool go, float[p,3] h, int64[a] s, int64 c)
            => (bool on, float[p2,3] next, int64[a2] s2, int64 c2, float[2] row) {
            on = Identity(go)  e0 = Constant<value_ints=[0]>()  one = Constant<value_int=1>()  c2 = Add(c, one)
            u = Unsqueeze(c2, e0)  s2 = Concat<axis=0>(s, u)
            sum = ReduceMean<keepdims=1>(h, e0)  next = Concat<axis=0>(h, sum)
            all = ReduceMax<keepdims=0>(h)  k = Shape<start=0,end=1>(h)  kf = Cast<to=1>(k)  a1 = Unsqueeze(all, e0)
            row = Concat<axis=0>(a1, kf) }>
        }""",
        {"b": (1, 4, 2), "y": (1, 16, 8), "ids": (1, 16, 8), "rows": (1, 12, 8)},
        [{"x": [b, 3], "first": 7, "m": m} for b in (1, 4) for m in (0, 1, 3, 12)],
    ),
    "rows of a size that the body finds": (
        """g (float[b] x, int64 k) => (float[r,q] y, int64[2] n) {
        yes = Constant<value = bool {1}>()  m = Constant<value_int=3>()
        y = Loop (m, yes) <body = l (int64 i, bool go) => (bool on, float[q] row) {
            on = Identity(go)  zero = Constant<value_ints=[0]>()  k1 = Unsqueeze(k, zero)
            part = Slice(x, zero, k1)  f = Cast<to=1>(i)  row = Add(part, f) }>
        n = Shape(y)
        }""",
        {"b": (4, 9, 6)},
        [{"x": [b], "k": k} for b in (4, 9) for k in (1, 2, 4)],
    ),
    "a range of the number of the round": (
        """g (float[b] x) => (float[b] y, float[r] z) {
        yes = Constant<value = bool {1}>()  m = Constant<value_int=4>()
        y, z = Loop (m, yes, x) <body = l (int64 i, bool go, float[b] h) => (bool on, float[b] next, float row) {
            on = Identity(go)  zero = Constant<value_int=0>()  one = Constant<value_int=1>()
            numbers = Range(zero, i, one)  s = ReduceSum<keepdims=0>(numbers)  row = Cast<to=1>(s)
            next = Add(h, row) }>
        }""",
        {"b": (1, 9, 6)},
        [{"x": [b]} for b in (1, 9)],
    ),
    "a growing loop in a growing loop": (
        """g (float[b] x) => (float[r] y) {
        yes = Constant<value = bool {1}>()  m = Constant<value_int=3>()
        y = Loop (m, yes, x) <body = o (int64 i, bool go, float[p] h) => (bool on, float[p2] next) {
            on = Identity(go)  yes2 = Constant<value = bool {1}>()  m2 = Constant<value_int=2>()
            next = Loop (m2, yes2, h) <body = l (int64 j, bool go2, float[q] g) => (bool on2, float[q2] next2) {
                on2 = Identity(go2)  s = ReduceMax<keepdims=1>(g)  t = Sin(g)  next2 = Concat<axis=0>(t, s) }> }>
        }""",
        {"b": (1, 5, 2)},
        [{"x": [b]} for b in (1, 2, 5)],
    ),
    "a fixed size at the beginning": (
        """g (float[2,3] x, int64 m) => (float[r,3] y) {
        yes = Constant<value = bool {1}>()
        y = Loop (m, yes, x) <body = l (int64 i, bool go, float[p,3] h) => (bool on, float[p2,3] next) {
            on = Identity(go)  zero = Constant<value_int=0>()  top = Gather<axis=0>(h, zero)
            e0 = Constant<value_ints=[0]>()  t = Unsqueeze(top, e0)  c = Cos(h)  next = Concat<axis=0>(t, c) }>
        }""",
        {"y": (1, 12, 6)},
        [{"x": [2, 3], "m": m} for m in (0, 1, 2, 7, 10)],
    ),
}  # fmt: skip


def inputs(proto: onnx.ModelProto, said: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Random tensors of the said shapes, and scalars of the said values."""
    rng = np.random.default_rng(7)
    types = {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in proto.graph.input}
    return {
        name: rng.standard_normal(value).astype(types[name])
        if isinstance(value, list)
        else np.array(value, types[name])
        for name, value in said.items()
    }


def session_of(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_beside_onnxruntime(name: str) -> None:
    text, dims, said = CASES[name]
    proto = onnx.parser.parse_model(HEAD + text)
    session, compiled, plain = session_of(proto), CModel(load(proto), dims=dims, flags=UNDEFINED), Executor(load(proto))
    for one in said:
        given = inputs(proto, one)
        wanted = [np.asarray(y) for y in session.run(None, given)]
        for found in (compiled.run(given), plain.run(given)):
            for expected, (result, got) in zip(wanted, found.items(), strict=True):
                # Of rows without a round, ONNX Runtime takes each free size to be 0.
                same = got.shape == expected.shape or (got.size == expected.size == 0)
                assert same and got.dtype == expected.dtype, (result, one, got.shape, expected.shape)
                if got.size:
                    np.testing.assert_allclose(got, expected, 1e-4, 1e-5, err_msg=f"{result} at {one}")


def test_a_growing_state_needs_a_bound_and_keeps_it() -> None:
    text, dims, _ = CASES["a Concat that adds one"]
    loaded = load(onnx.parser.parse_model(HEAD + text))
    with pytest.raises(CodegenError, match=r"nothing bounds \(give a bound with --dim y=\.\.N\)"):
        generate(loaded, dims={"b": dims["b"]})
    compiled = CModel(loaded, dims=dims, flags=UNDEFINED)
    x = np.arange(8, dtype=np.float32)
    assert compiled.run({"x": x, "m": np.array(16)})["y"].shape == (24,)
    with pytest.raises(ExecutionError):
        compiled.run({"x": x, "m": np.array(17)})


def test_rows_of_different_sizes_end_the_program() -> None:
    text = CASES["rows of a size that the body finds"][0].replace("k1 = Unsqueeze(k, zero)",
        "s = Add(k, i)  k1 = Unsqueeze(s, zero)")  # fmt: skip
    proto = onnx.parser.parse_model(HEAD + text)
    compiled = CModel(load(proto), dims={"b": (4, 9, 6)}, flags=UNDEFINED)
    given = inputs(proto, {"x": [9], "k": 2})
    with pytest.raises(ExecutionError):
        compiled.run(given)
    # Beyond the end, all slices are the whole tensor.
    found = compiled.run(inputs(proto, {"x": [4], "k": 6}))["y"]
    np.testing.assert_array_equal(found, session_of(proto).run(None, inputs(proto, {"x": [4], "k": 6}))[0])
