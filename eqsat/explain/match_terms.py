"""Matches as terms over the tensors of the model: what a rule matched and what it built."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.audit.expressions import ENodeText
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.explain.derivations import RuleApplication
from eqsat.rules.wording import in_words
from eqsat.schema.types import AttrValue, OpKey

DEEPEST = 8
"""Operators are written out so deep; a pattern has fewer."""

_WIDTH = 400
"""Characters of a term."""


class Terms:
    """Writes the terms of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.text = ENodeText(snapshot)
        self._named = {c for v, c in snapshot.refs.items() if v.name}
        self._telling: frozenset[tuple[OpKey, str]] = frozenset()

    def before(self, match: RuleApplication) -> str:
        """The matched part of a match."""
        return self._all(match.left, match.sites, match)

    def after(self, match: RuleApplication) -> str:
        """The built part of a match."""
        return self._all(match.right, match.built, match)

    def _all(self, roots: Sequence[int], inside: Sequence[int], match: RuleApplication) -> str:
        nodes = self.snapshot.nodes
        within = {nodes[n].eclass: n for n in inside}
        self._telling = _differing([nodes[n] for n in dict.fromkeys((*match.sites, *match.built)) if n >= 0])
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
        if node.kind == "part":
            return f"{operands[0]}[{node.number}]"
        told = [f"{name}={_shown(name, value)}" for name, value in node.attrs if (node.op, name) in self._telling]
        return f"{node.op}({', '.join([*operands, *told])})"

    def _name(self, eclass: int) -> str:
        """A tensor; constants without names are told by their type, because digits make files large."""
        kind = self.snapshot.types[eclass]
        if eclass not in self._named and self.snapshot.constant[eclass] and kind is not None and kind.elements != 1:
            return str(kind)
        return self.text.name(eclass, 1)


def _differing(nodes: Sequence[ENode]) -> frozenset[tuple[OpKey, str]]:
    """The attributes by which e-nodes of one operator differ, without which a step seems to undo or repeat another."""
    seen: dict[tuple[OpKey, str], set[str]] = {}
    for node in nodes:
        for name, value in node.attrs:
            if isinstance(value, int | float | str | tuple):
                seen.setdefault((node.op, name), set()).add(repr(value))
    return frozenset(key for key, values in seen.items() if len(values) > 1)


def _shown(name: str, value: AttrValue) -> str:
    return in_words(ir.DataType(value) if name == "to" and isinstance(value, int) else value)
