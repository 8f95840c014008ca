"""Small edits of an onnx_ir graph that keep names, types and the order of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.baseline.expr import tensor_type
from eqsat.ops.evaluate import evaluate
from eqsat.ops.properties import is_deterministic
from eqsat.schema.attributes import from_attrs, make_attrs, op_key, subgraphs, to_attrs
from eqsat.schema.types import OpKey


class Editor:
    """Edits the main graph of a model in place."""

    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        self._names = {v.name for v in (*model.graph.inputs, *model.graph.initializers.values())}
        self._names |= {v.name for node in model.graph for v in node.outputs}
        self._fresh = 0

    def nodes(self) -> list[ir.Node]:
        """The nodes as of now, in order, so that the graph may change meanwhile."""
        return list(self.graph)

    def emit(
        self, before: ir.Node, op: str, inputs: Sequence[ir.Value | None], like: ir.Value, **attrs: Any
    ) -> ir.Value:
        """A new node in front of another; its result has the type and shape of ``like`` until told otherwise."""
        domain, _, name = op.rpartition(".")
        attributes = from_attrs(make_attrs(OpKey(domain, name), attrs), OpKey(domain, name)) if not domain else []
        node = ir.Node(domain, name, inputs, attributes, num_outputs=1)
        result = node.outputs[0]
        result.name = self._name(like.name or op)
        if like.dtype is not None:
            result.dtype = like.dtype
        result.shape = None if like.shape is None else ir.Shape(like.shape)
        self.graph.insert_before(before, node)
        return result

    def constant(self, array: np.ndarray, name: str) -> ir.Value:
        """A new initialiser."""
        name = self._name(name)
        value = ir.Value(name=name, const_value=ir.tensor(np.asarray(array, order="C"), name=name))
        value.dtype = ir.DataType.from_numpy(array.dtype)
        value.shape = ir.Shape(array.shape)
        self.graph.register_initializer(value)
        return value

    def replace(self, node: ir.Node, value: ir.Value) -> None:
        """Lets everyone read a value in place of a node's only result and removes the node; the name is kept."""
        old = node.outputs[0]
        name = old.name
        is_output = old.is_graph_output()
        if is_output and (value.is_graph_input() or value.is_initializer() or value.is_graph_output()):
            value = self.emit(node, "Identity", [value], old)
        ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)
        if is_output or (value.producer() is not None and not value.is_graph_output()):
            old.name = self._name("replaced")
            value.name = name

    def reshaped(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """A constant in another shape."""
        return self.constant(array_of(value).reshape(shape), value.name or "constant")

    def drop_dead(self) -> None:
        """Removes nodes and initialisers that nobody reads."""
        for node in reversed(self.nodes()):
            if not any(v.uses() or v.is_graph_output() for v in node.outputs):
                self.graph.remove(node, safe=True)
        for name, value in list(self.graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del self.graph.initializers[name]

    def _name(self, base: str) -> str:
        name = base
        while name in self._names:
            self._fresh += 1
            name = f"{base}.{self._fresh}"
        self._names.add(name)
        return name


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is an initialiser that is not an input."""
    return value is not None and value.const_value is not None and value.is_initializer() and not value.is_graph_input()


def array_of(value: ir.Value) -> np.ndarray:
    """Contents of a constant."""
    assert value.const_value is not None
    return value.const_value.numpy()


def dims(value: ir.Value | None) -> tuple[int, ...] | None:
    """Shape, None unless every dimension is known."""
    known = None if value is None else tensor_type(value)
    return None if known is None or not known.is_static else tuple(d for d in known.shape or () if isinstance(d, int))


def _all_constant(node: ir.Node) -> bool:
    return all(v is None or is_constant(v) for v in node.inputs)


def is_plain(node: ir.Node, *names: str) -> bool:
    """Whether a node is one of these operators of ONNX."""
    return node.domain in ("", "ai.onnx") and node.op_type in names


def fold_constants(model: ir.Model) -> None:
    """Computes every node whose operands are constants, and shapes that are known (TVM's FoldConstant)."""
    edit = Editor(model)
    for node in edit.nodes():
        op = op_key(node)
        if is_plain(node, "Shape") and dims(node.inputs[0]) is not None:
            inputs: list[np.ndarray | None] = [np.empty(dims(node.inputs[0]) or ())]
        elif not op.domain and is_deterministic(op) and not any(subgraphs(node)) and _all_constant(node):
            inputs = [None if v is None else array_of(v) for v in node.inputs]
        else:
            continue
        for value, array in zip(node.outputs, evaluate(op, to_attrs(node), inputs, len(node.outputs)), strict=True):
            if value.is_graph_output() or array is None:
                continue
            folded = edit.constant(array, f"{value.name}.folded")
            ir.convenience.replace_all_uses_with(value, folded)
    edit.drop_dead()
