"""The exact cost of a program, and whether it is feasible: the definition that every solver must match.

It is separate from the solvers and written for clarity, so that it can serve as their oracle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.extract.graph import topological_order
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.regions.stages import Staging, stages

HOST = 0


@dataclass(frozen=True)
class ProgramCost:
    """The parts of a program's cost, in seconds."""

    nodes: float
    copies: float
    dispatch: float
    staging: Staging

    @property
    def total(self) -> float:
        return self.nodes + self.copies + self.dispatch


def readers(problem: Problem, choices: Mapping[int, Choice]) -> dict[int, set[int]]:
    """Per class the targets in whose memory its value is read; for roots also the host."""
    read: dict[int, set[int]] = {c: set() for c in choices}
    for root in problem.roots:
        read[root].add(HOST)
    for choice in choices.values():
        for child in problem.children[choice.node]:
            read[child].add(choice.target)
    return read


def copies(problem: Problem, klass: int, source: int, read: set[int]) -> float:
    """Seconds to bring a value from the target that computes it to those that read it, through the host's memory."""
    elsewhere = sorted(read - {source})
    seconds = [float(problem.copy_in[klass, target]) for target in elsewhere if target != HOST]
    if elsewhere and source != HOST:
        seconds.append(float(problem.copy_out[klass, source]))
    return math.fsum(seconds)


def needed(problem: Problem, choices: Mapping[int, Choice]) -> dict[int, Choice] | None:
    """The choices that the roots need, children first; None if they are incomplete or cyclic."""
    wanted = sorted(set(problem.roots))
    seen = set(wanted)
    for klass in wanted:
        if klass not in choices:
            return None
        for child in problem.children[choices[klass].node]:
            if child not in seen:
                seen.add(child)
                wanted.append(child)
    wanted.sort()
    place = {klass: position for position, klass in enumerate(wanted)}
    order = topological_order([[place[k] for k in problem.children[choices[c].node]] for c in wanted])
    return None if order is None else {wanted[i]: choices[wanted[i]] for i in order}


def cost_of(problem: Problem, choices: Mapping[int, Choice]) -> ProgramCost:
    """The cost of a feasible program by its parts.

    Args:
        problem: The problem.
        choices: Class -> choice for exactly the classes that are needed, in any order.
    """
    classes = list(choices)
    place = {klass: position for position, klass in enumerate(classes)}
    reads = [[place[k] for k in problem.children[choices[c].node]] for c in classes]
    target = [choices[c].target for c in classes]
    staging = stages(reads, target, problem.dispatch.tolist())
    read = readers(problem, choices)
    nodes = math.fsum(float(problem.cost[choice.node, choice.target]) for choice in choices.values())
    moved = math.fsum(copies(problem, c, choices[c].target, read[c]) for c in classes)
    return ProgramCost(nodes, moved, staging.cost, staging)


def program_cost(problem: Problem, choices: Mapping[int, Choice]) -> float:
    """Seconds of a feasible program: e-nodes, copies, and the launches of an optimal cut into regions."""
    return cost_of(problem, choices).total


def check(problem: Problem, choices: Mapping[int, Choice], tolerance: float = 1e-9) -> None:
    """Raise unless the choices are a feasible program.

    Args:
        problem: The problem.
        choices: Class -> choice for exactly the classes that are needed, children first.
        tolerance: The fraction by which a budget may be exceeded.

    Raises:
        ValueError: The program is not feasible; the text names the reason and the class.
    """
    before: set[int] = set()
    for klass, choice in choices.items():
        if problem.node_class[choice.node] != klass:
            raise ValueError(f"class {klass} is computed by e-node {choice.node} of another class")
        if not math.isfinite(problem.cost[choice.node, choice.target]):
            raise ValueError(f"class {klass}: target {choice.target} cannot run e-node {choice.node}")
        for child in problem.children[choice.node]:
            if child not in before:
                raise ValueError(f"class {klass} reads class {child}, which is not computed before it")
        before.add(klass)
    for root in problem.roots:
        if root not in before:
            raise ValueError(f"root class {root} is not computed")
    read = readers(problem, choices)
    for klass, choice in choices.items():
        if not read[klass]:
            raise ValueError(f"class {klass} is computed but not needed")
        if not math.isfinite(copies(problem, klass, choice.target, read[klass])):
            raise ValueError(f"class {klass} is read where it cannot be copied to")
    for budget in problem.budgets:
        spent = math.fsum(float(budget.weight[choice.node]) for choice in choices.values())
        if spent > budget.limit + tolerance * max(1.0, abs(budget.limit)):
            raise ValueError(f"budget {budget.name!r}: {spent:g} exceeds the limit of {budget.limit:g}")
