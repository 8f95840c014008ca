"""Where kernels are registered and found: one dict from operator to its numpy implementations by version.

A kernel computes one operator on numpy arrays: ``kernel(attrs, *inputs)`` with all attributes filled in and None
for an absent optional input. It returns one array, or a tuple for several outputs. It raises ``Fallback`` for
the rare case that it leaves to ``onnx.reference``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import ml_dtypes
import numpy as np

from eqsat.schema.types import OpKey

Attributes = Mapping[str, Any]
"""Attribute values by name, see ``AttrValue``; the schema says which kind each has."""
Function = Callable[..., Any]
_F = TypeVar("_F", bound=Function)

HALF_TYPES = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})


class Fallback(Exception):
    """Raised by a kernel for inputs that it leaves to ``onnx.reference``."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation.

    Attributes:
        run: The function; None says that this range of versions has no kernel of ours.
        since: First version of the operator that it implements.
        counts_outputs: Whether it takes a keyword ``outputs``, the number of outputs that somebody reads.
    """

    run: Function | None
    since: int
    counts_outputs: bool


KERNELS: dict[OpKey, list[Kernel]] = {}


def kernel(*names: str, domain: str = "", since: int = 1, counts_outputs: bool = False) -> Callable[[_F], _F]:
    """Register the decorated function for operators, from version ``since`` to the next registered one."""

    def register(function: _F) -> _F:
        for name in names:
            add(OpKey(domain, name), Kernel(function, since, counts_outputs))
        return function

    return register


def no_kernel(*names: str, since: int) -> None:
    """Leave versions from ``since`` to the next registered one to ``onnx.reference``."""
    for name in names:
        add(OpKey("", name), Kernel(None, since, False))


def add(op: OpKey, entry: Kernel) -> None:
    """Register one implementation, keeping versions in order."""
    entries = KERNELS.setdefault(op, [])
    if any(e.since == entry.since for e in entries):
        raise ValueError(f"{op} has two kernels since version {entry.since}")
    entries.append(entry)
    entries.sort(key=lambda e: e.since)


def find(op: OpKey, since_version: int) -> Kernel | None:
    """The kernel for an operator whose semantics date from ``since_version``, or None."""
    chosen = None
    for entry in KERNELS.get(op, ()):
        if entry.since <= since_version:
            chosen = entry
    return chosen if chosen is not None and chosen.run is not None else None


def at_least_single(x: np.ndarray) -> np.dtype[Any]:
    """What quantized operators compute with a scale in: float32, or its own type where that is wider."""
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


def _narrow(x: Any, dtype: np.dtype[Any]) -> Any:
    return x.astype(dtype) if x is not None and x.dtype == np.float32 else x
