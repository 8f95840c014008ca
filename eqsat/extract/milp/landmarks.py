"""Landmarks: sets of columns of which every derivation of a fact takes at least one, found by maximum flow.

Take any set S of facts that contains a fact c. Whoever derives c and follows, from fact to fact, an input that is in S,
comes in the end to an option none of whose inputs is in S: those options are a landmark of c, so the activity of c is
at most theirs. If each option may be left by one input only, the cheapest S is a minimum cut (Helmert and Domshlak
2009, "Landmarks, critical paths and abstractions"); which input that is, is tried in several ways. Where a product
has two factors, and each of them comes fused or separate, the relaxation takes a third of each way, and only landmarks
of one factor say that this is too little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from eqsat.extract.milp.fact_dominators import AndOrGraph
from eqsat.extract.milp.highs import Rows

LEAST_VIOLATION = 1e-3
PRESENT = 1e-6
LARGEST = 300
"""Facts of one flow."""
WIDEST = 40
SINK = -1

Choose = Callable[[list[int]], int]
Network = dict[int, dict[int, float]]
"""Remaining capacities, by source and destination."""


class Landmarks:
    """Finds landmarks of the facts of one graph, point by point.

    A fact without a violated row is left out until something in its flow has changed: a round of cutting planes changes
    the point in few places.

    Args:
        graph: The facts.
    """

    def __init__(self, graph: AndOrGraph) -> None:
        self._graph = graph
        self._activity: Sequence[float] = ()
        self._weights: Sequence[Sequence[float]] = ()
        # By fact without a violated row the facts that its flows have looked at.
        self._quiet: dict[int, set[int]] = {}

    def add_rows(self, activity: Sequence[float], weights: Sequence[Sequence[float]], rows: Rows) -> None:
        """Add rows that a point violates: for each fact one by each way to choose inputs.

        Args:
            activity: Per fact.
            weights: Per fact and option.
            rows: To be extended.
        """
        facts = range(len(activity) if self._activity else 0)
        changed = {f for f in facts if activity[f] != self._activity[f] or weights[f] != self._weights[f]}
        self._activity, self._weights = activity, weights
        self._quiet = {f: seen for f, seen in self._quiet.items() if seen.isdisjoint(changed)}
        used = _Used(self._graph, weights)
        for number in range(len(activity)):
            if number in self._quiet or activity[number] <= LEAST_VIOLATION or len(used[number]) < 2:
                continue
            seen = {number}
            found = _landmarks(self._graph, activity, weights, used, number, seen)
            for columns in found:
                rows.add_implication(self._graph.facts[number].columns, columns)
            if not found:
                self._quiet[number] = seen


def _landmarks(
    graph: AndOrGraph,
    activity: Sequence[float],
    weights: Sequence[Sequence[float]],
    used: _Used,
    number: int,
    seen: set[int],
) -> list[list[int]]:
    """The columns of the landmarks of a fact that its activity exceeds; ``seen`` receives the facts looked at."""
    choices: list[Choose] = [
        lambda reads: reads[0],
        lambda reads: reads[-1],
        lambda reads: min(reads, key=lambda other: (activity[other], other)),
        lambda reads: max(reads, key=lambda other: (activity[other], other)),
        min,
        max,
    ]
    enough = activity[number] - LEAST_VIOLATION
    tried: set[tuple[int, ...]] = set()
    found: list[list[int]] = []
    for choose in choices:
        if () in tried:
            break  # There is nothing to choose.
        room, chosen = _network(used, number, activity, choose, seen)
        if chosen in tried:
            continue
        tried.add(chosen)
        reached = None if room is None else _source_side(room, number, enough)
        if reached is None:
            continue
        left = [
            (f, o)
            for f in sorted(reached)
            for o, option in enumerate(graph.facts[f].options)
            if reached.isdisjoint(option.reads)
        ]
        if len(left) > WIDEST or sum(weights[f][o] for f, o in left) > enough:
            continue
        columns = sorted(column for f, o in left for column in graph.facts[f].options[o].columns)
        if columns not in found:
            found.append(columns)
    return found


class _Used(dict[int, list[tuple[float, list[int]]]]):
    """Per fact the options that a point uses: by how much, and the inputs that not every program contains."""

    def __init__(self, graph: AndOrGraph, weights: Sequence[Sequence[float]]) -> None:
        self._reads = graph.uncertain_reads
        self._weights = weights

    def __missing__(self, fact: int) -> list[tuple[float, list[int]]]:
        pairs = zip(self._weights[fact], self._reads[fact], strict=True)
        found = self[fact] = [pair for pair in pairs if pair[0] > PRESENT]
        return found


def _network(
    used: _Used, source: int, activity: Sequence[float], choose: Choose, seen: set[int]
) -> tuple[Network | None, tuple[int, ...]]:
    """What may flow from the source to the sink, or None if it is too much, and the inputs that were chosen.

    Facts that are as active as the source are sinks, for a cut beyond them is a landmark of theirs. Equal choices make
    equal networks. ``seen`` receives the facts that have been looked at.
    """
    enough = activity[source] - LEAST_VIOLATION
    room: Network = {source: {}}
    chosen: list[int] = []
    todo = [source]
    while todo:
        fact = todo.pop()
        from_here = room[fact]
        for weight, reads in used[fact]:
            seen.update(reads)
            inner = [r for r in reads if activity[r] < enough and r != source]
            if not inner:
                to = SINK
            elif len(inner) == 1:
                to = inner[0]
            else:
                to = choose(inner)
                chosen.append(to)
            if to not in room:
                if len(room) > LARGEST:
                    return None, tuple(chosen)
                room[to] = {}
                if to != SINK:
                    todo.append(to)
            from_here[to] = from_here.get(to, 0.0) + weight
            room[to].setdefault(fact, 0.0)
    return room, tuple(chosen)


def _source_side(room: Network, source: int, enough: float) -> set[int] | None:
    """The facts on the source's side of a minimum cut, which uses up the capacity; None if enough flows."""
    total = _send_onwards(room, source, enough)
    while total < enough:
        path, reached = _augmenting(room, source)
        if not path:
            return reached
        total += _send(room, path)
    return None


def _send(room: Network, path: list[tuple[int, int]]) -> float:
    """Send along a path as much as there is room for."""
    amount = min([room[a][b] for a, b in path])
    for a, b in path:
        room[a][b] -= amount
        room[b][a] += amount
    return amount


def _send_onwards(room: Network, source: int, enough: float) -> float:
    """Send along any path, never back, until none is left: mostly all that can flow, for a fraction of the time."""
    ways = {fact: list(near) for fact, near in room.items()}
    total = 0.0
    while total < enough:
        way = [source]
        inside = {source}
        while way[-1] != SINK:
            near, left = ways[way[-1]], room[way[-1]]
            while near and (left[near[-1]] <= PRESENT or near[-1] in inside):
                near.pop()
            if near:
                way.append(near[-1])
                inside.add(near[-1])
            elif len(way) > 1:
                inside.discard(way.pop())
                ways[way[-1]].pop()
            else:
                return total
        total += _send(room, list(pairwise(way)))
    return total


def _augmenting(room: Network, source: int) -> tuple[list[tuple[int, int]], set[int]]:
    """A shortest path with room to the sink, or none, and the facts that have been reached."""
    come: dict[int, int] = {source: source}
    queue = [source]
    for fact in queue:
        for to, left in room[fact].items():
            if left > PRESENT and to not in come:
                come[to] = fact
                if to == SINK:
                    path = []
                    while to != source:
                        path.append((come[to], to))
                        to = come[to]
                    return path, set()
                queue.append(to)
    return [], set(come)
