"""What operators cost in generated code, where no ``kernel`` entry says it: by the family that would compute them."""

from __future__ import annotations

from eqsat.codegen.expressions import is_elementwise
from eqsat.codegen.kernels.shared.registry import families
from eqsat.codegen.marks import entry_name
from eqsat.egraph.snapshot import ENode
from eqsat.extract.from_egraph import Pricing
from eqsat.rules.ast import Composite, Match, Numerics
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import TensorType

_VIEWS = frozenset({"Concat", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that are mostly a matter of where tensors lie: what they cost is the conversions beside them."""
_ELEMENTWISE = {"FLOAT": "elementwise_vectors", "INT8": "elementwise_bytes", "UINT8": "elementwise_bytes"}


class GeneratedPricing(Pricing):
    """Costs of e-nodes in generated code: a host's ``supports`` are about runtimes that have one kernel an operator."""

    def cost(self, node: ENode, target: int) -> float:
        """Seconds of an e-node, ``inf`` where it cannot run."""
        host = self.costs.targets[target]
        if node.kind != "op" or not host.families:
            return super().cost(node, target)
        if not node.op.domain and node.op.name in _VIEWS:
            return 0.0
        output = self.snapshot.types[node.eclass]
        name = None if output is None else _family(node, output)
        if output is None or name is None:
            return super().cost(node, target)
        places = tuple(None if c is None else i for i, c in enumerate(node.children))
        body = Body(len(places), (BodyNode(node.op, node.attrs, places),), (len(places),))
        match = Match((node.op,), None, (), (), None, 0, host.place)
        kernel = Composite(name, Numerics("exact"), match, (), None, None, host.place, generated=True)
        return self.costs.composite(target, kernel, {}, body, self.operands(node), output)


def _family(node: ENode, output: TensorType) -> str | None:
    """Name of the family entry, None for an operator of several results or of no family of its own."""
    if is_elementwise(node.op):
        return _ELEMENTWISE.get(output.dtype.name, "elementwise_loops")
    known = families(node.op)
    return entry_name(known[0].name) if known and not node.outputs else None
