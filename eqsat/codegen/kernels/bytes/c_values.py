"""Vectors and numbers of an integer kernel on their way to its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

Address = Callable[[str], str]
"""Pointer to the first lane's element, by parameter."""


@dataclass(frozen=True, slots=True)
class Value:
    """A vector in C.

    Attributes:
        text: Name of the variable.
        form: ``i`` integers, ``f`` floats.
        dtype: Element type that it represents.
        bounds: Bounds to which the integers still have to be clamped.
    """

    text: str
    form: str
    dtype: ir.DataType
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector that an anchor computes.

    Attributes:
        first: Makes the anchor's result.
        address: Pointers by parameter.
        count: Lanes in use.
        offset: From the pointer ``y0p`` to the first lane's result, in elements.
    """

    first: Callable[[], Value]
    address: Address
    count: int
    offset: int = 0


class Parameters:
    """Numbers of a kernel as two constant arrays, one of integers and one of floats.

    Args:
        first: Number of the first free parameter ``w<k>``.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self._numbers: dict[str, list[int | float]] = {"i": [], "f": []}

    def integer(self, value: int) -> str:
        """A vector of one integer."""
        return self._add("i", int(value))

    def single(self, value: float | np.floating) -> str:
        """A vector of one float32."""
        return self._add("f", float(np.float32(value)))

    def _add(self, kind: str, value: int | float) -> str:
        known = self._numbers[kind]
        known.append(value)
        return f"k{kind}{len(known) - 1}"

    def count(self, kind: str) -> int:
        """How many there are."""
        return len(self._numbers[kind])

    def check(self, kind: str, number: int, value: float | int | np.floating) -> None:
        """Checks that a number that is used again equals the first one."""
        known = self._numbers[kind][number]
        meant = int(value) if kind == "i" else float(np.float32(value))
        assert known == meant or (known != known and meant != meant), (kind, number, known, meant)

    @property
    def constants(self) -> list[np.ndarray]:
        """The arrays that are not empty."""
        types = {"i": np.int32, "f": np.float32}
        return [np.array(values, types[kind]) for kind, values in self._numbers.items() if values]

    def declarations(self) -> list[str]:
        """Statements that define the vectors; at the top of the body."""
        lines, place = [], self.first
        for kind, splat, c in (("i", "SPLATI@", "vi@"), ("f", "SPLAT@", "vf@")):
            count = len(self._numbers[kind])
            lines += [f"const {c} k{kind}{n} = {splat}(w{place}[{n}]);" for n in range(count)]
            place += count > 0
        return lines


def four_bytes(value: int) -> int:
    """Four equal bytes as an integer of 32 bits."""
    return int(np.frombuffer(bytes([value & 255] * 4), np.int32)[0])
