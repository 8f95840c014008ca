"""The message on operators that cannot be written at the opset that a file must not exceed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.schema.attributes import op_key
from eqsat.schema.types import OpKey

MOST_OPERATORS = 5
"""Operators that the message lists."""


@dataclass(frozen=True, slots=True)
class Newer:
    """An operator that is too new.

    Attributes:
        place: The name of its node.
        op: The operator.
        needed: The least opset at which it can be written with its inputs and attributes.
    """

    place: str
    op: OpKey
    needed: int

    @classmethod
    def of(cls, node: ir.Node, needed: int) -> Newer:
        """Describes a node; one without a name is called after its first output."""
        named = (node.name, *(v.name for v in node.outputs), node.op_type)
        return cls(next(name for name in named if name), op_key(node), needed)


class TooNewError(ModelError):
    """Operators of a model that need a newer opset than its file may have, and that have no replacement.

    Args:
        found: The operators, at least one.
        bound: The newest opset of the file.
    """

    def __init__(self, found: Sequence[Newer], bound: int) -> None:
        self.found = tuple(found)
        first = found[0]
        if len(found) == 1:
            place, actual = (
                first.place,
                f"`{first.op}`, which needs opset {first.needed} with these inputs and attributes",
            )
        else:
            place, actual = "", f"{len(found)} that need a newer one: {_listed(found)}"
        super().__init__(
            f"operators of opset {bound} or older are required",
            place=place,
            actual=actual,
            hint=f"allow a newer opset: `--opset {max(one.needed for one in found)}`",
        )


def _listed(found: Iterable[Newer]) -> str:
    places: dict[tuple[int, str], list[str]] = {}
    for one in found:
        places.setdefault((one.needed, str(one.op)), []).append(one.place)
    rows = [
        f"`{name}` (opset {needed}; {where[0]}{f' and {len(where) - 1} more' if len(where) > 1 else ''})"
        for (needed, name), where in sorted(places.items())
    ]
    left = len(rows) - MOST_OPERATORS
    return ", ".join(rows[:MOST_OPERATORS] + ([f"and {left} other operators"] if left > 0 else []))
