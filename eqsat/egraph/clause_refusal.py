"""Why a clause does not apply where its pattern occurs: what was required, and what was found.

Most refusals are never read, so that a condition is put into words only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.rules.ast import Condition
from eqsat.rules.wording import required_and_found


@dataclass(frozen=True, slots=True)
class ClauseRefusal:
    """Attributes:
    progress: How far the match got, from 0 to 1: operators, then attributes, then conditions, then the right side.
    requirement, actual: In words; empty for a condition.
    condition: What does not hold.
    env: The names that it reads.
    """

    progress: float
    requirement: str = ""
    actual: str = ""
    condition: Condition | None = None
    env: Mapping[str, object] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, str]:
        """The requirement, and what was found instead, which may be empty."""
        if self.condition is None:
            return self.requirement, self.actual
        return required_and_found(self.condition, self.env)

    def __str__(self) -> str:
        required, found = self.words
        if not found:
            return f"{required} is required"
        return f"{required} is required{': ' if self.condition is not None else ', found '}{found}"


ATTRIBUTES, CONDITIONS, RIGHT = 0.1, 0.2, 0.9
"""Progress at which each stage begins."""


def of_condition(failed: Condition, position: int, count: int, env: Mapping[str, object]) -> ClauseRefusal:
    """The refusal by one of ``count`` conditions."""
    return ClauseRefusal(CONDITIONS + (RIGHT - CONDITIONS) * position / count, condition=failed, env=env)
