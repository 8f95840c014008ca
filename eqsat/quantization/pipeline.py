"""From a float model and samples to integers within a budget: the whole pipeline of quantization.

load -> fold normalisations -> calibrate -> scheme -> measure noise -> saturate with approximations -> extract within
the budget -> measure; if the measured error misses the budget, the limit is tightened and extraction repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import onnx_ir as ir

from eqsat.egraph.approximate import Approximation
from eqsat.model.load import GivenModel, load
from eqsat.model.read.given_sizes import split as split_dims
from eqsat.quantization import calibrate as calibrating
from eqsat.quantization.budget import approximated
from eqsat.quantization.calibrate import calibrate
from eqsat.quantization.calibration_data import CalibrationData, DataSource, first_samples
from eqsat.quantization.free_sizes import calibrated_sizes
from eqsat.quantization.noise import measure_noise
from eqsat.quantization.noise_limits import required_decibel
from eqsat.quantization.options import QuantizationOptions
from eqsat.quantization.prepare import folded, surviving
from eqsat.quantization.result import QuantizationResult
from eqsat.quantization.scheme import Scheme
from eqsat.quantization.schemes import most_accurate, scheme_of
from eqsat.quantization.share import kernel_macs
from eqsat.quantization.within_budget import WithinBudget
from eqsat.report.provenance import provenance
from eqsat.schema.chosen_sizes import typical
from eqsat.schema.declared_operators import declared
from eqsat.search import Search
from eqsat.stages.event import Event, Progress
from eqsat.stages.load import LoadedInput, operators_of_options
from eqsat.stages.options import Objective, SearchOptions

EFFORT = 200_000_000_000
"""MACs after which no further sample is used to measure noise."""
MOST_SAMPLES = 8


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
    with declared(operators_of_options(search)):
        return _quantized(source, calibration, options, search, objective=objective, seed=seed, progress=progress)


def _quantized(
    source: GivenModel,
    calibration: DataSource,
    options: QuantizationOptions,
    search: SearchOptions,
    *,
    objective: Objective,
    seed: int,
    progress: Progress | None,
) -> QuantizationResult:
    tell = _teller(progress)
    seconds: dict[str, float] = {}
    bound, ranges = split_dims(search.dims)
    original = load(source, dims=bound, values=search.values)
    required = required_decibel(options.budget, [v.name or "" for v in original.graph.outputs if _is_float(v)])
    data = _repeatable(calibration, original, options.samples)
    sizes = calibrated_sizes(original, ranges, first_samples(data, original, options.samples))
    floats = folded(original, search, sizes)
    prepared = load(floats.model)
    integers = replace(options.integers, skip=surviving(original, prepared, options.integers.skip))
    with _timed(seconds, "calibrate"):
        found = calibrate(prepared, data, limit=options.samples, progress=tell("calibrate"))
    with _timed(seconds, "choose"):
        if options.auto:
            limit = options.check_samples
            scheme = most_accurate(prepared, found, integers, data, limit=limit, progress=tell("choose"))
        else:
            scheme = scheme_of(prepared, found, integers)
    with _timed(seconds, "measure"):
        limit = options.noise_samples
        if limit is None:
            at = typical(sizes)
            limit = _affordable_samples(sum(kernel_macs(floats.plan, n, at) for n in floats.plan.nodes), scheme)
        noise = measure_noise(prepared, scheme, data, limit=limit, progress=tell("measure"))
    within = WithinBudget(
        original,
        prepared,
        scheme,
        noise,
        data,
        replace(options, integers=integers),
        required,
        floats,
        found.samples,
        seconds,
        sizes,
    )
    everything = within.simulated(range(len(scheme.tensors)), 1) if options.simulate and not required else None
    if everything is not None and not options.sweep:
        return _with_provenance(everything, source, original, None)
    approximations = [_approximation(scheme, i) for i in approximated(scheme)]
    # The folded model contains the bound inputs.
    search = replace(search, dims=dict(sizes), values=None, free_sizes=True)
    found = Search.run(prepared, search, approximations=approximations, progress=progress)
    if everything is None:
        result = within.run(found, objective, seed)
    else:
        result = within.swept(everything, within.charged(found), found, seed)
    return _with_provenance(result, source, original, found.loaded)


def _with_provenance(
    result: QuantizationResult, source: GivenModel, model: ir.Model, loaded: LoadedInput | None
) -> QuantizationResult:
    return replace(result, summary=replace(result.summary, made=provenance(source, model, loaded)))


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _repeatable(source: DataSource, model: ir.Model, limit: int | None) -> CalibrationData:
    """The samples as an iterable that can be read repeatedly."""
    data = CalibrationData(source, model)
    # Only an iterator, which can be read once, is stored.
    return CalibrationData(list(first_samples(data, model, limit)), model) if hasattr(source, "__next__") else data


def _affordable_samples(work: int, scheme: Scheme) -> int:
    """The number of samples for measuring noise, for a model with this many MACs."""
    return max(1, min(MOST_SAMPLES, EFFORT // max(1, work * len(scheme.tensors))))


def _teller(progress: Progress | None) -> Callable[[str], Callable[[calibrating.CalibrationProgress], None] | None]:
    """Turns a receiver of events into one of calibration progress."""

    def of(stage: str) -> Callable[[calibrating.CalibrationProgress], None] | None:
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
