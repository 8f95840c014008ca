"""From a float model and samples to integers within a budget: the whole pipeline of quantization.

load -> fold normalisations -> calibrate -> scheme -> measure noise -> saturate with approximations -> extract within
the budget -> measure; if the measured error misses the budget, the limit is tightened and extraction repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.approximate import Approximation
from eqsat.errors import QuantizationError
from eqsat.model.load import Source, load
from eqsat.quantization import calibrate as calibrating
from eqsat.quantization.budget import Charged, approximated, charge, find_roundings
from eqsat.quantization.calibrate import calibrate
from eqsat.quantization.data import CalibrationData, DataSource
from eqsat.quantization.limits import Budget, relative_noise, required_decibel
from eqsat.quantization.noise import Noise, measure_noise, measure_sqnr
from eqsat.quantization.options import Activation, Method, Options
from eqsat.quantization.ranges import ranges
from eqsat.quantization.scheme import Scheme, make_scheme
from eqsat.quantization.share import Share, integer_share
from eqsat.report.event import Event, Progress
from eqsat.rules.ast import Rule, Target
from eqsat.rules.location import rules_dir
from eqsat.search import Objective, Result, Search

ATTEMPTS = 6
"""Extractions at most until the measured error keeps the budget; the last one rounds nothing."""
MARGIN = 0.9
"""Part of the limit that a repeated extraction may use of what the measurement left."""


@dataclass(frozen=True)
class QuantizationResult(Result):
    """What :func:`eqsat.quantize` returns.

    Attributes:
        required: The least SQNR in dB by output name, for the outputs that have a limit.
        predicted: SQNR in dB that the noise of the rounded tensors sums up to, by output.
        actual: SQNR in dB measured on calibration samples, original against result, by output.
        tensors: Names of the tensors that are rounded.
        share: How much of the program computes with integers.
        extractions: How many it took until the measured error kept the budget.
        scheme: Everything that could be rounded.
        noise: What each of its tensors does to the outputs.
    """

    required: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    actual: dict[str, float] = field(default_factory=dict)
    tensors: tuple[str, ...] = ()
    share: Share = field(default=Share(0, 0, 0, 0, 0))
    extractions: int = 1
    scheme: Scheme = field(default=Scheme((), ()), repr=False)
    noise: Noise | None = field(default=None, repr=False)


def quantize(
    source: Source,
    calibration: DataSource,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    budget: Budget = None,
    method: Method = "minmax",
    percentile: float = 99.99,
    activation: Activation = "uint8",
    symmetric: bool = False,
    per_channel: bool = True,
    skip: Sequence[str] = (),
    operators: Sequence[str] | None = None,
    rules: Sequence[str | Path | Rule] | None = None,
    dims: Mapping[str, int] | None = None,
    samples: int | None = None,
    noise_samples: int = 4,
    check_samples: int = 16,
    objective: Objective = "best",
    time_limit: float = 30.0,
    iterations: int | None = None,
    enodes: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> QuantizationResult:
    """Finds the cheapest program, in integers where that pays, whose error stays within a budget.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        calibration: Samples of the inputs; see :class:`~eqsat.quantization.data.CalibrationData`.
        targets: Accelerators by name or target file; the host ``cpu`` is always there.
        budget: The least ratio of signal to quantization noise, such as ``"30dB"`` or 30, for all float outputs or by
            output name. None takes the cheapest program, whatever its error.
        method, percentile, activation, symmetric, per_channel: How ranges are found and what the integers are; see
            :class:`~eqsat.quantization.options.Options`.
        skip: Nodes that stay floats, by their name or by that of one of their outputs.
        operators: Operators to quantize, such as ``("Conv", "Gemm")``; None for all that have an integer form.
        rules: Rule files (or rules) instead of the shipped ones.
        dims: Sizes for symbolic dimensions.
        samples: Calibration samples to use at most.
        noise_samples: Samples on which the noise of each tensor is measured; the effort grows with the number of
            tensors times the model's own.
        check_samples: Samples on which the result is measured.
        objective: ``"worst"`` and ``"random"`` take other programs, to test rules; they know no budget.
        time_limit: Seconds for saturation and extraction.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``.
        progress: Receives events.

    Raises:
        QuantizationError: The data do not fit the model, an option does not exist, or the budget cannot be kept.
        ModelError, RuleError, TargetError, OptimizationError: As for :func:`eqsat.optimize`.
    """
    for name, value in (("samples", samples), ("noise_samples", noise_samples), ("check_samples", check_samples)):
        if value is not None and value < 1:
            raise QuantizationError("at least one sample is required", place=f"option {name}", actual=str(value))
    options = Options(
        method,
        percentile,
        activation,
        symmetric,
        per_channel,
        _names(skip),
        None if operators is None else _names(operators),
    )
    original = load(source, dims=dims)
    float_outputs = [
        v.name or "" for v in original.graph.outputs if v.dtype is not None and v.dtype.is_floating_point()
    ]
    required = required_decibel(budget, float_outputs)
    data = _repeatable(calibration, original, samples)
    prepared, baseline = _prepared(original, rules, time_limit)
    tell = _teller(progress)
    found = calibrate(prepared, data, limit=samples, progress=tell("calibrate"))
    options = replace(options, skip=_surviving(original, prepared, options.skip))
    scheme = make_scheme(prepared, ranges(found, options), options)
    noise = measure_noise(prepared, scheme, data, limit=noise_samples, progress=tell("noise"))
    search = Search(
        prepared,
        targets,
        rules=rules,
        time_limit=time_limit,
        iterations=iterations,
        enodes=enodes,
        progress=progress,
        approximations=[_approximation(scheme, i) for i in approximated(scheme)],
    )
    charged = _charged(search, scheme, noise)

    limits = {name: relative_noise(required[name]) if name in required else math.inf for name in noise.outputs}
    attempt = 0
    while True:
        attempt += 1
        formulation = charged.limited([limits[name] for name in noise.outputs])
        result = search.extract(objective, seed, formulation, share=0.5 if required else 1.0)
        rounded = charged.rounded(result.choices)
        actual = measure_sqnr(original, result.model, data, limit=check_samples)
        missed = [name for name in required if actual[name] < required[name]]
        if not missed or objective != "best":
            break
        if not rounded:
            raise QuantizationError(
                f"an SQNR of at least {required[missed[0]]:.2f} dB is required",
                place=f"output {missed[0]!r}",
                actual=f"{actual[missed[0]]:.2f} dB without any rounding",
            )
        for name in missed:
            spent = relative_noise(noise.predict(rounded)[name])
            worse = relative_noise(actual[name] - required[name])
            limits[name] = 0.0 if attempt + 1 >= ATTEMPTS else MARGIN * spent / worse
    common: dict[str, Any] = {f.name: getattr(result, f.name) for f in fields(Result)}
    common["baseline_cost"] = baseline
    return QuantizationResult(
        **common,
        required=required,
        predicted=noise.predict(rounded),
        actual=actual,
        tensors=tuple(dict.fromkeys(scheme.tensors[i].name for i in rounded)),
        share=integer_share(result.plan),
        extractions=attempt,
        scheme=scheme,
        noise=noise,
    )


def _names(names: Sequence[str]) -> tuple[str, ...]:
    # Options says what is wrong with a text.
    return names if isinstance(names, str) else tuple(names)  # type: ignore[return-value]


def _repeatable(source: DataSource, model: ir.Model, limit: int | None) -> CalibrationData:
    """The samples as something that can be gone through again and again."""
    data = CalibrationData(source, model)
    if iter_of_its_own(source):
        return CalibrationData(list(islice(data, limit)), model)
    return data


def iter_of_its_own(source: DataSource) -> bool:
    """Whether a source can be gone through only once."""
    return hasattr(source, "__next__")


def _prepared(original: ir.Model, rules: Sequence[str | Path | Rule] | None, limit: float) -> tuple[ir.Model, float]:
    """The model with constants folded into operators with weights, and the seconds of the original.

    A normalisation that stays beside its convolution would cost a rounding of its own.
    """
    own = [rules_dir() / "fusion.rules"] if rules is None or len(rules) else []
    folded = Search(original, rules=own, time_limit=limit).extract()
    return load(folded.model), folded.baseline_cost


def _surviving(original: ir.Model, prepared: ir.Model, names: Sequence[str]) -> tuple[str, ...]:
    """What the named nodes have become: a name of a tensor for each that is still computed."""
    left = {v.name for node in prepared.graph for v in node.outputs}
    by_name: dict[str, ir.Node] = {}
    for node in original.graph:
        for name in (node.name, *(v.name for v in node.outputs)):
            if name:
                by_name.setdefault(name, node)
    found: dict[str, None] = {}
    for name in names:
        if name not in by_name:
            # The scheme says so, with a hint.
            found[name] = None
            continue
        todo = [by_name[name]]
        seen = set(todo)
        while todo:
            node = todo.pop()
            outputs = [v.name for v in node.outputs if v.name and v.name in left]
            if outputs:
                found.update(dict.fromkeys(outputs))
                continue
            following = [use.node for v in node.outputs for use in v.uses() if use.node not in seen]
            seen.update(following)
            todo += following
    return tuple(found)


def _teller(progress: Progress | None) -> Callable[[str], Callable[[calibrating.Progress], None] | None]:
    """Makes receivers of the progress of calibration out of one of events."""

    def of(stage: str) -> Callable[[calibrating.Progress], None] | None:
        receiver = progress
        if receiver is None:
            return None
        return lambda step: receiver(Event(stage, step=step.done, steps=step.total))

    return of


def _approximation(scheme: Scheme, index: int) -> Approximation:
    tensor = scheme.tensors[index]
    return Approximation(tensor.name, tensor.quantizer.scale, tensor.quantizer.zero, tensor.quantizer.axis)


def _charged(search: Search, scheme: Scheme, noise: Noise) -> Charged:
    roundings = find_roundings(search.snapshot, scheme)
    weights = np.array([noise.weights[list(unit)].sum(axis=0) for unit in roundings.units])
    return charge(search.formulation, roundings, weights.reshape(-1, len(noise.outputs)), noise.outputs)
