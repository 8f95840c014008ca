"""The best program and the best bound so far, shared by the steps of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eqsat.extract.problem import Choice


@dataclass
class Incumbent:
    """The best program so far, None before the first, and a bound below every program.

    Attributes:
        report: Called with each improvement: the step, the cost, the bound.
    """

    choices: dict[int, Choice] | None
    cost: float
    bound: float = 0.0
    report: Callable[[str, float, float], None] | None = None

    def offer(self, step: str, choices: dict[int, Choice], cost: float, bound: float = 0.0) -> None:
        """Take a program if it is cheaper, and the bound that was found with it if it is higher."""
        if cost < self.cost:
            self.choices, self.cost = choices, cost
            self.bound = max(self.bound, min(bound, cost))
            self.tell(step)
        else:
            self.raise_bound(step, bound)

    def raise_bound(self, step: str, bound: float) -> None:
        """Take a bound if it is higher."""
        bound = min(bound, self.cost)
        if bound > self.bound:
            self.bound = bound
            self.tell(step)

    def tell(self, step: str) -> None:
        if self.report is not None and self.choices is not None:
            self.report(step, self.cost, self.bound)

    def closed(self, gap: float) -> bool:
        """Whether the program is proven to cost at most this much more than the best, relatively."""
        return self.choices is not None and self.cost - self.bound <= gap * abs(self.cost)
