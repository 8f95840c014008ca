"""Adds measurements of the compiled result to a summary: times of kernels, and memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.errors import EqsatError
from eqsat.report.memory_map import memory_of_program
from eqsat.report.summary import Measured, Summary

if TYPE_CHECKING:
    from eqsat.codegen.profile import Profile


def with_times(summary: Summary, profile: Profile) -> Summary:
    """The summary with measured times beside the costs, and the memory of the compiled program.

    A compiled kernel has the name of a kernel of the result that it computes; it may compute the next ones as well,
    which then have no time of their own.

    Args:
        summary: Of a result.
        profile: Of that result, compiled.

    Raises:
        EqsatError: The profile is one of another model.
    """
    # In bodies of control flow, costs are per run, but times are for all runs.
    known = {row.name for row in summary.kernels if not row.body}
    times: dict[str, float] = {}
    rest: dict[str, float] = {}
    for kernel in profile.kernels:
        name = next((name for name in (kernel.name, kernel.result) if name in known), None)
        held, key = (rest, f"{kernel.operators} {kernel.name}") if name is None else (times, name)
        held[key] = held.get(key, 0.0) + kernel.microseconds * 1e-6
    if rest and not times:
        raise EqsatError(
            "a profile of this result is required",
            place=summary.model,
            actual="one that has no kernel of it",
            hint="measure result.compile(), not another model",
        )
    kernels = [replace(row, measured=None if row.body else times.get(row.name)) for row in summary.kernels]
    total = math.fsum(kernel.microseconds for kernel in profile.kernels) * 1e-6
    memory = None if profile.emitted is None else memory_of_program(profile.emitted, summary.targets[0])
    return replace(
        summary,
        kernels=tuple(kernels),
        measured=Measured(total, tuple(rest.items())),
        memory=summary.memory if memory is None else (memory,),
    )
