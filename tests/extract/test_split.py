"""Where a problem is cut into parts."""

from __future__ import annotations

import pytest

from eqsat.extract.reduce.class_dominators import Dominators
from eqsat.extract.split import split
from tests.extract.networks import Builder


def chain(length: int, targets: int) -> list[int]:
    """Numbers of classes in the parts of a chain, of at least ten classes each."""
    build = Builder(targets)
    value = build.value(1.0)
    build.add(value, (), 1.0)
    for _ in range(length - 1):
        after = build.value(1.0)
        build.add(after, (value,), *[1.0] * targets)
        value = after
    problem = build.problem((value,), 1.0, 0.0, 1.0)
    return [len(part.classes) for part in split(problem, Dominators(problem), 10)]


def test_a_part_is_searched_once_for_each_target_so_that_as_much_must_lie_above_it() -> None:
    assert chain(19, 2) == [19]
    assert chain(20, 2) == chain(20, 3) == [10, 10]
    assert chain(29, 2) == [10, 19]
    assert chain(40, 2) == [10, 10, 10, 10]


@pytest.mark.parametrize("rest", [1, 2])
def test_with_one_target_a_small_rest_is_cut_off(rest: int) -> None:
    assert chain(20 + rest, 1) == ([10, 11] if rest == 1 else [10, 10, 2])
