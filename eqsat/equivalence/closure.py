"""Finds the classes of a saturated e-graph that are equal if constants are compared by value, and the steps that prove
it.

A step is a rule that united two e-nodes, or that two e-nodes apply one operator to equal operands.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import onnx_ir as ir

from eqsat.audit.unions import Edge, Unions
from eqsat.egraph.snapshot import ENode
from eqsat.egraph.union_steps import fewest_steps
from eqsat.equivalence.constant_expressions import ClassConstants
from eqsat.equivalence.tensors import Partition
from eqsat.ops.properties import is_commutative

FOLDED = "computed constants"
ROUNDED = "constants, up to rounding"
CONGRUENT = "equal operands"


class ConstantClosure:
    """The classes of one e-graph with the equalities between constants.

    Args:
        unions: Of a saturation that records its matches.
        rounded: Whether constants count as equal that differ by rounding.
    """

    def __init__(self, unions: Unions, *, rounded: bool = True) -> None:
        self.unions = unions
        self.snapshot = unions.snapshot
        self.constants = ClassConstants(self.snapshot, rounded=rounded)
        self._classes = Partition(len(self.snapshot.classes))
        self._across: dict[int, list[tuple[int, Edge]]] = {}
        while self._round():
            pass

    def same(self, a: ir.Value, b: ir.Value) -> bool:
        """Whether two tensors of the encoded model are equal."""
        left, right = self.snapshot.refs[a], self.snapshot.refs[b]
        if self._classes.same(left, right):
            return True
        fixed = self.snapshot.constant[left] and self.snapshot.constant[right]
        return fixed and self.constants.first(left) == self.constants.first(right)

    def chain(self, a: ir.Value, b: ir.Value) -> list[Edge]:
        """The fewest steps from one tensor to an equal one."""
        start, end = self.unions.node_of(a), self.unions.node_of(b)
        if start is None or end is None:
            return []
        return fewest_steps(start, lambda n: n == end, lambda n: (*self.unions.edges(n), *self._across.get(n, ())))[
            ::-1
        ]

    def below(self, values: Iterable[ir.Value]) -> set[str]:
        """The rules that united anything from which the tensors can be computed."""
        waiting = [self.snapshot.refs[v] for v in values]
        seen: set[int] = set()
        rules: set[str] = set()
        while waiting:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            for n in self.snapshot.classes[here]:
                rules.update(edge.rule for _, edge in self.unions.edges(n))
                waiting += [c for c in self.snapshot.nodes[n].children if c is not None]
        return rules

    def _round(self) -> bool:
        """Unites classes whose e-nodes have become equal; whether there were any."""
        alike: dict[Hashable, list[int]] = {}
        for i, node in enumerate(self.snapshot.nodes):
            if node.kind in ("op", "part"):
                alike.setdefault(self._key(node, exact=False), []).append(i)
        changed = False
        for members in alike.values():
            if len({self._classes.find(self.snapshot.nodes[i].eclass) for i in members}) == 1:
                continue
            known: dict[Hashable, int] = {}
            for i in members:
                first = known.setdefault(self._key(self.snapshot.nodes[i], exact=True), i)
                if first != i and self._join(first, i):
                    changed = True
        return changed

    def _join(self, a: int, b: int) -> bool:
        nodes = self.snapshot.nodes
        if not self._classes.join(nodes[a].eclass, nodes[b].eclass):
            return False
        edge = Edge(a, b, self._why(nodes[a], nodes[b]), "")
        self._across.setdefault(a, []).append((b, edge))
        self._across.setdefault(b, []).append((a, edge))
        return True

    def _why(self, a: ENode, b: ENode) -> str:
        fixed = [c for c in {*a.children, *b.children} if c is not None and self.snapshot.constant[c]]
        if set(a.children) == set(b.children) or not fixed:
            return CONGRUENT
        return ROUNDED if any(self.constants.is_rounded(c) for c in fixed) else FOLDED

    def _key(self, node: ENode, *, exact: bool) -> Hashable:
        """Equal for e-nodes that may be equal, or with ``exact`` for those that are."""
        operands = [self._operand(c, exact) for c in node.children]
        if is_commutative(node.op) and len(operands) == 2 and not node.outputs:
            operands.sort(key=str)
        return (node.kind, node.op, node.attrs, node.number, node.outputs, *operands)

    def _operand(self, eclass: int | None, exact: bool) -> Hashable:
        if eclass is None:
            return None
        if not self.snapshot.constant[eclass]:
            return self._classes.find(eclass)
        return ("constant", self.constants.first(eclass)) if exact else ("constant", str(self.snapshot.types[eclass]))
