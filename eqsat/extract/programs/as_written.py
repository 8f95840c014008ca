"""Among equally cheap programs, takes the one that is written as the input is.

The solvers compare costs only, and may return any of several equally cheap programs. Without a reason to change the
input, a part of it stays as its author wrote it: files and reports are easier to compare then, and a rule that offers
one more spelling of the same cost does not change them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import needed, program_cost

TRIES = 200
"""Parts that are tried in one program, at most."""
_EQUAL = 1e-12


def as_written(problem: Problem, original: Mapping[int, Choice], choices: dict[int, Choice]) -> dict[int, Choice]:
    """The program with every part of the input that costs nothing more, children first.

    A part is a class as the input computes it, and those of its operands that the program does not compute yet. Parts
    nearer to the outputs are tried first.

    Args:
        problem: The problem.
        original: Class -> choice of the input's own program.
        choices: Class -> choice of a feasible program, children first.
    """
    cost = program_cost(problem, choices)
    reads = _reads(problem, choices)
    tries = 0
    for klass in reversed(list(choices)):
        here, own = choices.get(klass), original.get(klass)
        if here is None or own is None or here.node == own.node or here.target != own.target or tries == TRIES:
            continue
        part = _part(problem, original, choices, klass)
        if part is None or _seconds(problem, part.values()) > _freed(problem, choices, reads, klass) + cost * _EQUAL:
            continue
        tries += 1
        changed = needed(problem, {**choices, **part})
        if (
            changed is not None
            and program_cost(problem, changed) <= cost * (1 + _EQUAL)
            and all(_spent(b.weight, changed) <= _spent(b.weight, choices) for b in problem.budgets)
        ):
            choices, reads = changed, _reads(problem, changed)
    return choices


def _part(
    problem: Problem, original: Mapping[int, Choice], choices: Mapping[int, Choice], klass: int
) -> dict[int, Choice] | None:
    """The class and the classes that it reads, as the input computes them; None if the input does not compute all of
    it.
    """
    part: dict[int, Choice] = {}
    waiting = [klass]
    while waiting:
        here = waiting.pop()
        if here not in original:
            return None
        part[here] = original[here]
        waiting += [k for k in problem.children[original[here].node] if k not in choices and k not in part]
    return part


def _reads(problem: Problem, choices: Mapping[int, Choice]) -> Counter[int]:
    """Class -> number of its readers."""
    return Counter([*problem.roots, *(k for c in choices.values() for k in problem.children[c.node])])


def _freed(problem: Problem, choices: Mapping[int, Choice], reads: Counter[int], klass: int) -> float:
    """Seconds of the class in its present form, and of everything that only it reads."""
    freed, waiting = [choices[klass]], [klass]
    seen: Counter[int] = Counter()
    while waiting:
        for child in problem.children[choices[waiting.pop()].node]:
            seen[child] += 1
            if seen[child] == reads[child]:
                freed.append(choices[child])
                waiting.append(child)
    return _seconds(problem, freed)


def _seconds(problem: Problem, choices: Iterable[Choice]) -> float:
    return math.fsum(float(problem.cost[c.node, c.target]) for c in choices)


def _spent(weight: np.ndarray, choices: Mapping[int, Choice]) -> float:
    return math.fsum(float(weight[c.node]) for c in choices.values())
