"""The whole pipeline on one screen, and the other public functions.

load -> encode and saturate -> price -> extract -> assemble -> regions -> ONNX model
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir

from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.execute.compare import Comparison
from eqsat.execute.compare import compare as compare_models
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.extract.formulate import Pricing, formulate, require_static_types
from eqsat.extract.solve import solve
from eqsat.model.load import Source, load
from eqsat.model.save import save
from eqsat.partition.assemble import assemble
from eqsat.partition.functions import to_model
from eqsat.partition.plan import Plan
from eqsat.partition.regions import regions as find_regions
from eqsat.report.collect import RegionInfo, collect, region_infos
from eqsat.report.event import Event, Progress
from eqsat.report.summary import Summary
from eqsat.report.write import write
from eqsat.rules.ast import Target
from eqsat.rules.select import NumericsClass, select_rules
from eqsat.targets.cost import CostModel
from eqsat.targets.registry import load_targets

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Result", "compare", "load", "optimize", "run", "save"]


@dataclass(frozen=True)
class Result:
    """What :func:`optimize` returns.

    Attributes:
        model: The partitioned model: standard ONNX; accelerator regions and composites are local functions.
        cost: Seconds by the cost model: kernels, copies and the dispatch of regions.
        baseline_cost: Seconds of the input as it stands, wholly on the host.
        bound: No program in the e-graph costs less.
        stop_reason: Of the extraction: ``"optimal"``, ``"time limit"``, ...
        regions: In execution order, host pieces too.
        seconds: CPU seconds by stage.
        summary: Everything a report says.
        plan: The program before it became a model.
    """

    model: ir.Model
    cost: float
    baseline_cost: float
    bound: float
    stop_reason: str
    regions: tuple[RegionInfo, ...]
    seconds: dict[str, float]
    summary: Summary
    plan: Plan = field(repr=False)

    @property
    def gap(self) -> float:
        """``(cost - bound) / cost``: how far from the optimum the program can be at most."""
        return self.summary.gap

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Executes the optimised model with numpy; see :func:`run`."""
        return run(self.model, inputs)

    def save(self, path: str | Path) -> None:
        """Writes the optimised model; see :func:`eqsat.save`."""
        save(self.model, path)

    def report(self, path: str | Path) -> None:
        """Writes the report: ``.html``, ``.json`` or ``.txt`` by the name."""
        write(self.summary, Path(path))

    def __repr__(self) -> str:
        pieces = [r for r in self.regions if r.target != self.plan.targets[0]]
        return (
            f"<eqsat.Result {self.summary.model}: cost {self.cost:.3g} s (was {self.baseline_cost:.3g} s), "
            f"gap {self.gap:.1g}, {len(pieces)} regions, {self.summary.after.host_operators} operators on the host>"
        )

    def __str__(self) -> str:
        from eqsat.report.table import as_text

        return as_text(self.summary)


class _Clock:
    """CPU seconds by stage, and the progress events around them."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    def say(self, event: Event) -> None:
        if self._progress is not None:
            self._progress(event)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.say(Event(name))
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start
        self.say(Event(name, done=True))


def optimize(
    source: Source,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    rules: Sequence[str | Path] | None = None,
    dims: Mapping[str, int] | None = None,
    numerics: NumericsClass = "real",
    objective: Literal["best", "worst", "random"] = "best",
    time_limit: float = 30.0,
    iterations: int | None = None,
    enodes: int | None = None,
    seed: int = 0,
    progress: Callable[[Event], None] | None = None,
) -> Result:
    """Finds the cheapest equal program and its placement on host and accelerators.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        targets: Accelerators by name or target file; the host ``cpu`` is always there.
        rules: Rule files instead of the shipped ones; an empty list rewrites nothing.
        dims: Sizes for symbolic dimensions.
        numerics: How far rules may change values: ``"exact"`` to the bit, ``"real"`` equal over the reals.
        objective: ``"worst"`` and ``"random"`` take other equal programs, to test rules.
        time_limit: Seconds for saturation and extraction; then the best so far is the result.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``.
        progress: Receives events.

    Raises:
        ModelError: The model is broken or not supported.
        RuleError, TargetError: A rule or target file is.
        OptimizationError: Sizes are unknown.
    """
    clock = _Clock(progress)
    deadline = time.perf_counter() + time_limit
    with clock.stage("load"):
        model = load(source, dims=dims)
        chosen = load_targets(targets)
        selected = select_rules(rules, numerics)
    outputs = list(model.graph.outputs)
    with clock.stage("encode"):
        limits = _limits(iterations, enodes, time_limit / 2)
        grown = lambda i, n: clock.say(Event("saturate", iteration=i, enodes=n))  # noqa: E731
        saturation = Saturation(model, selected.rules, chosen, limits, grown, selected.egg)
    with clock.stage("saturate"):
        saturation.run()
        egraph = snapshot(saturation)
    with clock.stage("extract"):
        require_static_types(saturation.encoding, egraph)
        pricing = Pricing(egraph, CostModel(chosen))
        formulation = formulate(egraph, saturation.encoding, outputs, pricing)
        solution = solve(
            formulation.problem,
            time_limit=max(deadline - time.perf_counter(), 0.1),
            objective=objective,
            seed=seed,
            incumbent=formulation.original,
            progress=lambda step, cost, bound: clock.say(Event("extract", cost=cost, bound=bound)),
        )
    with clock.stage("partition"):
        assembled = assemble(formulation, solution.choices, saturation.encoding, outputs)
        pieces = find_regions(assembled.plan)
        optimised = to_model(assembled.plan, pieces, model)
    summary = collect(
        model, saturation, formulation, solution, assembled, pieces, pricing, chosen, clock.seconds, objective, numerics
    )
    return Result(
        model=optimised,
        cost=summary.after.cost,
        baseline_cost=summary.before.cost,
        bound=summary.bound,
        stop_reason=solution.stop_reason,
        regions=region_infos(summary),
        seconds=clock.seconds,
        summary=summary,
        plan=assembled.plan,
    )


def _limits(iterations: int | None, enodes: int | None, seconds: float) -> Limits:
    default = Limits(seconds=seconds)
    return Limits(
        iterations=default.iterations if iterations is None else iterations,
        nodes=default.nodes if enodes is None else enodes,
        seconds=seconds,
    )


def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Executes the optimised model with numpy; see :func:`run`."""
        return run(self.model, inputs)

    def save(self, path: str | Path) -> None:
        """Writes the optimised model; see :func:`eqsat.save`."""
        save(self.model, path)

    def report(self, path: str | Path) -> None:
        """Writes the report: ``.html``, ``.json`` or ``.txt`` by the name."""
        write(self.summary, Path(path))

    def __repr__(self) -> str:
        pieces = [r for r in self.regions if r.target != self.plan.targets[0]]
        return (
            f"<eqsat.Result {self.summary.model}: cost {self.cost:.3g} s (was {self.baseline_cost:.3g} s), "
            f"gap {self.gap:.1g}, {len(pieces)} regions, {self.summary.after.host_operators} operators on the host>"
        )

    def __str__(self) -> str:
        from eqsat.report.table import as_text

        return as_text(self.summary)


class _Clock:
    """CPU seconds by stage, and the progress events around them."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    def say(self, event: Event) -> None:
        if self._progress is not None:
            self._progress(event)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.say(Event(name))
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start
        self.say(Event(name, done=True))


def optimize(
    source: Source,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    rules: Sequence[str | Path] | None = None,
    dims: Mapping[str, int] | None = None,
    numerics: NumericsClass = "real",
    objective: Literal["best", "worst", "random"] = "best",
    time_limit: float = 30.0,
    iterations: int | None = None,
    enodes: int | None = None,
    seed: int = 0,
    progress: Callable[[Event], None] | None = None,
) -> Result:
    """Finds the cheapest equal program and its placement on host and accelerators.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        targets: Accelerators by name or target file; the host ``cpu`` is always there.
        rules: Rule files instead of the shipped ones; an empty list rewrites nothing.
        dims: Sizes for symbolic dimensions.
        numerics: How far rules may change values: ``"exact"`` to the bit, ``"real"`` equal over the reals.
        objective: ``"worst"`` and ``"random"`` take other equal programs, to test rules.
        time_limit: Seconds for saturation and extraction; then the best so far is the result.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``.
        progress: Receives events.

    Raises:
        ModelError: The model is broken or not supported.
        RuleError, TargetError: A rule or target file is.
        OptimizationError: Sizes are unknown.
    """
    clock = _Clock(progress)
    deadline = time.perf_counter() + time_limit
    with clock.stage("load"):
        model = load(source, dims=dims)
        chosen = load_targets(targets)
        selected = select_rules(rules, numerics)
    outputs = list(model.graph.outputs)
    with clock.stage("encode"):
        limits = _limits(iterations, enodes, time_limit / 2)
        grown = lambda i, n: clock.say(Event("saturate", iteration=i, enodes=n))  # noqa: E731
        saturation = Saturation(model, selected.rules, chosen, limits, grown, selected.egg)
    with clock.stage("saturate"):
        saturation.run()
        egraph = snapshot(saturation)
    with clock.stage("extract"):
        require_static_types(saturation.encoding, egraph)
        pricing = Pricing(egraph, CostModel(chosen))
        formulation = formulate(egraph, saturation.encoding, outputs, pricing)
        solution = solve(
            formulation.problem,
            time_limit=max(deadline - time.perf_counter(), 0.1),
            objective=objective,
            seed=seed,
            incumbent=formulation.original,
            progress=lambda step, cost, bound: clock.say(Event("extract", cost=cost, bound=bound)),
        )
    with clock.stage("partition"):
        assembled = assemble(formulation, solution.choices, saturation.encoding, outputs)
        pieces = find_regions(assembled.plan)
        optimised = to_model(assembled.plan, pieces, model)
    summary = collect(
        model, saturation, formulation, solution, assembled, pieces, pricing, chosen, clock.seconds, objective, numerics
    )
    return Result(
        model=optimised,
        cost=summary.after.cost,
        baseline_cost=summary.before.cost,
        bound=summary.bound,
        stop_reason=solution.stop_reason,
        regions=region_infos(summary),
        seconds=clock.seconds,
        summary=summary,
        plan=assembled.plan,
    )


def _limits(iterations: int | None, enodes: int | None, seconds: float) -> Limits:
    default = Limits(seconds=seconds)
    return Limits(
        iterations=default.iterations if iterations is None else iterations,
        nodes=default.nodes if enodes is None else enodes,
        seconds=seconds,
    )


def _result(
    model: ir.Model,
    summary: Summary,
    solution: Solution,
    plan: Plan,
    pieces: Sequence[Region],
    pricing: Pricing,
    seconds: dict[str, float],
) -> Result:
    return Result(
        model=model,
        cost=summary.after.cost,
        baseline_cost=summary.before.cost,
        bound=summary.bound,
        stop_reason=solution.stop_reason,
        regions=region_infos(plan, pieces, pricing.costs),
        seconds=seconds,
        summary=summary,
        plan=plan,
    )


def run(source: Source, inputs: Mapping[str, np.ndarray], *, dims: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Executes a model with numpy.

    Args:
        source: As for :func:`optimize`.
        inputs: Arrays by input name.

    Returns:
        Arrays by output name.

    Raises:
        ExecutionError: An input is missing, unknown, or of another type or shape.
    """
    return Executor(load(source, dims=dims)).run(inputs)


def compare(
    first: Source,
    second: Source,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    numerics: NumericsClass = "real",
    rtol: float | None = None,
    atol: float | None = None,
) -> Comparison:
    """Executes two models on the same inputs and says where they first differ.

    Args:
        inputs: Arrays by input name; those not given are drawn at random with ``seed``.
        rtol, atol: Allowed difference, relative to the largest magnitude of a tensor, and absolute.
    """
    a, b = load(first, dims=dims), load(second, dims=dims)
    arrays = complete_inputs(a, dict(inputs or {}), dims=dims, seed=seed)
    return compare_models(a, b, arrays, numerics=numerics, rtol=rtol, atol=atol)
