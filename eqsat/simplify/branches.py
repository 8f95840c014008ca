"""Moves computations that both branches of an If share out of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import onnx_ir as ir

from eqsat.ops.properties import is_commutative, is_deterministic
from eqsat.schema.attributes import array_of, op_key, to_attrs
from eqsat.schema.types import GraphAttr
from eqsat.simplify.edit import Editor, with_outputs


def merge_equal(node: ir.Node, editor: Editor, equal: Sequence[int] | None = None) -> bool:
    """Computes outputs outside of an If that do not depend on its condition.

    Args:
        node: The If; changed in place, and removed if no output is left.
        editor: Of the graph.
        equal: The outputs that are known to be equal; by default those that the same operators compute.

    Returns:
        Whether anything changed.
    """
    then, otherwise = node.attributes["then_branch"].as_graph(), node.attributes["else_branch"].as_graph()
    if equal is None:
        equal = equal_outputs(then, otherwise)
    if not equal:
        return False
    graph = node.graph
    assert graph is not None
    results = editor.copy_in(then, node, {})
    for k in equal:
        editor.replace(node.outputs[k], results[k], node)
    kept = [k for k in range(len(node.outputs)) if k not in set(equal)]
    if kept:
        for branch in (then, otherwise):
            branch.outputs[:] = [branch.outputs[k] for k in kept]
        with_outputs(node, node.inputs, list(node.attributes.values()), kept)
    graph.remove(node, safe=True)
    return True


def equal_outputs(one: ir.Graph, other: ir.Graph) -> list[int]:
    """Positions of the outputs of two graphs that the same deterministic operators compute from the same values.

    Values of outside, and inputs of the same name, are the same.
    """
    numbers: dict[Hashable, int] = {}
    left, right = _Keys(one, numbers), _Keys(other, numbers)
    return [
        k
        for k, (a, b) in enumerate(zip(one.outputs, other.outputs, strict=True))
        if (key := left.of(a)) is not None and key == right.of(b)
    ]


class _Keys:
    """Numbers the computations of a graph's values; equal computations get equal numbers.

    Args:
        graph: The graph.
        numbers: Numbers of computations; graphs that share them can be compared.
    """

    def __init__(self, graph: ir.Graph, numbers: dict[Hashable, int]) -> None:
        self._numbers = numbers
        self._of: dict[ir.Value, int | None] = {v: self._number("input", v.name) for v in graph.inputs}
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None:
                self._of[value] = self._number("constant", tensor.dtype, tuple(tensor.shape), _content(tensor))
        for node in graph:
            self._add(node)

    def of(self, value: ir.Value) -> int | None:
        """The number; None if it cannot be compared."""
        return self._of[value] if value in self._of else self._number("input", value.name)

    def _number(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _add(self, node: ir.Node) -> None:
        attrs, op = to_attrs(node), op_key(node)
        operands = tuple(-1 if v is None else self.of(v) for v in node.inputs)
        if len(operands) == 2 and None not in operands and is_commutative(op):
            operands = tuple(sorted(o for o in operands if o is not None))
        opaque = any(isinstance(value, GraphAttr) for _, value in attrs) or not is_deterministic(op, attrs)
        for k, value in enumerate(node.outputs):
            if opaque or None in operands:
                self._of[value] = None
            elif op.name == "Identity" and not op.domain:
                self._of[value] = operands[0]
            else:
                self._of[value] = self._number(op, attrs, operands, k)


def _content(tensor: ir.TensorProtocol) -> Hashable:
    array = array_of(tensor)
    return tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
