"""A cost expression of many kernels at once, as a function of the numbers that are to be fitted.

The parts that do not depend on these numbers are evaluated once for each kernel, by the rule language's own evaluation;
the rest is arithmetic on arrays. A thousand trials then cost no more than a few would one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from eqsat.rules import ast
from eqsat.rules.evaluation import evaluate
from eqsat.targets.numbers import places, substituted

_ARITHMETIC = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide, "%": np.mod, "**": np.power,
}  # fmt: skip
_FUNCTIONS = {"sqrt": np.sqrt, "exp": np.exp, "log": np.log, "log2": np.log2, "abs": np.abs, "ceil": np.ceil}
_COMPARISONS = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


class CostSample(Protocol):
    """A kernel and the values over which its cost is evaluated."""

    @property
    def env(self) -> Mapping[str, Any]:
        """Names of the expression and their values."""
        ...


class Residual:
    """A cost expression over some kernels.

    Args:
        cost: The expression.
        kernels: The values of each kernel over which it is evaluated.
        free: Positions of the numbers that will vary.
    """

    def __init__(self, cost: ast.Expr, kernels: Sequence[CostSample], free: frozenset[ast.Place]) -> None:
        self._cost = cost
        self._kernels = kernels
        self._free = free
        self._known: dict[int, np.ndarray] = {}

    def seconds(self, values: Mapping[ast.Place, float]) -> np.ndarray:
        """The cost of each kernel."""
        with np.errstate(all="ignore"):
            found = self._value(self._cost, values)
        return np.broadcast_to(np.asarray(found, float), len(self._kernels))

    def _value(self, expr: ast.Expr, values: Mapping[ast.Place, float]) -> Any:
        if not places(expr) & self._free:
            return self._fixed(expr)
        match expr:
            case ast.Number() | ast.String() | ast.Truth():
                return values[expr.place]
            case ast.Binary() if expr.op in _ARITHMETIC:
                return _ARITHMETIC[expr.op](self._value(expr.left, values), self._value(expr.right, values))
            case ast.Unary(op="-"):
                return -self._value(expr.operand, values)
            case ast.Conditional():
                condition = self._value(expr.condition, values)
                return np.where(condition, self._value(expr.then, values), self._value(expr.otherwise, values))
            case ast.Compare(rest=((op, right),)) if op in _COMPARISONS:
                return _COMPARISONS[op](self._value(expr.first, values), self._value(right, values))
            case ast.Apply(function="min" | "max") if len(expr.args) > 1:
                extreme = np.minimum if expr.function == "min" else np.maximum
                found = self._value(expr.args[0], values)
                for arg in expr.args[1:]:
                    found = extreme(found, self._value(arg, values))
                return found
            case ast.Apply() if expr.function in _FUNCTIONS and len(expr.args) == 1:
                return _FUNCTIONS[expr.function](self._value(expr.args[0], values))
            case _:
                whole = substituted(expr, values)
                return np.array([evaluate(whole, kernel.env) for kernel in self._kernels])

    def _fixed(self, expr: ast.Expr) -> np.ndarray:
        if id(expr) not in self._known:  # the expression lives as long as this object
            self._known[id(expr)] = np.array([evaluate(expr, kernel.env) for kernel in self._kernels])
        return self._known[id(expr)]
