"""Profiles a model: the seconds of each kernel, measured inside the generated program."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.runtime import CModel

PROFILE = ("-DMODEL_PROFILE",)
"""Flags of the compiler with which a model measures its kernels."""
_LEAST = 1e-9


def profile(
    model: ir.Model, inputs: Mapping[str, Any], *, dims: Mapping[str, int] | None = None, repeat: int = 10
) -> list[tuple[KernelInfo, float]]:
    """Runs a model as C and measures the CPU time of its kernels.

    Args:
        model: As loaded.
        inputs: Arrays by input name.
        dims: Sizes of symbolic dimensions.
        repeat: Number of measured runs, after one that is not measured.

    Returns:
        Each call of a kernel in order, and its median time in seconds, at least 1 ns.
    """
    return measure(CModel(model, dims=dims, flags=PROFILE, profile=True), inputs, repeat=repeat)


def measure(compiled: CModel, inputs: Mapping[str, Any], *, repeat: int = 10) -> list[tuple[KernelInfo, float]]:
    """The same for a model that was compiled with ``flags=PROFILE, profile=True``."""
    compiled.run(inputs)
    marks = [compiled.seconds()]
    for _ in range(repeat):
        compiled.run(inputs)
        marks.append(compiled.seconds())
    runs = [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(marks)]
    medians = [max(statistics.median(samples), _LEAST) for samples in zip(*runs, strict=True)]
    return list(zip(compiled.emitted.kernels, medians, strict=True))
