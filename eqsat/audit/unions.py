"""Reconstructs the history of an e-graph: which rule united which e-nodes of a class.

egglog keeps no proofs that Python can read. But a saturation that records its matches in full tells for each which
e-node it started from, and with the answer to its signature also which one it made. E-nodes that are equal by
congruence are one e-node by then, so that what rules united connects each class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.egraph.compile_rules import CompiledClause
from eqsat.egraph.encode import node_constructor, operands
from eqsat.egraph.matched import MatchedNodes, key
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import Reader, Snapshot
from eqsat.egraph.template import Answer
from eqsat.egraph.union_steps import fewest_steps

FOLDING = "constant folding"
FIRST_OUTPUT = "first output alone"


@dataclass(frozen=True, slots=True)
class Edge:
    """Two e-nodes of one class, by their numbers in the snapshot, and the rule that united them."""

    left: int
    right: int
    rule: str
    place: str


class Unions:
    """The unions of a saturated e-graph.

    Args:
        saturation: One that records its matches.

    Attributes:
        snapshot: Of the e-graph; e-nodes are numbered as in it.
    """

    def __init__(self, saturation: Saturation) -> None:
        self.saturation = saturation
        self._reader = Reader(saturation)
        self.snapshot: Snapshot = self._reader.read()
        self._nodes = MatchedNodes(self.snapshot, self._reader.absent)
        self._neighbours: dict[int, list[tuple[int, Edge]]] = {}
        for edge in [*self._by_rules(), *self._by_folding(), *self._by_first_outputs()]:
            if edge.left != edge.right:
                self._neighbours.setdefault(edge.left, []).append((edge.right, edge))
                self._neighbours.setdefault(edge.right, []).append((edge.left, edge))

    def chain(self, start: int, good: Callable[[int], bool]) -> list[Edge]:
        """The fewest unions from an e-node that is ``good`` to ``start``; empty if there is no such chain."""
        return fewest_steps(start, lambda n: n != start and good(n), self.edges)

    def edges(self, node: int) -> list[tuple[int, Edge]]:
        """The e-nodes that rules united with this one."""
        return self._neighbours.get(node, [])

    def node_of(self, value: ir.Value) -> int | None:
        """The e-node by which the model itself computes a value."""
        encoding = self.saturation.encoding
        if value in encoding.inputs:
            return self._nodes.index.get(("input", encoding.inputs.index(value)))
        made = value.producer()
        if made is None:
            members = self.snapshot.classes[self.snapshot.refs[value]]
            return next((n for n in members if self.snapshot.nodes[n].kind == "const"), None)
        read, attrs = operands(made)
        constructor = node_constructor(made, len(read))
        children = [None if v is None else self.snapshot.refs[v] for v in read]
        return self._nodes.node(constructor, attrs, children, value.index() or 0)

    # ---- matches ----------------------------------------------------------------------------------

    def _by_rules(self) -> Iterator[Edge]:
        tables = self.saturation.engine.tables()
        to_int = self.saturation.engine.egraph.value_to_i64
        for clause, answerer in self.saturation.clauses():
            values, integers = clause.variables, [c.name for c in clause.columns]
            answers: dict[tuple[int, ...], Answer | None] = {}
            for row in tables[f"match_{clause.key}"].rows:
                classes = {v: self._reader.ids.get(c) for v, c in zip(values, row.inputs, strict=False)}
                numbers = dict(zip(integers, map(to_int, row.inputs[len(values) :]), strict=True))
                signature = tuple(numbers[c.name] for c in clause.columns)
                if signature not in answers:
                    answers[signature] = answerer.answer(signature)
                answer = answers[signature]
                if answer is not None:
                    yield from self._of_match(clause, classes, numbers, answer)

    def _of_match(
        self,
        clause: CompiledClause,
        classes: dict[str, int | None],
        numbers: dict[str, int],
        answer: Answer,
    ) -> Iterator[Edge]:
        definition = clause.definition
        name = definition.name if clause.layout is not None else f"{clause.target}.{definition.name}"
        built: list[int | None] = []
        if clause.layout is not None:
            built = self._nodes.built(clause.layout, classes, answer)
        for k, root in enumerate(clause.query.roots):
            site = next((s for s in clause.query.sites if s.value == root), None)
            left = None if site is None else self._nodes.left(site, classes, numbers)
            if clause.layout is None:
                right = self._nodes.composite(clause, classes, answer, k)
            else:
                right = self._nodes.right(clause.layout, clause.layout.roots[k], built, classes, left)
            if left is not None and right is not None:
                yield Edge(left, right, name, str(definition.place))

    # ---- unions without rules --------------------------------------------------------------

    def _by_folding(self) -> Iterator[Edge]:
        """Constants and the constant expressions that they are."""
        for members in self.snapshot.classes:
            constants = [n for n in members if self.snapshot.nodes[n].kind == "const"]
            for n in members:
                node = self.snapshot.nodes[n]
                fixed = all(c is None or self.snapshot.constant[c] for c in node.children)
                if node.kind in ("op", "part") and fixed:
                    yield from (Edge(n, c, FOLDING, "") for c in constants)

    def _by_first_outputs(self) -> Iterator[Edge]:
        for node in self.snapshot.nodes:
            if node.kind == "op" and node.outputs:
                alone = self._nodes.index.get(key("op", node.op, node.attrs, node.children, 0))
                part = self._nodes.index.get(("part", node.eclass, 0))
                if alone is not None and part is not None:
                    yield Edge(part, alone, FIRST_OUTPUT, "")
