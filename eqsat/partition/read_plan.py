"""Reads a model back as a plan: the only place where the decisions of a search are read from metadata.

A model that eqsat did not write is a plan as well: it runs on the host as a whole, and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import onnx_ir as ir

from eqsat.ops.own_operators import LAYOUTS
from eqsat.partition.function_bodies import bound_node
from eqsat.partition.plan import Plan, PlanNode
from eqsat.partition.subgraphs import captured_names
from eqsat.schema.attributes import captured_values, op_key, subgraphs, to_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import declared_name
from eqsat.schema.metadata import (
    CALL,
    COMPOSITE,
    FAMILY,
    OPERANDS,
    REGION,
    RULE,
    TARGET,
    is_region,
    seconds_of,
    targets_of,
)
from eqsat.schema.types import CONSTANT, OpKey, tensor_type

NO_TARGET = "vendor"
"""The target of a kernel that has a C call, if the model names none."""
_DIGITS = 5
"""Most digits of the number of an operand."""


@dataclass(frozen=True)
class SavedScope:
    """The main graph of a model, or the function of a region, as a plan.

    Attributes:
        plan: The program. The main graph's plan calls regions by the names of their functions.
        nodes: The nodes of the model, one for each node of the plan.
        values: The values of the model by their ids in the plan.
        pieces: Names of the regions of nodes on the host, empty where there is none; one for each node.
    """

    plan: Plan
    nodes: tuple[ir.Node, ...]
    values: tuple[ir.Value, ...]
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class SavedFunction:
    """The function of a region.

    Attributes:
        name: Such as ``dnnl_0``.
        target: Name of the target; empty if the model names none.
        function: The function itself.
        scope: Its plan, with the types of the operands of its call.
    """

    name: str
    target: str
    function: ir.Function
    scope: SavedScope


@dataclass(frozen=True)
class SavedPlan:
    """A model as a plan.

    Attributes:
        main: The main graph.
        regions: The functions of regions by the operator that calls them.
    """

    main: SavedScope
    regions: Mapping[OpKey, SavedFunction]


def read_plan(model: ir.Model) -> SavedPlan:
    """Reads a model as a plan.

    Args:
        model: As loaded, or written by eqsat; it is not changed. Tensors are shared.
    """
    return _Reader(model.functions, targets_of(model.metadata_props)).read(model.graph)


def read_region(function: ir.Function, functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> SavedFunction:
    """Reads the function of a region.

    Args:
        function: The function; it is not changed.
        functions: All functions of the model.
    """
    return _Reader(functions, ()).region(function)


def region_target(function: ir.Function | None) -> str | None:
    """The target of a region's function, empty if the model names none; None for anything else."""
    marks = {} if function is None else function.metadata_props
    return marks.get(TARGET, "") if is_region(marks) else None


def called_regions(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Function]]:
    """The calls of regions in a model and in the bodies of its control flow, with their functions."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        function = model.functions.get(node.op_identifier())
        if function is not None and is_region(function.metadata_props):
            yield node, function


class _Reader:
    def __init__(self, functions: Mapping[ir.OperatorIdentifier, ir.Function], targets: Iterable[str]) -> None:
        self.functions = functions
        self.targets = list(targets) or [""]
        self.regions: dict[OpKey, SavedFunction] = {}

    def read(self, graph: ir.Graph) -> SavedPlan:
        inputs = [v for v in graph.inputs if v.name not in graph.initializers]
        constants = {v: v.const_value for v in graph.initializers.values() if v.const_value is not None}
        for node in graph:
            function = self.functions.get(node.op_identifier())
            if function is not None and is_region(function.metadata_props) and op_key(node) not in self.regions:
                self.regions[op_key(node)] = self.region(function)
        return SavedPlan(self._scope(inputs, graph.outputs, graph, constants, None), self.regions)

    def region(self, function: ir.Function) -> SavedFunction:
        target = region_target(function) or ""
        scope = self._scope(function.inputs, function.outputs, function, {}, target)
        return SavedFunction(function.metadata_props[REGION], target, function, scope)

    def _scope(
        self,
        inputs: Iterable[ir.Value],
        outputs: Iterable[ir.Value],
        nodes: Iterable[ir.Node],
        constants: Mapping[ir.Value, ir.TensorProtocol],
        target: str | None,
    ) -> SavedScope:
        """A list of nodes as a plan; ``target`` is the target of a region, None in the main graph."""
        ids: dict[ir.Value, int] = {}
        found: dict[int, ir.TensorProtocol] = {}
        made: list[PlanNode] = []
        origins: list[ir.Node] = []
        captured: dict[str, int] = {}

        def number(value: ir.Value | None) -> int | None:
            return None if value is None or value.name == "" else ids.setdefault(value, len(ids))

        formal = tuple((ids.setdefault(v, len(ids)), v) for v in inputs)
        found.update({ids.setdefault(v, len(ids)): tensor for v, tensor in constants.items()})
        for node in nodes:
            if op_key(node) == CONSTANT and "value" in node.attributes and not node.attributes["value"].is_ref():
                found[ids.setdefault(node.outputs[0], len(ids))] = node.attributes["value"].as_tensor()
                continue
            inside = {v.name or "": v for body in subgraphs(node) for v in captured_values(body)}
            captured.update({name: ids.setdefault(v, len(ids)) for name, v in inside.items()})
            made.append(
                self._node(node, [number(v) for v in node.inputs], captured, [number(v) for v in node.outputs], target)
            )
            origins.append(node)
        results = tuple((ids.setdefault(v, len(ids)), v) for v in outputs)
        types = {} if target is not None else {i: t for v, i in ids.items() if (t := tensor_type(v)) is not None}
        names = {i: v.name for v, i in ids.items() if v.name}
        dispatch = (0.0,) * len(self.targets)
        plan = Plan(tuple(self.targets), dispatch, tuple(made), formal, results, found, types, names, captured)
        pieces = tuple(node.metadata_props.get(REGION, "") for node in origins)
        return SavedScope(plan, tuple(origins), tuple(ids), pieces)

    def _node(
        self,
        node: ir.Node,
        inputs: Sequence[int | None],
        captured: Mapping[str, int],
        outputs: Sequence[int | None],
        target: str | None,
    ) -> PlanNode:
        marks = node.metadata_props
        op, attrs, body = op_key(node), to_attrs(node), None
        function = None if op in LAYOUTS else self.functions.get(node.op_identifier())
        owner = target if function is None else function.metadata_props.get(TARGET, target)
        owner = owner or marks.get(TARGET) or (NO_TARGET if CALL in marks else self.targets[0])
        if function is not None and op not in self.regions:
            places = operand_places(function)
            body = self._body(node, function, places)
            inputs = _scattered(places, inputs, body.inputs)
            op = OpKey(owner, marks[COMPOSITE].rpartition(".")[2]) if COMPOSITE in marks else declared_name(op)
        return PlanNode(
            op,
            attrs,
            (*inputs, *(captured[name] for name in captured_names(attrs))),
            tuple(outputs),
            self._target(owner),
            body,
            seconds_of(marks) or 0.0,
            marks.get(RULE, ""),
            marks.get(CALL),
            marks.get(FAMILY, ""),
            node.name or "",
        )

    def _target(self, name: str) -> int:
        if name not in self.targets:
            self.targets.append(name)
        return self.targets.index(name)

    def _body(self, call: ir.Node, function: ir.Function, places: Sequence[int]) -> Body:
        """A function as the body of one call, with the call's attributes and without calls of further functions."""
        inputs = max(places, default=-1) + 1
        made: list[BodyNode] = []
        count = inputs

        def add(scope: ir.Function, attributes: Mapping[str, ir.Attr], values: dict[ir.Value, int | None]) -> None:
            nonlocal count
            known = {**{a.name: a for a in scope.attributes.values() if a.value is not None}, **attributes}
            for node in scope:
                operands = tuple(None if v is None or v.name == "" else values[v] for v in node.inputs)
                bound = bound_node(node, known)
                callee = self.functions.get(node.op_identifier())
                if callee is not None and op_key(node) not in LAYOUTS:
                    inner = dict(zip_longest(callee.inputs, operands))
                    add(callee, bound.attributes, inner)
                    values.update({v: inner[r] for v, r in zip(node.outputs, callee.outputs, strict=False)})
                    continue
                made.append(BodyNode(op_key(node), to_attrs(bound), operands, len(node.outputs)))
                values.update({v: count + i for i, v in enumerate(node.outputs)})
                count += len(node.outputs)

        top: dict[ir.Value, int | None] = dict(zip(function.inputs, places, strict=True))
        add(function, call.attributes, top)
        results = tuple(found for v in function.outputs if (found := top[v]) is not None)
        return Body(inputs, tuple(made), results)


def operand_places(function: ir.Function) -> list[int]:
    """The operand of its kernel for each input of a function, because a composite's function omits absent operands.

    Files are not trusted: an impossible entry is ignored.
    """
    texts = function.metadata_props.get(OPERANDS, "").split(",")
    given = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < _DIGITS]
    valid = len(given) == len(function.inputs) and given == sorted(set(given))
    return given if valid else list(range(len(function.inputs)))


def _scattered(places: Sequence[int], inputs: Sequence[int | None], count: int) -> list[int | None]:
    result: list[int | None] = [None] * count
    for place, value in zip(places, inputs, strict=False):
        result[place] = value
    return result
