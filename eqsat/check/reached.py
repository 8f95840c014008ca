"""Where functions reach the numbers of a rule: the arguments at which a limit behind a function shows.

``Exp(x) => Clip(Exp(x), 0, 2000)`` is right for all ordinary numbers and wrong above 7.6, which its text does not
contain. So arguments are drawn on both sides of where each function of the rule equals a number of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from eqsat.rules.ast import Build, Match, Rule
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey

_INVERSES: dict[str, Callable[[float], float]] = {
    "Acosh": math.cosh,
    "Asinh": math.sinh,
    "Atan": math.tan,
    "Atanh": math.tanh,
    "Cosh": math.acosh,
    "Elu": math.log1p,
    "Exp": math.log,
    "Log": math.exp,
    "Reciprocal": lambda y: 1 / y,
    "Sigmoid": lambda y: math.log(y / (1 - y)),
    "Sinh": math.asinh,
    "Softplus": lambda y: math.log(math.expm1(y)),
    "Softsign": lambda y: y / (1 - abs(y)),
    "Sqrt": lambda y: y * y,
    "Tanh": math.atanh,
}
"""Inverse functions of operators, each on the positive branch where there are two."""
_BESIDE = (0.5, 0.9, 1.0, 1.1, 2.0)
"""Factors on both sides of a number: at the limit itself, rounding hides a difference."""


def reached(rule: Rule, numbers: Sequence[float]) -> tuple[float, ...]:
    """Arguments at which the rule's functions give its numbers, or numbers of that magnitude.

    Args:
        rule: Its operators are looked at.
        numbers: Of its text.
    """
    inverses = [_INVERSES[name] for name in dict.fromkeys(_operators(rule)) if name in _INVERSES]
    found: dict[float, None] = {}
    # Tanh and its like end at 1: between a number and that end the factors say nothing.
    values = [v for n in numbers for v in (*(n * factor for factor in _BESIDE), (n + 1) / 2, (n - 1) / 2)]
    for inverse in inverses:
        for value in values:
            try:
                found.setdefault(inverse(value))
            except (ValueError, OverflowError, ZeroDivisionError):
                continue  # The function does not reach it.
    return tuple(argument for argument in found if math.isfinite(argument))


def _operators(rule: Rule) -> Iterator[str]:
    for node in walk((rule.left, rule.right)):
        if isinstance(node, Match):
            yield from (op.name for op in node.ops if not op.domain)
        elif isinstance(node, Build) and isinstance(node.op, OpKey) and not node.op.domain:
            yield node.op.name
