"""The interface of numpy kernels.

A kernel computes one operator on numpy arrays: ``kernel(attrs, *inputs)`` with all attributes filled in and None for an
absent optional input. It returns one array, or a tuple for several outputs. It raises ``Fallback`` in rare cases, which
are left to ``onnx.reference``. A kernel with a keyword ``outputs`` receives the number of its outputs that have
readers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import ml_dtypes
import numpy as np

from eqsat.schema.types import Attributes

NumpyFunction = Callable[..., Any]
Versions = NumpyFunction | Mapping[int, NumpyFunction | None]
"""A kernel for all versions of an operator, or kernels by the first version that they implement. None leaves versions,
up to the next one named, to ``onnx.reference``."""
_F = TypeVar("_F", bound=NumpyFunction)

BLOCK = 1 << 16
"""Elements that several passes of numpy read from a core's cache: 256 KiB of float32."""

HALF_TYPES = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})


class Fallback(Exception):
    """Raised by a kernel for inputs that it leaves to ``onnx.reference``."""


@dataclass(frozen=True, slots=True)
class NumpyKernel:
    """One implementation.

    Attributes:
        run: The function; None if this range of versions has no kernel in eqsat.
        since: First version of the operator that it implements.
        counts_outputs: Whether it takes a keyword ``outputs``, the number of outputs that have readers.
    """

    run: NumpyFunction | None
    since: int
    counts_outputs: bool


def kernels(versions: Versions | None) -> tuple[NumpyKernel, ...]:
    """The kernels of an operator, the oldest version first."""
    if versions is None:
        return ()
    given = {1: versions} if callable(versions) else versions
    return tuple(NumpyKernel(run, since, _counts_outputs(run)) for since, run in sorted(given.items()))


def find(entries: tuple[NumpyKernel, ...], since_version: int) -> NumpyKernel | None:
    """The kernel for an operator whose semantics date from ``since_version``, or None."""
    chosen = None
    for entry in entries:
        if entry.since <= since_version:
            chosen = entry
    return chosen if chosen is not None and chosen.run is not None else None


def _counts_outputs(run: NumpyFunction | None) -> bool:
    return run is not None and "outputs" in (getattr(inspect.unwrap(run), "__kwdefaults__", None) or ())


def at_least_single(x: np.ndarray) -> np.dtype[Any]:
    """The type in which quantized operators compute with a scale: float32, or its own type if that is wider."""
    return x.dtype if x.dtype.kind == "f" and x.dtype.itemsize > 4 else np.dtype(np.float32)


def in_single(function: _F) -> _F:
    """Compute half-precision floats in float32 and round once at the end, as runtimes do.

    Outputs of type float32 return to the type of the first half-precision input.
    """

    @wraps(function)
    def wrapped(attrs: Attributes, *inputs: np.ndarray | None, **extra: Any) -> Any:
        half = next((x.dtype for x in inputs if x is not None and x.dtype in HALF_TYPES), None)
        if half is None:
            return function(attrs, *inputs, **extra)
        wide = [x.astype(np.float32) if x is not None and x.dtype in HALF_TYPES else x for x in inputs]
        result = function(attrs, *wide, **extra)
        if isinstance(result, tuple):
            return tuple(_narrow(r, half) for r in result)
        return _narrow(result, half)

    return cast(_F, wrapped)


def in_blocks(function: _F) -> _F:
    """Compute a function of the elements of one array block by block.

    Each pass over a large array reads it from memory and gets fresh pages for its result, which takes several times as
    long as the arithmetic.
    """

    @wraps(function)
    def wrapped(attrs: Attributes, x: np.ndarray) -> np.ndarray:
        if x.size <= BLOCK:
            return function(attrs, x)
        source = x.reshape(-1)
        first = function(attrs, source[:BLOCK])
        filled = np.empty(x.size, first.dtype)
        filled[:BLOCK] = first
        for start in range(BLOCK, x.size, BLOCK):
            filled[start : start + BLOCK] = function(attrs, source[start : start + BLOCK])
        return filled.reshape(x.shape)

    return cast(_F, wrapped)


def _narrow(x: Any, dtype: np.dtype[Any]) -> Any:
    return x.astype(dtype) if x is not None and x.dtype == np.float32 else x
