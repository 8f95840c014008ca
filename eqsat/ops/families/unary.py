"""Elementwise mathematics of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import over_reals as reals
from eqsat.ops import scales
from eqsat.ops.magnitude import OF_FIRST, ORDINARY
from eqsat.ops.numpy_kernel import NumpyFunction, in_blocks, in_single
from eqsat.ops.quantization_role import DATA
from eqsat.ops.registry import declare
from eqsat.ops.sampling import elementwise as sample
from eqsat.ops.traits import (
    BENDS,
    ELEMENTARY,
    EXACT,
    FINDS_ENDLESS,
    FIXED,
    KEEPS_FROM_ZERO,
    POLES,
    POSITIVE,
    SELECTS,
    SIZES,
    UNARY,
)
from eqsat.schema.types import Attributes


def of_one(function: Callable[[np.ndarray], np.ndarray]) -> NumpyFunction:
    """A kernel that is a numpy function of the elements of one operand."""

    @in_blocks
    @in_single
    def run(attrs: Attributes, x: np.ndarray) -> np.ndarray:
        return function(x)

    return run


def is_inf(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Whether an element is infinite, of the signs asked for."""
    result = np.isinf(x.astype(np.float32) if x.dtype.kind == "V" else x)
    if not attrs["detect_negative"]:
        result &= x > 0
    if not attrs["detect_positive"]:
        result &= x < 0
    return result


# Rational approximation of erf on [-4, 4] by odd / even polynomials, as used by Eigen and XLA for float32;
# the error stays below 4 units in the last place.
_ERF_ODD = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_EVEN = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
_exact_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function: exact for float64 and integers, a rational approximation for float32."""
    if x.dtype != np.float32:
        return np.asarray(_exact_erf(x.astype(np.float64))).astype(x.dtype)
    x = np.clip(x, -4, 4)
    square = x * x
    odd = np.full_like(x, _ERF_ODD[0])
    for c in _ERF_ODD[1:]:
        odd *= square
        odd += np.float32(c)
    even = np.full_like(x, _ERF_EVEN[0])
    for c in _ERF_EVEN[1:]:
        even *= square
        even += np.float32(c)
    odd *= x
    odd /= even
    return np.clip(odd, -1, 1, out=odd)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Not", numpy=of_one(np.logical_not), traits=UNARY | SIZES | FIXED, bounds=bounds.truths)
declare("BitwiseNot", numpy=of_one(np.bitwise_not), traits=UNARY | FIXED)
declare("IsInf", numpy=is_inf, traits=UNARY | SELECTS | FINDS_ENDLESS | FIXED, sampling=sample.infinite)
declare("Erf", numpy=of_one(erf), traits=UNARY | ELEMENTARY, quantization=DATA, magnitude=ORDINARY)
declare("Abs", numpy=of_one(np.abs), traits=UNARY | BENDS | SIZES | FIXED | EXACT, quantization=DATA,
    scale=scales.of_operand, bounds=bounds.same, over_reals=reals.absolute, magnitude=OF_FIRST)
declare("Acos", numpy=of_one(np.arccos), traits=UNARY | ELEMENTARY | POLES, sampling=sample.unit, quantization=DATA)
declare("Acosh", numpy=of_one(np.arccosh), traits=UNARY | ELEMENTARY | POLES, sampling=sample.positive,
    inverse=math.cosh)
declare("Asin", numpy=of_one(np.arcsin), traits=UNARY | ELEMENTARY | POLES, sampling=sample.unit, quantization=DATA)
declare("Asinh", numpy=of_one(np.arcsinh), traits=UNARY | ELEMENTARY, quantization=DATA, inverse=math.sinh)
declare("Atan", numpy=of_one(np.arctan), traits=UNARY | ELEMENTARY, quantization=DATA, inverse=math.tan)
declare("Atanh", numpy=of_one(np.arctanh), traits=UNARY | ELEMENTARY | POLES, sampling=sample.unit, inverse=math.tanh)
declare("Ceil", numpy=of_one(np.ceil), traits=UNARY | BENDS | SIZES | FIXED | EXACT)
declare("Cos", numpy=of_one(np.cos), traits=UNARY | ELEMENTARY, quantization=DATA, magnitude=ORDINARY)
declare("Cosh", numpy=of_one(np.cosh), traits=UNARY | ELEMENTARY, quantization=DATA, inverse=math.acosh)
declare("Exp", numpy=of_one(np.exp), traits=UNARY | ELEMENTARY | POSITIVE, quantization=DATA, inverse=math.log)
declare("Floor", numpy=of_one(np.floor), traits=UNARY | BENDS | SIZES | FIXED | EXACT)
declare("IsNaN", numpy=of_one(np.isnan), traits=UNARY | SELECTS | FINDS_ENDLESS | FIXED)
declare("Log", numpy=of_one(np.log), traits=UNARY | ELEMENTARY | POLES, sampling=sample.positive, inverse=math.exp)
declare("Neg", numpy=of_one(np.negative), traits=UNARY | SIZES | FIXED | EXACT, quantization=DATA,
    scale=scales.of_operand, bounds=bounds.same, magnitude=OF_FIRST)
declare("Reciprocal", numpy=of_one(np.reciprocal), traits=UNARY | POLES | KEEPS_FROM_ZERO, sampling=sample.reciprocal,
    scale=scales.of_reciprocal, bounds=bounds.inverted, over_reals=reals.reciprocal, inverse=lambda y: 1 / y)
declare("Round", numpy=of_one(np.rint), traits=UNARY | BENDS | SIZES | FIXED | EXACT, bends_at=(0.5, 1.5, 2.5))
declare("Sign", numpy=of_one(np.sign), traits=UNARY | BENDS | SIZES | FIXED | EXACT, over_reals=reals.sign)
declare("Sin", numpy=of_one(np.sin), traits=UNARY | ELEMENTARY, quantization=DATA, magnitude=ORDINARY)
declare("Sinh", numpy=of_one(np.sinh), traits=UNARY | ELEMENTARY, quantization=DATA, inverse=math.asinh)
declare("Sqrt", numpy=of_one(np.sqrt), traits=UNARY | POLES | SIZES | FIXED,
    sampling=sample.positive, quantization=DATA, scale=scales.of_root, bounds=bounds.root, inverse=lambda y: y * y)
declare("Tan", numpy=of_one(np.tan), traits=UNARY | ELEMENTARY | POLES)
declare("Tanh", numpy=of_one(np.tanh), traits=UNARY | ELEMENTARY, quantization=DATA, over_reals=reals.tanh,
    magnitude=ORDINARY, inverse=math.atanh)
