"""Finds the operator of the input that two implementations compute differently.

The outputs of a network may differ although every rewritten piece is right: then rounding has added up, or one of the
implementations computes an operator in its own way. The user is told which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.ops.evaluate import TensorValue
from eqsat.schema.types import Attrs, OpKey
from eqsat.verify import judge_values
from eqsat.verify.oracle import Failed, FallbackOracle, own
from eqsat.verify.programs import Programs
from eqsat.verify.sides import Perturbation
from eqsat.verify.whole import run_input

_DELTA = 1e-6
"""Relative change of the operands that may explain a difference."""


def unlike_operator(programs: Programs, arrays: Mapping[str, TensorValue], oracle: FallbackOracle) -> str:
    """The first operator whose results differ by more than rounding on equal operands, and how; empty if there is none.

    Args:
        arrays: Inputs of the network, by name.
        oracle: Executes the network; its result is compared with eqsat's.
    """
    both = _Both(programs, oracle)
    try:
        run_input(programs, arrays, both)
    except Failed:
        return both.found
    return both.found


class _Both:
    """Evaluates operators in the order of the input, by two implementations until these differ."""

    def __init__(self, programs: Programs, oracle: FallbackOracle) -> None:
        self.found = ""
        self._programs = programs
        self._oracle = oracle
        self._evaluated = (i for i in range(len(programs.nodes)) if not programs.follows_from_type(i))

    def __call__(self, op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int) -> tuple[TensorValue, ...]:
        node = self._programs.nodes[next(self._evaluated)]
        before = dict(self._oracle.used)
        results = self._oracle(op, attrs, inputs, outputs)
        if self.found:
            return results
        try:
            mine = own(op, attrs, inputs, outputs)
        except Failed:
            return results
        for at, (k, left, right) in enumerate(zip(node.results, results, mine, strict=False)):
            difference = _difference(op, attrs, inputs, outputs, at, left, right)
            if difference is not None:
                by = [name for name, count in self._oracle.used.items() if count > before.get(name, 0)]
                who, name = " and ".join((*by, "eqsat")), self._programs.name(k)
                self.found = f"{who} compute {op} {name!r} differently: {difference}"
                break
        return results


def _difference(
    op: OpKey, attrs: Attrs, inputs: Sequence[TensorValue], outputs: int, at: int, left: TensorValue, right: TensorValue
) -> str | None:
    """How two results differ by more than rounding, their own or that of operands; None if they do not."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.shape != right.shape:
            return f"the shapes of the results are {list(left.shape)} and {list(right.shape)}"
        if left.dtype.kind in "OU":
            return _of_texts(left, right)
    if not isinstance(left, np.ndarray) or judge_values.incomparable(left, right) is not None:
        return None
    mask = judge_values.beyond(left, right, strict=False, lsb=1)
    if not mask.any():
        return None

    def perturbed(delta: float, seed: int) -> TensorValue:
        noise = Perturbation(delta, seed, rounds=True)
        try:
            return own(op, attrs, [noise.on(x) for x in inputs], outputs)[at]
        except Failed:
            return None

    mask = judge_values.without_ill_conditioned(mask, right, left, _DELTA, perturbed)
    if not mask.any():
        return None
    worst = judge_values.difference(mask, left, right)
    return (
        f"{worst.left} and {worst.right} at [{', '.join(map(str, worst.index))}]; "
        f"{worst.differing:,} of {worst.elements:,} elements differ"
    )


def _of_texts(left: np.ndarray, right: np.ndarray) -> str | None:
    differing = np.argwhere(left.astype(object) != right.astype(object))
    if not len(differing):
        return None
    at = tuple(differing[0].tolist())
    shown = f"{str(left[at])!r} and {str(right[at])!r} at [{', '.join(map(str, at))}]"
    return f"{shown}; {len(differing):,} of {left.size:,} elements differ"
