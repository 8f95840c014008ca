"""The fewest steps between e-nodes: audits, derivations and proofs ask by which unions two of them became equal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

_Step = TypeVar("_Step")


def fewest_steps(
    start: int, good: Callable[[int], bool], neighbours: Callable[[int], Iterable[tuple[int, _Step]]]
) -> list[_Step]:
    """The steps of a shortest path, by breadth-first search.

    Args:
        start: An e-node.
        good: Whether the path may end at an e-node.
        neighbours: The neighbours of an e-node, each with the step to it; their order decides between shortest paths.

    Returns:
        The steps, the last one first; empty if the start is good, or no good e-node can be reached.
    """
    came: dict[int, tuple[int, _Step] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if good(here):
            steps: list[_Step] = []
            step = came[here]
            while step is not None:
                steps.append(step[1])
                step = came[step[0]]
            return steps
        for there, edge in neighbours(here):
            if there not in came:
                came[there] = (here, edge)
                waiting.append(there)
    return []
