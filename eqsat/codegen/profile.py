"""Profiles a model: the seconds of each kernel, measured inside the generated program."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from eqsat.codegen.emitted import Emitted, KernelInfo
from eqsat.codegen.runtime import CModel
from eqsat.schema.size_questions import as_dim
from eqsat.text import shown

_LEAST = 1e-9
_WIDEST = 60
"""Letters of a column of names, at most."""


@dataclass(frozen=True)
class KernelTime:
    """A kernel of a profile.

    Attributes:
        name: Name of the node that it computes, the first of several.
        operators: The operators that it computes, such as ``"Conv + Add + Relu"``.
        family: The kind of kernel, such as ``"direct convolution"``.
        shape: Shape of its first result; free sizes are symbols.
        microseconds: Time of all its calls in a run, the median of the runs.
        share: Its part of the time of all kernels, from 0 to 1.
        result: Name of the first tensor that it writes.
    """

    name: str
    operators: str
    family: str
    shape: tuple[int | str, ...]
    microseconds: float
    share: float
    result: str = ""


@dataclass(frozen=True)
class Profile:
    """Where the time of a compiled model goes. As text it is a table, the slowest kernels first.

    Attributes:
        model: Its name.
        kernels: In order of execution, those in bodies of control flow included.
        emitted: The program that was measured.
    """

    model: str
    kernels: tuple[KernelTime, ...]
    emitted: Emitted | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, model: str, measured: Sequence[tuple[KernelInfo, float]], emitted: Emitted | None = None) -> Profile:
        """From the seconds of each kernel."""
        total = sum(seconds for _, seconds in measured)
        rows = (
            KernelTime(k.name, k.what, k.family, tuple(map(as_dim, k.shape)), seconds * 1e6, seconds / total, k.result)
            for k, seconds in measured
        )
        return cls(model, tuple(rows), emitted)

    @property
    def microseconds(self) -> float:
        """Microseconds of all kernels together."""
        return sum(kernel.microseconds for kernel in self.kernels)

    def by_time(self) -> list[KernelTime]:
        """The slowest kernels first."""
        return sorted(self.kernels, key=lambda kernel: -kernel.microseconds)

    def __str__(self) -> str:
        rows = [
            (f"{k.microseconds:,.1f}", f"{k.share:.1%}", k.operators, k.family, "×".join(map(str, k.shape)), k.name)
            for k in self.by_time()
        ]
        rows.append((f"{self.microseconds:,.1f}", "100.0%" if rows else "", "all kernels", "", "", ""))
        rows = [("µs", "share", "operators", "kernel", "shape", "node"), *(tuple(map(_short, row)) for row in rows)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = (
            "  ".join(c.rjust(w) if i < 2 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)


def profile(
    model: ir.Model, inputs: Mapping[str, Any], *, dims: Mapping[str, int] | None = None, repeat: int = 10
) -> list[tuple[KernelInfo, float]]:
    """Runs a model as C and measures the time of its kernels.

    Args:
        model: As loaded.
        inputs: Arrays by input name.
        dims: Sizes of symbolic dimensions.
        repeat: Number of measured runs, after one that is not measured.

    Returns:
        Each call of a kernel in order, and its median time in seconds, at least 1 ns.
    """
    return measure(CModel(model, dims=dims, profile=True), inputs, repeat=repeat)


def measure(compiled: CModel, inputs: Mapping[str, Any], *, repeat: int = 10) -> list[tuple[KernelInfo, float]]:
    """The profile of a model that was compiled with ``profile=True``."""
    compiled.run(inputs)
    marks = [compiled.seconds()]
    for _ in range(repeat):
        compiled.run(inputs)
        marks.append(compiled.seconds())
    runs = [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(marks)]
    medians = [max(statistics.median(samples), _LEAST) for samples in zip(*runs, strict=True)]
    return list(zip(compiled.emitted.kernels, medians, strict=True))


def _short(text: str) -> str:
    text = shown(text)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
