"""The extraction problem as an integer program.

Columns: ``x[n,d]`` is 1 if e-node n runs on target d; ``made[c,d]`` if class c is computed on d (the sum of its x, or
the x itself if there is only one); ``out[c,d]`` and ``come[c,d]`` if its value is copied from d to the host and from
the host to d. Rows, besides the obvious ones:

- per class c and child class k, over all e-nodes of c that read k at once: they run only where k is available (by
  target), and only if k is computed somewhere. With one row per e-node, the relaxation could halve its activity at
  every level;
- per strongly connected component of classes: one of the e-nodes that read nothing inside leads; the leader carries
  the activity of the component to what it reads. Several may be outside producers at once, so "at most one of
  them" would cut off programs; "one of them leads" does not, and gives as strong a bound.

The other rows for acyclicity, and rows over dominators, are added when solutions violate them
(``eqsat.extract.milp.implication_rows``, ``acyclic``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat.extract.milp.highs import Rows
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import HOST, readers
from eqsat.extract.reduce.class_dominators import Dominators, members


class Formulation:
    """Columns and rows for one problem, whose e-nodes are sorted by class.

    Attributes:
        x, made, out, come: Column numbers by (e-node or class, target), -1 where there is none.
        lead: Per e-node its column as leader of a component, -1 elsewhere.
        active: Per component the column of its activity.
    """

    def __init__(self, problem: Problem, dominators: Dominators) -> None:
        self.problem = problem
        self.dominators = dominators
        self.rows = Rows()
        self._cost: list[np.ndarray] = []
        self._upper: list[np.ndarray] = []
        self._integer: list[np.ndarray] = []
        self.columns = 0
        self.klass = problem.node_class
        lengths = np.array([len(children) for children in problem.children], dtype=np.int64)
        self.edge_node = np.repeat(np.arange(problem.nodes), lengths)
        self.edge_child = np.array([k for children in problem.children for k in children], dtype=np.int64)
        self.must = members(dominators.of_roots(), problem.classes)
        self._make_columns()
        self._make_rows()
        self._make_rings()

    @property
    def cost(self) -> np.ndarray:
        return np.concatenate(self._cost)

    @property
    def upper(self) -> np.ndarray:
        return np.concatenate(self._upper)

    @property
    def integer(self) -> np.ndarray:
        return np.concatenate(self._integer)

    def new(self, cost: np.ndarray, integer: bool = False, upper: float = 1.0) -> np.ndarray:
        """Append columns with lower bound 0; their numbers."""
        first = self.columns
        self.columns += len(cost)
        self._cost.append(np.asarray(cost, dtype=np.float64))
        self._upper.append(np.full(len(cost), upper))
        self._integer.append(np.full(len(cost), integer))
        return np.arange(first, self.columns)

    def _at(self, where: np.ndarray, cost: np.ndarray, integer: bool) -> np.ndarray:
        """Columns at the true places of a mask, -1 elsewhere."""
        numbers = np.full(where.shape, -1, dtype=np.int64)
        numbers[where] = self.new(cost[where], integer)
        return numbers

    def _make_columns(self) -> None:
        problem, klass = self.problem, self.klass
        shape = (problem.classes, len(problem.targets))
        able = np.isfinite(problem.cost)
        self.x = self._at(able, problem.cost, True)
        options = np.zeros(shape, dtype=np.int64)
        np.add.at(options, klass, able)
        self.options = options
        self.made = self._at(options > 1, np.zeros(shape), False)
        node, target = np.nonzero(able)
        only = options[klass[node], target] == 1
        self.made[klass[node[only]], target[only]] = self.x[node[only], target[only]]
        read = np.zeros(shape, dtype=bool)
        np.logical_or.at(read, self.edge_child, able[self.edge_node])
        read[list(problem.roots), HOST] = True
        elsewhere = read.sum(axis=1, keepdims=True) > read
        leaves = (self.made >= 0) & elsewhere & np.isfinite(problem.copy_out)
        leaves[:, HOST] = False
        self.out = self._at(leaves, problem.copy_out, False)
        sources = (leaves.sum(axis=1, keepdims=True) > leaves) | (self.made[:, [HOST]] >= 0)
        arrives = read & sources & np.isfinite(problem.copy_in)
        arrives[:, HOST] = False
        self.come = self._at(arrives, problem.copy_in, False)

    def _block(
        self, parts: list[tuple[np.ndarray, np.ndarray, float]], count: int, lower: float | np.ndarray, upper: float
    ) -> None:
        """Rows from (row, column, coefficient) triplets; entries whose column is -1 are left out."""
        row = np.concatenate([r[c >= 0] for r, c, _ in parts])
        column = np.concatenate([c[c >= 0] for _, c, _ in parts])
        value = np.concatenate([np.full(int((c >= 0).sum()), v) for _, c, v in parts])
        self.rows.add_block(row, column, value, count, lower, upper)

    def _make_rows(self) -> None:
        problem, klass = self.problem, self.klass
        count, targets = self.made.shape
        several, target = np.nonzero(self.options > 1)
        place = np.full(self.made.shape, -1)
        place[several, target] = np.arange(len(several))
        node, at = np.nonzero(self.x >= 0)
        row = place[klass[node], at]
        summed = row >= 0
        self._block(
            [
                (row[summed], self.x[node[summed], at[summed]], 1.0),
                (np.arange(len(several)), self.made[several, target], -1.0),
            ],
            len(several),
            0.0,
            0.0,
        )
        every = np.arange(count)
        least = np.full(count, -np.inf)
        least[self.must] = 1.0
        self._block([(every, self.made[:, d], 1.0) for d in range(targets)], count, least, 1.0)
        # Pairs (class, child class), and how many of the class's e-nodes read the child.
        pairs, pair = np.unique(klass[self.edge_node] * count + self.edge_child, return_inverse=True)
        parent, child = pairs // count, pairs % count
        rows = np.arange(len(pairs))
        anywhere: list[tuple[np.ndarray, np.ndarray, float]] = []
        for d in range(targets):
            column = self.x[self.edge_node, d]
            reading = np.bincount(pair[column >= 0], minlength=len(pairs))
            full = reading == self.options[parent, d]
            single = ~full[pair]
            parts = [(pair[single], column[single], 1.0), (rows[full], self.made[parent[full], d], 1.0)]
            anywhere += parts
            supply = [(rows, self.made[child, d], -1.0)]
            if d == HOST:
                supply += [(rows, self.out[child, e], -1.0) for e in range(targets)]
            else:
                supply.append((rows, self.come[child, d], -1.0))
            asked = np.flatnonzero(reading)
            renumber = np.full(len(pairs), -1)
            renumber[asked] = np.arange(len(asked))
            shown = [(renumber[r][renumber[r] >= 0], c[renumber[r] >= 0], v) for r, c, v in parts + supply]
            self._block(shown, len(asked), -np.inf, 0.0)
        if targets > 1:
            made = [(rows, self.made[child, e], -1.0) for e in range(targets)]
            self._block(anywhere + made, len(pairs), -np.inf, 0.0)
        for d in range(1, targets):
            into = np.flatnonzero(self.come[:, d] >= 0)
            here = np.arange(len(into))
            ways = [(here, self.out[into, e], -1.0) for e in range(1, targets) if e != d]
            self._block(
                [(here, self.come[into, d], 1.0), (here, self.made[into, HOST], -1.0), *ways], len(into), -np.inf, 0.0
            )
            from_ = np.flatnonzero(self.out[:, d] >= 0)
            here = np.arange(len(from_))
            self._block([(here, self.out[from_, d], 1.0), (here, self.made[from_, d], -1.0)], len(from_), -np.inf, 0.0)
        roots = np.array(problem.roots, dtype=np.int64)
        here = np.arange(len(roots))
        arrive = [(here, self.made[roots, HOST], 1.0), *[(here, self.out[roots, e], 1.0) for e in range(1, targets)]]
        self._block(arrive, len(roots), 1.0, np.inf)
        for budget in problem.budgets:
            zero = np.zeros(len(node), dtype=np.int64)
            self.rows.add_block(zero, self.x[node, at], budget.weight[node], 1, -np.inf, budget.limit)

    def _make_rings(self) -> None:
        dominators = self.dominators
        rings = dominators.rings
        self.active = self.new(np.zeros(len(rings)))
        self.lead = np.full(self.problem.nodes, -1)
        if not rings:
            return
        ring = np.array(dominators.ring_of)
        reads_inside = np.zeros(self.problem.nodes, dtype=bool)
        home = ring[self.klass[self.edge_node]]
        reads_inside[self.edge_node[(home >= 0) & (home == ring[self.edge_child])]] = True
        outside = np.flatnonzero((ring[self.klass] >= 0) & ~reads_inside)
        self.lead[outside] = self.new(np.zeros(len(outside)))
        leaders = np.arange(len(outside))
        targets = self.made.shape[1]
        self._block(
            [(leaders, self.lead[outside], 1.0)] + [(leaders, self.x[outside, d], -1.0) for d in range(targets)],
            len(outside),
            -np.inf,
            0.0,
        )
        all_rings = np.arange(len(rings))
        self._block(
            [(ring[self.klass[outside]], self.lead[outside], 1.0), (all_rings, self.active, -1.0)], len(rings), 0.0, 0.0
        )
        members = np.flatnonzero(ring >= 0)
        here = np.arange(len(members))
        self._block(
            [(here, self.made[members, d], 1.0) for d in range(targets)] + [(here, self.active[ring[members]], -1.0)],
            len(members),
            -np.inf,
            0.0,
        )
        self._connect_rings(ring)

    def _connect_rings(self, ring: np.ndarray) -> None:
        """Activity passes from a component or class to a component or class below it."""
        count, targets = self.made.shape
        group = np.where(ring >= 0, count + ring, np.arange(count))
        width = count + len(self.active)
        above, below = group[self.klass[self.edge_node]], group[self.edge_child]
        kept = (above != below) & ((above >= count) | (below >= count))
        kept &= (above < count) | (self.lead[self.edge_node] >= 0)
        triples = np.unique(np.stack([above[kept] * width + below[kept], self.edge_node[kept]], axis=1), axis=0)
        keys, row = np.unique(triples[:, 0], return_inverse=True)
        node = triples[:, 1]
        leading = self.lead[node] >= 0
        parts = [(row[leading], self.lead[node[leading]], 1.0)]
        parts += [(row[~leading], self.x[node[~leading], d], 1.0) for d in range(targets)]
        below = keys % width
        rows = np.arange(len(keys))
        in_ring = below >= count
        parts.append((rows[in_ring], self.active[below[in_ring] - count], -1.0))
        parts += [(rows[~in_ring], self.made[below[~in_ring], d], -1.0) for d in range(targets)]
        self._block(parts, len(keys), -np.inf, 0.0)

    def encode(self, choices: Mapping[int, Choice]) -> np.ndarray:
        """A program as a point; columns that others have added are 0."""
        point = np.zeros(self.columns)
        read = readers(self.problem, choices)
        led: set[int] = set()
        for klass, choice in choices.items():
            point[self.x[choice.node, choice.target]] = 1.0
            point[self.made[klass, choice.target]] = 1.0
            elsewhere = read[klass] - {choice.target}
            if elsewhere and choice.target != HOST:
                point[self.out[klass, choice.target]] = 1.0
            for target in elsewhere - {HOST}:
                point[self.come[klass, target]] = 1.0
            ring = self.dominators.ring_of[klass]
            if self.lead[choice.node] >= 0 and ring not in led:
                led.add(ring)
                point[self.lead[choice.node]] = point[self.active[ring]] = 1.0
        return point

    def decode(self, x: np.ndarray) -> dict[int, Choice]:
        """The producers that a 0/1 point names, for all classes that have one."""
        node, target = np.nonzero(self.x >= 0)
        chosen = x[self.x[node, target]] > 0.5
        return {int(self.klass[n]): Choice(int(n), int(d)) for n, d in zip(node[chosen], target[chosen], strict=True)}
