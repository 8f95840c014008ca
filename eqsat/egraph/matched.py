"""Which e-nodes a match of a rule started from, and which it made.

egglog keeps no proofs that Python can read. But a match that is recorded in full tells the e-nodes of its pattern, and
with the answer to its signature also those of the right side.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from eqsat.egraph.compile_rules import CompiledClause
from eqsat.egraph.language import COMMUTED, Constructor
from eqsat.egraph.query import MatchedOperator
from eqsat.egraph.right_side import BuildStep, ConstantStep, OperandOrigin, StepOrder
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.egraph.template import Answer
from eqsat.ops.properties import is_commutative
from eqsat.schema.types import Attrs, OpKey

MatchKey = tuple[object, ...]


class MatchedNodes:
    """Finds the e-nodes of matches in a snapshot.

    Args:
        snapshot: E-nodes are numbered as in it.
        absent: The class of operands that are absent.

    Attributes:
        index: What tells an e-node from all others -> its number.
    """

    def __init__(self, snapshot: Snapshot, absent: int | None) -> None:
        self.snapshot = snapshot
        self.absent = absent
        self.index = {key_of(node): i for i, node in enumerate(snapshot.nodes)}

    def left(self, site: MatchedOperator, classes: dict[str, int | None], numbers: dict[str, int]) -> int | None:
        """The e-node that a root matched."""
        children = tuple(self._operand(classes.get(v)) for v in site.operands)
        attrs = self.snapshot.tables.attrs[numbers[site.attrs]]
        return self.node(site.constructor, attrs, children, site.match.output)

    def _operand(self, eclass: int | None) -> int | None:
        return None if eclass is None or eclass == self.absent else eclass

    def node(self, constructor: Constructor, attrs: Attrs, children: Sequence[int | None], output: int) -> int | None:
        """An operator's e-node, or the projection of a tuple's."""
        found = self.index.get(key("op", constructor.op, attrs, children, constructor.outputs))
        if found is None or not constructor.outputs:
            return found
        return self.index.get(("part", self.snapshot.nodes[found].eclass, output))

    def built(self, layout: StepOrder, classes: dict[str, int | None], answer: Answer) -> list[int | None]:
        """The e-node of each step; None if it is a constant or does not exist."""
        built: list[int | None] = []
        for i, step in enumerate(layout.steps):
            if isinstance(step, ConstantStep) or i in answer.folded:
                built.append(self.index.get(("const", answer.columns[i])))
                continue
            children = [self._class(layout, o, built, classes) for o in step.operands]
            found = key("op", step.constructor.op, self._attrs(answer, i), children, step.constructor.outputs)
            built.append(self.index.get(found))
        return built

    def _attrs(self, answer: Answer, step: int) -> Attrs:
        return self.snapshot.tables.attrs[answer.columns[step]]

    def _class(
        self, layout: StepOrder, operand: OperandOrigin | None, built: list[int | None], classes: dict[str, int | None]
    ) -> int | None:
        if operand is None:
            return None
        if operand.variable is not None:
            return self._operand(classes.get(operand.variable))
        assert operand.step is not None
        found = built[operand.step]
        if found is None:
            return -1
        step = layout.steps[operand.step]
        if isinstance(step, BuildStep) and step.constructor.outputs:
            part = self.index.get(("part", self.snapshot.nodes[found].eclass, operand.output))
            return -1 if part is None else self.snapshot.nodes[part].eclass
        return self.snapshot.nodes[found].eclass

    def right(
        self,
        layout: StepOrder,
        root: OperandOrigin,
        built: list[int | None],
        classes: dict[str, int | None],
        left: int | None,
    ) -> int | None:
        """The e-node that a root's template made; of a variable, what was there before the rules if there is any."""
        if root.variable is not None:
            eclass = classes.get(root.variable)
            members = [] if eclass is None else [n for n in self.snapshot.classes[eclass] if n != left]
            return min(members, key=self._precedence, default=None)
        assert root.step is not None
        found, step = built[root.step], layout.steps[root.step]
        if found is not None and isinstance(step, BuildStep) and step.constructor.outputs:
            return self.index.get(("part", self.snapshot.nodes[found].eclass, root.output))
        return found

    def _precedence(self, n: int) -> tuple[bool, int, int, int]:
        """Sort key: of two e-nodes of a class, a rule that leaves out operators made the lower one equal to the higher
        one.
        """
        node = self.snapshot.nodes[n]
        return node.rule > COMMUTED, self._heights.get(n, len(self.snapshot.nodes)), node.rule, n

    @cached_property
    def _heights(self) -> dict[int, int]:
        """The least number of operators between an e-node and the leaves."""
        nodes = self.snapshot.nodes
        of_class: dict[int, int] = {}
        heights: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        missing: dict[int, int] = {}
        level: list[int] = []
        for n, node in enumerate(nodes):
            children = {c for c in node.children if c is not None}
            missing[n] = len(children)
            for child in children:
                readers.setdefault(child, []).append(n)
            if not children:
                level.append(n)
        height = 0
        while level:
            further: list[int] = []
            for n in level:
                heights[n] = height
                eclass = nodes[n].eclass
                if eclass in of_class:
                    continue
                of_class[eclass] = height
                for reader in readers.get(eclass, ()):
                    missing[reader] -= 1
                    if not missing[reader]:
                        further.append(reader)
            level, height = further, height + 1
        return heights

    def composite(
        self, clause: CompiledClause, classes: dict[str, int | None], answer: Answer, result: int
    ) -> int | None:
        """The e-node of a composite, or the projection of one of its results."""
        (constructor,) = clause.built
        children = tuple(self._operand(classes.get(v)) for v in clause.query.leaves)
        instance = self.snapshot.tables.composites[answer.columns[0]]
        found = self.index.get(("composite", constructor.op, id(instance), unordered(children)))
        if found is None or not constructor.outputs:
            return found
        return self.index.get(("part", self.snapshot.nodes[found].eclass, result))


def unordered(children: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(sorted(-2 if c is None else c for c in children))


def key(kind: str, op: OpKey, attrs: Attrs, children: Sequence[int | None], outputs: int) -> MatchKey:
    commutes = is_commutative(op) and len(children) == 2 and not outputs
    return (kind, op, attrs, unordered(children) if commutes else tuple(children), outputs)


def key_of(node: ENode) -> MatchKey:
    """A key that is unique to each e-node."""
    if node.kind == "part":
        return ("part", node.children[0], node.number)
    if node.kind in ("const", "input"):
        return (node.kind, node.number)
    if node.kind == "composite":
        return ("composite", node.op, id(node.composite), unordered(node.children))
    return key("op", node.op, node.attrs, node.children, node.outputs)
