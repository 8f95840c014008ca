"""When saturation ends, and what is told of each rule afterwards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """When saturation ends at the latest.

    Attributes:
        iterations: Rounds of all rules.
        nodes: e-nodes; None allows a generous multiple of the model's own.
        seconds: Wall-clock time.
        matches: Matches of one clause in one round before it is held back; None as for ``nodes``.
    """

    iterations: int = 30
    nodes: int | None = None
    seconds: float = 30.0
    matches: int | None = None

    def for_model(self, nodes: int) -> Limits:
        """The limits with numbers in place of None, for a model of so many nodes."""
        return Limits(
            self.iterations,
            20 * nodes + 5_000 if self.nodes is None else self.nodes,
            self.seconds,
            4 * nodes + 500 if self.matches is None else self.matches,
        )


@dataclass
class RuleStatistics:
    """What one rule did.

    Attributes:
        matches: How often its pattern matched.
        applied: On how many distinct signatures it applied.
        seconds: Search and apply time inside egglog and answering time in Python.
        held_back: Rounds in which it was held back because it matched too often.
        mismatches: Signatures on which its two sides have different types; there it is not applied.
        mismatch: The first such contradiction, empty if none.
        misfits: Signatures on which it would make a constant that its type cannot hold; there it is not applied.
        misfit: The first such constant, empty if none.
    """

    name: str
    place: str
    matches: int = 0
    applied: int = 0
    seconds: float = 0.0
    held_back: int = 0
    mismatches: int = 0
    mismatch: str = ""
    misfits: int = 0
    misfit: str = ""
