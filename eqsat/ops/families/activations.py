"""Activation functions. Exponentials are only taken where they cannot overflow, or where infinity is harmless."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.ops import over_reals as reals
from eqsat.ops.checks import attributes, movement
from eqsat.ops.families.unary import erf, of_one
from eqsat.ops.magnitude import OF_FIRST, ORDINARY
from eqsat.ops.need_by_shapes import need_broadcasting
from eqsat.ops.numpy_kernel import in_blocks, in_single
from eqsat.ops.quantization_role import COMPUTES, DATA, Role
from eqsat.ops.registry import declare
from eqsat.ops.sampling import elementwise as sample
from eqsat.ops.traits import (
    BENDS,
    ELEMENTARY,
    ELEMENTWISE,
    FIXED,
    KEEPS_FROM_ZERO,
    OWN_ATTRIBUTES,
    POSITIVE,
    ROUNDS,
    SELECTS,
    UNARY,
)
from eqsat.schema.types import Attributes


def relu(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``max(x, 0)``."""
    return np.maximum(x, x.dtype.type(0))


@in_blocks
@in_single
def leaky_relu(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x`` where positive, else ``alpha x``."""
    return np.where(x < 0, x * x.dtype.type(attrs["alpha"]), x)


def prelu(attrs: Attributes, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """``x`` where positive, else ``slope x``."""
    return np.where(x < 0, x * slope, x)


def prelu_by_channel(attrs: Attributes, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Before version 7 a slope of more than one element is one per channel."""
    return prelu(attrs, x, slope.reshape(-1, *(1,) * max(x.ndim - 2, 0)) if slope.size > 1 else slope)


@in_blocks
@in_single
def elu(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x`` where positive, else ``alpha (exp(x) - 1)``."""
    return np.where(x < 0, x.dtype.type(attrs["alpha"]) * np.expm1(np.minimum(x, 0)), x)


@in_blocks
@in_single
def celu(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x`` where positive, else ``alpha (exp(x / alpha) - 1)``."""
    alpha = x.dtype.type(attrs["alpha"])
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x)


@in_blocks
@in_single
def selu(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The self-normalising ELU (Klambauer et al., 2017)."""
    alpha, gamma = x.dtype.type(attrs["alpha"]), x.dtype.type(attrs["gamma"])
    return gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))``."""
    y = np.exp(-x)
    y += x.dtype.type(1)
    return np.reciprocal(y)


@in_blocks
@in_single
def hard_sigmoid(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``alpha x + beta``, between 0 and 1."""
    return np.clip(x * x.dtype.type(attrs["alpha"]) + x.dtype.type(attrs["beta"]), 0, 1)


@in_blocks
@in_single
def hard_swish(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x`` times the hard sigmoid ``x / 6 + 1 / 2``, whose sixth is an attribute and therefore a float32."""
    return x * np.clip(x * x.dtype.type(np.float32(1 / 6)) + x.dtype.type(0.5), 0, 1)


@in_blocks
@in_single
def swish(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x`` times the sigmoid of ``alpha x``."""
    return x * sigmoid(x * x.dtype.type(attrs["alpha"]))


@in_blocks
@in_single
def softplus(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``log(1 + exp(x))``."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@in_blocks
@in_single
def mish(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x tanh(softplus(x))``."""
    return x * np.tanh(softplus(attrs, x))


@in_blocks
@in_single
def softsign(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x / (1 + |x|)``."""
    return x / (1 + np.abs(x))


@in_blocks
@in_single
def thresholded_relu(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """``x`` where above alpha, else 0."""
    return np.where(x > x.dtype.type(attrs["alpha"]), x, x.dtype.type(0))


@in_blocks
@in_single
def shrink(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Moves ``x`` towards zero by the bias, to zero within lambda."""
    bias, limit = attrs["bias"], attrs["lambd"]
    return np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0)).astype(x.dtype)


def gelu(x: np.ndarray) -> np.ndarray:
    """``x Phi(x)`` with the exact normal distribution function."""
    return x.dtype.type(0.5) * x * (1 + erf(x * x.dtype.type(math.sqrt(0.5))))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The approximation of GELU by tanh (Hendrycks and Gimpel, 2016).

    One more than tanh(u) is twice the sigmoid of 2 u, in which nothing cancels.
    """
    inner = x.dtype.type(2 * math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    return x * sigmoid(inner)


@in_blocks
@in_single
def gelu_kernel(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """GELU, exact or approximated by tanh."""
    return gelu_tanh(x) if attrs["approximate"] == "tanh" else gelu(x)


@dataclass(frozen=True, slots=True)
class Ending:
    """An activation at the end of a fused convolution or product.

    Attributes:
        compute: The activation of an array, with its parameters.
        drawn: Parameters with which rules are checked.
    """

    compute: Callable[[np.ndarray, Sequence[float]], np.ndarray]
    drawn: tuple[float, ...] = ()


ENDINGS: Mapping[str, Ending] = {
    "Relu": Ending(lambda y, p: relu({}, y)),
    "Tanh": Ending(lambda y, p: np.tanh(y)),
    "Sigmoid": Ending(lambda y, p: sigmoid(y)),
    "LeakyRelu": Ending(lambda y, p: leaky_relu({"alpha": p[0]}, y), (0.25,)),
    "Clip": Ending(lambda y, p: np.clip(y, y.dtype.type(p[0]), y.dtype.type(p[1])), (-1.0, 2.0)),
    "HardSigmoid": Ending(lambda y, p: hard_sigmoid({"alpha": p[0], "beta": p[1]}, y), (0.25, 0.5)),
}
"""The activations that ONNX Runtime's fused convolutions and products know, by name."""


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Relu", numpy=relu, traits=UNARY | SELECTS | BENDS | FIXED,
    quantization=Role(data=(0,), limits=True, keeps=True), over_reals=reals.relu, magnitude=OF_FIRST)
declare("LeakyRelu", numpy=leaky_relu, traits=UNARY | SELECTS | ROUNDS | BENDS | OWN_ATTRIBUTES,
    sampling=sample.activation, quantization=DATA, over_reals=reals.leaky_relu)
declare("PRelu", numpy={7: prelu, 1: prelu_by_channel}, traits=ELEMENTWISE | SELECTS | ROUNDS | BENDS,
    need=need_broadcasting, checks=(movement.prelu,), sampling=sample.binary, quantization=COMPUTES,
    over_reals=reals.prelu)
declare("Elu", numpy=elu, traits=UNARY | BENDS | ELEMENTARY | OWN_ATTRIBUTES | KEEPS_FROM_ZERO,
    sampling=sample.activation, quantization=DATA, over_reals=reals.elu, inverse=math.log1p)
declare("Celu", numpy=celu, traits=UNARY | BENDS | ELEMENTARY | KEEPS_FROM_ZERO, sampling=sample.activation,
    quantization=DATA)
declare("Selu", numpy=selu, traits=UNARY | BENDS | ELEMENTARY | KEEPS_FROM_ZERO, sampling=sample.activation,
    quantization=DATA)
declare("Sigmoid", numpy=of_one(sigmoid), traits=UNARY | ELEMENTARY | POSITIVE, quantization=DATA,
    over_reals=reals.sigmoid, magnitude=ORDINARY, inverse=lambda y: math.log(y / (1 - y)))
declare("HardSigmoid", numpy=hard_sigmoid, traits=UNARY | BENDS | OWN_ATTRIBUTES, sampling=sample.activation,
    quantization=DATA, bends_at=(-3.0, 3.0, -2.5, 2.5), over_reals=reals.hard_sigmoid, magnitude=ORDINARY)
declare("HardSwish", numpy=hard_swish, traits=UNARY | BENDS, quantization=DATA, bends_at=(-3.0, 3.0),
    over_reals=reals.hard_swish)
declare("Swish", numpy=swish, traits=UNARY | ELEMENTARY | OWN_ATTRIBUTES | KEEPS_FROM_ZERO, sampling=sample.activation,
    quantization=DATA, over_reals=reals.swish)
declare("Softplus", numpy=softplus, traits=UNARY | ELEMENTARY | POSITIVE, quantization=DATA, over_reals=reals.softplus,
    inverse=lambda y: math.log(math.expm1(y)))
declare("Mish", numpy=mish, traits=UNARY | ELEMENTARY | KEEPS_FROM_ZERO, quantization=DATA, over_reals=reals.mish)
declare("Softsign", numpy=softsign, traits=UNARY, quantization=DATA, over_reals=reals.softsign, magnitude=ORDINARY,
    inverse=lambda y: y / (1 - abs(y)))
declare("ThresholdedRelu", numpy=thresholded_relu, traits=UNARY | BENDS | OWN_ATTRIBUTES, sampling=sample.activation,
    quantization=DATA, over_reals=reals.thresholded_relu)
declare("Shrink", numpy=shrink, traits=UNARY | BENDS)
declare("Gelu", numpy={20: gelu_kernel}, traits=UNARY | ELEMENTARY | KEEPS_FROM_ZERO,
    checks=(attributes.words(approximate=("none", "tanh")),), sampling=sample.activation, quantization=DATA,
    bends_at=(3.0,))
