"""A free size: the variable of the polynomials of :mod:`eqsat.schema.size`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from eqsat.schema.free_sizes import FreeSize

LARGEST = 2**63 - 1
"""Upper bound of a dimension: ONNX stores dimensions as int64."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A free size.

    Attributes:
        name: Of the symbol in the model.
        range: Its values.
    """

    name: str
    range: FreeSize

    @property
    def c_name(self) -> str:
        """Of the variable that holds it."""
        return _c_name(self.name)

    @property
    def bounds(self) -> tuple[int, int]:
        return self.range.least, LARGEST if self.range.most is None else self.range.most

    def text(self, *, c: bool) -> str:
        return self.c_name if c else self.name

    def at(self, values: Mapping[str, int]) -> int:
        return values[self.name]


@cache
def _c_name(name: str) -> str:
    return re.sub(r"\W", "_", f"dim_{name}", flags=re.ASCII)
