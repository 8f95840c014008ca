"""The most general pair of terms that a pair is an instance of.

``Div(1, Div(1, Abs(x)))`` is ``Abs(x)`` because ``Div(y, Div(y, z))`` is ``z``. One general rule implies many pairs,
which then need no check of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from eqsat.discover.elementwise_terms import NAMES, ElementwiseTerm, Pair

MOST_VARIABLES = 4


def most_general(pair: Pair, holds: Callable[[Pair], bool]) -> Pair:
    """Replaces terms, numbers and occurrences of variables by new variables, as long as both sides stay equal.

    Args:
        pair: A pair of equal terms.
        holds: Whether both sides of a pair are equal on samples.
    """
    while (wider := next((p for p in _wider(pair) if holds(p)), None)) is not None:
        pair = wider
    return pair


def _wider(pair: Pair) -> Iterator[Pair]:
    """More general pairs, with one variable more, or with as many and fewer operators."""
    free = next((name for name in NAMES if name not in pair.left.variables), "")
    if not free:
        return
    new = ElementwiseTerm(name=free)
    parts = [t for t in pair.left.subterms if t != pair.left and not t.name]
    for part in sorted(parts, key=lambda t: -t.size):
        yield from _sound(Pair(pair.left.replaced(part, new), pair.right.replaced(part, new)))
    places = _places(pair.left), _places(pair.right)
    for leaf, left in places[0].items():
        right = places[1].get(leaf, [])
        for here in left if len(left) > 1 else ():
            for count in range(len(right) + 1):
                for there in itertools.combinations(right, count):
                    wider = Pair(_put(pair.left, [here], new), _put(pair.right, there, new))
                    yield from _sound(wider)


def _sound(pair: Pair) -> Iterator[Pair]:
    """The pair, unless the right side has a variable of its own or there are too many variables."""
    names = pair.left.variables
    if len(names) <= MOST_VARIABLES and set(pair.right.variables) <= set(names):
        yield pair


TermPlace = tuple[int, ...]
"""Numbers of the operands that lead to a term."""


def _places(term: ElementwiseTerm, here: TermPlace = ()) -> dict[ElementwiseTerm, list[TermPlace]]:
    """The places of each variable and each number."""
    if not term.op:
        return {term: [here]}
    found: dict[ElementwiseTerm, list[TermPlace]] = {}
    for i, operand in enumerate(term.operands):
        for leaf, places in _places(operand, (*here, i)).items():
            found.setdefault(leaf, []).extend(places)
    return found


def _put(
    term: ElementwiseTerm, places: Sequence[TermPlace], new: ElementwiseTerm, here: TermPlace = ()
) -> ElementwiseTerm:
    if here in places:
        return new
    return (
        ElementwiseTerm(term.op, tuple(_put(o, places, new, (*here, i)) for i, o in enumerate(term.operands)))
        if term.op
        else term
    )
