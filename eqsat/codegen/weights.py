"""The constants of all kernels as one block of bytes, and that block as C.

Arrays of equal bytes are kept once. In C the block is a string literal (gcc reads 14 MB of it in a second; as numbers
it takes eleven and a gigabyte), a file that the assembler includes, or a file that the program loads.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

from eqsat.codegen import c_types
from eqsat.codegen.buffers import ALIGNMENT, SLACK

WeightsForm = Literal["string", "incbin", "blob"]
FORMS: tuple[WeightsForm, ...] = ("string", "incbin", "blob")
LARGEST = 16 << 20
"""Size up to which bytes are written as literals by default: gcc takes a second and 160 MB for them."""
LINE = 4000
"""Characters per line of the literal, about."""


class Weights:
    """Collects arrays and gives each an offset."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._known: dict[tuple[int, bytes], int] = {}
        self.size = 0

    def add(self, array: np.ndarray) -> tuple[int, str]:
        """Offset in bytes and C type of the elements."""
        stored = c_types.as_stored(array)
        content = stored.tobytes()
        key = (len(content), hashlib.blake2b(content, digest_size=20).digest())
        if key not in self._known:
            self._known[key] = self.size
            padded = -(-len(content) // ALIGNMENT) * ALIGNMENT
            self._pieces.append(content + bytes(padded - len(content)))
            self.size += padded
        return self._known[key], c_types.c_type(stored)

    def block(self) -> np.ndarray:
        """All bytes, and those that may be read after the last array, at an aligned address. Call it once."""
        result = aligned(self.size + SLACK)
        at = 0
        for piece in self._pieces:
            result[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        self._pieces.clear()
        return result


def aligned(size: int) -> np.ndarray:
    """Zeros, in bytes, at an address that kernels may rely on."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def usual_form(size: int) -> WeightsForm:
    """The default form for this many bytes of weights."""
    return "string" if size <= LARGEST else "incbin"


def literal(data: bytes | np.ndarray) -> str:
    """Bytes as adjacent string literals, one per line, in octal where they are not printable."""
    table = np.zeros((256, 4), np.uint8)
    keep = np.zeros((256, 4), bool)
    for value in range(256):
        # Digits are escaped as well: after a short escape they would belong to it.
        plain = 32 <= value < 127 and chr(value) not in '"\\?' and not chr(value).isdigit()
        text = chr(value) if plain else f"\\{value:o}"
        table[value, : len(text)] = np.frombuffer(text.encode(), np.uint8)
        keep[value, : len(text)] = True
    lines = []
    for start in range(0, len(data), LINE):
        chunk = np.frombuffer(data, np.uint8, min(LINE, len(data) - start), start)
        lines.append('"' + table[chunk][keep[chunk]].tobytes().decode() + '"')
    return "\n".join(lines)
