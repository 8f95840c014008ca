"""Which tensors a program keeps in memory while it runs, and the place that a plan of memory gives them.

Every target has its own memory. A tensor is in the memory of the target that computes it, from then on until it is read
last there, and in the memory of every target that reads it, from its copy on. Values between targets are copied through
the host's memory. Inputs, outputs and weights are the caller's, and have no place here.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from eqsat.codegen.memory import Allocation, plan_memory
from eqsat.partition.plan import Plan, PlanRegion
from eqsat.partition.value_names import value_names
from eqsat.schema.free_sizes import at_sizes

if TYPE_CHECKING:
    from eqsat.codegen.emitted import Emitted

MOST_PAIRS = 2_000_000
"""Pairs of tensors that are in memory at the same time, up to which they get places: more take seconds."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A tensor in memory.

    Attributes:
        type: At the sizes of the map; empty of working memory in a compiled program.
        bytes: Its size.
        offset: Bytes from the beginning of the arena.
        first: The first kernel at which it is there, counted from 0 in execution order.
        last: The last one.
    """

    name: str
    type: str
    bytes: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The memory of a target over a run.

    Attributes:
        target: Whose memory it is.
        of: ``"plan"``: each tensor between two kernels has a place of its own. ``"program"``: as compiled C uses it.
        arena: Bytes for all tensors together.
        peak: Most bytes that are there at the same time; no arena is smaller.
        peak_at: The first kernel at which that is so.
        steps: Kernels in a run.
        sizes: At which sizes, by symbol; empty of a model without free sizes.
        unknown: Tensors that are left out, because their size is known only in a run.
        tensors: By offset.
    """

    target: str
    of: Literal["plan", "program"]
    arena: int
    peak: int
    peak_at: int
    steps: int
    sizes: dict[str, int]
    unknown: int
    tensors: tuple[MemoryRow, ...]


def memory_of_plan(plan: Plan, pieces: Sequence[PlanRegion], sizes: Mapping[str, int]) -> tuple[MemoryMap, ...]:
    """The memory of the targets, the host first.

    Args:
        plan: The program.
        pieces: Its regions in execution order.
        sizes: Values of the free sizes.

    Returns:
        A map for each target that needs memory, except where too many tensors are there at the same time.
    """
    order = [i for piece in pieces for i in piece.nodes]
    names, spans = value_names(plan).of, _spans(plan, order)
    maps = []
    for number, target in enumerate(plan.targets):
        found = [(v, first, last) for (v, where), (first, last) in spans.items() if where == number]
        rows, unknown = [], 0
        for value, first, last in found:
            kind = plan.types.get(value)
            kind = None if kind is None else at_sizes(kind, sizes)
            if kind is None or kind.bytes is None:
                unknown += 1
            else:
                rows.append(MemoryRow(names.get(value, ""), str(kind), kind.bytes, 0, first, last))
        if rows and _pairs(rows) <= MOST_PAIRS:
            # A greedy plan shows the use of memory; generated C searches for a better one.
            placed = plan_memory([Allocation(r.bytes, r.first, r.last) for r in rows], attempts=0)
            rows = [replace(row, offset=offset) for row, offset in zip(rows, placed.offsets, strict=True)]
            maps.append(_map(target, "plan", placed.size, len(order), rows, sizes, unknown))
    return tuple(maps)


def memory_of_program(emitted: Emitted, host: str) -> MemoryMap | None:
    """The arena of a generated program, at the greatest sizes that it serves; None if it needs none."""
    rows = [MemoryRow(e.name, "", e.size, e.offset, e.first, e.last) for e in emitted.memory_map]
    sizes = {size.name: size.most for size in emitted.sizes}
    return _map(host, "program", emitted.plan.size, len(emitted.kernels), rows, sizes, 0) if rows else None


def _map(
    target: str,
    of: Literal["plan", "program"],
    arena: int,
    steps: int,
    rows: Sequence[MemoryRow],
    sizes: Mapping[str, int],
    unknown: int,
) -> MemoryMap:
    changes: dict[int, int] = {}
    for row in rows:
        changes[row.first] = changes.get(row.first, 0) + row.bytes
        changes[row.last + 1] = changes.get(row.last + 1, 0) - row.bytes
    now, totals = 0, []
    for step in sorted(changes):
        now += changes[step]
        totals.append((now, -step))
    peak, at = max(totals)
    ordered = tuple(sorted(rows, key=lambda row: (row.offset, row.first, row.name)))
    return MemoryMap(target, of, arena, peak, -at, steps, dict(sizes), unknown, ordered)


def _pairs(rows: Sequence[MemoryRow]) -> int:
    """How many pairs of tensors are there at the same time."""
    begins, ends = sorted(row.first for row in rows), sorted(row.last for row in rows)
    # Each tensor meets those that began before it, or with it and earlier in the list, and did not end before it.
    return sum(i - bisect.bisect_left(ends, first) for i, first in enumerate(begins))


def _spans(plan: Plan, order: Sequence[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """By value and target the first and the last kernel, by its place in the order, at which the value is there."""
    step = {node: k for k, node in enumerate(order)}
    made: dict[int, tuple[int, int]] = {}
    reads: dict[int, dict[int, list[int]]] = {}
    for index in order:
        node = plan.nodes[index]
        made.update((v, (node.target, step[index])) for v in node.outputs if v is not None)
        for value in {v for v in node.inputs if v is not None and v not in plan.constants}:
            reads.setdefault(value, {}).setdefault(node.target, []).append(step[index])
    given, results = {v for v, _ in plan.inputs}, {v for v, _ in plan.outputs}
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for value in dict.fromkeys([*made, *given]):
        home, first = made.get(value, (0, 0))
        readers = reads.get(value, {})
        elsewhere = sorted(k for target, steps in readers.items() if target != home for k in steps)
        for target, steps in readers.items():
            spans[value, target] = (first if target == home else min(steps), max(steps))
        if value in made and home not in readers:
            spans[value, home] = (first, first)
        if home != 0 and elsewhere:
            # The copy that others read waits in the host's memory.
            low, high = spans.get((value, 0), (elsewhere[0], elsewhere[0]))
            spans[value, 0] = (min(low, first), max(high, elsewhere[-1]))
        if value in given or value in results:
            spans.pop((value, 0), None)
    return spans
