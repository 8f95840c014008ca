"""What elementwise operators compute, in terms of fewer operators: those of ONNX's standard, over the reals.

An operator that is missing here is not taken apart: a proof may only use that equal operands give equal results.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from eqsat.proofs.terms import Term, apply, number


def expanded(term: Term) -> Term | None:
    """The definition of a term's operator for its operands, None if it is basic or unknown."""
    define = _DEFINITIONS.get(term.op)
    return None if define is None else define(term)


def attribute(term: Term, name: str, default: float | None = None) -> Term | None:
    """An attribute as a term, None if it is not a number."""
    found = dict(term.data).get(name, default) if isinstance(term.data, tuple) else default
    if isinstance(found, Term):
        return found
    return number(found) if isinstance(found, int | float | Fraction) and not isinstance(found, bool) else None


def add(*terms: Term) -> Term:
    total = terms[0]
    for term in terms[1:]:
        total = apply("Add", (total, term))
    return total


def times(a: Term, b: Term) -> Term:
    return apply("Mul", (a, b))


def minus(a: Term, b: Term) -> Term:
    return apply("Sub", (a, b))


def over(a: Term, b: Term) -> Term:
    return apply("Div", (a, b))


def _select(condition: Term, yes: Term, no: Term) -> Term:
    return apply("Where", (condition, yes, no))


def _sigmoid(t: Term) -> Term:
    one = number(1)
    return over(one, add(one, apply("Exp", (apply("Neg", t.args),))))


def _tanh(t: Term) -> Term:
    one = number(1)
    square = apply("Exp", (times(number(2), t.args[0]),))
    return over(minus(square, one), add(square, one))


def _relu(t: Term) -> Term:
    return apply("Max", (t.args[0], number(0)))


def _abs(t: Term) -> Term:
    return apply("Max", (t.args[0], apply("Neg", t.args)))


def _clip(t: Term) -> Term:
    x = t.args[0]
    present = dict(t.data).get("present", (True, True)) if isinstance(t.data, tuple) else (True, True)
    rest = list(t.args[1:])
    if isinstance(present, tuple) and present[0] and rest:
        x = apply("Max", (x, rest.pop(0)))
    if isinstance(present, tuple) and present[1] and rest:
        x = apply("Min", (x, rest.pop(0)))
    return x


def _leaky(t: Term) -> Term | None:
    alpha = attribute(t, "alpha", 0.01)
    if alpha is None:
        return None
    return _select(apply("Less", (t.args[0], number(0))), times(alpha, t.args[0]), t.args[0])


def _prelu(t: Term) -> Term:
    return _select(apply("Less", (t.args[0], number(0))), times(t.args[1], t.args[0]), t.args[0])


def _hard_sigmoid(t: Term) -> Term | None:
    alpha, beta = attribute(t, "alpha", 0.2), attribute(t, "beta", 0.5)
    if alpha is None or beta is None:
        return None
    inner = add(times(alpha, t.args[0]), beta)
    return apply("Max", (number(0), apply("Min", (number(1), inner))))


def _hard_swish(t: Term) -> Term:
    inner = add(over(t.args[0], number(6)), number(Fraction(1, 2)))
    return times(t.args[0], apply("Max", (number(0), apply("Min", (number(1), inner)))))


def _swish(t: Term) -> Term | None:
    alpha = attribute(t, "alpha", 1.0)
    return None if alpha is None else times(t.args[0], apply("Sigmoid", (times(alpha, t.args[0]),)))


def _softplus(t: Term) -> Term:
    return apply("Log", (add(number(1), apply("Exp", t.args)),))


def _mish(t: Term) -> Term:
    return times(t.args[0], apply("Tanh", (apply("Softplus", t.args),)))


def _softsign(t: Term) -> Term:
    return over(t.args[0], add(number(1), apply("Abs", t.args)))


def _reciprocal(t: Term) -> Term:
    return over(number(1), t.args[0])


def _mean(t: Term) -> Term:
    return over(add(*t.args), number(len(t.args)))


def _thresholded(t: Term) -> Term | None:
    alpha = attribute(t, "alpha", 1.0)
    if alpha is None:
        return None
    return _select(apply("Less", (alpha, t.args[0])), t.args[0], number(0))


def _elu(t: Term) -> Term | None:
    alpha = attribute(t, "alpha", 1.0)
    if alpha is None:
        return None
    low = times(alpha, minus(apply("Exp", t.args), number(1)))
    return _select(apply("Less", (t.args[0], number(0))), low, t.args[0])


def _sign(t: Term) -> Term:
    zero, x = number(0), t.args[0]
    negative = _select(apply("Less", (x, zero)), number(-1), zero)
    return _select(apply("Less", (zero, x)), number(1), negative)


def _greater(t: Term) -> Term:
    return apply("Less", (t.args[1], t.args[0]))


def _greater_or_equal(t: Term) -> Term:
    return apply("LessOrEqual", (t.args[1], t.args[0]))


_DEFINITIONS: dict[str, Callable[[Term], Term | None]] = {
    "Sigmoid": _sigmoid,
    "Tanh": _tanh,
    "Relu": _relu,
    "Abs": _abs,
    "Clip": _clip,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Swish": _swish,
    "Softplus": _softplus,
    "Mish": _mish,
    "Softsign": _softsign,
    "Reciprocal": _reciprocal,
    "Mean": _mean,
    "ThresholdedRelu": _thresholded,
    "Elu": _elu,
    "Sign": _sign,
    "Greater": _greater,
    "GreaterOrEqual": _greater_or_equal,
}
