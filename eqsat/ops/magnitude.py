"""How large the numbers of a result are, as far as its operator alone decides it: a facet of operators.

:mod:`eqsat.egraph.magnitudes` derives bounds from it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Magnitude:
    """Properties that bound a result.

    Attributes:
        operands: Each element of the result is, except for its sign, zero or an element of one of these operands.
        of_all: The same for all operands.
        ordinary: The result is a sum of products or the value of a bounded function: a number far inside the range of
            its type.
    """

    operands: tuple[int, ...] = ()
    of_all: bool = False
    ordinary: bool = False

    def bounding(self, inputs: int) -> tuple[int, ...]:
        """The operands whose bounds are the result's, of an e-node with ``inputs`` operands."""
        return tuple(range(inputs)) if self.of_all else tuple(i for i in self.operands if i < inputs)


ORDINARY = Magnitude(ordinary=True)
OF_FIRST = Magnitude((0,))
OF_ALL = Magnitude(of_all=True)
