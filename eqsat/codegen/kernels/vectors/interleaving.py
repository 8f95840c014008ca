"""Vectors of every n-th element brought side by side: the phases of a stride become a row."""

from __future__ import annotations

from collections.abc import Sequence


def interleaved(phases: Sequence[str], lanes: int) -> tuple[list[str], list[str]]:
    """Statements, and the vectors of the row in order.

    Args:
        phases: The vectors: lane ``i`` of phase ``p`` is element ``i * len(phases) + p`` of the row.
        lanes: Of a vector.
    """
    count = len(phases)
    if count & (count - 1) == 0:
        return [], _zipped(phases)
    lines = [f"float z[{count * lanes}];"]
    lines += [f"store_strided@(z + {p}, {value}, {count}, {lanes});" for p, value in enumerate(phases)]
    return lines, [f"LD@(z + {k * lanes})" for k in range(count)]


def _zipped(phases: Sequence[str]) -> list[str]:
    if len(phases) == 1:
        return list(phases)
    pairs = zip(_zipped(phases[::2]), _zipped(phases[1::2]), strict=True)
    return [text for a, b in pairs for text in (f"zip_low@({a}, {b})", f"zip_high@({a}, {b})")]
