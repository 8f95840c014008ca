"""Names that are not taken yet."""

from __future__ import annotations


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
