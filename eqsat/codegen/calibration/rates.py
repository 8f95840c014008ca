"""A host's own numbers from measured kernels: the rates that kernels of a single plain operator reach."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from eqsat.codegen.c_types import HALVES
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.kernel import View
from eqsat.codegen.predict import work
from eqsat.schema.dtypes import dtype_name

_BEST = 5
"""The rate is the median of this many fastest kernels: the very fastest may be an error of the clock."""
_STREAM = 8e6
"""Size in bytes from which an elementwise kernel is bound by memory."""
_PRODUCTS = (
    "direct convolution",
    "packed matrix product",
    "integer convolution",
    "integer matrix product",
    "matrix loops",
)
"""Families that compute every product that they count."""
_HALVES = frozenset(map(dtype_name, HALVES))
_NOTHING = 4096
"""Size in bytes up to which the time of a kernel is only the time to start it."""


def settings(measured: Sequence[tuple[KernelInfo, float]], names: Iterable[str]) -> dict[str, float]:
    """Values for a host's settings by name, for the settings that the kernels determine.

    Args:
        measured: Kernels and their seconds.
        names: ``"peak float32"``, ``"bandwidth"``, ``"launch"``.
    """
    found: dict[str, float | None] = {}
    for name in names:
        if name.startswith("peak "):
            found[name] = _peak(measured, name.removeprefix("peak "))
        elif name in _OTHERS:
            found[name] = _OTHERS[name](measured)
    return {name: value for name, value in found.items() if value is not None}


def _peak(measured: Sequence[tuple[KernelInfo, float]], dtype: str) -> float | None:
    """MAC/s of convolutions and matrix products of an element type, by the type that they are computed in."""
    rates = []
    for kernel, seconds in measured:
        first = next((x for x in kernel.task.inputs if isinstance(x, View)), None)
        if kernel.family in _PRODUCTS and first is not None and _computed(dtype_name(first.dtype)) == _computed(dtype):
            rates.append(work(kernel.task).macs / seconds)
    return _middle_of_best(rates)


def _computed(dtype: str) -> str:
    """The element type of a product's kernel: half precision is computed in float32, bytes without sign as with one."""
    if dtype == "uint8":
        return "int8"
    return "float32" if dtype in _HALVES else dtype


def _bandwidth(measured: Sequence[tuple[KernelInfo, float]]) -> float | None:
    """Bytes per second of elementwise kernels on data larger than the caches."""
    rates = []
    for kernel, seconds in measured:
        done = work(kernel.task)
        if kernel.family == "elementwise vectors" and done.bytes >= _STREAM and not (done.functions or done.scattered):
            rates.append(done.bytes / seconds)
    return statistics.median(rates) if rates else None


def _launch(measured: Sequence[tuple[KernelInfo, float]]) -> float | None:
    """Seconds of kernels with almost no work."""
    small = [seconds for kernel, seconds in measured if work(kernel.task).bytes <= _NOTHING]
    return statistics.median(small) if small else None


def _middle_of_best(rates: list[float]) -> float | None:
    best = sorted(rates, reverse=True)[:_BEST]
    return statistics.median(best) if best else None


_OTHERS: dict[str, Callable[[Sequence[tuple[KernelInfo, float]]], float | None]] = {
    "bandwidth": _bandwidth,
    "launch": _launch,
}
