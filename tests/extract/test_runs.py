"""Rules make no operator for the host that ONNX Runtime does not run there, unless it does not run the model either."""

from __future__ import annotations

import pytest

import eqsat

_LONG = "s = Softplus(x) t = Tanh(s) y = Mul(x, t)"


def _operators(kind: str, body: str, outputs: str = "") -> list[str]:
    text = f'<ir_version: 10, opset_import: ["": 22]> g ({kind}[2,3] x) => ({kind}[2,3] y{outputs}) {{ {body} }}'
    return [n.op_type for n in eqsat.optimize(text).model.graph]


@pytest.mark.parametrize(
    ("kind", "made"), [("float", ["Mish"]), ("double", ["Softplus", "Tanh", "Mul"]), ("bfloat16", ["Mish"])]
)
def test_by_type(kind: str, made: list[str]) -> None:
    assert _operators(kind, _LONG) == made


def test_what_the_model_has_itself_may_be_made() -> None:
    body = f"n = Neg(x) u = Mish(n) {_LONG}"
    assert sorted(_operators("double", body, ", double[2,3] u")) == ["Mish", "Mish", "Neg"]


def test_an_operator_of_the_model_that_a_rule_makes_again_stays() -> None:
    text = """<ir_version: 10, opset_import: ["": 24]> g (float[1,2,1] x) => (float[1,2,1] y) {
        t = Transpose<perm=[2,1,0]>(x) s = Swish(t) u = Transpose<perm=[2,1,0]>(s) v = Swish(u)
        y = Transpose<perm=[2,1,0]>(v) }"""
    assert [n.op_type for n in eqsat.optimize(text).model.graph] == ["Swish", "Swish"]
