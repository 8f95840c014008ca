"""The budget as a user gives it, in dB, and as the extraction uses it: noise relative to the signal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from eqsat.errors import QuantizationError
from eqsat.schema.opset import did_you_mean

BudgetValue = float | str | None
NoiseBudget = BudgetValue | Mapping[str, BudgetValue]
"""The least ratio of signal to quantization noise: dB as a number or as ``"30dB"``; None sets no limit. A mapping gives
it by output name; outputs that it does not name have no limit."""

_DECIBEL = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(?:dB)?\s*", re.IGNORECASE)


def required_decibel(budget: NoiseBudget, outputs: Sequence[str]) -> dict[str, float]:
    """The least SQNR in dB of each output that has a limit.

    Args:
        budget: As the user gave it.
        outputs: Names of the float outputs.

    Raises:
        QuantizationError: No number of dB above 0, or no float output of the model.
    """
    if budget is None:
        return {}
    if not isinstance(budget, Mapping):
        found = _decibel(budget, "option budget")
        return {} if found is None else dict.fromkeys(outputs, found)
    for name in budget:
        if name not in outputs:
            raise QuantizationError(
                "the name of a float output is required",
                place="option budget",
                actual=repr(name),
                hint=did_you_mean(str(name), outputs) or f"the float outputs are {', '.join(outputs) or 'none'}",
            )
    values = {name: _decibel(value, f"option budget, output {name!r}") for name, value in budget.items()}
    return {name: value for name in outputs if (value := values.get(name)) is not None}


def _decibel(value: BudgetValue, place: str) -> float | None:
    if value is None:
        return None
    number = math.nan
    if isinstance(value, str):
        match = _DECIBEL.fullmatch(value)
        number = float(match[1]) if match else math.nan
    elif not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise QuantizationError(
            "a number of dB above 0, such as 30 or '30dB', is required", place=place, actual=repr(value)
        )
    return number


def relative_noise(decibel: float) -> float:
    """Power of the noise relative to the signal's."""
    return 10.0 ** (-decibel / 10.0)
