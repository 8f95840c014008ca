"""From a float model and samples to integers within a budget: the whole pipeline of quantization.

load -> fold normalisations -> calibrate -> scheme -> measure noise -> saturate with approximations -> extract within
the budget -> measure; if the measured error misses the budget, the limit is tightened and extraction repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.egraph.approximate import Approximation
from eqsat.model.load import GivenModel, load
from eqsat.model.read.given_sizes import split as split_dims
from eqsat.quantization.budget import approximated
from eqsat.quantization.calibrate import Calibration, CalibrationProgress, calibrate
from eqsat.quantization.calibration_data import CalibrationData, DataSource, first_samples
from eqsat.quantization.free_sizes import calibrated_sizes
from eqsat.quantization.noise import Noise, measure_noise
from eqsat.quantization.noise_limits import required_decibel
from eqsat.quantization.options import QuantizationOptions
from eqsat.quantization.prepare import folded, surviving
from eqsat.quantization.restrict import is_float
from eqsat.quantization.result import QuantizationResult
from eqsat.quantization.scheme import Scheme
from eqsat.quantization.schemes import most_accurate, scheme_of
from eqsat.quantization.share import kernel_macs
from eqsat.quantization.within_budget import WithinBudget
from eqsat.report.provenance import provenance
from eqsat.result import Result
from eqsat.schema.chosen_sizes import typical_sizes
from eqsat.schema.declared_operators import declared
from eqsat.schema.free_sizes import FreeSizes
from eqsat.search import Search
from eqsat.stages.event import Event, Progress
from eqsat.stages.load import LoadedInput, operators_of_options
from eqsat.stages.options import Objective, SearchOptions

EFFORT = 200_000_000_000
"""MACs after which no further sample is used to measure noise."""
MOST_SAMPLES = 8

_Progress = Callable[[CalibrationProgress], None]


@dataclass(frozen=True)
class _Prepared:
    """What a quantization starts from.

    Attributes:
        original: The user's model.
        floats: Its optimization, which folds normalisations.
        model: The result of that, which is calibrated.
        data: The samples.
        sizes: Of the inputs, as far as they stay free.
        options: The options; ``skip`` names tensors of ``model``.
        required: Least SQNR in dB by output.
    """

    original: ir.Model
    floats: Result
    model: ir.Model
    data: CalibrationData
    sizes: FreeSizes
    options: QuantizationOptions
    required: dict[str, float]


def quantize(
    source: GivenModel,
    calibration: DataSource,
    options: QuantizationOptions,
    search: SearchOptions,
    *,
    objective: Objective = "best",
    seed: int = 0,
    progress: Progress | None = None,
) -> QuantizationResult:
    """See :func:`eqsat.quantize`."""
    tell = _teller(progress)
    seconds: dict[str, float] = {}
    with declared(operators_of_options(search)):
        start = _prepared(source, calibration, options, search)
        with _timed(seconds, "calibrate"):
            found = calibrate(start.model, start.data, limit=options.samples, progress=tell("calibrate"))
        with _timed(seconds, "choose"):
            scheme = _scheme(start, found, tell("choose"))
        with _timed(seconds, "measure"):
            noise = _noise(start, scheme, tell("measure"))
        within = WithinBudget(
            start.original,
            start.model,
            scheme,
            noise,
            start.data,
            start.options,
            start.required,
            start.floats,
            found.samples,
            seconds,
            start.sizes,
        )
        everything = None
        if options.simulate and not start.required:
            everything = within.simulated(range(len(scheme.tensors)), 1)
            if not options.sweep:
                return _with_provenance(everything, source, start.original, None)
        approximations = [_approximation(scheme, i) for i in approximated(scheme)]
        # The folded model contains the bound inputs.
        search = replace(search, dims=dict(start.sizes), values=None, free_sizes=True)
        searched = Search.run(start.model, search, approximations=approximations, progress=progress)
        if everything is None:
            result = within.run(searched, objective, seed)
        else:
            result = within.swept(everything, within.charged(searched), searched, seed)
        return _with_provenance(result, source, start.original, searched.loaded)


def _prepared(
    source: GivenModel, calibration: DataSource, options: QuantizationOptions, search: SearchOptions
) -> _Prepared:
    bound, ranges = split_dims(search.dims)
    original = load(source, dims=bound, values=search.values)
    required = required_decibel(options.budget, [v.name or "" for v in original.graph.outputs if is_float(v)])
    data = _repeatable(calibration, original, options.samples)
    sizes = calibrated_sizes(original, ranges, first_samples(data, original, options.samples))
    floats = folded(original, search, sizes)
    model = load(floats.model)
    integers = replace(options.integers, skip=surviving(original, model, options.integers.skip))
    return _Prepared(original, floats, model, data, sizes, replace(options, integers=integers), required)


def _scheme(start: _Prepared, found: Calibration, progress: _Progress | None) -> Scheme:
    """What can be rounded, and how."""
    options = start.options
    if not options.auto:
        return scheme_of(start.model, found, options.integers)
    return most_accurate(
        start.model, found, options.integers, start.data, limit=options.check_samples, progress=progress
    )


def _noise(start: _Prepared, scheme: Scheme, progress: _Progress | None) -> Noise:
    """The effect of each rounding, on as many samples as the size of the model allows."""
    limit = start.options.noise_samples
    if limit is None:
        at, plan = typical_sizes(start.sizes), start.floats.plan
        work = sum(kernel_macs(plan, node, at) for node in plan.nodes)
        limit = max(1, min(MOST_SAMPLES, EFFORT // max(1, work * len(scheme.tensors))))
    return measure_noise(start.model, scheme, start.data, limit=limit, progress=progress)


def _with_provenance(
    result: QuantizationResult, source: GivenModel, model: ir.Model, loaded: LoadedInput | None
) -> QuantizationResult:
    return replace(result, summary=replace(result.summary, made=provenance(source, model, loaded)))


def _repeatable(source: DataSource, model: ir.Model, limit: int | None) -> CalibrationData:
    """The samples as an iterable that can be read repeatedly."""
    data = CalibrationData(source, model)
    # Only an iterator, which can be read once, is stored.
    return CalibrationData(list(first_samples(data, model, limit)), model) if hasattr(source, "__next__") else data


def _teller(progress: Progress | None) -> Callable[[str], _Progress | None]:
    """Turns a receiver of events into one of calibration progress."""

    def of(stage: str) -> _Progress | None:
        receiver = progress
        if receiver is None:
            return None
        return lambda step: receiver(Event(stage, step=step.done, steps=step.total))

    return of


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.process_time()
    yield
    seconds[name] = time.process_time() - start


def _approximation(scheme: Scheme, index: int) -> Approximation:
    tensor = scheme.tensors[index]
    quantizer = tensor.quantizer
    return Approximation(tensor.name, quantizer.scale, quantizer.zero, quantizer.axis, tensor.integers)
