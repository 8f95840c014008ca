"""Limits the work of evaluating one expression of a rule.

Steps and elements are counted, so that a nested comprehension ends at the same place on every machine. A list that
contains another list many times counts all copies, because comparing or printing it visits all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.errors import RuleError
from eqsat.rules.ast import Place

MOST_STEPS = 4_000_000
"""Steps for one expression: a quarter of a second to some seconds."""
MOST_ELEMENTS = 1_000_000
"""Most elements of one list, including those of nested lists."""
PER_TERM = 4
"""Steps that each term counts; an element of a list is one."""
PER_ARRAY = 8
"""Elements of a tensor's contents that are one step."""


class StepCount:
    """Counts what one evaluation takes."""

    def __init__(self) -> None:
        self._left = MOST_STEPS
        # Lists are kept as long as their size is: another one could get the same identity.
        self._sizes: dict[int, tuple[Any, int]] = {}

    def term(self, place: Place) -> None:
        """Counts a term.

        Raises:
            RuleError: There were too many terms.
        """
        self._left -= PER_TERM
        if self._left < 0:
            raise self._too_much(place)

    def result(self, value: Any, place: Place) -> None:
        """Counts the elements of a list or an array.

        Raises:
            RuleError: There are too many elements, in this list or in all so far.
        """
        if isinstance(value, np.ndarray):
            self._left -= value.size // PER_ARRAY
        elif isinstance(value, tuple | list):
            size = self._size(value)
            if size > MOST_ELEMENTS:
                raise RuleError(
                    f"a list of at most {MOST_ELEMENTS:,} elements is required", place=str(place), actual=f"{size:,}"
                )
            self._left -= size
        else:
            return
        if self._left < 0:
            raise self._too_much(place)

    def _size(self, value: tuple[Any, ...] | list[Any]) -> int:
        known = self._sizes.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        size = len(value)
        for item in value:
            if isinstance(item, tuple | list):
                size += self._size(item)
        self._sizes[id(value)] = (value, size)
        return size

    def _too_much(self, place: Place) -> RuleError:
        return RuleError(
            f"an expression that takes at most {MOST_STEPS:,} steps is required",
            place=str(place),
            actual="more",
            hint="a comprehension inside of another one multiplies their lengths",
        )


class Env(dict[str, object]):
    """The names of one evaluation, and the work so far."""

    def __init__(self, names: Any, steps: StepCount | None = None) -> None:
        super().__init__(names)
        self.steps = steps or StepCount()
