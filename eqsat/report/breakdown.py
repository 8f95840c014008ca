"""The parts of a program's cost: kernels by operator, their launches, dispatch of regions, copies."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from eqsat.report.summary import KernelRow, RegionRow, Summary

PartKind = Literal["kernels", "launches", "dispatch", "copies"]
NAMES = {"launches": "launches of kernels", "dispatch": "dispatch of regions", "copies": "copies between memories"}


@dataclass(frozen=True, slots=True)
class CostPart:
    """A part of the cost of the main graph. An operator with a body contains the cost of all runs of the body.

    Attributes:
        part: ``"kernels"`` of an operator or composite without their launches, or one of the rest: ``"launches"`` of
            kernels, ``"dispatch"`` of regions, ``"copies"`` between the memories of targets.
        op: The operator or composite; empty for the rest.
        target: The target that runs it.
        count: Number of kernels or regions.
        cost: Seconds.
        limits: Numbers of kernels by the resource that limits them, by the target's rates; the most frequent first.
        measured: Seconds of the kernels in a run of the compiled program, launches included; None where none of them
            was measured.
    """

    part: PartKind
    op: str
    target: str
    count: int
    cost: float
    limits: tuple[tuple[str, int], ...] = ()
    measured: float | None = None


def breakdown(summary: Summary) -> list[CostPart]:
    """The parts of the cost, the greatest first; together they are the cost of the result."""
    kernels = [row for row in summary.kernels if not row.body]
    regions = [row for row in summary.regions if not row.body]
    parts = [*_kernels(kernels), *_launches(kernels), *_regions(regions)]
    return sorted((part for part in parts if part.cost > 0), key=lambda part: (-part.cost, part.part, part.op))


def _kernels(rows: Iterable[KernelRow]) -> Iterable[CostPart]:
    groups: dict[tuple[str, str], list[KernelRow]] = {}
    for row in rows:
        groups.setdefault((row.op, row.target), []).append(row)
    for (op, target), group in groups.items():
        limits: dict[str, int] = {}
        for row in group:
            if row.limit is not None:
                limits[row.limit] = limits.get(row.limit, 0) + 1
        order = sorted(limits.items(), key=lambda item: (-item[1], item[0]))
        times = [row.measured for row in group if row.measured is not None]
        cost = math.fsum(row.cost - launch(row) for row in group)
        yield CostPart("kernels", op, target, len(group), cost, tuple(order), math.fsum(times) if times else None)


def _launches(rows: Iterable[KernelRow]) -> Iterable[CostPart]:
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.target, []).append(launch(row))
    for target, seconds in groups.items():
        yield CostPart("launches", "", target, sum(s > 0 for s in seconds), math.fsum(seconds))


def _regions(rows: Iterable[RegionRow]) -> Iterable[CostPart]:
    groups: dict[str, list[RegionRow]] = {}
    for row in rows:
        groups.setdefault(row.target, []).append(row)
    for target, group in groups.items():
        yield CostPart("dispatch", "", target, len(group), math.fsum(r.dispatch for r in group))
        yield CostPart("copies", "", target, sum(r.copies > 0 for r in group), math.fsum(r.copies for r in group))


def launch(row: KernelRow) -> float:
    """Seconds of a kernel's launch; 0 if the target's own cost expression makes the kernel cheaper than that."""
    return 0.0 if row.work is None or row.work.launch > row.cost else row.work.launch
