"""The static memory plan: an offset in the arena for every buffer that lives there.

Buffers whose lifetimes overlap must not overlap in memory. The greedy plan by size (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020) places the largest first, each into the lowest gap that fits. A
seeded random walk then tries other orders until the attempts are used up, or the arena is as small as the sum of the
buffers that live at the same time, which no plan can beat.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

ATTEMPTS = 2000
"""Orders of placing that are tried; each takes time proportional to the overlapping pairs."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that is needed for a while.

    Attributes:
        size: In bytes.
        first: The first step at which it is used.
        last: The last one.
    """

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Offsets, and how good they are.

    Attributes:
        offsets: One per block, in bytes.
        size: Of the arena.
        bound: The largest number of bytes that live at the same time; no arena is smaller.
    """

    offsets: tuple[int, ...]
    size: int
    bound: int


def live_bound(blocks: Sequence[Allocation]) -> int:
    """The largest sum of sizes of blocks that live at one step."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    most = now = 0
    for step in sorted(changes):
        now += changes[step]
        most = max(most, now)
    return most


def plan_memory(blocks: Sequence[Allocation], alignment: int = 64, attempts: int = ATTEMPTS) -> MemoryPlan:
    """Offsets for blocks such that those which live at the same time do not overlap.

    Args:
        blocks: The blocks to place; sizes are rounded up to the alignment.
        alignment: Alignment of all offsets, in bytes.
        attempts: Greatest number of orders to try.

    Example:
        >>> plan_memory([Allocation(64, 0, 1), Allocation(128, 1, 2), Allocation(64, 2, 3)]).size
        192
    """
    rounded = [Allocation(-(-b.size // alignment) * alignment, b.first, b.last) for b in blocks]
    bound = live_bound(rounded)
    neighbours = _overlaps(rounded)
    order = sorted(range(len(rounded)), key=lambda i: (-rounded[i].size, rounded[i].first, i))
    offsets, size = _placed(rounded, neighbours, order)
    pairs = max(sum(map(len, neighbours)), 1)
    rng = random.Random(0)
    best, current, now = offsets, list(order), size
    for _ in range(min(attempts, 20_000_000 // pairs)):
        if size <= bound:
            break
        candidate = list(current)
        # The block that ends highest moves before another one, or two blocks change places.
        if rng.random() < 0.7:
            tops = [i for i in candidate if offsets[i] + rounded[i].size == now] or candidate
            moved = rng.choice(tops)
            candidate.remove(moved)
            candidate.insert(rng.randrange(len(candidate) + 1), moved)
        else:
            a, b = rng.randrange(len(candidate)), rng.randrange(len(candidate))
            candidate[a], candidate[b] = candidate[b], candidate[a]
        tried, height = _placed(rounded, neighbours, candidate)
        if height <= now or rng.random() < 0.02:
            current, now, offsets = candidate, height, tried
        if height < size:
            best, size = tried, height
    return MemoryPlan(tuple(best), size, bound)


def _overlaps(blocks: Sequence[Allocation]) -> list[list[int]]:
    """For each block those that live at the same time at some step."""
    result: list[list[int]] = [[] for _ in blocks]
    active: list[int] = []
    for i in sorted(range(len(blocks)), key=lambda i: (blocks[i].first, i)):
        active = [k for k in active if blocks[k].last >= blocks[i].first]
        for k in active:
            result[i].append(k)
            result[k].append(i)
        active.append(i)
    return result


def _placed(
    blocks: Sequence[Allocation], neighbours: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[list[int], int]:
    """Each block in turn at the lowest offset that is free of blocks that live at the same time."""
    offsets = [-1] * len(blocks)
    top = 0
    for i in order:
        size = blocks[i].size
        at = 0
        if size:
            for low, high in sorted(
                (offsets[k], offsets[k] + blocks[k].size) for k in neighbours[i] if offsets[k] >= 0
            ):
                if at + size <= low:
                    break
                at = max(at, high)
        offsets[i] = at
        top = max(top, at + size)
    return offsets, top
