"""No rule introduces an operator that ONNX Runtime cannot run: for every element type, each has a kernel.

Only what a rule makes of operators that do have kernels counts, and only what is left to run: constant expressions
are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir
import pytest

from eqsat.check import instance_data
from eqsat.check.attempt import draw
from eqsat.check.audit import COMMUTED, Audit
from eqsat.check.draw_state import Drawing
from eqsat.check.instance import Instance
from eqsat.check.oracle import own_kernels
from eqsat.egraph.snapshot import ENode
from eqsat.errors import EqsatError
from eqsat.model.inference.infer import infer_types
from eqsat.model.write.runnable import written
from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.rules.ast import Rule
from eqsat.rules.expand import expand
from eqsat.rules.reader import read_text
from eqsat.rules.selection import select_rules
from eqsat.schema.declared_operators import function_body
from eqsat.schema.types import Attrs, OpKey, TensorType
from tests.check.oracle import has_kernel

RULES = select_rules((), "approximate", default_rules=True).rules
DTYPES = (
    *("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"),
    *("FLOAT16", "FLOAT", "DOUBLE", "BOOL"),
)
PATIENCE = 12
"""Attempts to find an instance of a clause with an element type; the conditions of many rules exclude most types."""


def instances(rule: Rule, dtype: ir.DataType) -> Iterator[Instance]:
    """Left sides of the rule whose leaves have an element type, where that is left open."""
    for number, clause in enumerate(expand(rule.left)):
        drawing = Drawing(rule, clause)
        for attempt in range(PATIENCE):
            try:
                instance = draw(drawing, Chance(int(dtype), number, attempt))
            except Rejected:
                continue
            yield instance
            break


def runs(op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None], outputs: int) -> bool:
    body = function_body(op, attrs)
    return body is not None or has_kernel(op, attrs, inputs, max(outputs, 1))


def left_runs(instance: Instance) -> bool:
    types: dict[str, TensorType | None] = {leaf.name: leaf.type for leaf in instance.leaves}
    for step in instance.steps:
        inputs = [types[i] if i else None for i in step.inputs]
        if not runs(step.op, step.attrs, inputs, len(step.outputs)):
            return False
        several = len(step.outputs) > 1
        found = infer_types(step.op, step.attrs, inputs, outputs=len(step.outputs)) if several else [step.type]
        types |= dict(zip(step.outputs, found, strict=True))
    return True


DEFINED = frozenset({OpKey("", "Swish")})
"""Operators that targets and generated C have, and that a file for ONNX Runtime holds as their definition."""


def without_kernel(instance: Instance) -> Iterator[str]:
    """What the rule adds to the instance and ONNX Runtime does not run."""
    audit = Audit.of(instance, own_kernels)
    egraph = audit.egraph

    def constant(eclass: int | None) -> bool:
        return eclass is None or egraph.constant[eclass]

    def added(node: ENode) -> bool:
        return node.kind == "op" and node.rule > COMMUTED and not all(map(constant, node.children))

    for node in egraph.nodes:
        if added(node):
            types = [None if c is None else egraph.types[c] for c in node.children]
            if node.op in DEFINED and written(node.op, node.attrs, types) is not None:
                continue
            if not runs(node.op, node.attrs, types, node.outputs):
                yield f"{node.op}({', '.join(map(str, types))})"


def missing_kernels(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found: set[str] = set()
    for name in DTYPES:
        monkeypatch.setattr(instance_data, "DTYPES", {ir.DataType[name]: 1.0})
        for instance in instances(rule, ir.DataType[name]):
            try:
                if left_runs(instance):
                    found.update(without_kernel(instance))
            except EqsatError:
                continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_introduces_has_a_kernel(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not missing_kernels(rule, monkeypatch)


def test_a_missing_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = read_text("rule r : exact\n    Clip(x, 0)  =>  Relu(x)").rules[0]
    assert any("Relu" in found for found in missing_kernels(rule, monkeypatch))
