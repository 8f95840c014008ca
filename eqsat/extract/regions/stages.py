"""Fewest regions for a program whose nodes and targets are fixed, exactly.

A region is one launch: a connected piece of the program on one target, such that the regions can run one after the
other. Give each node a stage, no smaller than its inputs' and larger where the target changes: the connected
pieces of equal (target, stage) are regions, and every valid cut into regions arises so (number the regions in an
execution order). A node may wait for a later stage, which is what makes the count depend on more than the longest path:
in ``a=p+p; b=q+q; h=tanh(b); n=a*b; d_i=a∘h`` with ``tanh`` on the host, waiting makes {b}, {a, n, d_1 .. d_k}
of k+1 regions.

First the number of regions of targets with a launch cost is minimised, then, among equal solutions,
the number of pieces of the host. No graph library cuts graphs under such a condition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.extract.graph import DisjointSets, topological_order
from eqsat.extract.regions.merging import ALONE, minimal_parts


@dataclass(frozen=True)
class Staging:
    """A cut of a program into regions.

    Attributes:
        stage: Per node; equal within a region, larger than that of any other region it reads.
        region: Per node, index into ``regions``.
        regions: In an execution order; each lists its nodes in an execution order.
        cost: Seconds to launch them all.
        proven: No cut costs less. False only if the search was stopped early, on a graph unlike that of any network.
    """

    stage: list[int]
    region: list[int]
    regions: list[list[int]]
    cost: float
    proven: bool


def stages(preds: Sequence[Sequence[int]], target: Sequence[int], dispatch: Sequence[float]) -> Staging:
    """Cut a program into regions at the least launch cost.

    Args:
        preds: Per node the nodes it reads, an acyclic graph in any order.
        target: Per node.
        dispatch: Per target, seconds to launch one region.

    Raises:
        ValueError: The graph has a cycle.
    """
    reads = [sorted(set(before)) for before in preds]
    if topological_order(reads) is None:
        raise ValueError("a program must be acyclic")
    # Nodes on a target with a free launch stay single at first: merging them could only block other merges.
    price = [dispatch[t] for t in target]
    if not any(price) and len(set(target)) < 2:
        return _staging(reads, _connected(reads), target, dispatch, True)
    charged, proven = minimal_parts(reads, [t if dispatch[t] > 0 else ALONE for t in target], price)
    members = _members(charged)
    between = _quotient(reads, charged, len(members))
    free = [target[nodes[0]] if dispatch[target[nodes[0]]] <= 0 else ALONE for nodes in members]
    merged, _ = minimal_parts(between, free, [1.0] * len(members))
    part = [merged[piece] for piece in charged]
    return _staging(reads, part, target, dispatch, proven)


def _connected(reads: Sequence[Sequence[int]]) -> list[int]:
    """The number of the connected piece of each node, which is its region where one target executes everything."""
    sets = DisjointSets(len(reads))
    for node, inputs in enumerate(reads):
        for earlier in inputs:
            sets.union(node, earlier)
    number: dict[int, int] = {}
    return [number.setdefault(sets.find(node), len(number)) for node in range(len(reads))]


def _members(part: Sequence[int]) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(max(part, default=-1) + 1)]
    for node, piece in enumerate(part):
        members[piece].append(node)
    return members


def _quotient(reads: Sequence[Sequence[int]], part: Sequence[int], count: int) -> list[list[int]]:
    before: list[set[int]] = [set() for _ in range(count)]
    for node, inputs in enumerate(reads):
        piece = part[node]
        for earlier in inputs:
            if part[earlier] != piece:
                before[piece].add(part[earlier])
    return [sorted(pieces) for pieces in before]


def _staging(
    reads: list[list[int]], part: list[int], target: Sequence[int], dispatch: Sequence[float], proven: bool
) -> Staging:
    members = _members(part)
    between = _quotient(reads, part, len(members))
    depth = [0] * len(members)
    order = topological_order(between)
    assert order is not None, "regions that wait for each other"
    for piece in order:
        depth[piece] = max((depth[earlier] + 1 for earlier in between[piece]), default=0)
    # One launch after the other, the earliest stage first: a region's inputs are then as recent as possible.
    order.sort(key=lambda piece: (depth[piece], target[members[piece][0]], members[piece][0]))
    region = [0] * len(reads)
    regions = []
    for piece in order:
        nodes = members[piece]
        place = {node: position for position, node in enumerate(nodes)}
        inner = topological_order([[place[e] for e in reads[node] if e in place] for node in nodes])
        assert inner is not None
        for node in nodes:
            region[node] = len(regions)
        regions.append([nodes[position] for position in inner])
    stage = [depth[piece] for piece in part]
    cost = math.fsum(dispatch[target[nodes[0]]] for nodes in regions)
    return Staging(stage, region, regions, cost, proven)
