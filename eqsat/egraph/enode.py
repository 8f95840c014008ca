"""One e-node as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.egraph.answer import CompositeInstance
from eqsat.egraph.language import ORIGINAL
from eqsat.schema.types import Attrs, OpKey


@dataclass(frozen=True, slots=True)
class ENode:
    """One way to compute a class.

    Attributes:
        kind: ``"op"``, ``"composite"``, ``"input"``, ``"const"``, ``"part"`` (projection of a tuple).
        op: The operator; for a composite (target, name); empty for the others.
        children: Operand classes; None for an absent operand.
        number: Input number, constant id, or output index of a projection; otherwise 0.
        outputs: Size of the tuple, 0 for a plain value.
        rule: Number of the rule that made it, 0 for the model's own.
    """

    kind: str
    op: OpKey
    attrs: Attrs
    children: tuple[int | None, ...]
    eclass: int
    number: int = 0
    outputs: int = 0
    rule: int = ORIGINAL
    composite: CompositeInstance | None = None
