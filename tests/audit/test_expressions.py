"""Expressions of the audit and of explanations name tensors of the model, and nothing of the e-graph."""

from __future__ import annotations

from eqsat.audit.expressions import ENodeText
from eqsat.egraph.snapshot import snapshot
from tests.egraph.helpers import model, saturated

DEEP = "rule deep : real\n    Relu(x)  =>  Neg(Exp(Abs(Ceil(Floor(Sqrt(x))))))\n"


def test_what_is_deep_inside_is_left_out() -> None:
    found = snapshot(saturated(model("out = Relu(x)"), DEEP))
    text = ENodeText(found)
    (made,) = [text.of(node) for node in found.nodes if node.kind == "op" and node.op.name == "Neg"]
    assert made == "Neg(Exp(Abs(Ceil(...))))"
