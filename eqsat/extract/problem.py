"""The extraction problem as numbers: which e-nodes compute which classes, at what cost on which target.

It contains everything that the solvers need, and no tensors or operators, so that each solver can be tested against
brute force on small random instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eqsat.extract.gap import relative_gap

ExtractionProgress = Callable[[str, float, float], None]
"""Receives a stage's name, the cost of the best program, and the bound."""


@dataclass(frozen=True)
class Budget:
    """A linear row ``sum(weight[n] for chosen n) <= limit``, for any target on which n runs.

    Attributes:
        name: Name for messages, such as ``"quantization noise"``.
        weight: Shape (nodes,), non-negative.
        limit: The limit, in the unit of the weights.
    """

    name: str
    weight: np.ndarray
    limit: float


@dataclass(frozen=True)
class Problem:
    """Choose one e-node and one target for each class that is needed, at least cost.

    Target 0 is the host; every other target reaches the others' memory through the host's. A value is
    computed once, on one target, and copied where it is read. Model inputs are e-nodes without children
    that cost nothing on the host and are impossible elsewhere; constants are not classes (they lie
    in every memory from the start).

    Attributes:
        targets: Names of the T targets.
        node_class: Shape (nodes,): the class each e-node belongs to.
        children: Per e-node the distinct classes it reads, ascending.
        cost: Shape (nodes, T), seconds; ``inf`` where the target cannot run the e-node.
        copy_in: Shape (classes, T), seconds from the host's memory into the target's; ``inf`` forbids
            (tuples never move). Column 0 is 0.
        copy_out: Shape (classes, T), seconds from the target's memory into the host's. Column 0 is 0.
        dispatch: Shape (T,), seconds to start one region on the target; 0 for the host.
        roots: Classes that must end up in the host's memory.
        budgets: Further linear rows.
    """

    targets: tuple[str, ...]
    classes: int
    node_class: np.ndarray
    children: tuple[tuple[int, ...], ...]
    cost: np.ndarray
    copy_in: np.ndarray
    copy_out: np.ndarray
    dispatch: np.ndarray
    roots: tuple[int, ...]
    budgets: tuple[Budget, ...] = field(default=())

    @property
    def nodes(self) -> int:
        return len(self.children)


@dataclass(frozen=True)
class Choice:
    """The e-node that computes a class, and its target."""

    node: int
    target: int


@dataclass(frozen=True)
class Solution:
    """A feasible program: acyclic, one producer for each class that is needed, every child produced.

    Attributes:
        choices: Class -> choice, only classes that are needed, in a topological order (children first).
        cost: Seconds: e-nodes, copies and the dispatch of the regions of an optimal staging.
        bound: No program costs less than this, under the same definition of cost.
        stop_reason: ``"optimal"``, ``"work limit"``, ``"time limit"``, ``"size limit"``, ``"greedy"``,
            ``"worst"`` or ``"random"``.
        seconds: By step of the solver (``"reduce"``, ``"greedy"``, ``"milp"``, ...).
        work: What was done, in units (``eqsat.extract.effort``): the same on every machine.
    """

    choices: dict[int, Choice]
    cost: float
    bound: float
    stop_reason: str
    seconds: dict[str, float] = field(default_factory=dict)
    work: float = 0.0

    @property
    def gap(self) -> float:
        """The greatest possible distance to the optimum, as a share of the cost."""
        return relative_gap(self.cost, self.bound)
