"""The cost of rounding in accuracy, as linear rows of the extraction problem.

A program pays once for rounding a tensor, however many of its values depend on it:

- The integers of a tensor are one class, and a program has one producer per class. So each of its e-nodes carries the
  noise of the tensor, unless it only moves integers that were paid for: ``MaxPool(Q(x))`` is ``Q(MaxPool(x))``.
- Integers of a constant are not a class of the problem; the e-nodes that read them pay.
- A composite may round an inner value, and pays for that as well.
- If the payers of one tensor are in several classes, they read an additional class that only carries the weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.from_egraph import MappedProblem
from eqsat.extract.problem import Budget, Choice, Problem
from eqsat.ops.operators import operator
from eqsat.quantization.inner import InnerClasses
from eqsat.quantization.scheme import Scheme
from eqsat.schema.types import OpKey
from eqsat.stages.extract import Limited


@dataclass(frozen=True)
class Roundings:
    """The e-nodes that round each tensor.

    Attributes:
        payers: The snapshot's e-nodes that round each unit. A unit is a tensor of the scheme that is rounded
            independently; a bias belongs to the unit of its weight, and a tensor that follows another to that tensor's
            unit.
        units: Positions in the scheme that each unit rounds together.
    """

    payers: tuple[tuple[int, ...], ...]
    units: tuple[tuple[int, ...], ...]


def approximated(scheme: Scheme) -> list[int]:
    """Positions of the tensors whose integers the e-graph must know; those of a bias follow from the weight."""
    return [i for i, tensor in enumerate(scheme.tensors) if tensor.kind != "bias"]


def find_roundings(snapshot: Snapshot, scheme: Scheme) -> Roundings:
    """Finds the e-nodes of a saturated e-graph that round tensors.

    Args:
        snapshot: Snapshot of an e-graph with the approximations of :func:`approximated`, in that order.
        scheme: The tensors.
    """
    unit_of, units = _units(scheme)
    rounded: dict[int, frozenset[int]] = {}
    constants: dict[int, frozenset[int]] = {}
    for position, eclass in zip(approximated(scheme), snapshot.quantized, strict=True):
        held = constants if snapshot.is_fixed(eclass) else rounded
        held[eclass] = held.get(eclass, frozenset()) | {unit_of[position]}
    _add_moved(snapshot, rounded)
    _add_derived(snapshot, constants)
    payers: list[list[int]] = [[] for _ in units]
    inner = InnerClasses(snapshot)
    for n, node in enumerate(snapshot.nodes):
        if snapshot.is_fixed(node.eclass):
            continue
        due: set[int] = set()
        for eclass, children in (*inner.of(node), (node.eclass, node.children)):
            read = [c for c in children if c is not None]
            due |= rounded.get(eclass, frozenset()).difference(*(rounded.get(c, ()) for c in read))
            due.update(*(constants.get(c, ()) for c in read))
        for unit in sorted(due):
            payers[unit].append(n)
    return Roundings(tuple(map(tuple, payers)), units)


def _units(scheme: Scheme) -> tuple[dict[int, int], tuple[tuple[int, ...], ...]]:
    """Unit by position in the scheme, and the positions of each unit."""
    found: list[list[int]] = []
    unit_of: dict[int, int] = {}
    by_name: dict[str, int] = {}
    by_edge: dict[tuple[int, int], int] = {}
    for i, tensor in enumerate(scheme.tensors):
        if tensor.kind == "bias":
            continue
        if tensor.follows is not None and tensor.follows in by_name:
            unit_of[i] = by_name[tensor.follows]
            found[unit_of[i]].append(i)
            continue
        unit_of[i] = len(found)
        found.append([i])
        if tensor.kind == "activation":
            by_name.setdefault(tensor.name, unit_of[i])
        for edge in tensor.readers or ():
            by_edge[edge] = unit_of[i]
    for i, tensor in enumerate(scheme.tensors):
        if tensor.kind == "bias":
            # A bias is input 2, the weight that it is added to the products of is input 1.
            unit_of[i] = min(by_edge[node, 1] for node, _ in tensor.readers or ())
            found[unit_of[i]].append(i)
    return unit_of, tuple(map(tuple, found))


def _add_moved(snapshot: Snapshot, rounded: dict[int, frozenset[int]]) -> None:
    """Adds classes of moved integers that represent a float tensor outside of the scheme."""
    # Tuples are such classes as well, because splitting moves values.
    read = [n for n in snapshot.nodes if n.op.name == "DequantizeLinear" or n.kind == "part"]
    named = frozenset(rounded)
    waiting = dict.fromkeys(
        n.children[0] for n in read if n.children[0] not in named and not snapshot.is_fixed(n.eclass)
    )
    changed = True
    while changed:
        changed = False
        for eclass in waiting:
            if eclass is None:
                continue
            moves = [n for n in map(snapshot.nodes.__getitem__, snapshot.classes[eclass]) if _moves(n)]
            of = frozenset[int]().union(*(rounded.get(c, ()) for n in moves for c in n.children if c is not None))
            if not of <= rounded.get(eclass, frozenset()):
                rounded[eclass] = of
                changed = True


def _moves(node: ENode) -> bool:
    return node.kind == "part" or (node.kind == "op" and _hands_on(node.op))


def _add_derived(snapshot: Snapshot, constants: dict[int, frozenset[int]]) -> None:
    """Adds constants that are computed from integers of constants, such as a transposed weight."""
    dequantized = {
        n.eclass
        for n in snapshot.nodes
        if n.op.name == "DequantizeLinear" and n.children and n.children[0] in constants
    }
    readers: dict[int, list[ENode]] = {}
    for node in snapshot.nodes:
        if snapshot.is_fixed(node.eclass) and node.kind in ("op", "part"):
            for child in node.children:
                if child is not None:
                    readers.setdefault(child, []).append(node)
    todo = list(constants)
    while todo:
        eclass = todo.pop()
        for node in readers.get(eclass, ()):
            # A rounded constant that is dequantized again is the constant itself, with its own value.
            if node.eclass in dequantized or node.eclass in constants:
                continue
            constants[node.eclass] = constants[eclass]
            todo.append(node.eclass)


TIE = 2e-5
"""The cost of all noise together, relative to the original program."""


@dataclass(frozen=True)
class Charged:
    """A formulation whose programs pay for rounding.

    Attributes:
        formulation: Its problem has one budget for each output. Classes and e-nodes after the last that the
            formulation maps back only carry weights.
        totals: Noise of all roundings at each output, relative to the signal.
    """

    formulation: MappedProblem
    roundings: Roundings
    totals: tuple[float, ...]

    def rounded(self, choices: Mapping[int, Choice]) -> list[int]:
        """Positions in the scheme of the tensors that a program rounds."""
        chosen = {choice.node for choice in choices.values()}
        payers = _by_problem_node(self.formulation, self.roundings)
        return sorted(
            i for unit, nodes in enumerate(payers) if not chosen.isdisjoint(nodes) for i in self.roundings.units[unit]
        )

    def limited(self, limits: Sequence[float]) -> Limited:
        """The problem with a limit on the noise of each output, relative to the signal.

        Rows are in units of the limit, because solvers compare with absolute tolerances. Among programs of equal cost
        the least noise should win, so that a larger budget never means more noise for nothing. Noise therefore has a
        cost as well, but in total no more than a small part of the original program.
        """
        problem = self.formulation.problem
        kept: list[Budget] = []
        cost = problem.cost
        price = np.zeros(problem.nodes)
        slack = 0.0
        for budget, limit, total in zip(problem.budgets, limits, self.totals, strict=True):
            if 0 < total < math.inf:
                most = TIE * self.formulation.baseline / len(problem.budgets)
                price += most / total * budget.weight
                slack += most * min(1.0, limit / total)
            if math.isinf(limit):
                continue
            impossible = budget.weight > limit * (1 + 1e-9)
            cost = np.where(impossible[:, None], np.inf, cost)
            if limit > 0:
                kept.append(Budget(budget.name, np.where(impossible, 0.0, budget.weight / limit), 1.0))
        limited = replace(problem, cost=cost, budgets=tuple(kept))
        return Limited(replace(self.formulation, problem=limited), replace(limited, cost=cost + price[:, None]), slack)


def _by_problem_node(formulation: MappedProblem, roundings: Roundings) -> list[list[int]]:
    position = {n: i for i, n in enumerate(formulation.node)}
    return [[position[n] for n in payers if n in position] for payers in roundings.payers]


def charge(formulation: MappedProblem, roundings: Roundings, weights: np.ndarray, outputs: Sequence[str]) -> Charged:
    """Makes programs pay for rounding.

    Args:
        formulation: The problem.
        roundings: The e-nodes that round.
        weights: float64[units, outputs].
        outputs: Names of the float outputs.
    """
    problem = formulation.problem
    by_node = np.zeros((problem.nodes, len(outputs)))
    klass, children = problem.node_class.tolist(), list(problem.children)
    extra: list[np.ndarray] = []
    for unit, payers in enumerate(_by_problem_node(formulation, roundings)):
        if not payers or not weights[unit].any():
            continue
        if len({klass[n] for n in payers}) == 1:
            by_node[payers] += weights[unit]
            continue
        carrier = problem.classes + len(extra)
        extra.append(weights[unit])
        for n in payers:
            children[n] = (*children[n], carrier)
    count, targets = len(extra), len(problem.targets)
    charged = Problem(
        targets=problem.targets,
        classes=problem.classes + count,
        node_class=np.append(problem.node_class, np.arange(count) + problem.classes),
        children=(*children, *[()] * count),
        cost=np.vstack([problem.cost, np.zeros((count, targets))]),
        copy_in=np.vstack([problem.copy_in, np.zeros((count, targets))]),
        copy_out=np.vstack([problem.copy_out, np.zeros((count, targets))]),
        dispatch=problem.dispatch,
        roots=problem.roots,
        budgets=tuple(
            Budget(f"quantization noise of output {name!r}", column, math.inf)
            for name, column in zip(outputs, np.vstack([by_node, *extra]).T, strict=True)
        ),
    )
    return Charged(replace(formulation, problem=charged), roundings, tuple(weights.sum(axis=0).tolist()))


def _hands_on(op: OpKey) -> bool:
    """Whether results are elements of operands."""
    role = operator(op).quantization
    return not op.domain and role is not None and (role.moves or role.selects)
