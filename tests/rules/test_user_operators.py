"""Operators of users' domains in rule files: what is read, what the bodies compute, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.check.rule import check_rule
from eqsat.errors import ArgumentError, EqsatError, ModelError, RuleError
from eqsat.ops.evaluate import evaluate
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_files, read_text
from eqsat.schema.declared_operators import Function, declared, declared_here, result_count
from eqsat.schema.types import AttrValue, OpKey
from tests.rules.reading import at

SCALED = "operator acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha\n"


def function(text: str) -> Function:
    """The last operator that a text declares."""
    found = read_text(text).operators[-1]
    assert isinstance(found, Function)
    return found


def results(text: str, *arrays: np.ndarray, **attributes: AttrValue) -> tuple[np.ndarray, ...]:
    """The results of the last operator of a text."""
    operators = read_text(text).operators
    with declared(operators):
        op = operators[-1].op
        found = evaluate(op, tuple(sorted(attributes.items())), arrays, result_count(op))
    return tuple(np.asarray(x) for x in found)


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def test_a_declaration_is_read() -> None:
    found = function("# Scales what is positive.\n" + SCALED)
    assert found.op == OpKey("acme", "ScaledRelu")
    assert found.inputs == ("x",)
    assert found.attributes == (("alpha", 1.0),)
    assert found.doc == "Scales what is positive."
    assert found.place == "<text>:2:10"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_number_has_the_type_of_its_neighbours(dtype: type) -> None:
    (y,) = results(SCALED, X.astype(dtype), alpha=0.1)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.maximum(X.astype(dtype), 0) * dtype(0.1))


def test_what_bodies_may_consist_of() -> None:
    text = """
let square(v) = v * v
operator acme.Norm(x: (float32, float64), eps = 1e-5, axes = [-1]) = x / Sqrt(ReduceMean(square(x), axes) + eps)
"""
    (y,) = results(text, X)
    np.testing.assert_allclose(y, X / np.sqrt((X * X).mean(-1, keepdims=True) + np.float32(1e-5)), rtol=1e-6)


def test_several_results_and_shared_nodes() -> None:
    text = SCALED + "operator acme.Halves(x, n = 2) = (Split(x, axis=1, num_outputs=n)[1], acme.ScaledRelu(-x))\n"
    body = function(text).body({"n": 2})
    assert [node.op.name for node in body.nodes] == ["Split", "Neg", "ScaledRelu"]
    left, right = results(text, X)
    np.testing.assert_array_equal(left, X[:, 2:])
    np.testing.assert_array_equal(right, np.maximum(-X, 0))


def test_an_attribute_may_be_an_element_type_or_an_operand() -> None:
    text = "operator acme.To(x, to = int8, shape = [2, 6]) = Reshape(Cast(x, to=to), shape)\n"
    (y,) = results(text, X)
    np.testing.assert_array_equal(y, X.astype(np.int8).reshape(2, 6))
    (y,) = results(text, X, to=7, shape=(4, 3))
    assert y.dtype == np.int64
    assert y.shape == (4, 3)


def test_the_definition_is_a_rule_that_the_checks_execute() -> None:
    text = (
        SCALED
        + """
operator acme.Two(x, k = 2) = (acme.ScaledRelu(Cast(x, to=float32)), x * k)
rule to_acme : exact
    Relu(x) * 2  =>  acme.ScaledRelu(x, alpha=2.0)
    where x.dtype in floats
rule wrong : exact
    acme.ScaledRelu(x, alpha=a)  =>  Relu(x) * (a * 2)
"""
    )
    scaled, two, to_acme, wrong = read_text(text).rules
    assert [r.name for r in (scaled, two, to_acme)] == ["acme.ScaledRelu", "acme.Two", "to_acme"]
    for rule in (scaled, two, to_acme):
        outcome = check_rule(rule, instances=10)
        assert outcome.instances >= 10, rule.name
        assert not outcome.counterexamples, rule.name
    assert check_rule(wrong).counterexamples[0].kind == "value"


def test_operators_that_are_equal_may_be_declared_twice(tmp_path: Path) -> None:
    first, second = tmp_path / "a.rules", tmp_path / "b.rules"
    first.write_text(SCALED, "utf-8")
    second.write_text("\n\n" + SCALED + "rule r : exact\n    acme.ScaledRelu(x, alpha=1)  =>  Relu(x)\n", "utf-8")
    files = read_files([first, second])
    assert [rule.name for file in files for rule in file.rules] == ["acme.ScaledRelu", "r"]


def test_the_files_of_one_call_know_each_other(tmp_path: Path) -> None:
    first, second = tmp_path / "a.rules", tmp_path / "b.rules"
    first.write_text("rule r : exact\n    acme.ScaledRelu(x, alpha=1)  =>  Relu(x)\n", "utf-8")
    second.write_text(SCALED, "utf-8")
    assert read_files([first, second])[0].rules[0].operators[0].op.name == "ScaledRelu"
    with pytest.raises(RuleError, match=r"declared first: `operator acme\.ScaledRelu\("):
        read_files([first])
    assert declared_here() == ()


def test_two_meanings_are_refused_with_both_places(tmp_path: Path) -> None:
    first, second = tmp_path / "a.rules", tmp_path / "b.rules"
    first.write_text(SCALED, "utf-8")
    second.write_text(SCALED.replace("1.0", "2.0"), "utf-8")
    with pytest.raises(RuleError, match=r"one declaration of `acme\.ScaledRelu`") as caught:
        read_files([first, second])
    assert "a.rules:1:10" in str(caught.value)
    assert "b.rules:1:10" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operator ‸Scaled(x) = Relu(x)", "domain of your own"),
        ("operator ‸ai.onnx.Relu(x) = Abs(x)", "belongs to ONNX"),
        ("operator ‸ai.onnx.ml.Relu(x) = Abs(x)", "belongs to ONNX"),
        ("operator ‸com.microsoft.Gelu(x) = Relu(x)", "belongs to ONNX Runtime"),
        ("operator ‸com.microsoft.own.Gelu(x) = Relu(x)", "belongs to ONNX Runtime"),
        ("operator ‸eqsat.CastHint(x) = Relu(x)", "belongs to eqsat"),
        ("operator ‸a.B(x)", "a body of `a.B` is required"),
        ("operator a.B(x, ‸x) = Relu(x)", "`x` twice"),
        ("operator a.B(k = 1, ‸x) = Relu(x)", "operands must come before attributes"),
        ("operator a.B(‸float32) = Relu(float32)", "a name of its own"),
        ("operator a.B(x: ‸[1]) = Relu(x)", "an element type or a list of them"),
        ("operator a.B(x, k = ‸Relu(x)) = Relu(x)", "a default of `k`"),
        ("operator a.B(x, k = ‸[[1]]) = Relu(x)", "a default of `k`"),
        ("operator a.B(x) = ‸x", "an operator is required as the body"),
        ("operator a.B(x) = ‸()", "from 1 to 16 results"),
        ("operator a.B(x) = Relu(‸y)", "`y` is not bound"),
        ("operator a.B(x) = Relu(‸a.B(x))", "does not use its own operator"),
        ("operator a.B(x) = ‸a.C(x)\noperator a.C(x) = Relu(x)", "there is no operator `a.C`"),
        ("operator a.B(x) = Reshape(x, ‸x.shape + [1])", "which is known only where the operator is used"),
        ("operator a.B(x) = ‸Relu(x, x)", "takes at most 1 operand"),
        ("operator ‸a.B(x, k = 0) = Transpose(x, perm=[1 // k])", "a meaning for the default attributes"),
        ("operator a.B(x: int64) = ‸Sqrt(x)", "must be a tensor of floats"),
        ("rule r : exact\n    ‸acme.Relu(x) => x", "declared first"),
        ("operator a.B(x) = Relu(x)\nrule r : exact\n    a.B(x, ‸k=1) => x", "no attribute or operand `k`"),
        ("operator a.B(x) = Relu(x)\nrule r : exact\n    ‸a.Bb(x) => x", "there is no operator `a.Bb`"),
    ],
)
def test_a_mistake_has_one_message_with_its_place(text: str, message: str) -> None:
    plain, line, column = at(text)
    with pytest.raises(RuleError) as caught:
        read_text(plain, "my.rules")
    assert message in str(caught.value)
    if "must be" not in message:
        assert str(caught.value).startswith(f"my.rules:{line}:{column}:")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        f"operator a.B({', '.join(f'x{i}' for i in range(100_000))}) = Relu(x0)",
        f"operator a.B(x, k = [{', '.join('1' for _ in range(100_000))}]) = Transpose(x, perm=k[{'0' * 500}:1])",
        "\n".join(f"operator a.B{i}(x) = Relu(x)" for i in range(2_000)),
        "operator a.B(x) = " + "Relu(" * 100 + "x" + ")" * 100,
        "operator a.B(x) = " + " + ".join(["x"] * 3_000),
        "operator a.B0(x) = Relu(x)\n"
        + "\n".join(f"operator a.B{i}(x) = a.B{i - 1}(x) + a.B{i - 1}(-x)" for i in range(1, 40)),
        "operator a.B0(x) = Relu(x)\n" + "\n".join(f"operator a.B{i}(x) = Relu(a.B{i - 1}(x))" for i in range(1, 900)),
    ],
    ids=["operands", "digits", "operators", "nesting", "terms", "doubling", "chain"],
)
def test_files_of_anybody_end_with_a_message(text: str) -> None:
    with pytest.raises(EqsatError):
        read_text(text)


def test_attributes_without_a_value_are_an_error_of_the_model() -> None:
    found = function("operator a.B(x, k = 1) = Transpose(x, perm=[2 // k, 0])")
    with pytest.raises(ModelError, match="expressions that have a value"):
        found.body({"k": 0})


def test_operator_remains_a_name() -> None:
    (rule,) = read_text("rule operator : exact\n    Relu(operator)\n      =>  Relu(\n  operator)\n").rules
    assert rule.name == "operator"


def test_the_canonical_form() -> None:
    text = (
        "operator   a.B( x :floats ,y,k=[1,2] , )=  # what it is\n  Relu( x )+y\nlet z = Add\noperator a.C(x)=(x+1,-x)"
    )
    formatted = format_file(text)
    assert formatted == (
        "# what it is\noperator a.B(x: floats, y, k = [1, 2]) = Relu(x) + y\n\nlet z = Add\n\n"
        "operator a.C(x) = (x + 1, -x)\n"
    )
    assert format_file(formatted) == formatted


# ---- declared in Python --------------------------------------------------------------------------


def test_a_python_function_is_a_meaning() -> None:
    sinc = eqsat.operator("acme.Sinc(x: floats, k = 1.0)", reference=lambda x, k: np.sinc(x * k).astype(x.dtype))
    with eqsat.declarations(sinc):
        x = eqsat.input("x", (3, 4))
        model = eqsat.graph(eqsat.op("acme").Sinc(x, k=2))
        (y,) = eqsat.run(model, {"x": X}).values()
    np.testing.assert_array_equal(y, np.sinc(X * 2).astype(np.float32))


def test_results_must_have_the_types_that_are_stated() -> None:
    wrong = eqsat.operator("acme.Wrong(x)", reference=lambda x: x.sum())
    with eqsat.declarations(wrong), pytest.raises(EqsatError, match=r"results of the types that acme\.Wrong declares"):
        eqsat.run(eqsat.graph(eqsat.op("acme").Wrong(eqsat.input("x", (3, 4)))), {"x": X})
    raising = eqsat.operator("acme.Raising(x)", reference=lambda x: x, types=lambda x: x.nothing)
    with eqsat.declarations(raising), pytest.raises(ModelError, match=r"the types of acme\.Raising"):
        eqsat.op("acme").Raising(eqsat.input("x", (3, 4)))


def test_a_python_function_may_not_change_its_operands() -> None:
    def clear(x: np.ndarray) -> np.ndarray:
        x[:] = math.nan
        return x

    with eqsat.declarations(eqsat.operator("acme.Clear(x)", reference=clear)):
        x = eqsat.input("x", (3, 4))
        model = eqsat.graph({"y": eqsat.op("acme").Clear(x), "z": x + 1})
        found = eqsat.run(model, {"x": X})
    np.testing.assert_array_equal(found["z"], X + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eqsat.operator("acme.A(x) = Relu(x)", reference=lambda x: x), "both"),
        (lambda: eqsat.operator("acme.A(x)"), "a body"),
        (lambda: eqsat.operator("acme.A(x) = Relu(x)", results=2), "must come with a `reference`"),
        (lambda: eqsat.operator("acme.A(x)", reference=lambda x: x, results=0), "results"),
        (lambda: eqsat.operator("acme.A()", reference=lambda: np.ones(2)), "`types` are required"),
        (lambda: eqsat.operator("acme.A(x) = Relu(x)\nrule r : exact\n    Relu(x) => x"), "one operator"),
        (lambda: eqsat.declarations(3).__enter__(), "a file, an operator"),
    ],
)
def test_what_is_no_declaration_in_python(call: Callable[[], object], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        call()


def test_arguments_of_a_declaration_are_checked() -> None:
    operator: Any = eqsat.operator
    with pytest.raises(ArgumentError, match=r"declaration: the text of a declaration is required; got 5\n.*acme"):
        operator(5)
    with pytest.raises(ArgumentError, match="reference: a function is required; got 'f'"):
        operator("acme.A(x)", reference="f")


def test_a_python_file_declares_operators(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    path.write_text('import eqsat\nneg = eqsat.operator("acme.Neg(x)", reference=lambda x: -x)\n', "utf-8")
    with eqsat.declarations(path), eqsat.declarations(path):
        assert [o.op.name for o in declared_here()] == ["Neg"]
    path.write_text("neg = 1\n", "utf-8")
    with pytest.raises(RuleError, match="a Python file that declares an operator"), eqsat.declarations(path):
        pass
