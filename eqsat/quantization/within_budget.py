"""Quantization after calibration: extract within the budget, measure, describe; tighten and repeat if it misses.

The budget limits predicted noise, and the promise is about measured noise. A program that misses the budget is
therefore not returned: the limit of the outputs that missed is scaled by the measurement, a few times, and finally set
to zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import OptimizationError, QuantizationError
from eqsat.extract.reduce.smaller_problem import reduce_problem
from eqsat.quantization.budget import Charged, charge, find_roundings
from eqsat.quantization.calibration_data import CalibrationData
from eqsat.quantization.insert import apply_scheme
from eqsat.quantization.integer_part import partition_conversions
from eqsat.quantization.layer_costs import layer_rows
from eqsat.quantization.noise import Noise, decibel, measure_sqnr
from eqsat.quantization.noise_limits import relative_noise
from eqsat.quantization.options import QuantizationOptions
from eqsat.quantization.restrict import (
    floats_inside,
    integer_spellings,
    reasons,
    wanted_as_floats,
    without_integer_form,
)
from eqsat.quantization.result import QuantizationResult
from eqsat.quantization.scheme import Scheme
from eqsat.quantization.share import integer_share, is_conversion, is_integer
from eqsat.quantization.sweep import LimitedProgram, sweep
from eqsat.report import quantized as report
from eqsat.result import Result
from eqsat.schema.chosen_sizes import typical_sizes
from eqsat.schema.free_sizes import FreeSizes
from eqsat.search import Search
from eqsat.stages.event import Event
from eqsat.stages.options import Objective

ATTEMPTS = 6
"""Extractions at most until the measured error keeps the budget; the last one rounds nothing that adds noise."""
MARGIN = 0.9
"""Part of the remaining limit after a measurement that a repeated extraction may use."""


@dataclass(frozen=True)
class WithinBudget:
    """The known values before the first extraction, and the steps that follow.

    Attributes:
        original: The user's model.
        prepared: The model that was calibrated.
        scheme: Everything that can be rounded.
        noise: The effect of each of its tensors on the outputs.
        data: Samples.
        options: The requested options; ``skip`` names tensors of the prepared model.
        required: Least SQNR in dB by output.
        folded: The optimization that made the prepared model from the original.
        samples: Number of calibration samples.
        seconds: CPU seconds that calibration took, by stage.
        sizes: Of the inputs, as far as they stay free.
    """

    original: ir.Model
    prepared: ir.Model
    scheme: Scheme
    noise: Noise
    data: CalibrationData
    options: QuantizationOptions
    required: dict[str, float]
    folded: Result
    samples: int
    seconds: dict[str, float]
    sizes: FreeSizes

    def run(self, search: Search, objective: Objective, seed: int) -> QuantizationResult:
        """Extracts, measures and tightens until the budget is kept."""
        charged = self.charged(search)
        names = self.noise.outputs
        limits = {n: relative_noise(self.required[n]) if n in self.required else math.inf for n in names}
        attempt = 0
        while True:
            attempt += 1
            limited = charged.limited([limits[n] for n in names])
            try:
                found = search.extract(objective, seed, limited=limited, share=0.75 if self.required else 1.0)
            except OptimizationError as error:
                if self.options.conversions == "fully_integral" and limited.formulation.problem.budgets:
                    raise self.too_noisy(attempt) from error
                raise
            rounded = charged.rounded(found.choices)
            # The time limit is that of the search.
            with search.clock.paused():
                result = (
                    self.simulated(rounded, attempt)
                    if self.options.simulate
                    else self.result(found, rounded, attempt, search)
                )
            missed = [n for n in self.required if result.actual[n] < self.required[n]]
            if not missed or objective != "best":
                # Only the cheapest program is held to the limits.
                kept = [limits[n] if objective == "best" else math.inf for n in names]
                own = LimitedProgram(tuple(kept), self.point(found, rounded))
                return self.swept(result, charged, search, seed, own)
            if not rounded:
                raise QuantizationError(
                    f"an SQNR of at least {self.required[missed[0]]:g} dB is required",
                    place=f"output {missed[0]!r}",
                    actual=f"{result.actual[missed[0]]:.2f} dB without any rounding",
                    hint="lower the budget, or allow only exact numerics with default_rules=False (--no-default-rules)",
                )
            for n in missed:
                worse = relative_noise(result.actual[n] - self.required[n])
                spent = relative_noise(result.predicted[n])
                limits[n] = 0.0 if attempt + 1 >= ATTEMPTS else MARGIN * spent / worse

    def point(self, found: Result, rounded: Sequence[int]) -> report.SweepPoint:
        """The program as one of a sweep."""
        required = min(self.required.values(), default=None)
        predicted = min(self.noise.predict(rounded).values(), default=math.inf)
        bound, reason = found.summary.bound, found.summary.stop_reason
        return report.SweepPoint(required, found.cost, predicted, len(rounded), bound, reason)

    def swept(
        self, result: QuantizationResult, charged: Charged, search: Search, seed: int, own: LimitedProgram | None = None
    ) -> QuantizationResult:
        """The result with the sweep that was requested; ``own`` is its program, if it comes from the same search."""
        told = result.summary.quantization
        if not self.options.sweep or told is None:
            return result
        points, known = sweep(charged, self.noise, search, self.options.sweep, seed, own)
        seconds = {**result.seconds, **search.clock.seconds}
        summary = replace(result.summary, quantization=replace(told, sweep=points), seconds=seconds)
        if known is not None and not self.options.simulate:
            summary = replace(summary, bound=known.bound, gap=known.gap, stop_reason=known.stop_reason)
        return replace(result, summary=summary, seconds=seconds)

    def charged(self, search: Search) -> Charged:
        """The formulation without forbidden e-nodes, and with the costs of rounding."""
        snapshot = search.snapshot
        forbidden = integer_spellings(snapshot, wanted_as_floats(search.model, self.options.integers))
        if self.options.conversions == "fully_integral":
            forbidden |= floats_inside(snapshot, search.outputs)
        formulation = search.priced.without(forbidden)
        if self.options.conversions == "fully_integral" and not reduce_problem(formulation.problem).feasible:
            raise self.not_integral(search)
        roundings = find_roundings(snapshot, self.scheme)
        weights = np.zeros((len(roundings.units), len(self.noise.outputs)))
        for row, unit in zip(weights, roundings.units, strict=True):
            row[:] = self.noise.weights[list(unit)].sum(axis=0)
        return charge(formulation, roundings, weights, self.noise.outputs)

    def result(self, found: Result, rounded: Sequence[int], attempt: int, search: Search) -> QuantizationResult:
        """A program measured and described."""
        search.clock.say(Event("check"))
        actual = measure_sqnr(self.original, found.model, self.data, limit=self.options.check_samples)
        floats = self.floats(found, search)
        if self.options.conversions != "disabled":
            found = replace(found, model=partition_conversions(found.model))
        return self.described(found, rounded, attempt, actual, floats)

    def simulated(self, rounded: Sequence[int], attempt: int) -> QuantizationResult:
        """The float model with these tensors rounded."""
        model = apply_scheme(self.prepared, self.scheme.only(frozenset(rounded)))
        # In the model the rounded weights are integers; in the program they are folded.
        search = Search.of(model, default_rules=False, dims=dict(self.sizes), free_sizes=True)
        found = replace(search.extract(verify=False), model=model)
        actual = measure_sqnr(self.original, found.model, self.data, limit=self.options.check_samples)
        return self.described(found, rounded, attempt, actual, ())

    def described(
        self,
        found: Result,
        rounded: Sequence[int],
        attempt: int,
        actual: dict[str, float],
        floats: tuple[report.FloatRow, ...],
    ) -> QuantizationResult:
        share = integer_share(found.plan, typical_sizes(self.sizes))
        predicted = self.noise.predict(rounded)
        chosen = set(rounded)
        described = report.Quantization(
            simulate=self.options.simulate,
            conversions=self.options.conversions,
            samples=self.samples,
            extractions=attempt,
            integer=share.integer,
            floating=share.floating,
            integer_macs=share.integer_macs,
            macs=share.macs,
            outputs=tuple(
                report.OutputError(n, self.required.get(n), predicted[n], actual[n]) for n in self.noise.outputs
            ),
            tensors=tuple(
                report.QuantizedRow(
                    t.name, t.kind, t.quantizer.dtype.name, i in chosen, decibel(self.noise.weights[i].max(initial=0.0))
                )
                for i, t in enumerate(self.scheme.tensors)
            ),
            floats=floats,
            layers=layer_rows(self.prepared, self.scheme, self.noise, chosen, found.summary.graphs[0])
            if found.summary.graphs
            else (),
        )
        own = self.folded.summary
        seconds = {**self.seconds, **found.seconds}
        # The float program has been executed against the input; the effect of rounding is measured.
        verified = own.verification
        if verified is not None:
            verified = replace(verified, skipped=(*verified.skipped, "rounding to integers, which is measured instead"))
        summary = replace(
            found.summary,
            model=own.model,
            before=own.before,
            seconds=seconds,
            verification=verified,
            quantization=described,
        )
        common: dict[str, Any] = {f.name: getattr(found, f.name) for f in fields(Result)}
        common |= {"baseline_cost": self.folded.baseline_cost, "summary": summary, "seconds": seconds}
        return QuantizationResult(
            **common,
            required=self.required,
            predicted=predicted,
            actual=actual,
            tensors=tuple(dict.fromkeys(self.scheme.tensors[i].name for i in rounded)),
            floats=floats,
            share=share,
            extractions=attempt,
            scheme=self.scheme,
            noise=self.noise,
        )

    def floats(self, found: Result, search: Search) -> tuple[report.FloatRow, ...]:
        """The kernels of a program that read floats, and the reasons."""
        why = reasons(self.prepared, self.scheme, self.options.integers)
        lacking = {v.name for _, v in without_integer_form(search.snapshot, search.model)}
        kernels = {k.name: k.op for k in found.summary.kernels}
        names = {v: n for v, n in found.plan.names.items() if n in kernels}
        rows = []
        for node in found.plan.nodes:
            name = next((names[v] for v in node.outputs if v in names), "")
            if is_conversion(node) or is_integer(found.plan, node):
                continue
            if name in why:
                reason = why[name]
            elif name in lacking:
                reason = "no rule gives it an integer form here"
            elif self.required:
                reason = "cheaper in floats, or its rounding does not fit the budget"
            else:
                reason = "cheaper in floats"
            rows.append(report.FloatRow(name or str(node.op), str(node.op), reason))
        return tuple(rows)

    def not_integral(self, search: Search) -> QuantizationError:
        """Names every operator without an integer form."""
        why = reasons(self.prepared, self.scheme, self.options.integers)
        found = without_integer_form(search.snapshot, search.model)
        lines = [
            f"{node.op_type} {value.name!r}: {why.get(value.name or '', 'no rule gives it an integer form here')}"
            for node, value in found
        ]
        return QuantizationError(
            "an integer form of every operator is required (conversions='fully_integral')",
            place=self.folded.summary.model,
            actual=f"{len(lines)} without an integer form:" if lines else "integer forms that do not fit together",
            excerpt="\n".join(lines),
            hint="conversions='enabled' leaves float operators outside of the core",
        )

    def too_noisy(self, attempt: int) -> QuantizationError:
        """The budget of a fully integral program cannot be kept."""
        everything = self.noise.predict()
        asked = ", ".join(f"{value:g} dB for {name!r}" for name, value in self.required.items())
        least = ", ".join(f"{everything[name]:.1f} dB for {name!r}" for name in self.required)
        again = " as measured" if attempt > 1 else ""
        return QuantizationError(
            f"an SQNR of {asked} is required{again}, without any float operator",
            place=self.folded.summary.model,
            actual=f"about {least} with everything rounded",
            hint="lower the budget, or try another method for the ranges or conversions='enabled'",
        )
