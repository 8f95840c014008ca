"""Definitions of elementwise operators of ONNX's standard by fewer operators, over the reals.

Proofs take operators apart by these definitions. They are written from the standard and share nothing with the kernels
that execute the operators. For an operator without a definition, a proof may only use that equal operands give equal
results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction

RealNumber = float | Fraction


class RealElement(ABC):
    """An element of a tensor, with which one can compute."""

    @abstractmethod
    def apply(self, name: str, *others: RealElement | RealNumber) -> RealElement:
        """An operator of ONNX on this element and others."""

    @abstractmethod
    def constant(self, value: RealNumber) -> RealElement:
        """A number as an element."""

    def choose(self, yes: RealElement | RealNumber, no: RealElement | RealNumber) -> RealElement:
        """One of two elements, where this one is a condition."""
        return self.apply("Where", yes, no)

    def __add__(self, other: RealElement | RealNumber) -> RealElement:
        return self.apply("Add", other)

    def __radd__(self, other: RealNumber) -> RealElement:
        return self.constant(other).apply("Add", self)

    def __sub__(self, other: RealElement | RealNumber) -> RealElement:
        return self.apply("Sub", other)

    def __mul__(self, other: RealElement | RealNumber) -> RealElement:
        return self.apply("Mul", other)

    def __rmul__(self, other: RealNumber) -> RealElement:
        return self.constant(other).apply("Mul", self)

    def __truediv__(self, other: RealElement | RealNumber) -> RealElement:
        return self.apply("Div", other)

    def __rtruediv__(self, other: RealNumber) -> RealElement:
        return self.constant(other).apply("Div", self)

    def __neg__(self) -> RealElement:
        return self.apply("Neg")

    def __lt__(self, other: RealElement | RealNumber) -> RealElement:
        return self.apply("Less", other)

    def __gt__(self, other: RealElement | RealNumber) -> RealElement:
        return (other if isinstance(other, RealElement) else self.constant(other)).apply("Less", self)


ReadAttribute = Callable[[str, float], RealElement | None]
"""An attribute by its name and default; None if it is not a number."""
RealDefinition = Callable[[Sequence[RealElement | None], ReadAttribute], RealElement | None]
"""An element of the result from one element of each operand (None if absent); None if attributes are insufficient."""


def of_one(compute: Callable[[RealElement], RealElement]) -> RealDefinition:
    """A definition for one operand without attributes."""

    def define(operands: Sequence[RealElement | None], attributes: ReadAttribute) -> RealElement | None:
        (x,) = operands
        return None if x is None else compute(x)

    return define


def of_one_by(compute: Callable[..., RealElement], /, **defaults: float) -> RealDefinition:
    """A definition for one operand and attributes that are numbers."""

    def define(operands: Sequence[RealElement | None], attributes: ReadAttribute) -> RealElement | None:
        (x,) = operands
        values = {name: attributes(name, default) for name, default in defaults.items()}
        return None if x is None or None in values.values() else compute(x, **values)

    return define


def of_two(compute: Callable[[RealElement, RealElement], RealElement]) -> RealDefinition:
    """A definition for two operands."""

    def define(operands: Sequence[RealElement | None], attributes: ReadAttribute) -> RealElement | None:
        a, b = operands
        return None if a is None or b is None else compute(a, b)

    return define


def _tanh(x: RealElement) -> RealElement:
    square = (2 * x).apply("Exp")
    return (square - 1) / (square + 1)


def _between(inner: RealElement) -> RealElement:
    """Limited to 0 and 1."""
    return inner.apply("Min", 1).apply("Max", 0)


def _sign(x: RealElement) -> RealElement:
    return (x > 0).choose(1, (x < 0).choose(-1, 0))


def clip(operands: Sequence[RealElement | None], attributes: ReadAttribute) -> RealElement | None:
    """Clips to limits, each of which may be absent."""
    x, low, high = operands
    if x is not None and low is not None:
        x = x.apply("Max", low)
    if x is not None and high is not None:
        x = x.apply("Min", high)
    return x


def mean(operands: Sequence[RealElement | None], attributes: ReadAttribute) -> RealElement | None:
    """The sum by the number of operands."""
    first, *others = (x for x in operands if x is not None)
    total = first
    for x in others:
        total = total + x
    return total / len(operands)


# One operand.
absolute = of_one(lambda x: x.apply("Max", -x))
hard_swish = of_one(lambda x: x * _between(x / 6 + Fraction(1, 2)))
mish = of_one(lambda x: x * x.apply("Softplus").apply("Tanh"))
reciprocal = of_one(lambda x: 1 / x)
relu = of_one(lambda x: x.apply("Max", 0))
sigmoid = of_one(lambda x: 1 / (1 + (-x).apply("Exp")))
sign = of_one(_sign)
softplus = of_one(lambda x: (1 + x.apply("Exp")).apply("Log"))
softsign = of_one(lambda x: x / (1 + x.apply("Abs")))
tanh = of_one(_tanh)

# One operand and attributes.
elu = of_one_by(lambda x, alpha: (x < 0).choose(alpha * (x.apply("Exp") - 1), x), alpha=1.0)
hard_sigmoid = of_one_by(lambda x, alpha, beta: _between(alpha * x + beta), alpha=0.2, beta=0.5)
leaky_relu = of_one_by(lambda x, alpha: (x < 0).choose(alpha * x, x), alpha=0.01)
swish = of_one_by(lambda x, alpha: x * (alpha * x).apply("Sigmoid"), alpha=1.0)
thresholded_relu = of_one_by(lambda x, alpha: (alpha < x).choose(x, 0), alpha=1.0)

# Two operands.
greater = of_two(lambda a, b: b < a)
greater_or_equal = of_two(lambda a, b: b.apply("LessOrEqual", a))
prelu = of_two(lambda x, slope: (x < 0).choose(slope * x, x))
