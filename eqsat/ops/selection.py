"""The operands whose elements a result has: a facet of operators that move elements or choose some.

Known facts about the operands' elements hold for the result's as well: sizes and ranges of integers are followed
through such operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Where the elements of the first result come from.

    Attributes:
        operands: The operands that hold them; None for all.
        adds: Whether the result may have other elements as well: zeros that no operand holds, or sums.
    """

    operands: tuple[int, ...] | None = (0,)
    adds: bool = False

    def sources(self, inputs: int) -> Sequence[int]:
        """The operands of a node with ``inputs`` operands whose elements the result has."""
        return range(inputs) if self.operands is None else [i for i in self.operands if i < inputs]


FROM_FIRST = Selection()
FROM_ALL = Selection(None)
