"""Sequences whose elements are known: nodes read the elements, and loops that fill sequences are unrolled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.model.load import load
from eqsat.simplify.passes import simplified
from tests.control.flows import checked

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 7)).astype(np.float32)
HEAD = '<ir_version: 10, opset_import: ["": 20]>\ng (float[6,7] x, float[6,7] y) => (float[N,M] z)'


def model(nodes: str, constants: str = "") -> onnx.ModelProto:
    source = onnx.parser.parse_model(f"{HEAD} <{constants}> {{ {nodes} }}")
    source.graph.output[0].type.tensor_type.ClearField("shape")
    return source


def operators(found: ir.Model) -> set[str]:
    return {n.op_type for n in found.graph}


ELEMENTS = {
    "constructed": ("s = SequenceConstruct(x, y) e = SequenceAt(s, one) z = Exp(e)", {"Exp"}),
    "from the end": ("s = SequenceConstruct(x, y) e = SequenceAt(s, least) z = Exp(e)", {"Exp"}),
    "inserted": ("n = SequenceEmpty() s = SequenceInsert(n, x) t = SequenceInsert(s, y) "
                 "e = SequenceAt(t, one) z = Exp(e)", {"Exp"}),
    "inserted in front": ("s = SequenceConstruct(x) t = SequenceInsert(s, y, nought) e = SequenceAt(t, one) "
                          "z = Exp(e)", {"Exp"}),
    "inserted before the last": ("s = SequenceConstruct(x, y) w = Abs(x) t = SequenceInsert(s, w, least) "
                                 "e = SequenceAt(t, one) z = Exp(e)", {"Abs", "Exp"}),
    "erased": ("s = SequenceConstruct(x, y) t = SequenceErase(s, nought) e = SequenceAt(t, nought) z = Exp(e)",
               {"Exp"}),
    "the last erased": ("s = SequenceConstruct(x, y) t = SequenceErase(s) u = Identity(t) "
                        "e = SequenceAt(u, nought) z = Exp(e)", {"Exp"}),
    "joined": ("s = SequenceConstruct(x, y) z = ConcatFromSequence<axis=-1>(s)", {"Concat"}),
    "counted": ("s = SequenceConstruct(x, y, x) n = SequenceLength(s) f = Cast<to=1>(n) z = Add(x, f)", {"Add"}),
    "split in rows": ("s = SplitToSequence<axis=0, keepdims=0>(x) e = SequenceAt(s, least) z = Mul(e, y)",
                      {"Split", "Squeeze", "Mul", "Gather", "Slice"}),
    "split in pieces of two": ("s = SplitToSequence<axis=-1>(x, two) e = SequenceAt(s, least) z = Exp(e)", None),
    "split in given sizes": ("s = SplitToSequence<axis=1>(x, sizes) e = SequenceAt(s, one) z = Exp(e)", None),
    "of an optional": ("o = Optional(x) e = OptionalGetElement(o) z = Exp(e)", {"Exp"}),
    "asked for": ("o = Optional(x) h = OptionalHasElement(o) f = Cast<to=1>(h) z = Add(x, f)", {"Add"}),
    "a sequence in an optional": ("s = SequenceConstruct(x, y) o = Optional(s) t = OptionalGetElement(o) "
                                  "e = SequenceAt(t, one) z = Exp(e)", {"Exp"}),
}  # fmt: skip
CONSTANTS = "int64 nought = {0}, int64 one = {1}, int64 least = {-1}, int64 two = {2}, int64[3] sizes = {1, 4, 2}"


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_are_read_in_the_place_of_their_sequence(name: str, tmp_path: Path) -> None:
    nodes, expected = ELEMENTS[name]
    result = checked(model(nodes, CONSTANTS), tmp_path, [{"x": X, "y": X[::-1].copy()}])
    found = operators(result.model)
    assert not any("Sequence" in op or "Optional" in op for op in found)
    assert expected is None or found <= expected


MAPS = {
    "one sequence": ("s = SequenceConstruct(x, y)", "(s)", "float[6,7] e", "r = Exp(e)"),
    "two sequences": ("s = SequenceConstruct(x, y) t = SequenceConstruct(y, y)", "(s, t)", "float[6,7] e, float[6,7] f",
                      "r = Sub(e, f)"),
    "a tensor for all": ("s = SequenceConstruct(x, y)", "(s, y)", "float[6,7] e, float[6,7] f", "r = Sub(e, f)"),
    "pieces": ("s = SplitToSequence<axis=1>(x, two)", "(s)", "float[6,?] e", "r = Exp(e)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_a_map_over_a_sequence_is_its_body_for_each_element(name: str, tmp_path: Path) -> None:
    makes, operands, inputs, body = MAPS[name]
    mapped = f"m = SequenceMap{operands} <body = b ({inputs}) => (float[6,?] r) {{ {body} }}>"
    source = model(f"{makes} {mapped} z = ConcatFromSequence<axis=1>(m)", CONSTANTS)
    result = checked(source, tmp_path, [{"x": X, "y": 2 * X}])
    assert not any("Sequence" in op for op in operators(result.model))


def test_elements_stacked_along_a_new_axis(tmp_path: Path) -> None:
    for axis in (0, 1, 2, -1, -3):
        nodes = f"s = SequenceConstruct(x, y) z = ConcatFromSequence<axis={axis}, new_axis=1>(s)"
        result = checked(model(nodes), tmp_path, [{"x": X, "y": 2 * X}])
        assert operators(result.model) <= {"Concat", "Unsqueeze"}


UNTIL = """
    n = SequenceEmpty()
    s = Loop<body = b (int64{rank} i, bool go, seq(float[?,?]) all) => (bool on, seq(float[?,?]) more) {{
        on = Identity(go)
        k = Add(i, first)
        begin = Reshape(i, row)
        end = Reshape(k, row)
        part = Slice(x, begin, end, axis)
        more = SequenceInsert(all, part)
    }}>(rounds, yes, n)
    l = SequenceInsert(s, y)
    z = ConcatFromSequence<axis=0>(l)
"""
LOOPED = "int64 rounds = {3}, bool yes = {1}, int64 first = {1}, int64[1] row = {1}, int64[1] axis = {0}"


@pytest.mark.parametrize("rank", ["", "[1]"])
def test_a_loop_that_fills_a_sequence_is_unrolled(rank: str, tmp_path: Path) -> None:
    result = checked(model(UNTIL.format(rank=rank), LOOPED), tmp_path, [{"x": X, "y": X}])
    assert operators(result.model) <= {"Slice", "Concat", "Split"}
    shape = result.model.graph.outputs[0].shape
    assert shape is not None and shape.is_static() and shape.numpy() == (9, 7)


def test_a_sequence_of_unknown_elements_stays(tmp_path: Path) -> None:
    unknown = model("s = SequenceConstruct(x, y) i = ArgMax<axis=0, keepdims=0>(w) j = Cast<to=7>(i) "
                    "e = SequenceAt(s, j) z = Exp(e)")  # fmt: skip
    unknown.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2]))
    several = [{"x": X, "y": -X, "w": np.array(w, np.float32)} for w in ([1, 2], [2, 1])]
    assert "SequenceAt" in operators(checked(unknown, tmp_path, several).model)


def test_a_position_outside_of_the_sequence_stays_an_error() -> None:
    loaded = load(model("s = SequenceConstruct(x, y) e = SequenceAt(s, far) z = Exp(e)", "int64 far = {2}"))
    assert simplified(loaded) is loaded


def test_sequences_that_the_model_returns_stay(tmp_path: Path) -> None:
    source = model("s = SequenceConstruct(x, y) e = SequenceAt(s, one) z = Exp(e)", "int64 one = {1}")
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [6, 7])
    source.graph.output.append(onnx.helper.make_value_info("s", onnx.helper.make_sequence_type_proto(kind)))
    assert operators(simplified(load(source))) == {"SequenceConstruct", "Exp"}


def test_a_loop_of_which_a_round_fails_stays() -> None:
    failing = UNTIL.format(rank="").replace("begin = Reshape(i, row)", "begin = Identity(i)")
    loaded = load(model(failing, LOOPED))
    assert "Loop" in operators(simplified(loaded))
