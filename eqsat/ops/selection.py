"""Among which elements those of a result are: a facet of operators that move elements or choose some.

What is known of the operands' elements holds for the result's: sizes are followed through such operators, and ranges of
integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Where the elements of the first result come from.

    Attributes:
        operands: The operands that hold them; None for all.
        adds: Whether some of its forms have other elements as well: zeros that nothing gives, or sums.
    """

    operands: tuple[int, ...] | None = (0,)
    adds: bool = False

    def sources(self, inputs: int) -> Sequence[int]:
        """Those of a node with ``inputs`` operands."""
        return range(inputs) if self.operands is None else [i for i in self.operands if i < inputs]


FROM_FIRST = Selection()
FROM_ALL = Selection(None)
