"""Arguments at which functions reach the numbers of a rule, where a limit after a function matters.

``Exp(x) => Clip(Exp(x), 0, 2000)`` is right for all ordinary numbers and wrong above 7.6, which its text does not
contain. So arguments are drawn on both sides of the points where a function of the rule equals a number of the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from eqsat.ops.operators import operator
from eqsat.rules.ast import Build, Match, Rule
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey

_BESIDE = (0.5, 0.9, 0.98, 1.0, 1.02, 1.1, 2.0)
"""Factors on both sides of a number: at the limit itself, rounding hides a difference."""


def reached(rule: Rule, numbers: Sequence[float]) -> tuple[float, ...]:
    """Arguments at which the rule's functions give its numbers, or numbers of that magnitude.

    Args:
        rule: Its operators are looked at.
        numbers: Of its text.
    """
    inverses = [inverse for op in dict.fromkeys(_operators(rule)) if (inverse := operator(op).inverse)]
    found: dict[float, None] = {}
    # Tanh and its like end at 1: between a number and that end the factors say nothing.
    values = [v for n in numbers for v in (*(n * factor for factor in _BESIDE), (n + 1) / 2, (n - 1) / 2)]
    for inverse in inverses:
        for value in values:
            try:
                found.setdefault(inverse(value))
            except (ValueError, ArithmeticError):
                continue  # The function does not reach it.
    return tuple(argument for argument in found if math.isfinite(argument))


def _operators(rule: Rule) -> Iterator[OpKey]:
    for node in walk((rule.left, rule.right)):
        if isinstance(node, Match):
            yield from node.ops
        elif isinstance(node, Build) and isinstance(node.op, OpKey):
            yield node.op
