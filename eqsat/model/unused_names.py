"""Names that are not taken yet: one by one with :func:`unused`, or many of the same base with :class:`Namer`."""

from __future__ import annotations

from collections.abc import Iterable


def unused(name: str, taken: set[str]) -> str:
    """The name itself while it is free, otherwise with the lowest number appended that makes it free; it counts as
    taken then.
    """
    found, k = name, 0
    while found in taken:
        k += 1
        found = f"{name}_{k}"
    taken.add(found)
    return found


class Namer:
    """Makes many names; a number that was used after a base is not tried again."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._next: dict[str, int] = {}

    def keep(self, name: str) -> str:
        """The name itself while it is free, otherwise with the lowest number appended that makes it free."""
        if name in self.taken:
            return self.number(name, start=1)
        self.taken.add(name)
        return name

    def number(self, base: str, *, start: int = 0) -> str:
        """The base with a number appended: ``Conv_0``, ``Conv_1``."""
        k = self._next.get(base, start)
        while f"{base}_{k}" in self.taken:
            k += 1
        self._next[base] = k + 1
        self.taken.add(f"{base}_{k}")
        return f"{base}_{k}"
