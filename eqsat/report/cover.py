"""Which operators of the input a kernel of the result stands for.

Values decide, not names: a class of the e-graph that both graphs compute is the same value in both. Such values cut
the result into pieces, each with the kernels behind one of them, and what computes that value in the input, back to
values that the result computes as well, is what the piece stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Step(Generic[V]):
    """A node by the values that it reads and makes; constants are left out."""

    reads: tuple[V, ...]
    makes: tuple[V, ...]


def covered(before: Sequence[Step[V]], after: Sequence[Step[V]], inputs: Collection[V]) -> list[tuple[int, ...]]:
    """Per node of the result the nodes of the input that it stands for, in their order.

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
        stands_for = _behind(before, own, results, ends)
        for other in _behind(after, made, results, ends) | {k}:
            found[other] |= stands_for
    return [tuple(sorted(nodes)) for nodes in found]


def _makers(steps: Sequence[Step[V]]) -> dict[V, list[int]]:
    """Who computes a value; in the input that may be several."""
    found: dict[V, list[int]] = {}
    for i, step in enumerate(steps):
        for value in step.makes:
            found.setdefault(value, []).append(i)
    return found


def _behind(
    steps: Sequence[Step[V]], makers: dict[V, list[int]], results: Sequence[V], ends: Collection[V]
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
