"""Matches as terms: what a rule found and what it made, over the tensors of the model."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.audit.expressions import Text
from eqsat.egraph.snapshot import Snapshot
from eqsat.explain.derivations import Match

DEEPEST = 8
"""Operators are written out so deep; a pattern has fewer."""

_WIDTH = 400
"""Characters of a term."""


class Terms:
    """Writes the terms of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.text = Text(snapshot)
        self._named = {c for v, c in snapshot.refs.items() if v.name}

    def before(self, match: Match) -> str:
        """What a match found."""
        return self._all(match.left, match.sites)

    def after(self, match: Match) -> str:
        """What it made."""
        return self._all(match.right, match.built)

    def _all(self, roots: Sequence[int], inside: Sequence[int]) -> str:
        nodes = self.snapshot.nodes
        within = {nodes[n].eclass: n for n in inside}
        text = ", ".join(self._term(n, within, DEEPEST) for n in dict.fromkeys(roots) if n >= 0)
        return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."

    def _term(self, n: int, within: dict[int, int], depth: int, above: frozenset[int] = frozenset()) -> str:
        """An e-node over what was matched, where no class is written out within itself."""
        node = self.snapshot.nodes[n]
        above |= {node.eclass}
        if node.kind in ("input", "const"):
            return self._name(node.eclass)
        operands = []
        for eclass in node.children:
            if eclass is None:
                operands.append("-")
            elif eclass in within and eclass not in above and depth:
                operands.append(self._term(within[eclass], within, depth - 1, above))
            else:
                operands.append(self._name(eclass))
        return f"{operands[0]}[{node.number}]" if node.kind == "part" else f"{node.op}({', '.join(operands)})"

    def _name(self, eclass: int) -> str:
        """A tensor; constants without names are told by their type, because digits make files large."""
        kind = self.snapshot.types[eclass]
        if eclass not in self._named and self.snapshot.constant[eclass] and kind is not None and kind.elements != 1:
            return str(kind)
        return self.text.name(eclass, 1)
