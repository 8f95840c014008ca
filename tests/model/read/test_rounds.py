"""Bodies of loops that declare the number of the round, or the condition, as a tensor of one element."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.model.load import load
from tests.control.flows import checked, run

LOOP = """<ir_version: 8, opset_import: ["": 17]>
g (int64 n, bool{kind} begins, float[2] x) => (float[2] y, int64[R,M] seen) {{
    y, seen = Loop<body = b (int64{number} i, bool{kind} go, float[2] s)
        => (bool{kind} on, float[2] t, int64[W] row) <int64[1] nine = {{9}}> {{
        first = Shape(i)
        second = Shape(go)
        row = Concat<axis=0>(first, second, nine)
        f = Cast<to=1>(i)
        t = Add(s, f)
        {condition}
    }}>(n, begins, x)
}}"""
SHAPES = [("", ""), ("[1]", ""), ("", "[1]"), ("[1]", "[1]")]
CONDITIONS = {
    "handed on": "on = Identity(go)",
    "computed": "two = Constant<value_int=2>() less = Less(i, two) on = Reshape(less, sizes)",
}


def loop(number: str, kind: str, condition: str = "on = Identity(go)") -> onnx.ModelProto:
    sizes = f"sizes = Constant<value_ints={[1] if kind else []}>() "
    if not kind:
        condition = condition.replace("Reshape(less, sizes)", "Squeeze(less)")
        sizes = ""
    return onnx.parser.parse_model(LOOP.format(number=number, kind=kind, condition=sizes + condition))


@pytest.mark.parametrize(("number", "kind"), SHAPES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_bodies_see_the_ranks_that_they_declare(number: str, kind: str, condition: str, tmp_path: Path) -> None:
    source = loop(number, kind, CONDITIONS[condition])
    begins = np.ones([1] if kind else [], np.bool_)
    several = [{"n": np.array(n), "begins": begins, "x": np.array([1, 2], np.float32)} for n in (1, 3, 5)]
    for feeds in several:
        for expected, found in zip(run(source, feeds), eqsat.run(source, feeds).values(), strict=True):
            assert expected.dtype == found.dtype
            np.testing.assert_array_equal(expected, found)
    checked(source, tmp_path, several)


def test_bodies_of_scalars_stay_as_they_are() -> None:
    body = next(n for n in load(loop("", "")).graph if n.op_type == "Loop").attributes["body"].as_graph()
    assert [n.op_type for n in body] == ["Shape", "Shape", "Concat", "Cast", "Add", "Identity"]


def test_an_input_that_the_body_returns(tmp_path: Path) -> None:
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (int64 n, bool c, float[2] x) => (float[2] y, int64[R,W] numbers) {
        y, numbers = Loop<body = b (int64[1] i, bool go, float[2] s) => (bool on, float[2] t, int64[1] i) {
            on = Identity(go)
            t = Exp(s)
        }>(n, c, x)
    }""")
    feeds = {"n": np.array(3), "c": np.array(True), "x": np.zeros(2, np.float32)}
    assert eqsat.run(source, feeds)["numbers"].tolist() == [[0], [1], [2]]
