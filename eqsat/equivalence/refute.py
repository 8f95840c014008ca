"""Decides whether values refute a proof, and which of its rules.

An input on which the models differ although rules join their outputs means one of two things. Rules of class ``real``
change roundings, and a model may magnify these without bound. Any other difference is that of a wrong rule. A
difference that random roundings of the tensors also cause counts as rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from eqsat.equivalence.prove import Proof
from eqsat.equivalence.tensor_values import InputValues
from eqsat.equivalence.tensors import Tensors
from eqsat.errors import EqsatError
from eqsat.execute.difference import compare_values
from eqsat.execute.trace import Trace
from eqsat.verify import judge_values
from eqsat.verify.sides import Perturbation

SHAKES = 4
"""Runs with random roundings."""
ROUNDING = 1e-5
"""Relative size of these roundings; that of the element type if it is larger."""

ValuesByTensor = dict[int, Any]
"""By number of the tensor."""


def refuted(
    proof: Proof, ends: Sequence[tuple[int, int]], inputs: tuple[InputValues, InputValues]
) -> tuple[int, int] | None:
    """The first joined tensors, in the order of the proof, whose values differ by more than rounding.

    Args:
        proof: Of both models.
        ends: Outputs that are joined.
        inputs: Of each model.
    """
    tensors = proof.tensors
    pairs = dict.fromkeys([*((step.left, step.right) for step in proof.steps), *ends])
    wanted = {k for pair in pairs for k in pair}
    try:
        values = _values(tensors, 0, inputs[0], wanted) | _values(tensors, 1, inputs[1], wanted)
        shaken = [
            _values(tensors, side, inputs[side], wanted, Perturbation(ROUNDING, seed, rounds=True))
            for seed in range(SHAKES)
            for side in (0, 1)
        ]
    except EqsatError:
        return None
    return next((pair for pair in pairs if _differ(values, shaken, *pair)), None)


def _values(
    tensors: Tensors, side: int, inputs: InputValues, wanted: Collection[int], noise: Perturbation | None = None
) -> ValuesByTensor:
    trace = Trace(tensors.models[side])
    numbers = {tensors.name(k): k for k in wanted if tensors.side[k] == side}
    found: ValuesByTensor = {numbers[name]: value for name, value in trace.constants.items() if name in numbers}

    def see(name: str, value: Any) -> None:
        if name in numbers:
            found[numbers[name]] = value.copy() if isinstance(value, np.ndarray) else value

    trace.observe(inputs, see, None if noise is None else noise.on)
    return found


def _differ(values: ValuesByTensor, shaken: Sequence[ValuesByTensor], left: int, right: int) -> bool:
    a, b = values.get(left), values.get(right)
    if a is None or b is None or compare_values("", a, b).agrees:
        return False
    if judge_values.incomparable(a, b) is not None:
        return True
    moved = np.zeros(a.shape)
    for other in shaken:
        for k, value in ((left, a), (right, b)):
            if k in other and other[k].shape == value.shape:
                moved = np.maximum(moved, judge_values.distance(value, other[k]))
    beyond = judge_values.beyond(a, b, strict=False, lsb=1)
    return bool((beyond & ~(judge_values.distance(a, b) <= judge_values.SAFETY * moved)).any())
