"""The operators that rules may make for the host: those that ONNX Runtime runs, if it runs the model.

A rule must not replace a form that runs by one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.egraph.encode import Encoding
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.model.write.runnable import runs_alone, written
from eqsat.schema.types import GraphAttr, OpKey, TensorType

_Types = Sequence[TensorType | None]
_Signature = tuple[OpKey, tuple[ir.DataType | None, ...], ir.DataType | None]


class Runtime:
    """The host's operators in one e-graph.

    The model's own operators may be used for the element types for which the model uses them. The encoding tells which
    e-nodes are the model's own, because an e-node that a rule made may have been merged with one of them since.
    """

    def __init__(self, snapshot: Snapshot, encoding: Encoding) -> None:
        self._snapshot = snapshot
        self._own: set[_Signature] = set()
        self._loads = True
        for node in encoding.nodes:
            inputs = [None if o is None else self._type(snapshot.refs[encoding.values[o]]) for o in node.operands]
            outputs = [self._type(snapshot.refs[encoding.values[r]]) for r in node.results]
            op = node.constructor.op
            self._own.add(_signature(op, inputs, outputs))
            self._loads = self._loads and (
                any(isinstance(value, GraphAttr) for _, value in node.attrs)
                or runs_alone(op, node.attrs, inputs, outputs)
                or written(op, node.attrs, inputs, outputs) is not None
            )

    def runs(self, node: ENode, outputs: _Types) -> bool:
        """Whether ONNX Runtime runs an operator on the host as far as it ran the model's own.

        Args:
            node: An operator.
            outputs: Types of its outputs.
        """
        if not self._loads:
            return True
        inputs = [self._type(c) for c in node.children]
        return _signature(node.op, inputs, outputs) in self._own or runs_alone(node.op, node.attrs, inputs, outputs)

    def _type(self, eclass: int | None) -> TensorType | None:
        return None if eclass is None else self._snapshot.types[eclass]


def _signature(op: OpKey, inputs: _Types, outputs: _Types) -> _Signature:
    """The element types that distinguish kernels."""
    first = outputs[0] if outputs else None
    return op, tuple(t and t.dtype for t in inputs), first and first.dtype
