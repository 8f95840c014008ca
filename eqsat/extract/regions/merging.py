"""Cut a coloured graph into the cheapest connected one-coloured parts that can be executed one after the other.

First it does everything that needs no search. The connected one-coloured pieces are a lower bound; a piece that is in
no cycle of the quotient graph stays whole, and the cycles are independent of each other. Inside a cycle, an edge next
to a path that leaves the colour can never lie inside a part; without such edges the pieces are smaller. Then a node
joins its only reader (or its only input) if that leaves nothing apart. This alone solves networks;
``eqsat.extract.regions.multicut`` solves the rest, if any. Of all this, networkx has strongly connected components,
and :mod:`eqsat.extract.graph` says why they are not taken from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.extract.graph import DisjointSets, components
from eqsat.extract.regions.multicut import Knot, untie

ALONE = -1


def minimal_parts(
    preds: Sequence[Sequence[int]], colour: Sequence[int], weight: Sequence[float]
) -> tuple[list[int], bool]:
    """Number of the part of each node, and whether no cut costs less.

    Args:
        preds: Per node the nodes it waits for; acyclic, without repetitions.
        colour: Per node; ``ALONE`` keeps a node by itself.
        weight: Per node, positive, the cost of a part of its colour; equal for equal colours.
    """
    count = len(preds)
    succs: list[list[int]] = [[] for _ in range(count)]
    for node, before in enumerate(preds):
        for earlier in before:
            succs[earlier].append(node)
    # Nodes that stay alone get colours of their own, so that equal colours always may join.
    distinct = {v: c if c != ALONE else -2 - v for v, c in enumerate(colour)}
    whole = DisjointSets(count)
    proven = True
    work = [(list(range(count)), distinct)]
    while work:
        nodes, colours = work.pop()
        piece = _pieces(nodes, succs, colours, None)
        for group in _cycles(nodes, succs, piece):
            inside = set(group)
            labels = {piece[v] for v in group}
            if len(labels) == 1:
                for v in group[1:]:
                    whole.union(group[0], v)
                continue
            parted = _parted(group, inside, preds, piece)
            finer = _pieces(group, succs, piece, parted)
            if len({finer[v] for v in group}) > len(labels):
                work.append((group, finer))
                continue
            joined = _joined(group, inside, preds, succs, piece, parted)
            if joined:
                for u, v in joined:
                    whole.union(u, v)
                parts, exact = _contracted(group, inside, preds, piece, weight, whole)
            else:
                parts, exact = untie(_knot(group, inside, preds, piece, weight, parted))
            proven &= exact
            first: dict[int, int] = {}
            for v, part in zip(group, parts, strict=True):
                whole.union(first.setdefault(part, v), v)
    number: dict[int, int] = {}
    return [number.setdefault(whole.find(v), len(number)) for v in range(count)], proven


def _pieces(
    nodes: Sequence[int], succs: Sequence[Sequence[int]], colour: dict[int, int], parted: dict[int, set[int]] | None
) -> dict[int, int]:
    """Connected pieces of equal colour, by their smallest node; edges of ``parted`` (node -> inputs) do not connect."""
    inside = {v: i for i, v in enumerate(nodes)}
    sets = DisjointSets(len(nodes))
    for i, v in enumerate(nodes):
        for w in succs[v]:
            if w in inside and colour[w] == colour[v] and (parted is None or v not in parted[w]):
                sets.union(i, inside[w])
    return {v: nodes[sets.find(i)] for i, v in enumerate(nodes)}


def _cycles(nodes: Sequence[int], succs: Sequence[Sequence[int]], piece: dict[int, int]) -> list[list[int]]:
    """The nodes grouped by strongly connected component of the pieces' quotient graph."""
    number: dict[int, int] = {}
    for v in nodes:
        number.setdefault(piece[v], len(number))
    after: list[set[int]] = [set() for _ in number]
    for v in nodes:
        mine = number[piece[v]]
        for w in succs[v]:
            if w in piece and piece[w] != piece[v]:
                after[mine].add(number[piece[w]])
    of_piece = [0] * len(number)
    groups = components([sorted(s) for s in after])
    for index, group in enumerate(groups):
        for p in group:
            of_piece[p] = index
    found: list[list[int]] = [[] for _ in groups]
    for v in nodes:
        found[of_piece[number[piece[v]]]].append(v)
    return found


def _local_order(group: Sequence[int], inside: set[int], preds: Sequence[Sequence[int]]) -> list[int]:
    """A topological order of an induced subgraph."""
    waiting = {v: sum(u in inside for u in preds[v]) for v in group}
    after: dict[int, list[int]] = {v: [] for v in group}
    for v in group:
        for u in preds[v]:
            if u in inside:
                after[u].append(v)
    ready = [v for v in group if not waiting[v]]
    for v in ready:
        for w in after[v]:
            waiting[w] -= 1
            if not waiting[w]:
                ready.append(w)
    return ready


def _parted(
    group: Sequence[int], inside: set[int], preds: Sequence[Sequence[int]], colour: dict[int, int]
) -> dict[int, set[int]]:
    """Per node the inputs of its colour that are also reached through another colour: they are never in one part."""
    bit = {v: 1 << i for i, v in enumerate(group)}
    above: dict[int, int] = {}
    detour: dict[int, int] = {}
    parted: dict[int, set[int]] = {}
    for v in _local_order(group, inside, preds):
        everything = bit[v]
        around = 0
        own = colour[v]
        for u in preds[v]:
            if u in inside:
                everything |= above[u]
                around |= detour[u] if colour[u] == own else above[u]
        above[v] = everything
        detour[v] = around
        parted[v] = {u for u in preds[v] if u in inside and around & bit[u]}
    return parted


def _joined(
    group: Sequence[int],
    inside: set[int],
    preds: Sequence[Sequence[int]],
    succs: Sequence[Sequence[int]],
    colour: dict[int, int],
    parted: dict[int, set[int]],
) -> list[tuple[int, int]]:
    """Edges that lie inside a part of some optimal cut.

    For u -> v of one colour: if all other readers of u come after v, u can always wait for v, and nothing falls
    apart if u touches at most one other node that could be in its part. The mirror image lets v join u.
    """
    close: dict[int, set[int]] = {v: set() for v in group}
    for v in group:
        for u in preds[v]:
            if u in inside and colour[u] == colour[v] and u not in parted[v]:
                close[u].add(v)
                close[v].add(u)
    order = _local_order(group, inside, preds)
    bit = {v: 1 << i for i, v in enumerate(group)}
    above: dict[int, int] = {}
    for v in order:
        above[v] = bit[v]
        for u in preds[v]:
            if u in inside:
                above[v] |= above[u]
    taken: set[int] = set()
    joined = []
    for v in order:
        for u in preds[v]:
            # One join per node and round: the next one is judged on the contracted graph.
            if u not in close[v] or u in taken or v in taken:
                continue
            waits = len(close[u]) <= 2 and all(w == v or above[w] & bit[v] for w in succs[u] if w in inside)
            hastens = len(close[v]) <= 2 and all(w == u or above[u] & bit[w] for w in preds[v] if w in inside)
            if waits or hastens:
                joined.append((u, v))
                taken.update((u, v))
    return joined


def _contracted(
    group: Sequence[int],
    inside: set[int],
    preds: Sequence[Sequence[int]],
    colour: dict[int, int],
    weight: Sequence[float],
    whole: DisjointSets,
) -> tuple[list[int], bool]:
    """Solve the group with the parts found so far as single nodes."""
    number: dict[int, int] = {}
    for v in group:
        number.setdefault(whole.find(v), len(number))
    place = {v: number[whole.find(v)] for v in group}
    before: list[set[int]] = [set() for _ in number]
    shade = [0] * len(number)
    price = [0.0] * len(number)
    for v in group:
        shade[place[v]] = colour[v]
        price[place[v]] = weight[v]
        before[place[v]].update(place[u] for u in preds[v] if u in inside and place[u] != place[v])
    parts, exact = minimal_parts([sorted(s) for s in before], shade, price)
    return [parts[place[v]] for v in group], exact


def _knot(
    group: Sequence[int],
    inside: set[int],
    preds: Sequence[Sequence[int]],
    colour: dict[int, int],
    weight: Sequence[float],
    parted: dict[int, set[int]],
) -> Knot:
    place = {v: i for i, v in enumerate(group)}
    reads = [[place[u] for u in preds[v] if u in inside] for v in group]
    edges = [
        (place[u], place[v])
        for v in group
        for u in preds[v]
        if u in inside and colour[u] == colour[v] and u not in parted[v]
    ]
    return Knot(reads, [colour[v] for v in group], [weight[v] for v in group], edges)
