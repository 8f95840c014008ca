"""The result of checking a rule."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eqsat.check.instance import Instance, show
from eqsat.rules.ast import Rule


@dataclass(frozen=True)
class RuleCounterexample:
    """An instance on which a rule is wrong.

    Attributes:
        kind: ``"value"``; ``"type"`` where inference and execution disagree; ``"failure"`` where the right side cannot
            be executed; ``"silent"`` where all conditions hold and yet the rule does not apply; ``"mismatch"`` where it
            does not because its sides have different types.
        name: The value of the left side.
        right: The right side as text.
        message: What differs, and where first.
        seed: Draws the same instance again.
        values: What both sides compute.
    """

    rule: Rule
    kind: str
    instance: Instance
    message: str
    name: str = ""
    right: str = ""
    seed: tuple[int, ...] = ()
    values: tuple[np.ndarray, np.ndarray] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        verdict = "lacks a condition" if self.kind == "mismatch" else f"is wrong ({self.kind})"
        head = f"{self.rule.place}: rule {self.rule.name} : {self.rule.numerics} {verdict}: {self.message}"
        lines = [head, *(f"    {line}" for line in str(self.instance).splitlines())]
        if self.right:
            lines.append(f"    {self.name} = {self.right}" if self.name else f"    {self.right}")
        if self.values is not None:
            lines += [f"    {side}: {show(value)}" for side, value in zip(("left ", "right"), self.values, strict=True)]
        return "\n".join([*lines, f"    (instance {'.'.join(map(str, self.seed))})"])


@dataclass
class Outcome:
    """All instances of one rule.

    Attributes:
        instances: Number of instances executed and compared.
        clauses: Number of these by clause of the pattern.
        attempts: Number of attempts to draw an instance.
        bitwise: Whether both sides were equal to the bit on all of them, special values included.
        worst: Largest relative error in float64.
        rejections: Reasons why attempts were given up, with their numbers.
        mismatch: The first instance on which all conditions hold and the sides have different types, so that the rule
            was not applied: that does no harm, but a condition is missing.
        mismatches: Number of such instances by clause.
        dtypes: Instances by element type of the first root.
        unmet: The sides of ``or`` in its conditions that no instance met.
    """

    rule: Rule
    instances: int = 0
    attempts: int = 0
    clauses: dict[int, int] = field(default_factory=dict)
    bitwise: bool = True
    worst: float = 0.0
    rejections: dict[str, int] = field(default_factory=dict)
    counterexamples: list[RuleCounterexample] = field(default_factory=list)
    mismatch: RuleCounterexample | None = None
    mismatches: dict[int, int] = field(default_factory=dict)
    dtypes: dict[str, int] = field(default_factory=dict)
    unmet: list[str] = field(default_factory=list)

    @property
    def fires(self) -> bool:
        """Whether both sides of any instance were compared."""
        return self.instances > 0 or any(c.kind != "silent" for c in self.counterexamples)

    @property
    def holds(self) -> bool:
        """Whether the rule fires and nothing speaks against it."""
        return self.fires and not self.counterexamples

    @property
    def silent_clauses(self) -> list[int]:
        """Clauses without an instance."""
        return [k for k, n in self.clauses.items() if not n]

    def why_silent(self) -> str:
        """The most frequent reasons why nothing was found."""
        ranked = sorted(self.rejections.items(), key=lambda item: (-item[1], item[0]))[:5]
        return "; ".join(f"{reason} ({count})" for reason, count in ranked)

    def __str__(self) -> str:
        name = f"{self.rule.name} : {self.rule.numerics}"
        if not self.fires:
            return f"{name}: never fires in {self.attempts} attempts: {self.why_silent()}"
        if self.counterexamples:
            return "\n".join(map(str, self.counterexamples))
        return f"{name}: holds on {self.instances} instances"
