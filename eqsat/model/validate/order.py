"""Orders by dependence: nodes after the nodes that they read, functions after their callees.

``graphlib`` gives another order, and its cycles do not begin where a reader would look for them; ``networkx`` takes
long to import.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)


def needed_first(needs: Mapping[_Key, Sequence[_Key]]) -> tuple[list[_Key], list[_Key]]:
    """Sorts topologically, by depth-first search in the given order.

    Args:
        needs: By key those that it needs; others than the mapping's own do not count.

    Returns:
        All keys, each after those that it needs, and an empty list; or some keys, and the first circle that is found:
        each of its members needs the next one, and the last is the first again.
    """
    order: dict[_Key, None] = {}
    for start in needs:
        path: dict[_Key, Iterator[_Key]] = {} if start in order else {start: iter(needs[start])}
        while path:
            key = next(reversed(path))
            following = next(path[key], None)
            if following is None:
                path.pop(key)
                order[key] = None
            elif following in path:
                members = list(path)
                return list(order), [*members[members.index(following) :], following]
            elif following not in order and following in needs:
                path[following] = iter(needs[following])
    return list(order), []
