"""Which e-nodes a program may contain whose file must not exceed an opset."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.egraph.encode import Encoding
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.model.write.bounded import opset_needed, opset_of_body
from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.functions import function_body
from eqsat.schema.types import Attrs, OpKey, TensorType

_Key = tuple[OpKey, Attrs, frozenset[int | None]]


class Newest:
    """The bound in one e-graph.

    What is too new and has a definition is not in the model any more. What has none stays: writing the file says so.

    Args:
        snapshot: The e-graph.
        encoding: Of the model.
        bound: The newest opset.
    """

    def __init__(self, snapshot: Snapshot, encoding: Encoding, bound: int) -> None:
        self.bound = bound
        self._own: set[_Key] = set()
        for node in encoding.nodes:
            children = (None if o is None else snapshot.refs[encoding.values[o]] for o in node.operands)
            self._own.add((node.constructor.op, node.attrs, frozenset(children)))

    def needs(
        self, node: ENode, operands: Sequence[TensorFacts | None], outputs: Sequence[TensorType | None]
    ) -> int | None:
        """The opset that an e-node needs beyond the bound; None if it can be written.

        Args:
            node: An operator or a composite.
            operands: Facts of its operands.
            outputs: Types of its results, None for one that nothing reads.
        """
        inputs = tuple(None if f is None else f.type for f in operands)
        body = node.composite.body if node.composite is not None else function_body(node.op, node.attrs)
        if body is not None:
            needed = opset_of_body(body, inputs, self.bound) if len(inputs) == body.inputs else self.bound
            return needed if needed > self.bound else None
        constant = tuple(f is not None and f.is_const and (f.value is None or f.value.size > 0) for f in operands)
        needed = opset_needed(node.op, node.attrs, inputs, tuple(outputs), constant, self.bound)
        if needed <= self.bound or (node.op, node.attrs, frozenset(node.children)) in self._own:
            return None
        return needed
