"""From a float model and samples to integers within a budget: the whole pipeline of quantization.

load -> fold normalisations -> calibrate -> scheme -> measure noise -> saturate with approximations -> extract within
the budget -> measure; if the measured error misses the budget, the limit is tightened and extraction repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from eqsat.bounds import within_bounds
from eqsat.egraph.approximate import Approximation
from eqsat.errors import QuantizationError
from eqsat.model.load import Source, load
from eqsat.partition.partition_functions import PartitionFunction
from eqsat.quantization import calibrate as calibrating
from eqsat.quantization.budget import approximated
from eqsat.quantization.calibrate import calibrate
from eqsat.quantization.data import CalibrationData, DataSource, first_samples
from eqsat.quantization.limits import Budget, required_decibel
from eqsat.quantization.noise import measure_noise
from eqsat.quantization.options import Activation, Options
from eqsat.quantization.scheme import Scheme
from eqsat.quantization.share import kernel_macs
from eqsat.quantizing.job import CONVERSIONS, Conversions, Job
from eqsat.quantizing.prepare import folded, surviving
from eqsat.quantizing.result import QuantizationResult
from eqsat.quantizing.schemes import AnyMethod, most_accurate, scheme_of
from eqsat.report.event import Event, Progress
from eqsat.rules.ast import Rule, Target
from eqsat.schema.opset import did_you_mean
from eqsat.search import Objective, Search

EFFORT = 200_000_000_000
"""MACs after which no further sample is taken to measure noise."""
MOST_SAMPLES = 8
PATIENCE = 20.0
"""How many times the time limit all stages may take together: samples are executed again and again."""


@within_bounds(lambda seconds: PATIENCE * seconds)
def quantize(
    source: Source,
    calibration: DataSource,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    budget: Budget = None,
    method: AnyMethod = "minmax",
    percentile: float = 99.99,
    activation: Activation = "uint8",
    symmetric: bool = False,
    per_channel: bool = True,
    balance: bool = True,
    skip: Sequence[str] = (),
    operators: Sequence[str] | None = None,
    simulate: bool = False,
    conversions: Conversions = "disabled",
    rules: Sequence[str | Path | Rule] | None = None,
    dims: Mapping[str, int] | None = None,
    samples: int | None = None,
    noise_samples: int | None = None,
    check_samples: int = 16,
    objective: Objective = "best",
    time_limit: float = 30.0,
    memory_limit: int | str | None = None,
    iterations: int | None = None,
    enodes: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    partition_functions: Mapping[str, PartitionFunction] | None = None,
) -> QuantizationResult:
    """Finds the cheapest program, in integers where that pays, whose error stays within a budget.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        calibration: Samples of the inputs; see :class:`~eqsat.quantization.data.CalibrationData`.
        targets: Accelerators by name or target file; the host ``cpu`` is always there.
        budget: The least ratio of signal to quantization noise, such as ``"30dB"`` or 30, for all float outputs or by
            output name. It holds for the result as measured on calibration samples, else there is an error. None takes
            the cheapest program, whatever its error.
        method, percentile, activation, symmetric, per_channel, balance: How ranges are found and what integers are; see
            :class:`~eqsat.quantization.options.Options`. The method ``"auto"`` is the one among all that is the most
            accurate on the samples, everything being rounded.
        skip: Nodes that stay floats, by their name or by that of one of their outputs.
        operators: Operators to quantize, such as ``("Conv", "Gemm")``; None for all that have an integer form.
        simulate: Compute with floats what integers would give: float operators between pairs of ``QuantizeLinear`` and
            ``DequantizeLinear``, on the host. Without a budget all tensors are rounded, with one those that the
            cheapest integer program for the targets rounds.
        conversions: ``"disabled"``: one graph. ``"enabled"``: functions ``prefix``, ``core`` and ``suffix``, the core
            without floats. ``"fully_integral"``: the same, and the prefix does nothing but quantize inputs, the suffix
            nothing but dequantize outputs.
        rules: Rule files (or rules) instead of the shipped ones.
        dims: Sizes for symbolic dimensions.
        samples: Calibration samples to use at most.
        noise_samples: Samples on which the noise of each tensor is measured. By default from 8 for small models to 1
            for large ones, as the model runs once for each of them and each tensor.
        check_samples: Samples on which the result is measured.
        objective: ``"worst"`` and ``"random"`` take other programs, to test rules; the budget is no concern of theirs.
        time_limit: Seconds for saturation and extraction; all stages together may take twenty times as much.
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of what the machine, its container or the limits of the process allow.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``.
        progress: Receives events.
        partition_functions: As for :func:`eqsat.optimize`.

    Raises:
        QuantizationError: The data do not fit the model, an option does not exist, the budget cannot be kept, or an
            operator has no integer form where all must have one.
        ModelError, RuleError, TargetError, OptimizationError, LimitError: As for :func:`eqsat.optimize`.
    """
    for name, value in (("samples", samples), ("noise_samples", noise_samples), ("check_samples", check_samples)):
        if value is not None and value < 1:
            raise QuantizationError("at least one sample is required", place=f"option {name}", actual=str(value))
    _check_mode(simulate, conversions)
    # "auto" is settled when there are statistics.
    one = "minmax" if method == "auto" else method
    options = Options(one, percentile, activation, symmetric, per_channel, skip, operators, balance)
    original = load(source, dims=dims)
    required = required_decibel(budget, [v.name or "" for v in original.graph.outputs if _is_float(v)])
    data = _repeatable(calibration, original, samples)
    floats = folded(original, rules, time_limit)
    prepared = load(floats.model)
    options = replace(options, skip=surviving(original, prepared, options.skip))
    tell = _teller(progress)
    seconds: dict[str, float] = {}
    with _timed(seconds, "calibrate"):
        found = calibrate(prepared, data, limit=samples, progress=tell("calibrate"))
    with _timed(seconds, "choose"):
        if method == "auto":
            scheme = most_accurate(prepared, found, options, data, limit=check_samples, progress=tell("choose"))
        else:
            scheme = scheme_of(prepared, found, options)
    if noise_samples is None:
        noise_samples = _affordable_samples(sum(kernel_macs(floats.plan, n) for n in floats.plan.nodes), scheme)
    with _timed(seconds, "measure"):
        noise = measure_noise(prepared, scheme, data, limit=noise_samples, progress=tell("measure"))
    job = Job(
        original,
        prepared,
        scheme,
        noise,
        data,
        options,
        required,
        simulate,
        conversions,
        floats,
        found.samples,
        check_samples,
        seconds,
    )
    if simulate and not required:
        return job.simulated(range(len(scheme.tensors)), 1)
    search = Search(
        prepared,
        targets,
        rules=rules,
        time_limit=time_limit,
        iterations=iterations,
        enodes=enodes,
        progress=progress,
        approximations=[_approximation(scheme, i) for i in approximated(scheme)],
        partition_functions=partition_functions,
    )
    return job.run(search, objective, seed)


def _check_mode(simulate: bool, conversions: str) -> None:
    if conversions not in CONVERSIONS:
        raise QuantizationError(
            f"one of {', '.join(CONVERSIONS)} is required",
            place="option conversions",
            actual=repr(conversions),
            hint=did_you_mean(str(conversions), CONVERSIONS),
        )
    if simulate and conversions != "disabled":
        raise QuantizationError(
            "conversions='disabled' is required where integers are only simulated",
            place="option conversions",
            actual=repr(conversions),
        )


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _repeatable(source: DataSource, model: ir.Model, limit: int | None) -> CalibrationData:
    """The samples as something that can be gone through again and again."""
    data = CalibrationData(source, model)
    # Only what can be gone through once is kept.
    return CalibrationData(list(first_samples(data, model, limit)), model) if hasattr(source, "__next__") else data


def _affordable_samples(work: int, scheme: Scheme) -> int:
    """How many samples noise is measured on, for a model of so many MACs."""
    return max(1, min(MOST_SAMPLES, EFFORT // max(1, work * len(scheme.tensors))))


def _teller(progress: Progress | None) -> Callable[[str], Callable[[calibrating.Progress], None] | None]:
    """Makes receivers of the progress of calibration out of one of events."""

    def of(stage: str) -> Callable[[calibrating.Progress], None] | None:
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
