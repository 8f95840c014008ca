"""If, Loop, Scan and SequenceMap against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import ExecutionError
from eqsat.execute.executor import Executor
from tests.execute.test_executor import against_ort, executor, f, graph


@pytest.mark.parametrize("flag", [True, False])
def test_if_with_captured_values(flag: bool):
    text = graph("""g (bool c, float[3] x, float[3] w) => (float[3] y, float[3] z) {
        t = Mul(x, w)
        y, z = If (c) <
            then_branch = a () => (float[3] p, float[3] q) { p = Add(t, w)  q = Neg(p) },
            else_branch = b () => (float[3] r, float[3] s) { r = Sub(x, w)  s = Identity(t) }>
    }""")
    against_ort(text, {"c": np.array(flag), "x": f(3), "w": f(3)})


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_capture_through_two_levels(outer: bool, inner: bool):
    text = graph("""g (bool c, bool d, float[3] x) => (float[3] y) {
        deep = Exp(x)
        y = If (c) <
            then_branch = a () => (float[3] p) {
                local = Neg(x)
                p = If (d) <
                    then_branch = aa () => (float[3] u) { u = Add(deep, local) },
                    else_branch = ab () => (float[3] v) { v = Sub(deep, x) }>
            },
            else_branch = b () => (float[3] q) { q = Identity(deep) }>
    }""")
    against_ort(text, {"c": np.array(outer), "d": np.array(inner), "x": f(3)}, rtol=1e-6)


LOOP = graph("""g (int64 m, bool go, float[2] x, float[2] w)
    => (float[2] last, int64 n, float[K,2] each, int64[K] rounds) {
    zero = Constant<value_int=0>()
    last, n, each, rounds = Loop (m, go, x, zero) <body = b (int64 i, bool c, float[2] s, int64 k)
        => (bool more, float[2] s2, int64 k2, float[2] out, int64 round) {
        one = Constant<value_int=1>()
        k2 = Add(k, one)
        s2 = Mul(s, w)
        out = Neg(s2)
        round = Identity(i)
        limit = Constant<value_float=100.0>()
        size = ReduceL1<keepdims=0>(s2)
        more = Less(size, limit)
    }>
}""")


@pytest.mark.parametrize("rounds", [0, 1, 4, 50])
@pytest.mark.parametrize("go", [True, False])
def test_loop(rounds: int, go: bool):
    feeds = {"m": np.array(rounds), "go": np.array(go), "x": f(2), "w": np.array([1.5, -2], np.float32)}
    against_ort(LOOP, feeds, rtol=1e-6)


def test_loop_without_limit_or_condition():
    text = graph("""g (float x) => (float y) {
        y = Loop (, , x) <body = b (int64 i, bool c, float s) => (bool more, float s2) {
            s2 = Add(s, s)
            limit = Constant<value_float=1000.0>()
            more = Less(s2, limit)
        }>
    }""")
    assert executor(text).run({"x": np.array(3, np.float32)})["y"] == 1536


def test_loop_that_only_counts():
    text = graph("""g (int64 m, float[2] x) => (float[K,2] ys) {
        ys = Loop (m, ) <body = b (int64 i, bool c) => (bool more, float[2] y) {
            more = Identity(c)
            k = Cast<to=1>(i)
            y = Mul(x, k)
        }>
    }""")
    x = f(2)
    ys = executor(text).run({"m": np.array(3), "x": x})["ys"]
    np.testing.assert_array_equal(ys, [x * 0, x, x * 2])


def test_loop_over_a_sequence():
    text = graph("""g (int64 m, seq(float[N]) xs) => (seq(float[N]) ys) {
        t = Constant<value_int=1>()
        go = Cast<to=9>(t)
        ys = Loop (m, go, xs) <body = b (int64 i, bool c, seq(float[N]) s) => (bool more, seq(float[N]) s2) {
            more = Identity(c)
            x = SequenceAt(s, i)
            e = Exp(x)
            s2 = SequenceInsert(s, e)
        }>
    }""")
    xs = [f(2), f(3)]
    ys = executor(text).run({"m": np.array(2), "xs": xs})["ys"]
    assert len(ys) == 4
    np.testing.assert_array_equal(ys[3], np.exp(xs[1]))


def scan(attributes: str) -> str:
    return graph(f"""g (float[2] s0, float[4,2] a, float[4,2] b, float[2] w)
        => (float[2] s, float[P,Q] ys, float[R,T] zs) {{
        s, ys, zs = Scan<num_scan_inputs=2 {attributes}, body = f (float[2] st, float[2] x, float[2] y)
            => (float[2] st2, float[2] p, float[2] q) {{
            t = Mul(x, w)
            st2 = Add(st, t)
            p = Sub(st2, y)
            q = Neg(x)
        }}>(s0, a, b)
    }}""")


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        ", scan_input_directions=[1,0]",
        ", scan_output_directions=[1,0]",
        ", scan_output_axes=[1,-1]",
        ", scan_input_directions=[1,1], scan_output_axes=[1,0], scan_output_directions=[0,1]",
    ],
)
def test_scan(attributes: str):
    against_ort(scan(attributes), {"s0": f(2), "a": f(4, 2), "b": f(4, 2), "w": f(2)}, rtol=1e-6, atol=1e-6)


def test_scan_over_another_axis():
    text = scan(", scan_input_axes=[1,-1]").replace("float[4,2] a, float[4,2] b", "float[2,4] a, float[2,4] b")
    against_ort(text, {"s0": f(2), "a": f(2, 4), "b": f(2, 4), "w": f(2)}, rtol=1e-6, atol=1e-6)


def test_scans_of_different_lengths_are_refused():
    text = scan("").replace("float[4,2] b", "float[3,2] b")
    with pytest.raises(ExecutionError, match=r"\(Scan\).*\n.*same length, not \[3, 4\]"):
        executor(text).run({"s0": f(2), "a": f(4, 2), "b": f(3, 2), "w": f(2)})


def test_batched_scan_of_version_8():
    text = graph(
        """g (int64[2] n, float[2,2] s0, float[2,3,2] xs) => (float[2,2] s, float[2,3,2] ys) {
            s, ys = Scan<num_scan_inputs=1, body = f (float[2] st, float[2] x) => (float[2] st2, float[2] y) {
                st2 = Add(st, x)
                y = Identity(st2)
            }>(n, s0, xs)
        }""",
        version=8,
        ir_version=3,
    )
    s0, xs = f(2, 2), f(2, 3, 2)
    results = executor(text).run({"n": np.array([3, 2]), "s0": s0, "xs": xs})
    sums = s0[:, None] + np.cumsum(xs, 1)
    np.testing.assert_allclose(results["s"], [sums[0, 2], sums[1, 1]], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(results["ys"][0], sums[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(results["ys"][1], [sums[1, 0], sums[1, 1], [0, 0]], rtol=1e-6, atol=1e-6)
    whole = executor(text.replace("int64[2] n, ", "").replace("(n, s0", "(, s0")).run({"s0": s0, "xs": xs})
    np.testing.assert_allclose(whole["ys"], sums, rtol=1e-6, atol=1e-6)


def test_sequence_map():
    text = graph("""g (seq(float[N]) xs, seq(float[N]) ys, float w) => (seq(float[N]) sums, seq(float[N]) scaled) {
        sums, scaled = SequenceMap<body = b (float[N] x, float[N] y, float k) => (float[N] s, float[N] t) {
            s = Add(x, y)
            t = Mul(s, k)
        }>(xs, ys, w)
    }""")
    xs, ys, w = [f(2), f(3)], [f(2), f(3)], np.array(2, np.float32)
    results = executor(text).run({"xs": xs, "ys": ys, "w": w})
    for i in range(2):
        np.testing.assert_array_equal(results["sums"][i], xs[i] + ys[i])
        np.testing.assert_array_equal(results["scaled"][i], (xs[i] + ys[i]) * 2)


def test_errors_inside_bodies_say_where():
    text = graph("""g (bool c, float[3] x, int64[1] n) => (float[N] y) {
        y = If (c) <then_branch = a () => (float[N] p) { p = Reshape(x, n) },
                    else_branch = b () => (float[N] q) { q = Identity(x) }>
    }""")
    run = executor(text)
    assert run.run({"c": np.array(False), "x": f(3), "n": np.array([4])})["y"].shape == (3,)
    with pytest.raises(ExecutionError, match=r"node 'y' \(If\), node 'p' \(Reshape\)"):
        run.run({"c": np.array(True), "x": f(3), "n": np.array([4])})


def test_bodies_with_initializers():
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "k"], ["p"])],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("p", 1, [2])],
        [onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "k")],
    )
    node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    values = [onnx.helper.make_tensor_value_info("c", 9, []), onnx.helper.make_tensor_value_info("x", 1, [2])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", values, [onnx.helper.make_tensor_value_info("y", 1, [2])]),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    x = f(2)
    y = Executor(ir.from_proto(model)).run({"c": np.array(True), "x": x})["y"]
    np.testing.assert_array_equal(y, x + np.array([1, 2], np.float32))


def test_a_branch_that_is_not_taken_may_be_wrong():
    text = graph("""g (bool c, float[3] x) => (float[N] y) {
        y = If (c) <
            then_branch = a () => (float[N] p) {
                k = Constant<value_floats=[1.0, 2.0]>()  s = Constant<value_ints=[3]>()  p = Reshape(k, s)
            },
            else_branch = b () => (float[N] q) { q = Identity(x) }>
    }""")
    run = executor(text)
    assert run.run({"c": np.array(False), "x": f(3)})["y"].shape == (3,)
    with pytest.raises(ExecutionError, match=r"node 'y' \(If\), node 'p' \(Reshape\)"):
        run.run({"c": np.array(True), "x": f(3)})
