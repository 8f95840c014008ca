"""Types of what the rounds of loops hand on: of the shape with which it begins only where the body keeps that shape."""

from __future__ import annotations

import re

import pytest

from eqsat.model.load import load

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'


def shapes(text: str) -> list[str]:
    model = load(HEAD + text)
    (loop,) = [node for node in model.graph if node.op_type in ("Loop", "Scan")]
    return [re.sub(r"_d\d+", "?", str(value.shape)) for value in loop.outputs]


def loop(body: str, more: str = "", results: str = "y", inputs: str = "float[2,3] x") -> str:
    return f"""g ({inputs}, int64 m, bool c) => (float y_out) <int64 four = {{4}}, int64[1] zero = {{0}}> {{
        {results} = Loop ({more or "m"}, , x)
            <body = b (int64 i, bool go, float[] s) => (bool go_out, float[] {body} }}>
        y_out = ReduceSum<keepdims: int = 0>(y)
    }}"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (loop("s_out) { go_out = Identity(go) s_out = Neg(s)"), ["[2,3]"]),
        (loop("s_out) { go_out = Identity(go) s_out = Add(s, x)", inputs="float[N,3] x"), ["[N,3]"]),
        (loop("s_out) { go_out = Identity(go) s_out = Concat<axis: int = 0>(s, x)"), ["[?,?]"]),
        (loop("s_out) { go_out = Identity(go) s_out = Unsqueeze(s, zero)"), ["None"]),
        (loop("s_out) { go_out = Identity(go) s_out = Unsqueeze(s, zero)", inputs="float x"), ["None"]),
        (
            loop("s_out, float[] row) { go_out = Identity(go) s_out = Neg(s) row = Transpose(s)", "four", "y, r"),
            ["[2,3]", "[4,3,2]"],
        ),
        (
            loop("s_out, float[] row) { go_out = Identity(go) s_out = Neg(s) row = Transpose(s)", "m", "y, r"),
            ["[2,3]", "[?,3,2]"],
        ),
    ],
)
def test_loops(text: str, expected: list[str]) -> None:
    assert shapes(text) == expected


def test_states_that_depend_on_each_other() -> None:
    text = """g (float[2] x, float[3] y, int64 m) => (float[a] u, float[b] v, float[2] w) {
        u, v, w = Loop (m, , x, y, x) <body = b (int64 i, bool go, float[c] p, float[d] q, float[e] r)
            => (bool go_out, float[f] p_out, float[g] q_out, float[h] r_out) {
            go_out = Identity(go) p_out = Identity(q) q_out = Identity(p) r_out = Neg(r) }>
    }"""
    first, second, third = shapes(text)
    assert "2" not in first and "3" not in second
    assert third == "[2]"


def test_rows_of_a_scan() -> None:
    text = """g (float[2,5] x) => (float[a,b,c] y) {
        y = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], scan_output_axes: ints = [-1],
            body = b (float[] s) => (float[] row) { z = Constant<value_ints: ints = [0]>() row = Unsqueeze(s, z) }> (x)
    }"""
    assert shapes(text) == ["[1,2,5]"]


def test_a_declared_number_of_rows_reaches_the_loop() -> None:
    text = """g (float start, int64 m) => (float16[3] y) {
        end, rows = Loop (m, , start) <body = b (int64 i, bool go, float[] s)
            => (bool go_out, float[] s_out, float[] row) { go_out = Identity(go) s_out = Neg(s) row = Identity(s) }>
        y = Cast<to: int = 10>(rows)
    }"""
    assert shapes(text) == ["[]", "[3]"]
