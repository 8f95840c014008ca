"""Values that are chosen for free sizes: where costs are taken, and where results are verified.

Sizes that follow from others are computed, and of the others such values are chosen that all operators can be executed:
the nearest ones to those that are wanted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.schema.agreement import fits
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import Fit, FreeSize, FreeSizes, SizeCondition
from eqsat.schema.size import Undecided, value_at
from eqsat.schema.size_questions import substituted, symbols

MOST_COMBINED = 16
"""Combinations of several symbols' sizes at which costs are taken."""
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31)
"""Sizes that are multiples of nothing; each symbol takes another one, so that mixed-up symbols show."""
MOST_EQUATED = 6
"""Pairs of symbols that are given one value."""
_MOST_TRIED = 4000
"""Values that are tried until all conditions hold."""
_RADII = (8, 1 << 6, 1 << 9, 1 << 12)
"""Largest distance from the wanted values that is tried; near values of all symbols come before far values of one."""


def typical_sizes(sizes: FreeSizes) -> dict[str, int]:
    """The typical value of each symbol."""
    return {name: size.typical for name, size in sizes.items()}


def where_costed(sizes: FreeSizes) -> tuple[dict[str, int], ...]:
    """The values at which costs are taken.

    All combinations of the symbols' sizes, or if these are more than :data:`MOST_COMBINED`, the first sizes together,
    then the second ones and so on, where a shorter list repeats its last one.
    """
    several = [(0,) if size.follows else size.costed_at for size in sizes.values()]
    if math.prod(map(len, several)) <= MOST_COMBINED:
        rows = list(itertools.product(*several))
    else:
        rows = [tuple(at[min(i, len(at) - 1)] for at in several) for i in range(max(map(len, several)))]
    return tuple(completed(sizes, _roots(sizes, dict(zip(sizes, row, strict=True)))) for row in rows)


def samples(sizes: FreeSizes) -> Iterator[dict[str, int]]:
    """Values on which results are verified: typical ones, then primes, the smallest ones, multiples of 16.

    A size that follows from others only where it is not 1 is 1 once more, if its range allows that.
    """
    seen: list[dict[str, int]] = []
    least = {name: size.least for name, size in sizes.items()}
    several = [
        typical_sizes(sizes),
        {name: size.nearest(PRIMES[i % len(PRIMES)]) for i, (name, size) in enumerate(sizes.items())},
        least,
        {name: size.nearest(16 * (i + 2)) for i, (name, size) in enumerate(sizes.items())},
    ]
    for wanted in several:
        values = fitting(sizes, wanted)
        if values not in seen:
            seen.append(values)
            yield values
    loose = {name: least[name] for name, size in sizes.items() if size.follows and not size.forced}
    if loose and (values := fitting(sizes, least) | loose) not in seen:
        yield values


def smallest_unlike(sizes: FreeSizes) -> dict[str, int]:
    """Small values, all different and none of them 1, as far as ranges allow it."""
    return fitting(sizes, {name: size.nearest(2 + i) for i, (name, size) in enumerate(sizes.items())})


def _roots(sizes: FreeSizes, values: Mapping[str, int]) -> dict[str, int]:
    return {name: values[name] for name, size in sizes.items() if not size.follows and name in values}


def completed(sizes: FreeSizes, values: Mapping[str, int]) -> dict[str, int]:
    """Values, and those that follow from them.

    Args:
        sizes: The symbols, and how some follow from others.
        values: Values of some symbols.
    """
    found = dict(values)
    texts = {name: size.follows for name, size in sizes.items() if size.follows}
    for _ in range(len(sizes)):
        before = len(found)
        for name, text in texts.items():
            try:
                size = substituted(size_of(text, sizes), found)
            except Undecided:
                continue
            left = dict.fromkeys(s.name for s in symbols(size))
            if not left and name not in found:
                found[name] = value_at(size, {})
            elif len(left) == 1 and name in found:
                # From the sum and all but one of its terms follows the last one.
                (other,) = left
                at = [value_at(size, {other: n}) for n in (0, 1)]
                step = at[1] - at[0]
                if step and (found[name] - at[0]) % step == 0:
                    value = (found[name] - at[0]) // step
                    if value >= sizes[other].least and value_at(size, {other: value}) == found[name]:
                        found[other] = value
        if len(found) == before:
            break
    return {name: found[name] for name in (*sizes, *found) if name in found}


def fitting(sizes: FreeSizes, wanted: Mapping[str, int]) -> dict[str, int]:
    """The values that meet all conditions, as near to the wanted ones as can be found.

    Args:
        sizes: The symbols.
        wanted: Of each symbol that follows from no others; if no values fit, these are taken.
    """
    tests = list(_tests(sizes))
    for chosen in dict.fromkeys((tuple(tests), tuple(t for t in tests if t.always))):
        if chosen and (found := _search(sizes, wanted, chosen)) is not None:
            return completed(sizes, found)
    return completed(sizes, {name: wanted[name] for name, size in sizes.items() if not size.follows})


def _search(sizes: FreeSizes, wanted: Mapping[str, int], tests: Sequence[_Test]) -> dict[str, int] | None:
    """Values that pass all tests, None if none are found."""
    roots = [name for name, size in sizes.items() if not size.follows]
    tested = {name for test in tests for name in test.names}

    def search(chosen: dict[str, int], radius: int) -> dict[str, int] | None:
        nonlocal left
        if len(chosen) == len(roots):
            return chosen
        name = roots[len(chosen)]
        decided = [t for t in tests if name in t.names and t.names <= {*chosen, name}]
        for value in _near(sizes[name], wanted[name], radius if name in tested else 0):
            left -= 1
            if left < 0:
                return None
            values = {**chosen, name: value}
            if all(test.holds(values) for test in decided) and (found := search(values, radius)) is not None:
                return found
        return None

    for radius in _RADII:
        left = _MOST_TRIED
        if (found := search({}, radius)) is not None:
            return found
    return None


def _near(size: FreeSize, wanted: int, radius: int) -> Iterator[int]:
    """Values of a range, the nearest one first."""
    most = wanted + radius if size.most is None else size.most
    yield wanted
    for distance in range(1, min(max(most - wanted, wanted - size.least), radius) + 1):
        if wanted + distance <= most:
            yield wanted + distance
        if wanted - distance >= size.least:
            yield wanted - distance


def equated(sizes: FreeSizes, values: Mapping[str, int]) -> Iterator[tuple[tuple[str, str], dict[str, int]]]:
    """The same values with one size as large as an earlier one, each with these two symbols.

    For models in which sizes have to agree for a reason that types do not show; there are :data:`MOST_EQUATED` at most.
    """
    roots = [name for name, size in sizes.items() if not size.follows]
    pairs = ((a, b) for i, b in enumerate(roots) for a in roots[:i])
    for a, b in itertools.islice(pairs, MOST_EQUATED):
        if values[a] != values[b] and sizes[b].nearest(values[a]) == values[a]:
            yield (a, b), completed(sizes, {**{name: values[name] for name in roots}, b: values[a]})


@dataclass(frozen=True, slots=True)
class _Test:
    """A condition on values: two sizes are equal, or one is within a range.

    Attributes:
        names: The symbols of both sizes.
        a, b: The sizes.
        fit: The relation that they must have.
        always: Whether it must hold in each run.
        range: Of the first size, where there is no second one.
    """

    names: frozenset[str]
    a: int
    b: int = 0
    fit: Fit = "equal"
    always: bool = True
    range: FreeSize | None = None

    def holds(self, values: Mapping[str, int]) -> bool:
        a = value_at(self.a, values)
        if self.range is not None:
            return self.range.nearest(a) == a
        return fits(a, value_at(self.b, values), self.fit)


def _tests(sizes: FreeSizes) -> Iterator[_Test]:
    for condition in dict.fromkeys(c for size in sizes.values() for c in size.conditions):
        if (pair := _parsed(condition, sizes)) is not None:
            yield _Test(_names(pair), *pair, condition.fit, condition.always)
    for size in sizes.values():
        if size.follows:
            try:
                made = size_of(size.follows, sizes)
            except Undecided:
                continue
            if names := _names((made,)):
                yield _Test(names, made, always=size.forced, range=size)


def _parsed(condition: SizeCondition, sizes: FreeSizes) -> tuple[int, int] | None:
    try:
        return size_of(condition.a, sizes), size_of(condition.b, sizes)
    except Undecided:
        return None


def _names(pair: Sequence[int]) -> frozenset[str]:
    return frozenset(s.name for size in pair for s in symbols(size))
