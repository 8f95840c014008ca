"""The trade-off of cost and accuracy: the cheapest programs under limits from none to no rounding at all, from one
e-graph.

The programs and the result are compared. A program that keeps a tight limit also keeps a loose one, so a lower bound
under a loose limit is valid under a tight one; and a program that is worse than another in both is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat.errors import OptimizationError
from eqsat.quantization.budget import Charged
from eqsat.quantization.noise import Noise, decibel
from eqsat.quantization.noise_limits import relative_noise
from eqsat.report.quantized import SweepPoint
from eqsat.search import Search
from eqsat.stages.extract import extract

CLOSED = 1e-6
"""Gap of a program that is proven to be the cheapest, as `eqsat.extract.solve` takes it."""


@dataclass(frozen=True, slots=True)
class LimitedProgram:
    """A program, and the greatest noise of each output, relative to its signal, that was allowed."""

    noise: tuple[float, ...]
    point: SweepPoint

    def allow_all_of(self, other: LimitedProgram) -> bool:
        return all(own >= tighter for own, tighter in zip(self.noise, other.noise, strict=True))


def sweep(
    charged: Charged, noise: Noise, search: Search, count: int, seed: int, own: LimitedProgram | None = None
) -> tuple[tuple[SweepPoint, ...], SweepPoint | None]:
    """Programs from the cheapest to the most accurate, none of which is worse than another in both.

    Limits are steps of equal size in dB from the error of the cheapest program to that of the tensor that adds least.
    Each program gets an equal part of the time that is left.

    Args:
        charged: The problem, in which programs pay for rounding.
        noise: Noise of each tensor.
        search: The search of the problem.
        count: Greatest number of programs, including the cheapest and the most accurate; limits may lead to the same
            one.
        seed: Seed of the extractions, as for the result.
        own: The result, if it comes from the same search.

    Returns:
        The programs, among them the result if it is better than one of them; and the result with the bound that
        follows from the programs.
    """
    found: list[LimitedProgram] = []
    for k, required in enumerate(_limits(charged, noise, count, found)):
        one = _extracted(charged, noise, search, required, 1 / (count - k), seed)
        if one is not None:
            found.append(one)
    if own is None:
        return without_needless(bounded(found)), None
    *points, result = bounded([*found, own])
    return without_needless(points, result), result


def bounded(found: Sequence[LimitedProgram]) -> list[SweepPoint]:
    """The programs, each with the highest bound that looser limits have."""
    points: list[SweepPoint] = []
    for one in found:
        bound = min(max(other.point.bound for other in found if other.allow_all_of(one)), one.point.cost)
        raised = replace(one.point, bound=bound)
        closed = bound > one.point.bound and raised.gap <= CLOSED
        points.append(replace(raised, stop_reason="optimal") if closed else raised)
    return points


def without_needless(points: Sequence[SweepPoint], result: SweepPoint | None = None) -> tuple[SweepPoint, ...]:
    """Programs none of which is worse than another; the result replaces those that are worse than it."""
    better = result is not None and any(_is_better(result, p, earlier=False) for p in points)
    every = [*points, result] if result is not None and better else list(points)
    kept = [p for i, p in enumerate(every) if not any(_is_better(q, p, j < i) for j, q in enumerate(every))]
    return tuple(sorted(kept, key=lambda p: p.cost))


def _limits(charged: Charged, noise: Noise, count: int, found: list[LimitedProgram]) -> Iterator[float | None]:
    """The limits in dB; the first program decides the others."""
    yield None
    units = [noise.weights[list(unit)].sum(axis=0).max(initial=0.0) for unit in charged.roundings.units]
    high = max((decibel(float(weight)) for weight in units if weight > 0), default=0.0)
    low = found[0].point.predicted if found else 0.0
    if math.isfinite(low) and low < high:
        yield from (low + (high - low) * i / (count - 1) for i in range(1, count - 1))
    if math.isfinite(low):
        yield math.inf


def _extracted(
    charged: Charged, noise: Noise, search: Search, required: float | None, share: float, seed: int
) -> LimitedProgram | None:
    """The program, None if no program keeps the limit."""
    limit = math.inf if required is None else 0.0 if math.isinf(required) else relative_noise(required)
    limits = (limit,) * len(noise.outputs)
    limited = charged.limited(limits)
    try:
        solution = extract(limited.formulation, search.clock, "best", seed, limited=limited, share=share)
    except OptimizationError:
        return None
    rounded = charged.rounded(solution.choices)
    predicted = min(noise.predict(rounded).values(), default=math.inf)
    point = SweepPoint(required, solution.cost, predicted, len(rounded), solution.bound, solution.stop_reason)
    return LimitedProgram(limits, point)


def _is_better(one: SweepPoint, other: SweepPoint, earlier: bool) -> bool:
    """Whether one makes the other needless; of equal ones the earlier does."""
    if (one.cost, one.predicted) == (other.cost, other.predicted):
        return earlier
    return one.cost <= other.cost and one.predicted >= other.predicted
