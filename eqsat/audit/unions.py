"""Reconstructs the history of an e-graph: which rule united which e-nodes of a class.

egglog keeps no proofs that Python can read. But a saturation that records its matches in full tells for each which
e-node it started from, and with the answer to its signature also which one it made. E-nodes that are equal by
congruence are one e-node by then, so that what rules united connects each class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.egraph.compile import CompiledClause
from eqsat.egraph.encode import node_constructor, operands
from eqsat.egraph.language import Constructor
from eqsat.egraph.query import Site
from eqsat.egraph.right_side import BuildStep, ConstantStep, Layout, Operand
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import ENode, Reader, Snapshot
from eqsat.egraph.template import Answer
from eqsat.ops.properties import is_commutative
from eqsat.schema.types import Attrs, OpKey

FOLDING = "constant folding"
FIRST_OUTPUT = "first output alone"

Key = tuple[object, ...]


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
        self._index = {_key_of(node): i for i, node in enumerate(self.snapshot.nodes)}
        self._neighbours: dict[int, list[tuple[int, Edge]]] = {}
        for edge in [*self._by_rules(), *self._by_folding(), *self._by_first_outputs()]:
            if edge.left != edge.right:
                self._neighbours.setdefault(edge.left, []).append((edge.right, edge))
                self._neighbours.setdefault(edge.right, []).append((edge.left, edge))

    def chain(self, start: int, good: Callable[[int], bool]) -> list[Edge]:
        """The fewest unions from an e-node that is ``good`` to ``start``; empty if there is no such chain."""
        came: dict[int, tuple[int, Edge] | None] = {start: None}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            if here != start and good(here):
                edges = []
                step = came[here]
                while step is not None:
                    edges.append(step[1])
                    step = came[step[0]]
                return edges
            for there, edge in self._neighbours.get(here, ()):
                if there not in came:
                    came[there] = (here, edge)
                    waiting.append(there)
        return []

    def edges(self, node: int) -> list[tuple[int, Edge]]:
        """The e-nodes that rules united with this one."""
        return self._neighbours.get(node, [])

    def node_of(self, value: ir.Value) -> int | None:
        """The e-node by which the model itself computes a value."""
        encoding = self.saturation.encoding
        if value in encoding.inputs:
            return self._index.get(("input", encoding.inputs.index(value)))
        made = value.producer()
        if made is None:
            members = self.snapshot.classes[self.snapshot.refs[value]]
            return next((n for n in members if self.snapshot.nodes[n].kind == "const"), None)
        read, attrs = operands(made)
        constructor = node_constructor(made, len(read))
        children = [None if v is None else self.snapshot.refs[v] for v in read]
        return self._node(constructor, attrs, children, value.index() or 0)

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
            built = self._built(clause.layout, classes, answer)
        for k, root in enumerate(clause.query.roots):
            site = next((s for s in clause.query.sites if s.value == root), None)
            left = None if site is None else self._left(site, classes, numbers)
            if clause.layout is None:
                right = self._composite(clause, classes, answer, k)
            else:
                right = self._right(clause.layout, clause.layout.roots[k], built, classes, left)
            if left is not None and right is not None:
                yield Edge(left, right, name, str(definition.place))

    def _left(self, site: Site, classes: dict[str, int | None], numbers: dict[str, int]) -> int | None:
        """The e-node that a root matched."""
        children = tuple(self._operand(classes.get(v)) for v in site.operands)
        attrs = self.saturation.tables.attrs[numbers[site.attrs]]
        return self._node(site.constructor, attrs, children, site.match.output)

    def _operand(self, eclass: int | None) -> int | None:
        return None if eclass is None or eclass == self._reader.absent else eclass

    def _node(self, constructor: Constructor, attrs: Attrs, children: Sequence[int | None], output: int) -> int | None:
        """An operator's e-node, or the projection of a tuple's."""
        key = _key("op", constructor.op, attrs, children, constructor.outputs)
        found = self._index.get(key)
        if found is None or not constructor.outputs:
            return found
        return self._index.get(("part", self.snapshot.nodes[found].eclass, output))

    def _built(self, layout: Layout, classes: dict[str, int | None], answer: Answer) -> list[int | None]:
        """The e-node of each step, None where it is a constant or is not there."""
        built: list[int | None] = []
        for i, step in enumerate(layout.steps):
            if isinstance(step, ConstantStep) or i in answer.folded:
                built.append(self._index.get(("const", answer.columns[i])))
                continue
            children = [self._class(layout, o, built, classes) for o in step.operands]
            key = _key("op", step.constructor.op, self._attrs(answer, i), children, step.constructor.outputs)
            built.append(self._index.get(key))
        return built

    def _attrs(self, answer: Answer, step: int) -> Attrs:
        return self.saturation.tables.attrs[answer.columns[step]]

    def _class(
        self, layout: Layout, operand: Operand | None, built: list[int | None], classes: dict[str, int | None]
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
            part = self._index.get(("part", self.snapshot.nodes[found].eclass, operand.output))
            return -1 if part is None else self.snapshot.nodes[part].eclass
        return self.snapshot.nodes[found].eclass

    def _right(
        self,
        layout: Layout,
        root: Operand,
        built: list[int | None],
        classes: dict[str, int | None],
        left: int | None,
    ) -> int | None:
        """The e-node that a root's template made; of a variable, what was there before the rules if there is any."""
        if root.variable is not None:
            eclass = classes.get(root.variable)
            members = [] if eclass is None else [n for n in self.snapshot.classes[eclass] if n != left]
            return min(members, key=lambda n: (self.snapshot.nodes[n].rule, n), default=None)
        assert root.step is not None
        found, step = built[root.step], layout.steps[root.step]
        if found is not None and isinstance(step, BuildStep) and step.constructor.outputs:
            return self._index.get(("part", self.snapshot.nodes[found].eclass, root.output))
        return found

    def _composite(
        self, clause: CompiledClause, classes: dict[str, int | None], answer: Answer, result: int
    ) -> int | None:
        """The e-node of a composite, or the projection of one of its results."""
        (constructor,) = clause.built
        children = tuple(self._operand(classes.get(v)) for v in clause.query.leaves)
        instance = self.saturation.tables.composites[answer.columns[0]]
        found = self._index.get(("composite", constructor.op, id(instance), _unordered(children)))
        if found is None or not constructor.outputs:
            return found
        return self._index.get(("part", self.snapshot.nodes[found].eclass, result))

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
                alone = self._index.get(_key("op", node.op, node.attrs, node.children, 0))
                part = self._index.get(("part", node.eclass, 0))
                if alone is not None and part is not None:
                    yield Edge(part, alone, FIRST_OUTPUT, "")


def _unordered(children: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(sorted(-2 if c is None else c for c in children))


def _key(kind: str, op: OpKey, attrs: Attrs, children: Sequence[int | None], outputs: int) -> Key:
    commutes = is_commutative(op) and len(children) == 2 and not outputs
    return (kind, op, attrs, _unordered(children) if commutes else tuple(children), outputs)


def _key_of(node: ENode) -> Key:
    """What tells an e-node from all others."""
    if node.kind == "part":
        return ("part", node.children[0], node.number)
    if node.kind in ("const", "input"):
        return (node.kind, node.number)
    if node.kind == "composite":
        return ("composite", node.op, id(node.composite), _unordered(node.children))
    return _key("op", node.op, node.attrs, node.children, node.outputs)
