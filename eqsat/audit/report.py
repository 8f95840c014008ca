"""The findings of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.errors import AuditError

SAMPLES = 6

SHOWN = 10
"""Most disagreements that are printed: the first ones cause the others."""

ShownValue = float | int | bool | str
"""An element, or a text in its place."""


@dataclass(frozen=True, slots=True)
class Union:
    """One step of a chain: a rule that equated two expressions.

    Attributes:
        rule: Its name, or ``constant folding``.
        place: ``file:line`` of the rule, empty if it has none.
        left: The expression that it matched.
        right: The expression that it made.
    """

    rule: str
    place: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An e-node that does not compute the value of its class.

    Attributes:
        tensor: Name of the model's tensor, or what else computes the class.
        type: Of the class.
        rule: The rule that made the e-node.
        place: ``file:line`` of the rule.
        expected: The expression that gave the class its value.
        found: The e-node as an expression.
        index: Position of the first element that differs.
        expected_value: The value of the class there.
        found_value: The value that the e-node computes there.
        tolerance: How far both may be apart there.
        sample: Number of the sample.
        chain: The shortest chain of unions from an e-node that agrees to this one; empty if none is known.
    """

    tensor: str
    type: str
    rule: str
    place: str
    expected: str
    found: str
    index: tuple[int, ...]
    expected_value: ShownValue
    found_value: ShownValue
    tolerance: float
    sample: int
    chain: tuple[Union, ...]

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        lines = [
            f"{self.tensor} ({self.type}): rule `{self.rule}` ({self.place})" if self.place
            else f"{self.tensor} ({self.type}): {self.rule}",
            f"  {self.expected} is {self.expected_value} at {at or 'its only element'}",
            f"  {self.found} is {self.found_value}; a difference of {self.tolerance:.3g} is allowed",
        ]  # fmt: skip
        lines += [f"  by {u.rule}: {u.left} => {u.right}" for u in self.chain]
        return "\n".join(lines)


@dataclass(frozen=True)
class AuditReport:
    """The result of :meth:`eqsat.search.Search.audit`.

    Attributes:
        enodes: How many e-nodes were compared with the value of their class.
        classes: How many classes have a value.
        samples: On how many inputs.
        skipped: E-nodes that were not compared, by reason.
        disagreements: Ordered so that causes come before consequences; at most one an e-node.
    """

    enodes: int
    classes: int
    samples: int
    skipped: Mapping[str, int]
    disagreements: tuple[Disagreement, ...]

    @property
    def ok(self) -> bool:
        return not self.disagreements

    def require(self, place: str) -> None:
        """Refuses an e-graph that contradicts itself.

        Raises:
            AuditError: Something disagrees; the message tells the first case in full.
        """
        if self.ok:
            return
        first = self.disagreements[0]
        others = len(self.disagreements) - 1
        raise AuditError(
            "expressions that the e-graph holds to be equal must compute equal values",
            place=place,
            actual=f"{first}" + (f"\nand {others:,} more" if others else ""),
            hint="one rule of the chain is wrong for this model: leave it out, or give it a condition",
        )

    def __str__(self) -> str:
        skipped = "".join(f"; {count:,} not compared: {reason}" for reason, count in self.skipped.items())
        head = f"audit: {self.enodes:,} e-nodes in {self.classes:,} classes on {self.samples} samples{skipped}"
        if self.ok:
            return f"{head}\nall agree"
        shown = [str(d) for d in self.disagreements[:SHOWN]]
        if len(self.disagreements) > SHOWN:
            shown.append(f"and {len(self.disagreements) - SHOWN:,} more")
        return "\n".join([head, f"{len(self.disagreements):,} disagree", *shown])
