"""The e-nodes that a program may contain if its file must not exceed an opset."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import onnx_ir as ir

from eqsat.egraph.snapshot import ENode
from eqsat.model.write.max_opset import newer_in, opset_needed, opset_of_body
from eqsat.model.write.too_new import Newer
from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.declared_operators import function_body
from eqsat.schema.types import Attrs, GraphAttr, TensorType


class Newest:
    """The bound in one e-graph.

    What is too new and has a definition is not in the model any more. What has none may only be replaced by rules.

    Args:
        bound: The newest opset.
        searched: The bodies of control flow that programs within the bound replace.
        without: What is too new in bodies for which there is no such program.
    """

    def __init__(
        self,
        bound: int,
        searched: Container[ir.Graph] = (),
        without: Mapping[ir.Graph, Sequence[Newer]] | None = None,
    ) -> None:
        self.bound = bound
        self._searched = searched
        self._bodies = dict(without or {})

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
        else:
            constant = tuple(
                None if f is None else f.is_const and (f.value is None or f.value.size > 0) for f in operands
            )
            needed = opset_needed(node.op, node.attrs, inputs, tuple(outputs), constant, self.bound)
            needed = max(needed, *(one.needed for one in self.inside(node.attrs)), 0)
        return needed if needed > self.bound else None

    def inside(self, attrs: Attrs) -> list[Newer]:
        """Operators that are too new in the bodies of a node, in their written form."""
        graphs = (value.graph for _, value in attrs if isinstance(value, GraphAttr))
        return [one for graph in graphs if graph not in self._searched for one in self._inside(graph)]

    def _inside(self, graph: ir.Graph) -> Sequence[Newer]:
        if graph not in self._bodies:
            self._bodies[graph] = newer_in(graph, self.bound)
        return self._bodies[graph]
