"""The rest of the region problem, in which merges exclude each other: exact, by integer programming with lazy cuts.

Two simulated executions, forwards and backwards, each run as many ready nodes of one colour as possible; the longest
path that re-enters a colour is a lower bound, and mostly they meet. Otherwise a 0/1 variable for each mergeable edge
says that it lies in the spanning tree of a part. Rows are added when solutions violate them: a tree has no cycles, and
the parts of a solution must not wait for each other, so of the edges that connect the parts of such a cycle one must
go. This is a multicut problem (Chopra and Rao 1993) whose terminals are found during the search.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eqsat.extract.effort import Effort
from eqsat.extract.graph import DisjointSets, components, topological_order
from eqsat.extract.milp.highs import IntegerProgram, Rows

ROUNDS = 60
"""Most integer programs of one search; knots of some 30 nodes with more of them took minutes and gained nothing."""
SEARCH_NODES = 1000
"""Most nodes of the search tree of each integer program."""
WORK = 1.0
"""Units of work of one search. Programs that are far from good have knots that took more, and were given up anyway."""
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Knot:
    """A graph to cut into parts.

    Attributes:
        preds: Per node the nodes it waits for; acyclic.
        colour: Per node; parts are of one colour.
        weight: Per node the cost of a part of its colour.
        edges: ``(u, v)`` with u in ``preds[v]``, along which parts may be connected.
    """

    preds: list[list[int]]
    colour: list[int]
    weight: list[float]
    edges: list[tuple[int, int]]


def untie(knot: Knot) -> tuple[list[int], bool]:
    """The part of each node, numbered from 0, and whether no cut costs less."""
    preds = tuple(map(tuple, knot.preds))
    parts, proven = _untied(preds, tuple(knot.colour), tuple(knot.weight), tuple(knot.edges))
    return list(parts), proven


@lru_cache(maxsize=1024)
def _untied(
    preds: tuple[tuple[int, ...], ...],
    colour: tuple[int, ...],
    weight: tuple[float, ...],
    edges: tuple[tuple[int, int], ...],
) -> tuple[list[int], bool]:
    """Layers of a network that are alike are tied alike, and so are many programs that are compared."""
    knot = Knot([list(p) for p in preds], list(colour), list(weight), list(edges))
    parts = min((_simulated(knot, False), _simulated(knot, True)), key=lambda part: _cost(knot, part))
    if _cost(knot, parts) <= _least(knot) * (1 + TOLERANCE):
        return parts, True
    return _searched(knot, parts)


def _cost(knot: Knot, parts: list[int]) -> float:
    return math.fsum(dict(zip(parts, knot.weight, strict=True)).values())


def _simulated(knot: Knot, backwards: bool) -> list[int]:
    """Run all single nodes that are ready, otherwise the colour with the most ready nodes, until nothing is left."""
    count = len(knot.preds)
    succs: list[list[int]] = [[] for _ in range(count)]
    for v, before in enumerate(knot.preds):
        for u in before:
            succs[u].append(v)
    before, after = (succs, knot.preds) if backwards else (knot.preds, succs)
    waiting = [len(b) for b in before]
    size: dict[int, int] = {}
    for c in knot.colour:
        size[c] = size.get(c, 0) + 1
    done = [False] * count
    sets = DisjointSets(count)
    mergeable = {frozenset(edge) for edge in knot.edges}
    left = count

    def closure(colour: int) -> list[int]:
        freed: dict[int, int] = {}
        run = [v for v in range(count) if not done[v] and not waiting[v] and knot.colour[v] == colour]
        for v in run:
            for w in after[v]:
                if knot.colour[w] == colour:
                    freed[w] = freed.get(w, 0) + 1
                    if freed[w] == waiting[w]:
                        run.append(w)
        return run

    while left:
        ready = sorted({knot.colour[v] for v in range(count) if not done[v] and not waiting[v]})
        single = [c for c in ready if size[c] == 1]
        run = closure(single[0]) if single else max((closure(c) for c in ready), key=len)
        here = set(run)
        for v in run:
            done[v] = True
            left -= 1
            for w in after[v]:
                waiting[w] -= 1
                if w in here and frozenset((v, w)) in mergeable:
                    sets.union(v, w)
    number: dict[int, int] = {}
    return [number.setdefault(sets.find(v), len(number)) for v in range(count)]


def _least(knot: Knot) -> float:
    """Lower bound: per colour, how often one path can enter it anew."""
    count = len(knot.preds)
    order = topological_order(knot.preds)
    assert order is not None
    bounds = []
    for colour, weight in dict(zip(knot.colour, knot.weight, strict=True)).items():
        inside = [c == colour for c in knot.colour]
        entries = [0] * count
        for v in order:
            best = int(inside[v])
            for u in knot.preds[v]:
                best = max(best, entries[u] + (inside[v] and not inside[u]))
            entries[v] = best
        bounds.append(weight * max(entries))
    return math.fsum(bounds)


def _searched(knot: Knot, incumbent: list[int]) -> tuple[list[int], bool]:
    edges = knot.edges
    largest = max(knot.weight)
    saving = np.array([knot.weight[v] / largest for _, v in edges])
    zeros, ones = np.zeros(len(edges)), np.ones(len(edges))
    program = IntegerProgram(-saving, zeros, ones, ones, Rows())
    apart = math.fsum(knot.weight)
    best = _cost(knot, incumbent)
    # Where all parts cost the same, a better cut costs at least one part less.
    weights = {w for w in knot.weight if w > 0}
    step = weights.pop() * (1 - 1e-6) if len(weights) == 1 else 0.0
    effort = Effort(WORK)
    for _ in range(ROUNDS):
        outcome = program.integer(effort, node_limit=SEARCH_NODES)
        if outcome.status == "limit" or outcome.x is None:
            return incumbent, False
        if apart + largest * outcome.bound >= best * (1 - TOLERANCE) - step:
            return incumbent, True
        chosen = [e for e, x in enumerate(outcome.x) if x > 0.5]
        cuts = _violated(knot, chosen)
        if not cuts:
            parts = DisjointSets(len(knot.preds))
            for e in chosen:
                parts.union(*edges[e])
            number: dict[int, int] = {}
            return [number.setdefault(parts.find(v), len(number)) for v in range(len(knot.preds))], True
        added = Rows()
        for cut in cuts:
            added.add(cut, np.ones(len(cut)), -np.inf, len(cut) - 1)
        program.add(added)
    return incumbent, False


def _violated(knot: Knot, chosen: list[int]) -> list[list[int]]:
    """Sets of chosen edges, at least one of which must be dropped."""
    count = len(knot.preds)
    sets = DisjointSets(count)
    touching: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    cuts = []
    for e in chosen:
        u, v = knot.edges[e]
        if sets.union(u, v):
            touching[u].append((v, e))
            touching[v].append((u, e))
        else:
            cuts.append([*_tree_path(touching, u, v), e])
    part = [sets.find(v) for v in range(count)]
    leaving: dict[int, list[tuple[int, int]]] = {p: [] for p in part}
    for v, before in enumerate(knot.preds):
        for u in before:
            if part[u] != part[v]:
                leaving[part[u]].append((u, v))
    names = sorted(leaving)
    place = {p: i for i, p in enumerate(names)}
    rings = components([sorted({place[part[v]] for _, v in leaving[p]}) for p in names])
    seen: set[tuple[int, ...]] = set()
    for ring in rings:
        if len(ring) == 1:
            continue
        inside = {names[i] for i in ring}
        for start in sorted(inside):
            for _, entry in leaving[start]:
                if part[entry] not in inside:
                    continue
                # A shortest way back from this exit, part by part.
                cut = _ring(part, leaving, inside, touching, start, entry)
                key = tuple(sorted(cut))
                if key not in seen:
                    seen.add(key)
                    cuts.append(list(key))
    return cuts


def _ring(
    part: list[int],
    leaving: dict[int, list[tuple[int, int]]],
    inside: set[int],
    touching: list[list[tuple[int, int]]],
    start: int,
    entry: int,
) -> list[int]:
    """Edges that connect the parts of one cycle through ``start`` that continues to ``entry``."""
    came: dict[int, tuple[int, int]] = {}
    queue = deque([part[entry]])
    seen = {part[entry]}
    while queue and start not in came:
        here = queue.popleft()
        for u, v in leaving[here]:
            there = part[v]
            if there in inside and there not in came and (there == start or there not in seen):
                came[there] = (u, v)
                seen.add(there)
                queue.append(there)
    exits = [came[start]]
    while part[exits[-1][0]] != part[entry]:
        exits.append(came[part[exits[-1][0]]])
    exits.reverse()
    arrivals = [entry] + [v for _, v in exits]
    cut: list[int] = []
    for arrived, (left, _) in zip(arrivals, exits, strict=False):
        cut += _tree_path(touching, arrived, left)
    back = arrivals[-1]
    first = next(u for u, v in leaving[start] if v == entry)
    cut += _tree_path(touching, back, first)
    return cut


def _tree_path(touching: list[list[tuple[int, int]]], start: int, end: int) -> list[int]:
    """Edges on the way between two nodes of one tree."""
    came: dict[int, tuple[int, int]] = {start: (start, -1)}
    queue = deque([start])
    while end not in came:
        v = queue.popleft()
        for w, e in touching[v]:
            if w not in came:
                came[w] = (v, e)
                queue.append(w)
    path = []
    while end != start:
        end, e = came[end]
        path.append(e)
    return path
