"""Loops that end by counting: the result runs as many rounds, and has a number for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.model.load import load
from eqsat.simplify.passes import simplified
from tests.control.flows import checked

WHILE = """<ir_version: 10, opset_import: ["": 20]>
g (float[4] s, float[{size},4] x) => (float[4] e, float[M,4] y)
    <{number} first = {{{start}}}, int64 some = {{2}}, int64 nought = {{0}}> {{
    sizes = Shape(x)
    size = Gather<axis=0>(sizes, nought)
    n = Cast<to={code}>(size)
    go = {begins}
    last, kept, e, y = Loop<body = b (int64 i, bool again, {number} c, {number} end, float[4] a)
        => (bool on, {number} next, {number} end, float[4] w, float[4] row) <{number} step = {{{step}}}> {{
        next = Add(c, step)
        at = Gather<axis=0>(x, c)
        w = Add(a, at)
        row = Identity(w)
        left = Cast<to=1>({compared})
        right = Cast<to=1>(end)
        {more}
        on = {condition}
    }}>({limit}, go, first, n, s)
}}"""
NUMBERS = {"int64": 7, "int32": 6}


def counting(
    *, number: str = "int64", step: int = 1, start: int = 0, limit: str = "", size: str | int = "N",
    begins: str = "Less(first, n)", compared: str = "next", condition: str = "Less(left, right)", more: str = "",
) -> onnx.ModelProto:  # fmt: skip
    return onnx.parser.parse_model(
        WHILE.format(
            number=number, code=NUMBERS[number], step=step, start=start, limit=limit or '""', size=size,
            begins=begins, compared=compared, condition=condition, more=more,
        )
    )  # fmt: skip


def feeds(*sizes: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"s": np.ones(4, np.float32), "x": rng.random((n, 4), np.float32)} for n in sizes]


@pytest.mark.slow
@pytest.mark.parametrize("number", ["int64", pytest.param("int32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("limit", ["", "some"])
def test_a_while_loop_has_a_number_of_rounds(number: str, step: int, limit: str, tmp_path: Path) -> None:
    source = counting(number=number, step=step, limit=limit)
    result = checked(source, tmp_path, feeds(1, 2, 3, 6, 7))
    (loop,) = (node for node in result.model.graph if node.op_type == "Loop")
    assert loop.inputs[0] is not None and loop.inputs[1] is None
    assert result.run(feeds(0)[0])["y"].shape == (0, 4)


@pytest.mark.parametrize("start", [0, 1, 4])
def test_a_counter_may_begin_anywhere(start: int, tmp_path: Path) -> None:
    checked(counting(start=start, step=2), tmp_path, feeds(1, 4, 5, 6, 9))


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"condition": "Greater(right, left)"},
        {"begins": "Greater(n, first)"},
        # The first round is not asked, or asked something else.
        {"begins": "LessOrEqual(first, n)"},
        {"begins": "Less(nought, size)"},
        # One round more.
        {"compared": "c", "size": 9, "limit": "some"},
    ],
)
def test_other_spellings(change: dict[str, str], tmp_path: Path) -> None:
    checked(counting(**change), tmp_path, feeds(9) if "size" in change else feeds(1, 2, 5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"begins": "And(below, below)"},
        {"compared": "c"},
        {"number": "int32", "step": 2},
        {"start": 3, "step": 4, "begins": "And(below, below)"},
        {"limit": "some"},
    ],
)
@pytest.mark.parametrize("bound", [5.0, 5.5, 1.0, 0.0, -2.0])
def test_several_comparisons_some_with_numbers(change: dict[str, Any], bound: float, tmp_path: Path) -> None:
    """TensorFlow compares the number of a round with the most rounds, and a counter with the end."""
    more = "below0 = Less(left, bound) below1 = Less(left, right)"
    source = counting(size=9, condition="And(below0, below1)", more=more, **change)
    value = np.array(bound, np.float32)
    source.graph.initializer.append(onnx.numpy_helper.from_array(value, "bound"))
    first = onnx.helper.make_node("Cast", ["first"], ["firstf"], to=1)
    below = onnx.helper.make_node("Less", ["firstf", "bound"], ["below"])
    for k, node in enumerate((first, below)):
        source.graph.node.insert(k, node)
    checked(source, tmp_path, feeds(9))
    loops = [node for node in simplified(load(source)).graph if node.op_type == "Loop"]
    assert all(node.inputs[0] is not None and node.inputs[0].name != "some" for node in loops)


@pytest.mark.slow
@pytest.mark.parametrize("begins", ["Less(first, n)", "And(below, below)", "And(below, other)"])
@pytest.mark.parametrize("weaker", ["c", "i"])
def test_a_weaker_comparison_does_not_count(weaker: str, begins: str, tmp_path: Path) -> None:
    """Keras compares the number of a round, too, which is below the end whenever the next position is."""
    more = f"before = Cast<to=1>({weaker}) below0 = Less(before, right) below1 = Less(left, right)"
    source = counting(begins=begins, condition="And(below0, below1)", more=more)
    below = onnx.helper.make_node("Less", ["first", "n"], ["below"])
    other = onnx.helper.make_node("Less", ["nought", "n"], ["other"])
    at = next(k for k, node in enumerate(source.graph.node) if "n" in node.output)
    source.graph.node.insert(at + 1, below)
    source.graph.node.insert(at + 1, other)
    result = checked(source, tmp_path, feeds(1, 2, 5))
    (loop,) = (node for node in result.model.graph if node.op_type == "Loop")
    assert loop.inputs[0] is not None and loop.inputs[1] is None
    assert result.run(feeds(0)[0])["y"].shape == (0, 4)


@pytest.mark.parametrize("condition", ["LessOrEqual(left, right)", "Less(right, left)"])
def test_other_conditions_stay(condition: str) -> None:
    model = simplified(load(counting(condition=condition, limit="some")))
    (loop,) = (node for node in model.graph if node.op_type == "Loop")
    assert loop.inputs[0] is not None and loop.inputs[0].name == "some"


def test_what_a_counted_loop_stacks_has_a_size_in_c() -> None:
    source, given = counting(size=6), feeds(6)[0]
    expected = eqsat.run(source, given)
    found = eqsat.run(source, given, backend="c")
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6)
