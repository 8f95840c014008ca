"""Dominators in the AND/OR graph of an e-graph: the classes that every program with a given class must compute as well.

An e-node needs all of its inputs (AND), a class one of its e-nodes (OR). The classes that every derivation of c
contains are D(c) = {c} ∪ ⋂ over e-nodes of ⋃ over inputs of D(input); because derivations are finite, we need the
greatest solution. Sets are bit masks in integers. There are three uses. An e-node is dropped if one of its inputs needs
the e-node's own class. The costs of needed classes bound any program from below. And "if c then d" are the rows that
make the linear relaxation strong where alternatives meet again further down.

Graph libraries compute the dominators of flow graphs, in which each edge is an alternative to the others. Here edges
of one e-node belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np

from eqsat.extract.graph import components
from eqsat.extract.problem import Problem

LARGEST = 40_000
"""Classes from which on the sets would take too much memory; then each class is its own only dominator."""


class Dominators:
    """The dominator sets of a problem's classes.

    Attributes:
        options: Per class its e-nodes.
        order: The classes, inputs first as far as there are no cycles.
        rings: The strongly connected components of more than one class.
        ring_of: Per class the index of its component, or -1.
        of_class: Per class its dominators, a mask.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.options: list[list[int]] = [[] for _ in range(problem.classes)]
        for node, klass in enumerate(problem.node_class.tolist()):
            self.options[klass].append(node)
        below = [sorted({k for n in options for k in problem.children[n]}) for options in self.options]
        groups = components(below)
        self.order = [klass for group in groups for klass in group]
        self.rings = [group for group in groups if len(group) > 1]
        self.ring_of = [-1] * problem.classes
        for i, ring in enumerate(self.rings):
            for klass in ring:
                self.ring_of[klass] = i
        self._readers: list[list[int]] = [[] for _ in range(problem.classes)]
        for klass, children in enumerate(below):
            for child in children:
                self._readers[child].append(klass)
        own = [1 << klass for klass in range(problem.classes)]
        self.of_class = self._fixpoint(lambda node, sets: _union(problem.children[node], sets), own)

    def _fixpoint(self, of_node: Callable[[int, Sequence[int | None]], int | None], own: Sequence[int]) -> list[int]:
        """Greatest sets with S(c) = own(c) ∪ ⋂ of_node(n) over the e-nodes n of c, from the inputs upwards."""
        problem = self.problem
        if problem.classes > LARGEST:
            return list(own)
        sets: list[int | None] = [None] * problem.classes
        place = {klass: i for i, klass in enumerate(self.order)}
        heap = list(range(problem.classes))
        queued = [True] * problem.classes
        while heap:
            klass = self.order[heappop(heap)]
            queued[klass] = False
            common: int | None = None
            for node in self.options[klass]:
                mask = of_node(node, sets)
                if mask is not None:
                    common = mask if common is None else common & mask
            if common is None or common | own[klass] == sets[klass]:
                continue
            sets[klass] = common | own[klass]
            for reader in self._readers[klass]:
                if not queued[reader]:
                    queued[reader] = True
                    heappush(heap, place[reader])
        return [own[c] if mask is None else mask for c, mask in enumerate(sets)]

    def of_node(self, node: int) -> int:
        """The classes that the inputs of an e-node need."""
        mask = 0
        for child in self.problem.children[node]:
            mask |= self.of_class[child]
        return mask

    def of_roots(self) -> int:
        """The classes that every program contains."""
        mask = 0
        for root in self.problem.roots:
            mask |= self.of_class[root]
        return mask

    def beyond(self, target: int) -> list[int]:
        """Per class what lies beyond another target: the k for which every program with c has a path c → … → w → … → k
        with a w off the target, w ≠ k (w may be c).
        """
        problem = self.problem
        able = np.isfinite(problem.cost[:, target]).tolist()

        def of_node(node: int, sets: Sequence[int | None]) -> int | None:
            mask = _union(problem.children[node], sets)
            return mask if able[node] or mask is None else mask | self.of_node(node)

        return self._fixpoint(of_node, [0] * problem.classes)


def least_cost(problem: Problem, dominators: Dominators) -> float:
    """The least cost of the classes that every program contains."""
    cheapest = np.full(problem.classes, np.inf)
    np.minimum.at(cheapest, problem.node_class, problem.cost.min(axis=1))
    return float(cheapest[members(dominators.of_roots(), problem.classes)].sum())


def members(mask: int, width: int) -> np.ndarray:
    """The bits of a mask, ascending."""
    packed = np.frombuffer(mask.to_bytes((width + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(packed, count=width, bitorder="little"))


def _union(children: Sequence[int], sets: Sequence[int | None]) -> int | None:
    mask = 0
    for child in children:
        below = sets[child]
        if below is None:
            return None
        mask |= below
    return mask
