"""The rules that made the operators inside a composite, found again in the e-graph."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.egraph.enode import ENode
from eqsat.egraph.language import COMMUTED, ORIGINAL
from eqsat.egraph.snapshot import Snapshot
from eqsat.schema.body import Body
from eqsat.schema.types import OpKey


class InnerRules:
    """Looks up the operators of composites' bodies in an e-graph.

    An operator whose operands are known classes is one e-node, and that has the rule that made it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index: dict[tuple[OpKey, tuple[int | None, ...]], list[int]] | None = None

    def of(self, body: Body, operands: Sequence[int | None]) -> tuple[str, ...]:
        """Names of the rules, inner operators first; those of the input's own operators are left out.

        Args:
            body: The composite's definition.
            operands: The classes of its inputs.
        """
        snapshot, values, found = self._snapshot, list(operands), []
        unknown: set[int] = set()
        for node in body.nodes:
            children = tuple(None if i is None else values[i] for i in node.inputs)
            enode = None
            if not any(i in unknown for i in node.inputs):
                candidates = self._nodes().get((node.op, children), ())
                enode = next((n for n in candidates if snapshot.nodes[n].attrs == node.attrs), None)
            results: list[int | None] = [None] * node.outputs
            if enode is not None:
                found.append(self.rule(snapshot.nodes[enode]))
                if not snapshot.nodes[enode].outputs:
                    results[0] = snapshot.nodes[enode].eclass
            unknown.update(len(values) + k for k, c in enumerate(results) if c is None)
            values += results
        return tuple(dict.fromkeys(name for name in found if name))

    def rule(self, node: ENode) -> str:
        """The rule that made an e-node; empty for an operator of the input."""
        return "" if node.rule in (ORIGINAL, COMMUTED) else self._snapshot.rules[node.rule]

    def _nodes(self) -> dict[tuple[OpKey, tuple[int | None, ...]], list[int]]:
        if self._index is None:
            self._index = {}
            for n, node in enumerate(self._snapshot.nodes):
                if node.kind == "op":
                    self._index.setdefault((node.op, node.children), []).append(n)
        return self._index
