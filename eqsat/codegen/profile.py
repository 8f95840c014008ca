"""Where the time of a model goes: the seconds of each kernel, measured inside the generated program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.runtime import CModel


def profile(
    model: ir.Model, inputs: Mapping[str, Any], *, dims: Mapping[str, int] | None = None, repeat: int = 10
) -> list[tuple[KernelInfo, float]]:
    """Runs a model as C and adds up the CPU time of its kernels.

    Args:
        model: As loaded.
        inputs: Arrays by input name.
        dims: Sizes of symbolic dimensions.
        repeat: Runs that are measured, behind one that is not.

    Returns:
        Each call of a kernel in order, and its mean time in seconds.
    """
    compiled = CModel(model, dims=dims, flags=("-DMODEL_PROFILE",), profile=True)
    compiled.run(inputs)
    before = compiled.seconds()
    for _ in range(repeat):
        compiled.run(inputs)
    after = compiled.seconds()
    return [(k, (b - a) / repeat) for k, a, b in zip(compiled.emitted.kernels, before, after, strict=True)]
