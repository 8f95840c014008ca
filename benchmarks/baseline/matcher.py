"""Pattern matching as TVM's dataflow patterns do it, on the patterns of target files.

TVM's matcher (Relay and Relax alike) walks pattern and program together from the root and takes the first way that
fits: the left side of an alternative if it matches by itself, whatever comes later; both operand orders of ``add`` and
``multiply`` and of no other operator. It never goes back on such a choice, so it misses some of what the pattern
describes. Those misses are part of the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.baseline.expr import Expr
from eqsat.rules.ast import Alternatives, AttrBind, Match, Name, Number, Optional, Pattern, Rest, Wildcard
from eqsat.rules.ast import Expr as RuleExpr
from eqsat.schema.attributes import attr
from eqsat.schema.types import AttrValue, OpKey

COMMUTATIVE = frozenset({OpKey("", "Add"), OpKey("", "Mul")})
"""What TVM matches in both operand orders."""


@dataclass(slots=True)
class Found:
    """One place where a pattern matches.

    Attributes:
        root: The value that the pattern computes.
        tensors: Expression by variable name, None for an absent operand.
        rests: Expressions by name of a ``xs...``.
        nodes: Call by name of a bound node.
        attributes: Values by name of a bound attribute.
        operators: Operator by name, for ``(op: Add | Mul)``.
        calls: What the pattern covers: calls, and the tuples and items between them; readers first.
        leaves: What it reads from outside, without repetition, in order of first occurrence.
        literals: Constants that the pattern names by their value; no leaves.
    """

    root: Expr
    tensors: dict[str, Expr | None] = field(default_factory=dict)
    rests: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    nodes: dict[str, Expr] = field(default_factory=dict)
    attributes: dict[str, AttrValue] = field(default_factory=dict)
    operators: dict[str, OpKey] = field(default_factory=dict)
    calls: list[Expr] = field(default_factory=list)
    leaves: list[Expr] = field(default_factory=list)
    literals: list[Expr] = field(default_factory=list)


Evaluator = Callable[[RuleExpr, Found], object]
"""Value of an expression of the rule language under the bindings so far; None where it is not known."""


def find(pattern: Pattern, root: Expr, evaluate: Evaluator) -> Found | None:
    """The match of a pattern at one value, None if there is none."""
    search = _Search(root, evaluate)
    return search.found if search.match(pattern, root) else None


class _Search:
    """The state of one match: what is bound, and in which order, so that a failed branch can be undone."""

    def __init__(self, root: Expr, evaluate: Evaluator) -> None:
        self.found = Found(root)
        self._evaluate = evaluate
        self._memo: dict[int, Expr | None] = {}
        self._trail: list[Callable[[], object]] = []

    def match(self, pattern: Pattern | None, expr: Expr | None) -> bool:
        """Matches one operand; on failure nothing stays bound."""
        key = id(pattern)
        if isinstance(pattern, (Match, Alternatives)) and key in self._memo:
            # One pattern at two places (a `let` used twice) is one value.
            return self._memo[key] is expr
        mark = len(self._trail)
        if not self._match(pattern, expr):
            self._undo(mark)
            return False
        if isinstance(pattern, (Match, Alternatives)):
            self._memo[key] = expr
            self._trail.append(lambda: self._memo.pop(key))
        return True

    def _match(self, pattern: Pattern | None, expr: Expr | None) -> bool:
        match pattern:
            case None:
                return expr is None
            case Optional(name) if expr is None:
                return self._bind(self.found.tensors, name, None)
            case Name(name) | Optional(name):
                return expr is not None and self._bind(self.found.tensors, name, expr) and self._leaf(expr)
            case Wildcard():
                return expr is not None and self._leaf(expr)
            case Number(value):
                return expr is not None and _is_filled_with(expr, value) and self._listed(self.found.literals, expr)
            case Alternatives(options, _, name):
                matched = any(self.match(option, expr) for option in options)
                return matched and (name is None or self._bind(self.found.tensors, name, expr))
            case Match():
                return expr is not None and self._match_call(pattern, expr)
            case _:
                return False

    def _match_call(self, pattern: Match, expr: Expr) -> bool:
        call = expr
        if expr.kind == "item":
            if expr.index != pattern.output:
                return False
            assert expr.args[0] is not None
            call = expr.args[0]
        elif pattern.output:
            return False
        if call.kind != "call" or call.composite is not None or call.op not in pattern.ops:
            return False
        self._cover(expr)
        if call is not expr:
            self._cover(call)
        if pattern.op_name is not None and not self._bind(self.found.operators, pattern.op_name, call.op):
            return False
        if pattern.bind is not None:
            if not self._bind(self.found.nodes, pattern.bind, call):
                return False
            if not self._bind(self.found.tensors, pattern.bind, expr):
                return False
        if not all(self._match_attribute(a, call) for a in pattern.attrs):
            return False
        operands = call.args
        if len(operands) == 1 and operands[0] is not None and operands[0].kind == "tuple":
            self._cover(operands[0])
            operands = operands[0].args
        if self._match_operands(pattern.args, operands):
            return True
        return call.op in COMMUTATIVE and self._match_operands(pattern.args, operands[::-1])

    def _match_operands(self, patterns: tuple[Pattern | None, ...], operands: tuple[Expr | None, ...]) -> bool:
        mark = len(self._trail)
        if self._operands(patterns, operands):
            return True
        self._undo(mark)
        return False

    def _operands(self, patterns: tuple[Pattern | None, ...], operands: tuple[Expr | None, ...]) -> bool:
        rest = patterns[-1] if patterns and isinstance(patterns[-1], Rest) else None
        if rest is not None:
            patterns = patterns[:-1]
        elif any(o is not None for o in operands[len(patterns) :]):
            return False
        operands += (None,) * (len(patterns) - len(operands))
        if not all(self.match(p, o) for p, o in zip(patterns, operands, strict=False)):
            return False
        if rest is None:
            return True
        others = tuple(o for o in operands[len(patterns) :] if o is not None)
        return self._bind(self.found.rests, rest.name, others) and all(self._leaf(o) for o in others)

    def _match_attribute(self, bind: AttrBind, call: Expr) -> bool:
        value = attr(call.attrs, bind.attribute)
        if bind.equals is not None:
            wanted = self._evaluate(bind.equals, self.found)
            if isinstance(wanted, list):
                wanted = tuple(wanted)
            if wanted is None or value != wanted:
                return False
        return bind.name is None or (value is not None and self._bind(self.found.attributes, bind.name, value))

    def _bind(self, names: dict, name: str, value: object) -> bool:
        if name in names:
            return names[name] is value or names[name] == value
        names[name] = value
        self._trail.append(lambda: names.pop(name))
        return True

    def _leaf(self, expr: Expr) -> bool:
        return self._listed(self.found.leaves, expr)

    def _cover(self, expr: Expr) -> None:
        self._listed(self.found.calls, expr)

    def _listed(self, found: list[Expr], expr: Expr) -> bool:
        if expr not in found:
            found.append(expr)
            self._trail.append(found.pop)
        return True

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            self._trail.pop()()


def _is_filled_with(expr: Expr, value: float) -> bool:
    if expr.kind != "constant" or expr.value is None or expr.value.size == 0:
        return False
    array = expr.value.numpy()
    return bool(array.flat[0] == value) and bool(np.all(array == value))
