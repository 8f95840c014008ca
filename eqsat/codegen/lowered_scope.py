"""A plan while it is lowered: what its values became."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.codegen.program import ProgramOperand
from eqsat.partition.plan import Plan


@dataclass
class Scope:
    """A plan that is being lowered.

    Attributes:
        values: The operands that its values became; None for those that were refused.
        names: Of its values.
        read: The values that something reads.
        region: Number of the region that stays whole and whose plan this is, None for all others.
    """

    plan: Plan
    values: dict[int, ProgramOperand | None]
    names: dict[int, str]
    read: set[int]
    region: int | None = None
