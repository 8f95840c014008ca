"""Ranges of results against all results, for all small ranges of operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement, product

import pytest

from eqsat.schema.integer_ranges import (
    IntegerRange,
    greater,
    hull,
    products,
    quotients,
    remainders,
    smaller,
)

RANGES = list(combinations_with_replacement(range(-3, 5), 2))
RULES: dict[str, tuple[Callable[[IntegerRange, IntegerRange], IntegerRange | None], Callable[[int, int], int]]] = {
    "products": (products, lambda x, y: x * y),
    "quotients": (quotients, lambda x, y: x // y),
    "greater": (lambda a, b: greater((a, b)), max),
    "smaller": (lambda a, b: smaller((a, b)), min),
}


def each(ranges: Sequence[IntegerRange]) -> Iterator[tuple[int, ...]]:
    return product(*(range(low, high + 1) for low, high in ranges))


@pytest.mark.parametrize("name", RULES)
def test_the_range_is_that_of_all_results(name: str) -> None:
    rule, compute = RULES[name]
    decided = 0
    for a, b in product(RANGES, RANGES):
        found = rule(a, b)
        if found is None:
            assert b[0] <= 0 or a[0] < 0
            continue
        results = [compute(x, y) for x, y in each((a, b))]
        assert found == (min(results), max(results)), (a, b)
        decided += 1
    assert decided > 20


def test_remainders_lie_between() -> None:
    for a, b in product(RANGES, RANGES):
        found = remainders(a, b)
        assert (found is None) == (b[0] <= 0)
        if found is not None:
            assert all(found[0] <= x % y <= found[1] for x, y in each((a, b))), (a, b)
    assert remainders((0, 9), (4, 4)) == (0, 3) and remainders((0, 2), (4, 9)) == (0, 2)


def test_the_hull_has_all_numbers() -> None:
    assert hull([(1, 2), (-3, 0), (7, 7)]) == (-3, 7)
