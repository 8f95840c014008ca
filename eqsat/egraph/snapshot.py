"""The saturated e-graph as plain data: classes with types, e-nodes with operators and provenance.

Read once from egglog; everything after it (cost, extraction, plan) works on this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx_ir as ir

from eqsat.egraph.affordable import unaffordable
from eqsat.egraph.answer import CompositeInstance
from eqsat.egraph.enode import ENode as ENode
from eqsat.egraph.intern import InternedConstant, Tables
from eqsat.egraph.language import COMMUTED, ORIGINAL, Constructor
from eqsat.egraph.saturate import Saturation
from eqsat.schema.types import OpKey, TensorType


@dataclass
class Snapshot:
    """A saturated e-graph.

    Attributes:
        nodes: All e-nodes, ordered by class.
        classes: Indices of the e-nodes of each class.
        types: Type of each class where known; tuples have none.
        constant: Whether each class is a constant expression that is computed in advance.
        value: Small constant that each class equals, if known.
        refs: Value of the model -> class.
        inputs: The model's inputs; ``number`` of an input e-node indexes it.
        rules: Names by rule number.
        quantized: Class of the integers of each approximation.
        unfit: E-nodes of constants that are too large to be computed in advance.
        ids: egglog's value of a class -> its number here.
    """

    nodes: list[ENode]
    classes: list[list[int]]
    types: list[TensorType | None]
    constant: list[bool]
    value: list[InternedConstant | None]
    refs: dict[ir.Value, int]
    inputs: list[ir.Value]
    rules: list[str]
    tables: Tables
    quantized: tuple[int, ...] = ()
    unfit: frozenset[int] = frozenset()
    ids: Mapping[Any, int] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The index of each e-node, by its identity."""
        return {id(node): n for n, node in enumerate(self.nodes)}

    def is_fixed(self, eclass: int) -> bool:
        """Whether a class does not depend on the model's inputs."""
        return self.constant[eclass] or self.value[eclass] is not None


_NO_OP = OpKey("", "")


def snapshot(saturation: Saturation) -> Snapshot:
    """Reads the e-graph; commuted copies of an e-node are left out."""
    return Reader(saturation).read()


class Reader:
    """Reads one e-graph.

    Attributes:
        ids: egglog's value of a class -> its number in the snapshot.
    """

    def __init__(self, saturation: Saturation) -> None:
        self.saturation = saturation
        self.engine = saturation.engine
        self.tables = self.engine.tables()
        self.to_int = self.engine.egraph.value_to_i64
        self.ids: dict[Any, int] = {}
        self.absent: int | None = None

    def read(self) -> Snapshot:
        saturation, constants = self.saturation, self.saturation.tables.constants
        refs = {self.to_int(row.inputs[0]): self._class(row.output) for row in self.tables["ref"].rows}
        encoding = saturation.encoding
        nodes = self._leaves()
        nodes += self._wide(refs)
        for constructor in saturation.constructors:
            nodes += self._nodes_of(constructor)
        nodes = _without_copies(nodes)
        size = len(self.ids)
        types: list[TensorType | None] = [None] * size
        constant = [False] * size
        value: list[InternedConstant | None] = [None] * size
        for row in self.tables["type"].rows:
            types[self._class(row.inputs[0])] = saturation.tables.types[self.to_int(row.output)]
        for name in ("isc", "iscm"):
            for row in self.tables[name].rows:
                constant[self._class(row.inputs[0])] = True
        for row in self.tables["cval"].rows:
            value[self._class(row.inputs[0])] = constants[self.to_int(row.output)]
        nodes.sort(key=lambda n: n.eclass)
        classes: list[list[int]] = [[] for _ in range(size)]
        for i, node in enumerate(nodes):
            classes[node.eclass].append(i)
        unfit, dear = unaffordable(nodes, classes, types, constant, value, lambda n: constants[n.number])
        for c in dear:
            constant[c] = False
        if dear:
            # A composite may require a constant.
            classes = [
                [n for n in members if nodes[n].kind != "composite" or dear.isdisjoint(nodes[n].children)]
                for members in classes
            ]
        return Snapshot(
            nodes,
            classes,
            types,
            constant,
            value,
            {v: refs[k] for k, v in enumerate(encoding.values)},
            encoding.inputs,
            saturation.names,
            saturation.tables,
            tuple(refs[len(encoding.values) + k] for k in range(len(saturation.additions.approximations))),
            unfit,
            self.ids,
        )

    def _class(self, value: Any) -> int:
        return self.ids.setdefault(value, len(self.ids))

    def _leaves(self) -> list[ENode]:
        nodes = []
        for kind, table in (("const", "Const"), ("input", "Input")):
            for row in self.tables[table].rows:
                number, eclass = self.to_int(row.inputs[0]), self._class(row.output)
                if kind == "const" and number == 0:
                    self.absent = eclass
                    continue
                nodes.append(ENode(kind, _NO_OP, (), (), eclass, number))
        for row in self.tables["out"].rows:
            tuple_class, index = self._class(row.inputs[0]), self.to_int(row.inputs[1])
            nodes.append(ENode("part", _NO_OP, (), (tuple_class,), self._class(row.output), index))
        return nodes

    def _wide(self, refs: dict[int, int]) -> list[ENode]:
        """E-nodes with so many operands that they are leaves; all are nodes of the model."""
        nodes = []
        for table in ("Wide", "WideM"):
            for row in self.tables[table].rows:
                node = self.saturation.encoding.wide[self.to_int(row.inputs[0])]
                children = tuple(None if o is None else refs[o] for o in node.operands)
                op, outputs = node.constructor.op, node.constructor.outputs
                nodes.append(ENode("op", op, node.attrs, children, self._class(row.output), 0, outputs))
        return nodes

    def _nodes_of(self, constructor: Constructor) -> list[ENode]:
        attrs_of, composites = self.saturation.tables.attrs, self.saturation.tables.composites
        made = {tuple(row.inputs): row.output for row in self.tables[f"made_{constructor.name}"].rows}
        found: dict[tuple[Any, ...], ENode] = {}
        for row in self.tables[constructor.name].rows:
            inputs = tuple(row.inputs)
            rule = self.to_int(made[inputs]) if inputs in made else ORIGINAL
            number = self.to_int(inputs[0])
            eclass = self._class(row.output)
            children = tuple(self._operand(v) for v in inputs[1:])
            if constructor.composite:
                instance = composites[number]
                assert isinstance(instance, CompositeInstance)
                node = ENode("composite", constructor.op, (), children, eclass, 0, constructor.outputs, rule, instance)
            else:
                node = ENode("op", constructor.op, attrs_of[number], children, eclass, 0, constructor.outputs, rule)
            key: tuple[Any, ...] = (number, eclass, children)
            if constructor.is_commutative or constructor.composite:
                key = (number, eclass, tuple(sorted(c if c is not None else -1 for c in children)))
            if key not in found or _preference(found[key]) > _preference(node):
                found[key] = node
        return list(found.values())

    def _operand(self, value: Any) -> int | None:
        eclass = self._class(value)
        return None if eclass == self.absent else eclass


def _without_copies(nodes: Sequence[ENode]) -> list[ENode]:
    """The e-nodes without copies of composites with several results.

    A pattern that looks the same from each result, such as two products of one matrix, matches in every order. The
    copies compute the same values from the same operands.
    """
    parts: dict[int, list[int]] = {}
    for node in nodes:
        if node.kind == "part" and node.children[0] is not None:
            parts.setdefault(node.children[0], []).append(node.eclass)
    kept: dict[tuple[Any, ...], ENode] = {}
    copies: set[int | None] = set()
    for node in sorted((n for n in nodes if n.kind == "composite" and n.outputs), key=_preference):
        operands = tuple(sorted(-1 if c is None else c for c in node.children))
        key = (id(node.composite), operands, tuple(sorted(parts.get(node.eclass, ()))))
        if kept.setdefault(key, node).eclass != node.eclass:
            copies.add(node.eclass)
    return [n for n in nodes if n.eclass not in copies and not (n.kind == "part" and n.children[0] in copies)]


def _preference(node: ENode) -> tuple[bool, int, tuple[int, ...]]:
    """Sort key for copies that differ in operand order: the model's own first, then those that rules built."""
    return node.rule == COMMUTED, node.rule, tuple(-1 if c is None else c for c in node.children)
