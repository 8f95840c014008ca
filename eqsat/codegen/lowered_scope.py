"""A plan while it is lowered: what its values became."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.codegen.program import ProgramOperand
from eqsat.partition.plan import Plan


@dataclass
class Scope:
    """A plan that is being lowered.

    Attributes:
        values: The operand for each value; None for those that were refused.
        names: Names of the values.
        read: Values that have readers.
        region: Number of the region whose plan this is, if it stays whole; otherwise None.
    """

    plan: Plan
    values: dict[int, ProgramOperand | None]
    names: dict[int, str]
    read: set[int]
    region: int | None = None
