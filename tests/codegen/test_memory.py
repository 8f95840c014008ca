"""The memory plan: nothing overlaps that lives at once, and small plans are as small as any."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from eqsat.codegen.memory import Allocation, live_bound, plan_memory


def overlapping(blocks: list[Allocation], offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    return [
        (i, k)
        for i in range(len(blocks))
        for k in range(i)
        if blocks[i].first <= blocks[k].last
        and blocks[k].first <= blocks[i].last
        and offsets[i] < offsets[k] + blocks[k].size
        and offsets[k] < offsets[i] + blocks[i].size
    ]


def smallest(blocks: list[Allocation]) -> int:
    """The best arena by all orders of placing each block at the lowest free offset: some order is optimal."""
    best = 1 << 60
    for order in permutations(range(len(blocks))):
        placed: dict[int, int] = {}
        for i in order:
            taken = sorted(
                (placed[k], placed[k] + blocks[k].size)
                for k in placed
                if blocks[i].first <= blocks[k].last and blocks[k].first <= blocks[i].last
            )
            at = 0
            for low, high in taken:
                if at + blocks[i].size <= low:
                    break
                at = max(at, high)
            placed[i] = at
        best = min(best, max(placed[k] + blocks[k].size for k in placed))
    return best


def draw(seed: int, count: int, steps: int = 8) -> list[Allocation]:
    rng = random.Random(seed)
    blocks = []
    for _ in range(count):
        first = rng.randrange(steps)
        blocks.append(Allocation(64 * rng.randrange(1, 9), first, min(steps - 1, first + rng.randrange(4))))
    return blocks


@pytest.mark.parametrize("seed", range(40))
def test_as_small_as_any(seed: int) -> None:
    blocks = draw(seed, 6)
    plan = plan_memory(blocks)
    assert overlapping(blocks, plan.offsets) == []
    assert plan.bound == live_bound(blocks) <= plan.size == smallest(blocks)


@pytest.mark.parametrize("seed", range(20))
def test_bound_is_what_lives_at_once(seed: int) -> None:
    blocks = draw(seed, 12)
    sums = [sum(b.size for b in blocks if b.first <= step <= b.last) for step in range(8)]
    assert live_bound(blocks) == max(sums)


@pytest.mark.parametrize("seed", range(6))
def test_many_blocks(seed: int) -> None:
    blocks = draw(seed, 150, 100)
    plan = plan_memory(blocks)
    assert overlapping(blocks, plan.offsets) == []
    assert max(o + b.size for o, b in zip(plan.offsets, blocks, strict=True)) == plan.size
    assert plan.size <= 1.15 * plan.bound
    assert plan_memory(blocks) == plan


def test_sizes_are_rounded_to_the_alignment() -> None:
    plan = plan_memory([Allocation(1, 0, 1), Allocation(65, 0, 1), Allocation(3, 1, 2)])
    assert plan.size == 256
    assert all(offset % 64 == 0 for offset in plan.offsets)


def test_nothing_to_place() -> None:
    assert plan_memory([]).size == 0
    assert plan_memory([Allocation(0, 0, 3), Allocation(64, 0, 3)]).size == 64
