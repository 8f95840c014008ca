"""Every form of pattern in docs/rules.md, and what the reader makes of it."""

from __future__ import annotations

import pytest

from eqsat.rules.ast import Alternatives, AttrBind, Match, Name, Number, Optional, Rest, Sequence, Wildcard
from eqsat.rules.tree import without_places
from eqsat.schema.types import OpKey
from tests.rules.printing import shown
from tests.rules.reading import composite, pattern, rule


def same(a: object, b: object) -> bool:
    return without_places(a) == without_places(b)


def args(text: str) -> tuple:
    found = pattern(text)
    assert isinstance(found, Match)
    return found.args


def test_variables_and_wildcards() -> None:
    x, y = args("Add(x, x)")
    assert isinstance(x, Name)
    assert same(x, y)
    assert isinstance(args("Add(x, _)")[1], Wildcard)


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2), ("0.5", 0.5), ("-1", -1), ("1e-3", 1e-3), ("inf", float("inf")), ("1_000", 1000)]
)
def test_numbers(text: str, value: float) -> None:
    number = args(f"Mul(x, {text})")[1]
    assert isinstance(number, Number)
    assert number.value == value
    assert type(number.value) is type(value)


def test_a_number_may_stand_first() -> None:
    assert isinstance(args("2 * x")[0], Number)


def test_operands_by_position_and_name() -> None:
    x, low, high = args("Clip(x, max=hi)")
    assert isinstance(x, Name)
    assert low is None
    assert isinstance(high, Name)
    assert len(args("Clip(x, min=lo)")) == 2
    assert len(args("Clip(x)")) == 1


def test_optional_operand() -> None:
    b = args("Conv(x, w, b?)")[2]
    assert isinstance(b, Optional)
    assert isinstance(args("Conv(x, w, b)")[2], Name)


def test_remaining_operands() -> None:
    assert isinstance(args("Concat(xs..., axis=0)")[0], Rest)
    first, rest = args("Sum(x, others...)")
    assert isinstance(first, Name)
    assert rest.name == "others"


def attributes(text: str) -> tuple[AttrBind, ...]:
    found = pattern(text)
    assert isinstance(found, Match)
    return found.attrs


def test_attributes_bind_and_require() -> None:
    (bind,) = attributes("Transpose(x, perm=p)")
    assert (bind.attribute, bind.name, bind.equals) == ("perm", "p", None)
    (equal,) = attributes("Softmax(x, axis=-1)")
    assert equal.name is None
    assert isinstance(equal.equals, Number)
    assert equal.equals.value == -1
    (perm,) = attributes("Transpose(x, perm=[0, 2, 1])")
    assert isinstance(perm.equals, Sequence)
    assert attributes("Transpose(x, perm=_)") == ()


def test_an_attribute_that_is_bound_before_must_be_equal() -> None:
    outer = pattern("Transpose(Transpose(x, perm=p), perm=p)")
    assert isinstance(outer, Match)
    assert isinstance(outer.args[0], Match)
    assert outer.attrs[0].name == outer.args[0].attrs[0].name == "p"


def test_an_attribute_may_be_computed_from_others() -> None:
    found = pattern("Transpose(Transpose(x, perm=p), perm=[p[i] for i in range(len(p))])")
    assert isinstance(found, Match)
    assert found.attrs[0].equals is not None
    assert shown(found.attrs[0].equals) == "[p[i] for i in range(len(p))]"


def test_an_element_type_as_attribute() -> None:
    (to,) = attributes("Cast(x, to=int8)")
    assert isinstance(to.equals, Name)
    assert to.equals.name == "int8"


def test_bound_node() -> None:
    found = rule("c: Conv(x, w)  =>  Conv(x, w, strides=c.strides)")
    assert isinstance(found.left[0], Match)
    assert found.left[0].bind == "c"
    spread = rule("Relu(c: Conv(x, w))  =>  Relu(Conv(x, w, **c))").right[0]
    assert spread.args[0].spread == ("c",)
    value = rule("Relu(c: Conv(x, w))  =>  Max(c, 0)").right[0]
    assert isinstance(value.args[0], Name)


def test_outputs() -> None:
    found = pattern("Relu(Split(x, s)[1])")
    assert isinstance(found, Match)
    assert found.args[0].output == 1
    assert pattern("Split(x, s)[0]").output == 0


def test_choice_of_operators() -> None:
    found = pattern("(op: Add | Mul)(x, c)")
    assert isinstance(found, Match)
    assert found.ops == (OpKey("", "Add"), OpKey("", "Mul"))
    assert found.op_name == "op"
    unnamed = pattern("(Add | Mul)(x, c)")
    assert isinstance(unnamed, Match)
    assert unnamed.op_name is None
    assert rule("(op: Add | Mul)(x, c)  =>  op(c, x)").right[0].op == "op"


def test_optional_node() -> None:
    found = pattern("Conv(maybe(Pad)(x, widths, zero), w)")
    assert isinstance(found, Match)
    maybe = found.args[0]
    assert isinstance(maybe, Alternatives)
    pad, plain = maybe.options
    assert isinstance(pad, Match)
    assert len(pad.args) == 3
    assert isinstance(plain, Name)
    assert plain.name == "x"


def test_optional_node_of_several_operators() -> None:
    found = pattern("maybe(act: Relu | Sigmoid)(Conv(x, w))")
    assert isinstance(found, Alternatives)
    assert isinstance(found.options[0], Match)
    assert found.options[0].op_name == "act"


def test_alternatives_bind_looser_than_arithmetic() -> None:
    found = pattern("Relu(c + r | c)")
    assert isinstance(found, Match)
    assert isinstance(found.args[0], Alternatives)
    assert [type(o) for o in found.args[0].options] == [Match, Name]


def test_named_alternatives() -> None:
    found = pattern("(c: Conv(x, w) | ConvTranspose(x, w)) + r")
    assert isinstance(found, Match)
    assert isinstance(found.args[0], Alternatives)
    assert found.args[0].bind == "c"


@pytest.mark.parametrize(
    ("text", "operator"),
    [("x + y", "Add"), ("x - y", "Sub"), ("x * y", "Mul"), ("x / y", "Div"), ("x @ y", "MatMul"), ("-x", "Neg")],
)
def test_signs(text: str, operator: str) -> None:
    found = pattern(text)
    assert isinstance(found, Match)
    assert found.ops == (OpKey("", operator),)
    assert all(isinstance(a, Name) for a in found.args)


def test_precedence_is_that_of_arithmetic() -> None:
    assert same(pattern("a + b * c - d"), pattern("Sub(Add(a, Mul(b, c)), d)"))
    assert same(pattern("-a * b"), pattern("Mul(Neg(a), b)"))
    assert same(pattern("a - b - c"), pattern("Sub(Sub(a, b), c)"))
    assert same(pattern("(a + b) @ c"), pattern("MatMul(Add(a, b), c)"))


def test_domains() -> None:
    assert pattern("com.microsoft.Gelu(x)").ops == (OpKey("com.microsoft", "Gelu"),)
    assert pattern("ai.onnx.Relu(x)").ops == (OpKey("", "Relu"),)


def test_an_operand_may_be_a_constant_value() -> None:
    found = composite("ReduceMean(x, [2, 3])")
    assert isinstance(found.patterns[0], Match)
    operand = found.patterns[0].args[1]
    assert isinstance(operand, Name)
    (condition,) = found.where
    name = operand.name
    assert shown(condition.expr) == f"not {name}.is_present or {name}.value == [2, 3]"


def test_several_roots() -> None:
    found = rule("a = MatMul(x, u), b = MatMul(x, v)  =>  b = v, a = u")
    assert [m.bind for m in found.left] == ["a", "b"]
    assert [t.name for t in found.right] == ["u", "v"]


def test_several_outputs_of_one_node_as_roots() -> None:
    found = rule(
        "a = MatMul(x, u), b = MatMul(x, v)  =>  (a, b) = Split(x @ Concat(u, v, axis=-1), axis=-1, num_outputs=2)"
    )
    assert [t.output for t in found.right] == [0, 1]
    assert same(found.right[0].args, found.right[1].args)
    matched = rule("(a, b) = Split(x, s, axis=0)  =>  a = x, b = x")
    assert [m.output for m in matched.left] == [0, 1]


def test_both_directions() -> None:
    from eqsat.rules.reader import read_text

    forward, backward = read_text("rule r : real\n    (x + y) * (x - y)  <=>  x * x - y * y").rules
    assert (forward.name, backward.name) == ("r", "r.reverse")
    assert same(backward.left, (pattern("x * x - y * y"),))
    assert same(rule("x * x - y * y  =>  (x + y) * (x - y)").right, backward.right)
    assert forward.numerics == backward.numerics


def test_conditions_hold_for_both_directions() -> None:
    from eqsat.rules.reader import read_text

    for found in read_text("rule r : real\n    x + -y  <=>  x - y  where x.dtype == y.dtype").rules:
        assert len(found.where) == 1


def test_unnamed_optional_operands_are_each_their_own() -> None:
    found = pattern("Slice(x, s, e, _?, _?)")
    assert isinstance(found, Match)
    axes, steps = found.args[3:]
    assert isinstance(axes, Optional)
    assert isinstance(steps, Optional)
    assert axes.name != steps.name
