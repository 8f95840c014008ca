"""Models with nodes of declared operators, with functions of them and without."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.errors import ModelError
from eqsat.model.load import GivenModel, load
from eqsat.rules.reader import read_text
from eqsat.schema.declared_operators import declared

OPERATORS = read_text(
    """
operator acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha
operator acme.Twice(x: floats) = acme.ScaledRelu(acme.ScaledRelu(x, alpha=0.5))
"""
).operators
MODEL = """<ir_version: 8, opset_import: ["": 17, "acme": 1]>
g (float[2, 3] x) => (float[2, 3] y) { t = acme.ScaledRelu<alpha = 2.0>(x) y = acme.ScaledRelu(t) }
"""
FUNCTION = """<domain: "acme", opset_import: ["": 17]>
ScaledRelu<alpha: float = 1.0>(v) => (w) {
    r = Relu(v)
    c = Constant<value_float: float = @alpha>()
    like = CastLike(c, v)
    w = Mul(r, like)
}
"""
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
Y = np.maximum(X, 0) * 2


def operators(model: GivenModel) -> list[str]:
    return [node.op_type for node in load(model).graph]


@pytest.mark.parametrize("functions", ["", FUNCTION], ids=["alone", "with a function"])
def test_nodes_have_the_declared_meaning(functions: str) -> None:
    with declared(OPERATORS):
        model = load(MODEL + functions)
        assert operators(MODEL + functions) == ["ScaledRelu", "ScaledRelu"]
        assert not model.functions
        (y,) = eqsat.run(model, {"x": X}).values()
    np.testing.assert_array_equal(y, Y)


def test_without_a_declaration_the_function_is_taken_apart() -> None:
    assert operators(MODEL + FUNCTION) == ["Relu", "CastLike", "Mul", "Relu", "CastLike", "Mul"]
    (y,) = eqsat.run(MODEL + FUNCTION, {"x": X}).values()
    np.testing.assert_array_equal(y, Y)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Relu(v)", "Abs(v)", "`Abs` as operator 1 instead of `Relu`"),
        ("alpha: float = 1.0", "alpha: float = 3.0", "`Mul` with other operands"),
        ("Mul(r, like)", "Mul(like, r)", "`Mul` with other operands"),
        ("w = Mul(r, like)", "u = Mul(r, like) w = Neg(u)", "3 operators instead of 2"),
        ("@alpha", "@alpha>() unused = Constant<value_float: float = @alpha", ""),
    ],
)
def test_a_function_that_differs_is_refused(old: str, new: str, problem: str) -> None:
    text = MODEL + FUNCTION.replace(old, new)
    with declared(OPERATORS):
        if not problem:
            assert operators(text) == ["ScaledRelu", "ScaledRelu"]
            return
        with pytest.raises(ModelError) as caught:
            load(text)
    assert "function acme.ScaledRelu" in str(caught.value)
    assert "<text>:2:10" in str(caught.value)
    assert problem in str(caught.value)


def test_functions_that_call_each_other() -> None:
    text = MODEL.replace("y = acme.ScaledRelu(t)", "y = acme.Twice(t)")
    inner = (
        '<domain: "acme", opset_import: ["": 17, "acme": 1]>\nTwice(v) => (w) { a = acme.ScaledRelu<alpha = 0.5>(v) '
    )
    with declared(OPERATORS):
        assert operators(text + inner + "w = acme.ScaledRelu(a) }\n" + FUNCTION) == ["ScaledRelu", "Twice"]
        with pytest.raises(ModelError, match=r"function acme\.Twice"):
            load(text + inner + "w = Neg(a) }\n" + FUNCTION)


def test_an_opset_that_only_lacks_types_is_the_same() -> None:
    old = (MODEL + FUNCTION).replace('"": 17', '"": 15')
    with declared(OPERATORS):
        assert operators(old) == ["ScaledRelu", "ScaledRelu"]


def test_an_operator_that_has_changed_since_is_not() -> None:
    norm = read_text("operator acme.Norm(x) = Softmax(x)").operators
    text = """<ir_version: 8, opset_import: ["": 11, "acme": 1]>
g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = acme.Norm(x) }
<domain: "acme", opset_import: ["": 11]>
Norm(v) => (w) { w = Softmax(v) }
"""
    with declared(norm), pytest.raises(ModelError, match="`Softmax` of opset 11, which has changed since"):
        load(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("alpha = 2.0", "beta = 2.0", "an attribute of acme.ScaledRelu is required; got `beta`"),
        ("alpha = 2.0", "alpha = 2", "attribute `alpha` of type FLOAT is required; got INT"),
        ("(t) }", "(t, x) }", "1 operand of acme.ScaledRelu is required; got 2"),
        ("y = acme", "y, z = acme", "1 result of acme.ScaledRelu is required; got 2"),
        ("float[2, 3] x", "int32[2, 3] x", "operand `x` of acme.ScaledRelu must be one of"),
    ],
)
def test_a_node_that_the_declaration_does_not_fit(old: str, new: str, message: str) -> None:
    with declared(OPERATORS), pytest.raises(ModelError) as caught:
        load(MODEL.replace(old, new))
    assert message in str(caught.value)
    assert "declared at <text>:2:10" in str(caught.value)


def test_a_loaded_model_has_a_meaning_alone() -> None:
    with pytest.raises(eqsat.errors.EqsatError):
        eqsat.run(load(MODEL), {"x": X})
    scaled = eqsat.operator("acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha")
    model = eqsat.load(MODEL, declarations=[scaled])
    (y,) = eqsat.run(model, {"x": X}).values()
    np.testing.assert_array_equal(y, Y)
    assert operators(eqsat.load(MODEL)) == ["ScaledRelu", "ScaledRelu"]


def test_unrelated_functions_with_numbers_are_the_models_own() -> None:
    text = MODEL.replace("acme.ScaledRelu(t)", "acme.ScaledRelu_1(t)") + FUNCTION.replace(
        "ScaledRelu<alpha: float = 1.0>", "ScaledRelu_1"
    ).replace("value_float: float = @alpha", "value_float = 7.0")
    with declared(OPERATORS):
        assert operators(text)[0] == "ScaledRelu"
        assert "Mul" in operators(text)


def test_branches_hold_declared_operators() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "acme": 1]>
g (float[2, 3] x, bool c) => (float[2, 3] y) {
    y = If (c) <then_branch = a () => (float[2, 3] p) { p = acme.ScaledRelu<alpha = 2.0>(x) },
                else_branch = b () => (float[2, 3] q) { q = Neg(x) }>
}
"""
    with declared(OPERATORS):
        for model in (text, text + FUNCTION):
            (y,) = eqsat.run(load(model), {"x": X, "c": np.array(True)}).values()
            np.testing.assert_array_equal(y, Y)


def test_a_protobuf_is_not_changed() -> None:
    model = onnx.parser.parse_model(MODEL + FUNCTION)
    before = model.SerializeToString()
    with declared(OPERATORS):
        load(model)
    assert model.SerializeToString() == before
