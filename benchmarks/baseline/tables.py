"""What target files say, in the form in which TVM's passes ask for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.baseline.expr import Expr
from benchmarks.baseline.matcher import Found
from benchmarks.baseline.partition import Tables
from eqsat.model.inference.infer import MAX_VALUE
from eqsat.rules.ast import Composite, Target
from eqsat.rules.ast import Expr as RuleExpr
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate, holds
from eqsat.targets.kernel_cost import CostModel

_ABSENT = TensorFacts(None, None, False, False)


def tables(costs: CostModel) -> Tables:
    """The accelerators of a cost model as tables."""
    accelerators = tuple(t for t in costs.targets if not t.is_host)
    index = {t.name: i for i, t in enumerate(costs.targets)}
    facts = Facts()

    def value(expr: RuleExpr, found: Found) -> object:
        try:
            return evaluate(expr, _names(facts, found))
        except Unknown:
            return None

    def names(composite: Composite, found: Found) -> Mapping[str, object]:
        return _names(facts, found)

    def supports(target: Target, expr: Expr) -> bool:
        return math.isfinite(operator_cost(costs, index[target.name], expr, facts))

    return Tables(accelerators, value, names, lambda composite, known: holds(composite.where, known) is None, supports)


class Facts:
    """Facts of expressions, each looked up once."""

    def __init__(self) -> None:
        self._known: dict[Expr, TensorFacts] = {}

    def of(self, expr: Expr | None) -> TensorFacts:
        """What conditions may ask of a value; the contents of constants only where they are small."""
        if expr is None:
            return _ABSENT
        if expr not in self._known:
            small = expr.value is not None and expr.value.size <= MAX_VALUE
            content = expr.value.numpy() if small and expr.value is not None else None
            self._known[expr] = TensorFacts(expr.type, content, expr.kind == "constant")
        return self._known[expr]

    def operands(self, args: Sequence[Expr | None]) -> list[TensorFacts | None]:
        """Facts of a call's operands, a tuple's fields in its place."""
        flat = args[0].args if len(args) == 1 and args[0] is not None and args[0].kind == "tuple" else args
        return [None if a is None else self.of(a) for a in flat]


def operator_cost(costs: CostModel, target: int, call: Expr, facts: Facts) -> float:
    """Seconds of a plain operator on a target, ``inf`` where it does not run there."""
    return costs.operator(target, call.op, call.attrs, facts.operands(call.args), call.types, place=call.name)


def _names(facts: Facts, found: Found) -> dict[str, object]:
    known: dict[str, object] = {name: facts.of(expr) for name, expr in found.tensors.items()}
    known |= {name: tuple(facts.of(e) for e in exprs) for name, exprs in found.rests.items()}
    known |= found.attributes
    for name, call in found.nodes.items():
        known[name] = NodeFacts(call.op, call.attrs, facts.of(found.tensors.get(name)))
    return known
