"""The operators of the input that each kernel replaces, in a program that extraction chose but that is not written.

Values decide: a class of the e-graph that both programs compute is the same value in both. Such values cut the program
into pieces, each with the kernels that lead to one of them, and what computes that value in the input, back to values
that the program computes as well, is what the piece stands for. Of a written program :mod:`eqsat.report.cover` knows
more: where each kernel comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeValues:
    """A node by the values that it reads and makes; constants are left out."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]


def covered(
    before: Sequence[NodeValues], after: Sequence[NodeValues], inputs: Collection[int]
) -> list[tuple[int, ...]]:
    """For each node of the result the nodes of the input that it replaces, in order.

    Args:
        before: The input, children first.
        after: The result, children first.
        inputs: Values that are given to both.
    """
    own, made = _makers(before), _makers(after)
    shared = {v for v in made if v in own}
    ends = shared | set(inputs)
    found: list[set[int]] = [set() for _ in after]
    for k, step in enumerate(after):
        results = [v for v in step.makes if v in shared]
        if not results:
            continue
        stands_for = _downstream(before, own, results, ends)
        for other in _downstream(after, made, results, ends) | {k}:
            found[other] |= stands_for
    return [tuple(sorted(nodes)) for nodes in found]


def _makers(steps: Sequence[NodeValues]) -> dict[int, list[int]]:
    """Who computes a value; in the input that may be several."""
    found: dict[int, list[int]] = {}
    for i, step in enumerate(steps):
        for value in step.makes:
            found.setdefault(value, []).append(i)
    return found


def _downstream(
    steps: Sequence[NodeValues], makers: dict[int, list[int]], results: Sequence[int], ends: Collection[int]
) -> set[int]:
    """The nodes that compute some values, back to values that end the search."""
    seen: set[int] = set()
    waiting = [i for v in results for i in makers[v]]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [i for v in steps[node].reads if v not in ends for i in makers.get(v, ())]
    return seen
