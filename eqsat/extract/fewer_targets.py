"""The same problem with fewer targets: easier, and each of its programs is a program of the whole.

A target more is never a reason for a worse program. A search that proves its optimum needs no help for that; one that
runs out of time might have done better without the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.extract.problem import Choice, Problem

SHARE = 0.2
"""Share of the time for a search that is kept for the problems with fewer targets."""


def selections(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The targets of the easier problems: the host alone, then with each other target if there are several."""
    yield (0,)
    if len(problem.targets) > 2:
        yield from ((0, t) for t in range(1, len(problem.targets)))


def restricted(problem: Problem, targets: Sequence[int]) -> Problem:
    """The problem on some of its targets, the host first."""
    kept = list(targets)
    return replace(
        problem,
        targets=tuple(problem.targets[t] for t in kept),
        cost=problem.cost[:, kept],
        copy_in=problem.copy_in[:, kept],
        copy_out=problem.copy_out[:, kept],
        dispatch=problem.dispatch[kept],
    )


def widened(choices: Mapping[int, Choice], targets: Sequence[int]) -> dict[int, Choice]:
    """A program of the restricted problem as one of the whole."""
    return {c: replace(choice, target=targets[choice.target]) for c, choice in choices.items()}
