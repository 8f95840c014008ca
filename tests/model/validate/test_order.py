"""The topological order of nodes and functions: against recursion, and against networkx where there are circles."""

from __future__ import annotations

import random
from itertools import pairwise

import networkx
import pytest

from eqsat.model.validate.order import needed_first


def drawn(seed: int) -> dict[int, list[int]]:
    chance = random.Random(seed)
    keys = chance.sample(range(20), chance.randint(1, 12))
    return {k: chance.choices([*keys, 99], k=chance.choice([0, 0, 1, 2])) for k in keys}


def recursive(needs: dict[int, list[int]]) -> list[int]:
    order: list[int] = []

    def visit(key: int) -> None:
        if key not in order:
            for other in needs[key]:
                if other in needs:
                    visit(other)
            order.append(key)

    for key in needs:
        visit(key)
    return order


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_graphs(first: int) -> None:
    circles = 0
    for seed in range(first, first + 100):
        needs = drawn(seed)
        graph = networkx.DiGraph([(a, b) for a, others in needs.items() for b in others])
        order, circle = needed_first(needs)
        assert bool(circle) == (not networkx.is_directed_acyclic_graph(graph))
        if circle:
            circles += 1
            assert circle[0] == circle[-1] and len(set(circle)) == len(circle) - 1
            assert all(b in needs[a] for a, b in pairwise(circle))
        else:
            assert order == recursive(needs)
    assert 20 < circles < 80


@pytest.mark.slow
def test_a_long_chain_needs_no_recursion() -> None:
    order, circle = needed_first({k: [k + 1] for k in range(100_000)})
    assert order == list(range(99_999, -1, -1)) and not circle
