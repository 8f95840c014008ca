"""Terms of rule files that consist of no others: numbers, texts, truth, and the class of a rule."""

from __future__ import annotations

from dataclasses import field
from typing import Literal as Words

from eqsat.rules.tree import Node, Place


class Wildcard(Node):
    """``_`` of a pattern: any value, not bound."""

    place: Place


class Number(Node):
    """A number, in a pattern also a truth value; ``text`` is how it was written. In a pattern it is a constant equal to
    it everywhere.
    """

    value: int | float
    text: str = field(compare=False)
    place: Place


class String(Node):
    """A string; ``text`` is how it was written, with its quotes."""

    value: str
    text: str = field(compare=False)
    place: Place


class Truth(Node):
    value: bool
    place: Place


class Numerics(Node):
    """How far a rule may change values: ``exact``, ``real``, ``lsb`` (within ``lsb`` units), ``approximate``."""

    kind: Words["exact", "real", "lsb", "approximate"]
    lsb: int = 0

    def __str__(self) -> str:
        return f"within {self.lsb} lsb" if self.kind == "lsb" else self.kind
