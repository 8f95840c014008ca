"""Why a model cannot become C: all reasons are collected and reported in one message."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.errors import CodegenError
from eqsat.ops.evaluate import has_meaning, how_to_declare
from eqsat.schema.declared_operators import find_reference
from eqsat.schema.types import OpKey

_MOST_CAUSES = 20
"""Reasons listed in a message."""

_BODY = "declare the operator with a body of ONNX operators, or let a backend or the `call` of a target execute it"
_NUMPY = "`eqsat run` executes them with numpy"


@dataclass
class Problems:
    """Why operators cannot become C.

    Attributes:
        nodes: The nodes that each reason applies to.
        advice: What can be done about some of them.
        undefined: How to declare an operator that nothing defines: numpy does not execute it either.
    """

    nodes: dict[str, list[str]] = field(default_factory=dict)
    advice: str = ""
    undefined: str = ""

    def add(self, reason: str, name: str) -> None:
        self.nodes.setdefault(reason, []).append(name)

    def copied(self) -> dict[str, list[str]]:
        """The reasons until now, to be put back where another attempt is made."""
        return {reason: list(names) for reason, names in self.nodes.items()}

    def add_operator(self, op: OpKey, name: str, because: str = "") -> None:
        """Adds an operator that has no kernel for any operands; ``because`` tells why no backend executes it."""
        more = f", because {because}" if because else ""
        if find_reference(op) is not None:
            self.add(f"{op}, which a Python function computes{more}", name)
            self.advice = _BODY
        elif has_meaning(op):
            self.add(f"no kernel for {op}{more}", name)
        else:
            self.add(f"{op}, which neither ONNX nor a declaration defines{more}", name)
            self.undefined = self.undefined or how_to_declare(op)

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
            hint="; ".join(filter(None, (self.advice, self.undefined or _NUMPY))),
        )
