"""What may stand on the right of a rule."""

from __future__ import annotations

import pytest

from eqsat.rules.ast import Apply, Build, Name, Number, Rest, Sequence, TemplateTerm, TensorTerm
from eqsat.schema.types import OpKey
from tests.rules.printing import shown
from tests.rules.reading import rule


def right(text: str) -> TemplateTerm:
    return rule(text).right[0]


def built(text: str) -> Build:
    found = right(text)
    assert isinstance(found, Build)
    return found


def test_numbers_take_part_in_operators() -> None:
    found = built("x + x  =>  2 * x")
    assert found.op == OpKey("", "Mul")
    assert isinstance(found.args[0], Number)
    assert isinstance(found.args[1], Name)


def test_negative_numbers_are_numbers_and_negated_tensors_operators() -> None:
    found = built("Neg(x)  =>  -1 * x")
    assert isinstance(found.args[0], Number)
    assert found.args[0].value == -1
    assert built("x * -1  =>  -x").op == OpKey("", "Neg")


def test_lists_are_constants() -> None:
    shape = built("Flatten(x)  =>  Reshape(x, [0, -1])").args[1]
    assert isinstance(shape, TensorTerm)
    assert isinstance(shape.value, Sequence)
    assert shape.dtype is None


def test_expressions_over_facts_are_constants() -> None:
    shape = built("Flatten(x)  =>  Reshape(x, [x.shape[0], -1])").args[1]
    assert isinstance(shape, TensorTerm)
    assert shown(shape.value) == "[x.shape[0], -1]"


def test_a_subtree_of_attributes_and_numbers_is_one_constant() -> None:
    found = built("Elu(x, alpha=a)  =>  x * (a * 2 + 1)")
    constant = found.args[1]
    assert isinstance(constant, TensorTerm)
    assert shown(constant.value) == "a * 2 + 1"


def test_mixed_subtrees_are_operators() -> None:
    found = built("BatchNormalization(x, s, b, m, v, epsilon=e)  =>  s / Sqrt(v + e)")
    added = found.args[1].args[0]
    assert isinstance(added, Build)
    assert added.op == OpKey("", "Add")
    assert isinstance(added.args[1], TensorTerm)
    assert isinstance(added.args[1].value, Name)


def test_constant_of_a_given_type() -> None:
    found = built("Neg(x)  =>  x * tensor(-1, x.dtype)").args[1]
    assert isinstance(found, TensorTerm)
    assert found.dtype is not None
    assert shown(found.dtype) == "x.dtype"
    assert isinstance(found.value, Number)


def test_the_type_of_a_constant_may_be_an_attribute() -> None:
    found = built("Cast(x * 0, to=t)  =>  Cast(x, to=t) * tensor(0, t)").args[1]
    assert isinstance(found, TensorTerm)
    assert isinstance(found.dtype, Apply)
    assert found.dtype.function == "element_type"


def test_attributes_are_expressions() -> None:
    found = built("Transpose(Transpose(x, perm=p), perm=q)  =>  Transpose(x, perm=[p[i] for i in q])")
    ((name, value),) = found.attrs
    assert name == "perm"
    assert shown(value) == "[p[i] for i in q]"


def test_attributes_of_a_node_are_taken_over_and_overridden() -> None:
    found = built("Relu(c: Conv(x, w))  =>  Conv(x, w, **c, group=1)")
    assert found.spread == ("c",)
    assert [name for name, _ in found.attrs] == ["group"]


def test_operands_by_name() -> None:
    found = built("Relu(x)  =>  Clip(x, min=0)")
    assert len(found.args) == 2
    found = built("Relu(x)  =>  Clip(x, max=6)")
    assert found.args[1] is None
    split = built("Relu(x)  =>  Split(x, split=[1, x.shape[0] - 1])[1]")
    assert isinstance(split.args[1], TensorTerm)
    assert split.output == 1


def test_remaining_operands() -> None:
    found = built("Concat(Concat(xs..., axis=a), y, axis=a)  =>  Concat(y, xs..., axis=a)")
    assert isinstance(found.args[1], Rest)


def test_operators_that_the_pattern_bound() -> None:
    found = built("(op: Add | Sub)(x, y)  =>  op(x, y)")
    assert found.op == "op"


def test_a_right_side_may_be_a_variable_or_a_number() -> None:
    assert isinstance(right("Identity(x)  =>  x"), Name)
    assert isinstance(right("x - x  =>  0"), Number)


@pytest.mark.parametrize(
    "text",
    [
        "Conv(x, w, b?)  =>  Conv(x, w, b)",
        "Conv(x, w, b?)  =>  Conv(x, w, b?)",
        "Conv(x, w, b?)  =>  Conv(x, w * 2, (b - w) * w + x)",
        "Conv(x, w, b?)  =>  x + b",
        "Conv(x, w, b?)  =>  Conv(x, w, b * 2)",
        "Conv(x, w, b?)  =>  Conv(x, w, -b)",
        "Conv(x, w, b?)  =>  Conv(x, w, b / 2)",
        "Conv(x, w, b?)  =>  b - x",
        "Relu(Conv(x, w) + r | Conv(x, w))  =>  Relu(x) + r",
    ],
)
def test_absent_values_are_neutral_in_arithmetic_and_pass_on(text: str) -> None:
    rule(text)


def test_names_are_kept_only_where_a_type_is_asked() -> None:
    text = "Relu(x)  =>  Reshape(k, [0] * k.rank)\n    let k = Exp(x)"
    assert built(text).args[0].name == "k"
    assert built("Relu(x)  =>  Sqrt(k)\n    let k = Exp(x)").args[0].name is None
