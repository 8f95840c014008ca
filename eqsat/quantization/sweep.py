"""What accuracy costs: the cheapest programs under limits from none to no rounding at all, from one e-graph."""

from __future__ import annotations

import math
from collections.abc import Iterator

from eqsat.errors import OptimizationError
from eqsat.quantization.budget import Charged
from eqsat.quantization.limits import relative_noise
from eqsat.quantization.noise import Noise, decibel
from eqsat.report.quantized import SweepPoint
from eqsat.search import Search
from eqsat.stages.extract import extract


def sweep(charged: Charged, noise: Noise, search: Search, count: int, seed: int) -> tuple[SweepPoint, ...]:
    """Programs from the cheapest to the most accurate, none of which is worse than another in both.

    Limits are steps of equal size in dB from the error of the cheapest program to that of the tensor that adds least.
    Each program gets an equal part of the time that is left.

    Args:
        charged: The problem, in which programs pay for what they round.
        noise: Of each tensor.
        search: That the problem is of.
        count: Of programs at most, the cheapest and the most accurate among them; limits may lead to the same one.
        seed: As for the result.
    """
    points: list[SweepPoint] = []
    for k, required in enumerate(_limits(charged, noise, count, points)):
        point = _point(charged, noise, search, required, 1 / (count - k), seed)
        if point is not None:
            points.append(point)
    return tuple(p for i, p in enumerate(points) if not any(_is_better(q, p, j < i) for j, q in enumerate(points)))


def _limits(charged: Charged, noise: Noise, count: int, points: list[SweepPoint]) -> Iterator[float | None]:
    """The limits in dB; the first program decides the others."""
    yield None
    units = [noise.weights[list(unit)].sum(axis=0).max(initial=0.0) for unit in charged.roundings.units]
    high = max((decibel(float(weight)) for weight in units if weight > 0), default=0.0)
    low = points[0].predicted if points else 0.0
    if math.isfinite(low) and low < high:
        yield from (low + (high - low) * i / (count - 1) for i in range(1, count - 1))
    if math.isfinite(low):
        yield math.inf


def _point(
    charged: Charged, noise: Noise, search: Search, required: float | None, share: float, seed: int
) -> SweepPoint | None:
    """None if no program keeps the limit."""
    limit = math.inf if required is None else 0.0 if math.isinf(required) else relative_noise(required)
    limited = charged.limited([limit] * len(noise.outputs))
    try:
        solution = extract(limited.formulation, search.clock, "best", seed, limited=limited, share=share)
    except OptimizationError:
        return None
    rounded = charged.rounded(solution.choices)
    predicted = min(noise.predict(rounded).values(), default=math.inf)
    return SweepPoint(required, solution.cost, predicted, len(rounded), solution.stop_reason == "optimal")


def _is_better(one: SweepPoint, other: SweepPoint, earlier: bool) -> bool:
    """Whether one makes the other needless; of equal ones the earlier does."""
    if (one.cost, one.predicted) == (other.cost, other.predicted):
        return earlier
    return one.cost <= other.cost and one.predicted >= other.predicted
