"""E-nodes as short expressions over the tensors of the model."""

from __future__ import annotations

import numpy as np

from eqsat.egraph.snapshot import ENode, Snapshot

DEPTH = 3
"""Greatest depth to which operators of rules are written out."""


class ENodeText:
    """Writes e-nodes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._names: dict[int, str] = {}
        for value, eclass in snapshot.refs.items():
            self._names.setdefault(eclass, value.name or "")

    def names(self, eclass: int) -> str:
        """All of the model's tensors that a class represents as equal."""
        found = dict.fromkeys(v.name for v, c in self.snapshot.refs.items() if c == eclass and v.name)
        return " = ".join(found) or self.name(eclass)

    def name(self, eclass: int, depth: int = DEPTH) -> str:
        """A class: the model's tensor, a constant, or an expression that makes it."""
        if self._names.get(eclass):
            return self._names[eclass]
        members = [self.snapshot.nodes[n] for n in self.snapshot.classes[eclass]]
        constant = next((n for n in members if n.kind == "const"), None)
        if constant is not None:
            return self.of(constant)
        made = min(members, key=lambda n: n.rule, default=None)
        return "..." if made is None or not depth else self.of(made, depth - 1)

    def of(self, node: ENode, depth: int = DEPTH) -> str:
        """An e-node."""
        if node.kind == "input":
            return self.snapshot.inputs[node.number].name or ""
        if node.kind == "const":
            constant = self.snapshot.tables.constants[node.number]
            array = constant.numpy()
            return "-" if array is None else f"{constant.type}({_shown(array)})"
        operands = ["-" if c is None else self.name(c, depth) for c in node.children]
        if node.kind == "part":
            return f"{operands[0]}[{node.number}]"
        return f"{node.op}({', '.join(operands)})"


def _shown(array: np.ndarray) -> str:
    if array.size == 1:
        return str(array.reshape(())[()])
    first = ", ".join(str(v) for v in array.flat[:3])
    return f"{first}, ..." if array.size > 3 else first
