"""Matrix products: through BLAS in floating point, and exactly through BLAS for integers.

A product of integers is exact in floating point as long as no partial sum leaves the mantissa, whatever the order
of summation. Integer operands are therefore multiplied in float32 or float64 pieces of bounded depth, which
BLAS does many times faster than numpy's integer loops.
"""

from __future__ import annotations

import numpy as np

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import counters as count
from eqsat.ops import equal_axes, normal
from eqsat.ops.checks import movement
from eqsat.ops.magnitude import ORDINARY
from eqsat.ops.need_by_shapes import need_determinant, need_einsum, need_product
from eqsat.ops.numpy_kernel import in_single
from eqsat.ops.quantization_role import Role, Weight
from eqsat.ops.registry import declare
from eqsat.ops.sampling import products as sample
from eqsat.ops.traits import FITS, LINEAR
from eqsat.schema.types import Attributes

_EXACT = {np.dtype(np.float32): 2.0**24, np.dtype(np.float64): 2.0**53}


@in_single
def matmul(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product with numpy's broadcasting."""
    return integer_product(a, b, a.dtype) if a.dtype.kind in "iu" else np.matmul(a, b)


@in_single
def gemm(attrs: Attributes, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """``alpha * A' B' + beta * C``."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"A and B must be matrices, not of rank {a.ndim} and {b.ndim}")
    y = matmul(attrs, a.T if attrs["transA"] else a, b.T if attrs["transB"] else b)
    alpha, beta = attrs["alpha"], attrs["beta"]
    if alpha != 1.0:
        y = (y * alpha).astype(a.dtype)
    if c is not None and beta != 0.0:
        y = y + c if beta == 1.0 else y + (c * beta).astype(a.dtype)
        if y.dtype != a.dtype:
            y = y.astype(a.dtype)
    return y


@in_single
def einsum(attrs: Attributes, *operands: np.ndarray) -> np.ndarray:
    """Einstein summation, pairwise and through matrix products where numpy finds a way."""
    equation = str(attrs["equation"]).replace(" ", "")
    return np.einsum(equation, *operands, optimize=len(operands) > 1)


def integer_product(a: np.ndarray, b: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Exact product of integer operands, wrapping around in ``dtype`` as integer arithmetic does.

    Args:
        a: Integers (..., M, K), or (K,).
        b: Integers (..., K, N), or (K,).
        dtype: Element type of the result.
    """
    largest = _magnitude(a) * _magnitude(b)
    depth = a.shape[-1]
    wide = np.dtype(np.float32 if largest * min(depth, 64) <= _EXACT[np.dtype(np.float32)] else np.float64)
    if largest > _EXACT[np.dtype(np.float64)] or not depth:
        return np.matmul(a.astype(dtype), b.astype(dtype))
    step = max(1, int(_EXACT[wide] // max(largest, 1.0)))
    a, b = a.astype(wide), b.astype(wide)
    if step >= depth:
        return to_integer(np.matmul(a, b), dtype)
    total: np.ndarray | None = None
    for start in range(0, depth, step):
        right = b[start : start + step] if b.ndim == 1 else b[..., start : start + step, :]
        part = to_integer(np.matmul(a[..., start : start + step], right), dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def to_integer(x: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Whole numbers in floating point as integers modulo the type's range."""
    return np.asarray(x).astype(np.int64).astype(dtype)


def _magnitude(x: np.ndarray) -> float:
    if not x.size:
        return 0.0
    return max(abs(float(x.min())), abs(float(x.max())))


def _columns(attrs: Attributes, rank: int) -> int | None:
    return rank - 1 if rank >= 2 else None


def _gemm_columns(attrs: Attributes, rank: int) -> int | None:
    return 0 if attrs.get("transB", 0) else 1


def _has_factors(attrs: Attributes) -> bool:
    return attrs.get("alpha", 1.0) != 1.0 or attrs.get("beta", 1.0) != 1.0


_GEMM_WEIGHT = Weight(1, _gemm_columns, bias=2, scales_bias=_has_factors)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("MatMul", numpy=matmul, traits=LINEAR | FITS, contracted=(0, 1), macs=count.product, need=need_product(1),
    sampling=sample.matmul, quantization=Role(data=(0, 1), weight=Weight(1, _columns)), bounds=bounds.product,
    together=equal_axes.product(), magnitude=ORDINARY)
declare("Gemm", traits=FITS, numpy=gemm, contracted=(0, 1), macs=count.product, need=need_product(1),
    checks=(movement.gemm,), sampling=sample.gemm, quantization=Role(data=(0, 1), weight=_GEMM_WEIGHT), bias=2,
    together=equal_axes.transposed_product, magnitude=ORDINARY)
declare("Einsum", numpy=einsum, macs=count.einsum, need=need_einsum, normal_form=(normal.summation,),
    sampling=sample.einsum, together=equal_axes.einsum, magnitude=ORDINARY)
declare("Det", macs=count.determinant, need=need_determinant)
