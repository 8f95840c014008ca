"""Fits the numbers of a host's file, so that its cost expressions come closest to the measured times of kernels.

The fit does not know the meaning of a number: it moves each number up and down as long as the predictions improve.
Errors are those of logarithms, so that a factor of two counts alike for a large kernel and a small one. Large errors
count linearly, so that a few odd kernels do not decide (Huber, "Robust estimation of a location parameter", 1964). A
slight pull towards the old value settles numbers that the probes do not determine. The search is that of Hooke and
Jeeves, '"Direct search" solution of numerical and statistical problems', JACM 8(2), 1961, on a logarithmic scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.codegen.calibration.residual import CostSample, Residual
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.predict import Prediction
from eqsat.rules.ast import Expr, Place, Target
from eqsat.targets.numbers import Numeral, places

_STEPS = (2.0, 1.4, 1.2, 1.1, 1.05, 1.02, 1.01)
"""Factors that a number is moved by, one after the other."""
_ROUNDS = 6
"""Passes over all numbers with one factor, at most."""
_LINEAR = math.log(1.25)
"""Logarithm of the ratio from which an error counts linearly."""
_PULL = 1e-3
"""Weight of a number's distance from its old value, relative to the error of one kernel."""


@dataclass
class _Group:
    """Kernels that one entry prices.

    Attributes:
        free: Positions of the numbers that may move.
        cost: The entry's expression over the kernels.
        measured: Their seconds.
        loss: The loss with the current numbers.
    """

    free: frozenset[Place]
    cost: Residual
    measured: np.ndarray
    loss: float = 0.0

    def evaluate(self, values: Mapping[Place, float]) -> float:
        off = np.abs(np.log(self.cost.seconds(values) / self.measured))
        loss = np.where(off <= _LINEAR, off * off / 2, _LINEAR * (off - _LINEAR / 2)).sum()
        return math.inf if math.isnan(loss) else float(loss)


def fit(
    target: Target, numbers: Sequence[Numeral], measured: Sequence[tuple[KernelInfo, float]]
) -> dict[Numeral, float]:
    """Numbers for the file of a host.

    Args:
        target: The host.
        numbers: The file's, see :func:`eqsat.targets.numbers.numerals`; only ``let``s are fitted.
        measured: Kernels and their seconds.

    Returns:
        The value of each number that an entry of a measured kernel uses; zero stays zero.
    """
    priced: list[tuple[Expr, CostSample, float]] = []
    for kernel, seconds in measured:
        prediction = Prediction(kernel.task, kernel.family, target)
        if prediction.entry is not None:
            priced.append((prediction.entry.cost, prediction, seconds))
    return fit_expressions(numbers, priced)


def fit_expressions(
    numbers: Sequence[Numeral], measured: Sequence[tuple[Expr, CostSample, float]]
) -> dict[Numeral, float]:
    """Fits numbers to kernels, given the expressions that price them.

    Args:
        numbers: The file's.
        measured: The cost of each kernel, the values over which it is evaluated, and the kernel's seconds.
    """
    free = [n for n in numbers if n.is_let and n.value > 0]
    groups = _groups(free, measured)
    used = [n for n in free if any(n.place in g.free for g in groups)]
    values = {n.place: n.value for n in used}
    for group in groups:
        group.loss = group.evaluate(values)
    for factor in _STEPS:
        for _ in range(_ROUNDS):
            moved = sum(_moved(n, factor, values, groups) for n in used)
            if not moved:
                break
    return {n: values[n.place] for n in used}


def _groups(free: Sequence[Numeral], measured: Sequence[tuple[Expr, CostSample, float]]) -> list[_Group]:
    found: dict[Place, tuple[Expr, list[CostSample], list[float]]] = {}
    for cost, kernel, seconds in measured:
        _, kernels, taken = found.setdefault(cost.place, (cost, [], []))
        kernels.append(kernel)
        taken.append(seconds)
    groups = []
    for cost, kernels, taken in found.values():
        inside = places(cost) & {n.place for n in free}
        groups.append(_Group(inside, Residual(cost, kernels, inside), np.array(taken)))
    return groups


def _moved(number: Numeral, factor: float, values: dict[Place, float], groups: Sequence[_Group]) -> bool:
    """Move a number up or down by a factor as far as that helps; whether it did."""
    concerned = [g for g in groups if number.place in g.free]
    moved = False
    for step in (factor, 1 / factor):
        while True:
            old = values[number.place]
            before = sum(g.loss for g in concerned) + _pull(number, old)
            values[number.place] = old * step
            losses = [g.evaluate(values) for g in concerned]
            if sum(losses) + _pull(number, old * step) >= before * (1 - 1e-9):
                values[number.place] = old
                break
            for group, loss in zip(concerned, losses, strict=True):
                group.loss = loss
            moved = True
        if moved:
            break
    return moved


def _pull(number: Numeral, value: float) -> float:
    return _PULL * math.log(value / number.value) ** 2
