"""Extraction problems with the structure of real networks: spellings, composites, residual edges, host-only nodes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from eqsat.extract.problem import Budget, Choice, Problem

INF = float("inf")


class Builder:
    """Collects e-nodes; costs are per target, ``inf`` where missing."""

    def __init__(self, targets: int) -> None:
        self.targets = targets
        self.classes = 0
        self.rows: list[tuple[int, tuple[int, ...], list[float]]] = []
        self.size: list[float] = []
        self.host: dict[int, Choice] = {}

    def value(self, size: float) -> int:
        self.classes += 1
        self.size.append(size)
        return self.classes - 1

    def add(self, klass: int, reads: tuple[int, ...], *cost: float, own: bool = False) -> None:
        """An e-node of a class; ``own`` marks the spelling of the input program, which is run on the host."""
        costs = [*cost, *[INF] * (self.targets - len(cost))]
        if own:
            self.host[klass] = Choice(len(self.rows), 0)
        self.rows.append((klass, tuple(sorted(set(reads))), costs))

    def problem(self, roots: tuple[int, ...], bandwidth: float, latency: float, dispatch: float) -> Problem:
        copy = np.zeros((self.classes, self.targets))
        copy[:, 1:] = (np.array(self.size) / bandwidth + latency)[:, None]
        return Problem(
            targets=("cpu", *(f"acc{i}" for i in range(1, self.targets))),
            classes=self.classes,
            node_class=np.array([row[0] for row in self.rows]),
            children=tuple(row[1] for row in self.rows),
            cost=np.array([row[2] for row in self.rows]),
            copy_in=copy,
            copy_out=copy.copy(),
            dispatch=np.array([0.0] + [dispatch] * (self.targets - 1)),
            roots=roots,
        )


def residual_network(
    blocks: int,
    *,
    targets: int = 2,
    seed: int = 0,
    duplicates: int = 5,
    host_only: float = 0.0,
    dispatch: float = 20e-6,
    branches: int = 1,
) -> tuple[Problem, dict[int, Choice]]:
    """Residual blocks of conv + batch norm + relu.

    Args:
        blocks: Number of blocks.
        targets: The host and accelerators.
        seed: Of the costs.
        duplicates: Dominated spellings of each e-node.
        host_only: Share of the blocks with an operator in them that accelerators lack.
        dispatch: Launch cost of an accelerator's region.
        branches: Parallel paths in each block.

    Returns:
        The problem, and the program of the input, all on the host.
    """
    rng = random.Random(seed)
    build = Builder(targets)

    def everywhere(host: float, fast: float) -> list[float]:
        return [host, *[fast * rng.uniform(0.8, 1.25) for _ in range(targets - 1)]]

    def operator(klass: int, reads: tuple[int, ...], cost: list[float], own: bool = False) -> None:
        build.add(klass, reads, *cost, own=own)
        for _ in range(duplicates):
            build.add(klass, reads, *[c * rng.uniform(1.0, 1.5) for c in cost])

    def conv(x: int, size: float, skip: int | None = None) -> int:
        work = rng.uniform(0.5, 4) * 1e-4
        raw, normal = build.value(size), build.value(size)
        operator(raw, (x,), everywhere(work, work / 8), own=True)
        operator(normal, (raw,), [work / 10], own=True)
        operator(normal, (x,), everywhere(work, work / 8))
        total = normal
        if skip is not None:
            total = build.value(size)
            operator(total, (normal, skip), everywhere(work / 12, work / 40), own=True)
            operator(total, (x, skip), [INF, *everywhere(0, work / 8 + 1e-6)[1:]])
        active = build.value(size)
        operator(active, (total,), everywhere(work / 12, work / 50), own=True)
        operator(active, (x,) if skip is None else (x, skip), [work, *everywhere(0, work / 8)[1:]])
        return active

    x = build.value(6e5)
    build.add(x, (), 0.0, own=True)
    x = conv(x, 3.2e6)
    for _ in range(blocks):
        size = 8e5
        ends = []
        odd = rng.random() < host_only
        for branch in range(branches):
            y = conv(x, size)
            if odd and branch == 0:
                z = build.value(size)
                operator(z, (y,), [2e-5], own=True)
                y = z
            ends.append(conv(y, size))
        while len(ends) > 1:
            joined = build.value(size)
            operator(joined, (ends[0], ends[1]), everywhere(3e-5, 1e-5), own=True)
            ends = [joined, *ends[2:]]
        x = conv(ends[0], size, x)
    flat, out = build.value(8e3), build.value(4e3)
    operator(flat, (x,), [5e-5], own=True)
    operator(out, (flat,), everywhere(5e-5, 1e-5), own=True)
    problem = build.problem((out,), 8e9, 5e-6, dispatch)
    return problem, build.host


def quantized_network(blocks: int, *, seed: int = 0, share: float = 0.2) -> tuple[Problem, dict[int, Choice]]:
    """Residual blocks in which each tensor has a float and an integer spelling, under a noise budget.

    Args:
        blocks: Number of blocks of two convolutions and an addition.
        seed: Of costs and noise.
        share: Budget as a share of the noise of everything.

    Returns:
        The problem, and the float program on the host.
    """
    rng = random.Random(seed)
    build = Builder(2)
    noise: dict[int, float] = {}

    def tensor(size: float) -> tuple[int, int]:
        real, whole = build.value(size), build.value(size / 4)
        weight = rng.lognormvariate(0, 1)
        # Q(X) and X = DQ(Q(X)); the noise is that of whoever uses the integer spelling.
        noise[len(build.rows)] = weight
        build.add(whole, (real,), size / 1e10 + 1e-6)
        build.add(real, (whole,), size / 1e10 + 1e-6)
        return real, whole

    def operator(reads: list[tuple[int, int]], size: float, work: float) -> tuple[int, int]:
        real, whole = tensor(size)
        build.add(real, tuple(r for r, _ in reads), work, work / 4, own=True)
        noise[len(build.rows)] = noise[len(build.rows) - 3]
        build.add(whole, tuple(w for _, w in reads), INF, work / 10)
        return real, whole

    x = tensor(6e5)
    build.add(x[0], (), 0.0, own=True)
    for _ in range(blocks):
        y = operator([x], 8e5, rng.uniform(0.5, 4) * 1e-4)
        z = operator([y], 8e5, rng.uniform(0.5, 4) * 1e-4)
        x = operator([z, x], 8e5, 3e-5)
    problem = build.problem((x[0],), 8e9, 5e-6, 20e-6)
    weights = np.array([noise.get(node, 0.0) for node in range(problem.nodes)])
    total = sum({klass: w for klass, w in zip(problem.node_class.tolist(), weights, strict=True) if w}.values())
    return replace(problem, budgets=(Budget("noise", weights, share * float(total)),)), build.host
