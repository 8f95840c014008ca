"""Finds the producer and the readers of a value, also across calls of functions.

ONNX Runtime inlines functions before it optimizes, so what it fuses may belong to several functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from eqsat.model.write.runnable import scopes

Use = tuple[ir.Node, int]
"""A node, and the operand at which it reads a value."""


class AcrossCalls:
    """The values of a model and its functions.

    Attributes:
        nodes: All nodes, of all scopes.
    """

    def __init__(self, model: ir.Model) -> None:
        self.nodes = [node for scope in scopes(model) for node in scope]
        self._functions = model.functions
        self._calls: dict[ir.OperatorIdentifier, list[ir.Node]] = {}
        for node in self.nodes:
            if node.op_identifier() in model.functions:
                self._calls.setdefault(node.op_identifier(), []).append(node)
        self._formal = {v: (f.identifier(), k) for f in model.functions.values() for k, v in enumerate(f.inputs)}
        self._result = {v: (f.identifier(), k) for f in model.functions.values() for k, v in enumerate(f.outputs)}

    def given(self, value: ir.Value) -> list[Use] | None:
        """The values that the callers of a function pass for an operand; None for values that are not operands."""
        if value not in self._formal:
            return None
        function, index = self._formal[value]
        return [(call, index) for call in self._calls.get(function, []) if index < len(call.inputs)]

    def maker(self, value: ir.Value) -> ir.Node | None:
        """The node that makes a value, in the function if a call does."""
        node = value.producer()
        while node is not None and (function := self._functions.get(node.op_identifier())) is not None:
            value = function.outputs[value.index() or 0]
            node = value.producer()
        return node

    def readers(self, value: ir.Value) -> Iterator[Use]:
        """The nodes that read a value, in functions where it is given to calls, and after calls that return it."""
        todo, seen = [value], {value}
        while todo:
            top = todo.pop()
            same: list[ir.Value] = []
            for node, index in top.uses():
                function = self._functions.get(node.op_identifier())
                if function is None:
                    yield node, index
                else:
                    same.append(function.inputs[index])
            if top in self._result:
                function_id, index = self._result[top]
                same += [call.outputs[index] for call in self._calls.get(function_id, [])]
            todo += [v for v in same if v not in seen]
            seen.update(same)
