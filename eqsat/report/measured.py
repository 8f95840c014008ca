"""A summary with what was measured of the result as a compiled program: times of kernels, and its memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.errors import EqsatError
from eqsat.report.memory import memory_of_program
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
    times: dict[str, float] = {}
    labels: dict[str, str] = {}
    for kernel in profile.kernels:
        times[kernel.name] = times.get(kernel.name, 0.0) + kernel.microseconds * 1e-6
        labels[kernel.name] = f"{kernel.operators} {kernel.name}"
    kernels = []
    known = set(times)
    for row in summary.kernels:
        # In bodies of control flow costs are those of one run, and times those of all.
        mine = row.name in times and not row.body
        kernels.append(replace(row, measured=times.pop(row.name) if mine else None))
    if known and known == set(times):
        raise EqsatError(
            "a profile of this result is required",
            place=summary.model,
            actual="one that has no kernel of it",
            hint="measure result.compile(), not another model",
        )
    others = tuple((labels[name], seconds) for name, seconds in times.items())
    total = math.fsum(kernel.microseconds for kernel in profile.kernels) * 1e-6
    memory = None if profile.emitted is None else memory_of_program(profile.emitted, summary.targets[0])
    return replace(
        summary,
        kernels=tuple(kernels),
        measured=Measured(total, others),
        memory=summary.memory if memory is None else (memory,),
    )
