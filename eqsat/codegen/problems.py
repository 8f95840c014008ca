"""Why a model cannot become C: all reasons are collected and reported in one message."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.errors import CodegenError
from eqsat.schema.functions import find_reference
from eqsat.schema.types import OpKey

_MOST_CAUSES = 20
"""Reasons listed in a message."""


@dataclass
class Problems:
    """Why operators cannot become C: reason -> the nodes for which it holds."""

    nodes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, name: str) -> None:
        self.nodes.setdefault(reason, []).append(name)

    def add_operator(self, op: OpKey, name: str) -> None:
        """An operator that no C can be written for, whatever its operands are."""
        if find_reference(op) is None:
            self.add(f"no kernel for {op}", name)
        else:
            self.add(f"{op}, which a Python function computes (in C a backend does, or the `call` of a target)", name)

    def check(self, model: str) -> None:
        """Raises CodegenError if there are any."""
        if not self.nodes:
            return
        lines = []
        others = sum(map(len, self.nodes.values()))
        for reason, names in list(self.nodes.items())[:_MOST_CAUSES]:
            shown = ", ".join(repr(n) for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            lines.append(f"{reason}: {shown}")
        if len(self.nodes) > _MOST_CAUSES:
            lines.append(f"and {len(self.nodes) - _MOST_CAUSES} more reasons")
        raise CodegenError(
            "all operators must be expressible in C",
            place=f"model {model!r}",
            actual="1 that is not" if others == 1 else f"{others} that are not",
            excerpt="\n".join(lines),
            hint="`eqsat run` executes them with numpy",
        )
