"""Classes of a model's saturated e-graph that have equal values on all samples although no rule joined them.

A class is computed by one e-node, its representative, in floats wider than the model's, so that only what differs over
the reals differs. Values are told apart by a few sums and not kept.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.audit.class_values import ValueOfWorlds, Values
from eqsat.audit.input_samples import sample
from eqsat.egraph.language import ORIGINAL
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.equivalence.tensor_values import Sign, may_be_equal, sign_of

SAMPLES = 4
ELEMENTS = 1 << 26
"""Classes with more elements have no value: half a GiB each, and few are kept at a time."""
CLOSE = 1e-6
"""Difference of values in float64, relative to their norm, that rounding explains."""
_NEIGHBOURS = 8
"""Values between which the sums of equal ones may lie."""


@dataclass(frozen=True)
class Twins:
    """Two classes of equal values.

    Attributes:
        first: The class that is computed in fewer steps.
        second: The other one.
    """

    first: int
    second: int


class ClassValues:
    """Sampled values of all classes.

    Args:
        saturation: A saturated e-graph.
        taken: Its snapshot.
        samples: Number of inputs on which classes are computed.

    Attributes:
        depth: By class, the longest path to an input within the representatives.
        compared: Number of classes with values.
    """

    def __init__(self, saturation: Saturation, taken: Snapshot, samples: int = SAMPLES) -> None:
        self._taken = taken
        self.depth: dict[int, int] = {}
        order = self._representatives()
        self._signs: dict[int, list[Sign]] = defaultdict(list)
        self._varies: set[int] = set()
        weights: dict[int, np.ndarray] = {}
        for seed in range(samples):
            values = Values(taken, sample(saturation.model, taken.tables.constants, seed), seed, ELEMENTS, worlds=1)
            self._observe(values, order, weights)
        self._samples = samples
        self.compared = len(self._signs)

    def twins(self) -> list[Twins]:
        """Classes of equal values, each with the first of its group; those of the fewest steps come first.

        Constants are left out, and so are classes with a single value on all samples.
        """
        alike: dict[object, list[int]] = defaultdict(list)
        for eclass, signs in sorted(self._signs.items()):
            kind = self._taken.types[eclass]
            if kind is not None and eclass in self._varies and len(signs) == self._samples and all(signs):
                alike[kind.dtype, tuple(sign[:3] for sign in signs)].append(eclass)
        found = [
            Twins(group[0], other)
            for members in alike.values()
            for group in self._groups(members)
            for other in group[1:]
        ]
        return sorted(found, key=lambda t: (self.depth[t.second], t.second))

    def _groups(self, members: Sequence[int]) -> list[list[int]]:
        groups: list[list[int]] = []
        for eclass in sorted(members, key=lambda c: (self._sum(c), self.depth[c], c)):
            near = (g for g in reversed(groups[-_NEIGHBOURS:]) if self._equal(g[0], eclass))
            group = next(near, None)
            if group is None:
                groups.append([eclass])
            else:
                group.append(eclass)
        return [sorted(group, key=lambda c: (self.depth[c], c)) for group in groups if len(group) > 1]

    def _sum(self, eclass: int) -> float:
        sign = self._signs[eclass][0]
        return sign[4].real if len(sign) > 4 else 0.0

    def _equal(self, first: int, second: int) -> bool:
        return may_be_equal(self._signs[first], self._signs[second], CLOSE)

    def _representatives(self) -> list[ENode]:
        """An e-node for each class that can have one, operands first; the model's own are preferred."""
        nodes = self._taken.nodes
        readers: dict[int, list[int]] = defaultdict(list)
        missing: list[int] = []
        ready: list[tuple[bool, int, int]] = []

        def add(n: int) -> None:
            depth = 1 + max((self.depth[c] for c in nodes[n].children if c is not None), default=-1)
            heapq.heappush(ready, (nodes[n].rule != ORIGINAL, depth, n))

        for n, node in enumerate(nodes):
            operands = {c for c in node.children if c is not None}
            missing.append(len(operands))
            for c in operands:
                readers[c].append(n)
            if not operands and node.kind != "composite":
                add(n)
        order: list[ENode] = []
        while ready:
            _, depth, n = heapq.heappop(ready)
            node = nodes[n]
            if node.eclass in self.depth:
                continue
            self.depth[node.eclass] = depth
            order.append(node)
            for reader in readers[node.eclass]:
                missing[reader] -= 1
                if not missing[reader] and nodes[reader].kind != "composite":
                    add(reader)
        return order

    def _observe(self, values: Values, order: Sequence[ENode], weights: dict[int, np.ndarray]) -> None:
        reads = Counter(c for node in order for c in set(node.children) if c is not None)
        for node in order:
            parts = values.compute(node) if values.ready(node) else None
            if parts is not None:
                values.of[node.eclass] = parts
                if len(parts) == 1 and parts[0] is not None and not self._taken.constant[node.eclass]:
                    self._see(node.eclass, parts[0], weights)
            for child in set(node.children):
                if child is not None:
                    reads[child] -= 1
                    if not reads[child]:
                        values.of.pop(child, None)

    def _see(self, eclass: int, value: ValueOfWorlds, weights: dict[int, np.ndarray]) -> None:
        array = value[0]
        self._signs[eclass].append(sign_of(array, weights))
        if array.size > 1 and array.dtype.kind in "fiub" and not (array == array.flat[0]).all():
            self._varies.add(eclass)
