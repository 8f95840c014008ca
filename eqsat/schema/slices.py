"""The elements that ``Slice`` selects along one axis, for kernels, generated C and the values of shapes.

The specification adds the length to negative bounds and then clamps them: with a positive step both to [0, n], with a
negative one the start to [0, n - 1] and the end to [-1, n - 1]. Python's slices wrap around instead where a bound lies
before the array. ONNX Runtime takes an end of INT32_MAX or INT64_MAX with a negative step for "to the first element";
by the specification, which is followed here, that end clamps to n - 1, and nothing is taken.
"""

from __future__ import annotations


def taken(start: int, end: int, step: int, n: int) -> range:
    """Indices along an axis of ``n`` elements.

    >>> list(taken(-1, -(2**63), -2, 5))
    [4, 2, 0]
    >>> list(taken(-1, 2**63 - 1, -1, 5))
    []
    """
    start, end = (bound + n if bound < 0 else bound for bound in (int(start), int(end)))
    low, high = (0, n) if step > 0 else (-1, n - 1)
    return range(min(max(start, 0), high), min(max(end, low), high), int(step))


def as_slice(indices: range) -> slice:
    """The same as an index of an array; an end before the first element is spelled None."""
    return slice(indices.start, None if indices.stop < 0 else indices.stop, indices.step) if indices else slice(0, 0)
