"""Working memory of kernels of bytes."""

from __future__ import annotations

_ALIGNED = 64


class Scratch:
    """Pieces of the working memory."""

    def __init__(self) -> None:
        self.size = 0
        self.lines: list[str] = []
        self.types: dict[str, str] = {}

    def add(self, name: str, c: str, count: int, size: int) -> str:
        """Adds a piece of this many elements; returns its name."""
        self.lines.append(f"{c} *restrict {name} = ({c} *)((unsigned char *)scratch + {self.size});")
        self.types[name] = c
        self.size += -(-count * size // _ALIGNED) * _ALIGNED + _ALIGNED
        return name
