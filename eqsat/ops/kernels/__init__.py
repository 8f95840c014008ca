"""Numpy kernels, one operator family a file; importing this package registers all of them."""

from __future__ import annotations

from eqsat.ops.kernels import (
    activations,
    binary,
    casting,
    convolution,
    dropping,
    fused,
    gathering,
    integer,
    matmul,
    normalization,
    pooling,
    qlinear,
    quantization,
    recurrent,
    reductions,
    resize,
    sequences,
    shaping,
    slicing,
    strings,
    unary,
)
from eqsat.ops.kernels.registry import KERNELS, find

__all__ = [
    "KERNELS",
    "activations",
    "binary",
    "casting",
    "convolution",
    "dropping",
    "find",
    "fused",
    "gathering",
    "integer",
    "matmul",
    "normalization",
    "pooling",
    "qlinear",
    "quantization",
    "recurrent",
    "reductions",
    "resize",
    "sequences",
    "shaping",
    "slicing",
    "strings",
    "unary",
]
