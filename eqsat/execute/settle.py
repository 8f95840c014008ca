"""Removes control flow that constants determine: loops are computed, an If becomes its branch.

The e-graph and generated C support operators, not graphs inside of them. Control flow that stays in the model is
computed in each run, so a loop is computed here only if that is cheap. The cost is counted, not timed: operators,
counting each iteration, bytes that live at the same time, and elements that the loop reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import EqsatError
from eqsat.execute.compile_graph import ModelContext, compile_node
from eqsat.model.inference.shape_values import propagate
from eqsat.model.load import load
from eqsat.model.unused_names import unused
from eqsat.ops.evaluate import TensorValue
from eqsat.ops.operators import has
from eqsat.ops.properties import is_deterministic
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import array_of, op_key, read_values, subgraphs, tensor_of, to_attrs
from eqsat.schema.types import type_of

ROUNDS = 1 << 14
"""Operators that one loop may compute, counting each iteration."""
ALL_ROUNDS = 1 << 16
"""Operators that all loops of a model may compute."""
MOST_READ = 1 << 16
"""Elements of all constants that a loop reads: its operators cost about as much each."""
MOST_HELD = 1 << 22
"""Bytes that a loop may hold."""
PASSES = 8
"""The types of a branch that has taken an If's place may determine the condition of another one in the next pass."""
MOST_SIZES = 256
"""Elements of a constant from which sizes may follow."""


def settled(model: ir.Model) -> ir.Model:
    """The model without the control flow that depends on cheap constants only.

    An ``If`` is replaced by its branch if its condition is constant, even if the branch reads inputs.

    Args:
        model: As loaded; not changed.

    Returns:
        The model itself if nothing in it changes, otherwise a new one, loaded as well.
    """
    for _ in range(PASSES):
        if not any(_has_bodies(node) for node in model.graph):
            break
        copy = model.clone()
        if not _Settling(copy).run():
            break
        model = load(copy)
    return model


def _small(value: ir.Value) -> np.ndarray | None:
    """A constant that may tell of sizes."""
    constant = value.const_value
    return (
        array_of(constant) if value.is_initializer() and constant is not None and constant.size <= MOST_SIZES else None
    )


def _has_bodies(node: ir.Node) -> bool:
    return has(op_key(node), Trait.HAS_BODIES)


class _Settling:
    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._opsets = model.graph.opset_imports
        self._context = ModelContext(model.functions, room=0)
        self._known: dict[ir.Value, TensorValue] = {}
        self._unknown: set[ir.Value] = set(model.graph.inputs)
        self._left = ALL_ROUNDS
        self._taken = {"", *_names(model.graph)}
        self._follow_sizes()

    def run(self) -> bool:
        changed = False
        waiting = [node for node in self._graph if _has_bodies(node)]
        while waiting:
            node = waiting.pop(0)
            made = self._branch(node) if node.op_type == "If" else None
            if made is not None:
                waiting = [n for n in made if _has_bodies(n)] + waiting
                changed = True
            elif self._compute_node(node):
                self._store(node)
                changed = True
        return changed

    # ---- constants -------------------------------------------------------------------------------

    def _follow_sizes(self) -> None:
        """Finds the values that follow from shapes: TorchScript's ``squeeze`` is an If that asks for a size."""
        sizes: dict[ir.Value, np.ndarray | None] = {}
        for node in self._graph:
            op = op_key(node)
            if not has(op, Trait.BY_TYPE) and not (has(op, Trait.SIZES) and any(v in sizes for v in node.inputs if v)):
                continue
            types = [None if v is None else type_of(v) for v in node.inputs]
            read = [None if v is None else sizes[v] if v in sizes else _small(v) for v in node.inputs]
            given = [t for v, t in zip(node.inputs, types, strict=True) if v is not None]
            if any(t is None for t in given) or not given:
                continue
            results = propagate(op, to_attrs(node), types, read, [type_of(v) for v in node.outputs])
            for value, array in zip(node.outputs, results, strict=False):
                if array is not None:
                    sizes[value] = array
                    if array.dtype != object:
                        self._known[value] = array

    def _value(self, value: ir.Value) -> bool:
        """Whether a value is constant and could be computed; then it is known."""
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self._known or top in self._unknown:
                stack.pop()
                continue
            if top.is_initializer() and top.const_value is not None:
                if top.const_value.size <= MOST_READ:
                    self._known[top] = array_of(top.const_value)
                else:
                    self._unknown.add(top)
                continue
            node = top.producer()
            missing = [] if node is None else [v for v in read_values(node) if v not in self._known]
            if node is None or any(v in self._unknown for v in missing) or node.graph is not self._graph:
                self._unknown.add(top)
            elif missing:
                stack += missing
            elif not self._compute(node):
                self._unknown.update(node.outputs)
        return value in self._known

    def _compute_node(self, node: ir.Node) -> bool:
        return all(self._value(v) for v in read_values(node)) and self._compute(node)

    def _compute(self, node: ir.Node) -> bool:
        """Computes a node whose operands are known, if that is cheap."""
        if self._left <= 0 or not _is_pure(node, self._context.functions):
            return False
        read = sum(x.size for x in map(self._known.get, read_values(node)) if isinstance(x, np.ndarray))
        if read + sum(map(_stored, subgraphs(node))) > MOST_READ:
            return False
        rounds = min(ROUNDS, self._left)
        held = bounds.current().held + MOST_HELD
        meter = None
        try:
            with (
                np.errstate(all="ignore"),
                bounds.metered(memory=held, steps=rounds, operations=bounds.FOLD_OPERATIONS >> 6) as meter,
            ):
                program = compile_node(node, self._opsets, self._context)
                results = program.run([self._known[v] for v in program.captured])
        except EqsatError:
            return False
        finally:
            self._left -= 1 if meter is None else meter.steps
        if not all(r is None or isinstance(r, np.ndarray) for r in results):
            return False
        self._known.update(zip(node.outputs, results, strict=True))
        return True

    def _store(self, node: ir.Node) -> None:
        """Makes initializers of a node's outputs."""
        for value in list(node.outputs):
            array = self._known[value]
            if not isinstance(array, np.ndarray) or value.dtype is None:
                continue
            name = self._free(f"{value.name}_constant")
            constant = ir.Value(
                name=name,
                type=ir.TensorType(value.dtype),
                shape=ir.Shape(array.shape),
                const_value=tensor_of(array, value.dtype, name),
            )
            self._graph.register_initializer(constant)
            self._known[constant] = array
            self._instead(value, constant, node)
        self._graph.remove(node, safe=True)

    # ---- branches --------------------------------------------------------------------------------

    def _branch(self, node: ir.Node) -> list[ir.Node] | None:
        """Puts the branch that is always taken in the place of an If."""
        condition = node.inputs[0]
        if condition is None or not self._value(condition):
            return None
        taken = bool(np.asarray(self._known[condition]).reshape(-1)[0])
        branch = node.attributes["then_branch" if taken else "else_branch"].as_graph()
        outputs = list(branch.outputs)
        branch.outputs.clear()
        for value in [*branch.initializers.values()]:
            branch.initializers.pop(value.name or "")
            value.name = self._free(value.name or "")
            self._graph.register_initializer(value)
        nodes = list(branch)
        branch.remove(nodes)
        for made in nodes:
            for value in made.outputs:
                value.name = self._free(value.name or "")
        self._graph.insert_before(node, nodes)
        for value, result in zip(node.outputs, outputs, strict=True):
            self._instead(value, result, node)
        self._graph.remove(node, safe=True)
        return nodes

    def _instead(self, value: ir.Value, other: ir.Value, node: ir.Node) -> None:
        """Lets the readers of a node's output read another value; outputs of the graph keep their name."""
        if value.is_graph_output():
            bridge = ir.Node("", "Identity", [other])
            self._graph.insert_before(node, bridge)
            bridge.outputs[0].name, value.name = value.name, None
            bridge.outputs[0].type, bridge.outputs[0].shape = value.type, value.shape
            self._graph.outputs[:] = [bridge.outputs[0] if v is value else v for v in self._graph.outputs]
            other = bridge.outputs[0]
        ir.convenience.replace_all_uses_with(value, other)

    def _free(self, name: str) -> str:
        return unused(name, self._taken)


def _is_pure(node: ir.Node, functions: Mapping[Any, Any]) -> bool:
    """Whether a node with its subgraphs is deterministic and calls no function of the model."""
    if node.op_identifier() in functions or any(a.is_ref() for a in node.attributes.values()):
        return False
    if not is_deterministic(op_key(node), to_attrs(node), training=len(node.inputs) > 2):
        return False
    return all(_is_pure(inner, functions) for graph in subgraphs(node) for inner in graph)


def _stored(graph: ir.Graph) -> int:
    """Elements of the constants in a subgraph."""
    own = sum(v.const_value.size for v in graph.initializers.values() if v.const_value is not None)
    return own + sum(_stored(inner) for node in graph for inner in subgraphs(node))


def _names(graph: ir.Graph) -> Iterator[str]:
    """Names of all values of a graph and those in it."""
    for value in (*graph.inputs, *graph.initializers.values()):
        yield value.name or ""
    for node in graph:
        for value in node.outputs:
            yield value.name or ""
        for inner in subgraphs(node):
            yield from _names(inner)
