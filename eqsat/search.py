"""The whole pipeline on one screen: a saturated e-graph, from which one or more programs are extracted.

load -> encode and saturate -> price -> extract -> assemble -> regions -> ONNX model
"""

from __future__ import annotations

import time
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import onnx_ir as ir

from eqsat.audit.report import SAMPLES, AuditReport
from eqsat.bounds import check_seconds
from eqsat.egraph.approximate import Approximation
from eqsat.egraph.engine import TimeUp
from eqsat.egraph.limits import MOST_PLACED, MOST_REWRITTEN, LastGuard, Limits, RuleStatistics, check_limits
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.errors import ExecutionError, OptimizationError
from eqsat.execute.executor import Executor
from eqsat.extract.cost import needed, program_cost
from eqsat.extract.from_egraph import Formulation, Pricing, formulate, require_static_types
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.solve import solve
from eqsat.extract.ties import settle_ties
from eqsat.extract.together import together
from eqsat.model.load import Source, load
from eqsat.model.save import save
from eqsat.partition.assemble import assemble
from eqsat.partition.functions import to_model
from eqsat.partition.partition_functions import PartitionFunction, annotate_composites, check_names
from eqsat.partition.place import place, split
from eqsat.partition.plan import Plan
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline, is_partitioned
from eqsat.report.collect import RegionInfo, collect, region_infos
from eqsat.report.event import Event, Progress
from eqsat.report.summary import Summary
from eqsat.report.untouched import summarize_untouched
from eqsat.report.write import write
from eqsat.rules.ast import Rule, Target
from eqsat.rules.select import NumericsClass, select_rules
from eqsat.targets.cost import CostModel
from eqsat.targets.registry import load_targets

if TYPE_CHECKING:
    import numpy as np

    from eqsat.codegen.emitted import Emitted

Objective = Literal["best", "worst", "random"]
Backend = Literal["numpy", "c"]


def execute(
    model: ir.Model,
    inputs: Mapping[str, np.ndarray],
    backend: Backend = "numpy",
    vendors: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Executes a model with numpy or as C.

    Raises:
        ExecutionError: An input is missing, unknown, or of another type or shape, or there is no such backend.
        CodegenError: The model cannot become C, or there is no C compiler.
    """
    if vendors and backend != "c":
        raise ExecutionError("the backend `c` is required to call vendors' libraries", actual=repr(backend))
    if backend == "numpy":
        return Executor(model).run(inputs)
    if backend != "c":
        raise ExecutionError("`numpy` or `c` is required as backend", actual=repr(backend))
    from eqsat.codegen.runtime import run_once

    return run_once(model, inputs, vendors=vendors)


@dataclass(frozen=True)
class Result:
    """What :func:`eqsat.optimize` returns.

    Attributes:
        model: The partitioned model: standard ONNX; accelerator regions and composites are local functions.
        cost: Seconds by the cost model: kernels, copies and the dispatch of regions.
        baseline_cost: Seconds of the input as it stands, wholly on the host.
        bound: No program in the e-graph costs less.
        stop_reason: Of the extraction: ``"optimal"``, ``"time limit"``, ``"size limit"``, ...
        regions: In execution order, host pieces too.
        seconds: CPU seconds by stage.
        summary: Everything a report says.
        plan: The program before it became a model.
        choices: The program as the solver chose it.
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
    choices: Mapping[int, Choice] = field(repr=False)

    @property
    def gap(self) -> float:
        """``(cost - bound) / cost``: how far from the optimum the program can be at most."""
        return self.summary.gap

    def run(
        self, inputs: Mapping[str, np.ndarray], backend: Backend = "numpy", vendors: Collection[str] = ()
    ) -> dict[str, np.ndarray]:
        """Executes the optimised model; arrays by name in and out.

        Args:
            inputs: Arrays by input name.
            backend: ``"numpy"``, or ``"c"``: the model is written as C, compiled and called.
            vendors: With ``"c"``, targets whose library executes their regions: ``["dnnl"]`` for oneDNN.

        Raises:
            ExecutionError: An input is missing, unknown, or of another type or shape.
            CodegenError: The model cannot become C, or there is no C compiler or no library of a vendor.
        """
        return execute(self.model, inputs, backend, vendors)

    def codegen(self, folder: str | Path, **options: Any) -> Emitted:
        """Writes the optimised model as a C program that checks itself against a stored run.

        Args:
            folder: Made if it is not there.
            options: ``name``, ``weights``, ``isas``, ``inputs``, ``seed``, ``winograd``, ``host``, ``select`` and
                ``vendors`` of :func:`eqsat.codegen.folder.write_program`.

        Raises:
            CodegenError: The model cannot become C: all reasons are listed, and nothing is written.
        """
        from eqsat.codegen.folder import write_program

        return write_program(self.model, folder, **options)

    def save(self, path: str | Path) -> None:
        """Writes the optimised model as ONNX.

        Raises:
            ModelError: The file cannot be written.
        """
        save(self.model, path)

    def report(self, path: str | Path) -> None:
        """Writes the report: ``.html``, ``.json`` or ``.txt`` by the name."""
        write(self.summary, Path(path))

    def __repr__(self) -> str:
        return (
            f"<eqsat.Result {self.summary.model}: cost {self.cost:.3g} s (was {self.baseline_cost:.3g} s), "
            f"gap {self.gap:.1g}, {self.summary.after.regions} regions, "
            f"{self.summary.after.host_operators} operators on the host>"
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


class Search:
    """A model's saturated and priced e-graph; the arguments are those of :func:`eqsat.optimize`.

    With ``approximations``, tensors that may be rounded, one extracts from a formulation that limits them.

    A model that is too large for all of this falls back in steps, and the summary's notes say so: it is placed on the
    targets but not rewritten, or left as it stands. The latter is also what is left when the time is over before there
    is an e-graph to extract from.

    Attributes:
        untouched: Why the model is left as it stands: ``"size limit"`` or ``"time limit"``; empty where it is not.
        notes: What was left out, a sentence each.
    """

    def __init__(
        self,
        source: Source,
        targets: str | Sequence[str | Path | Target] = (),
        *,
        rules: Sequence[str | Path | Rule] | None = None,
        dims: Mapping[str, int] | None = None,
        numerics: NumericsClass = "real",
        time_limit: float = 30.0,
        iterations: int | None = None,
        enodes: int | None = None,
        progress: Progress | None = None,
        partition_functions: Mapping[str, PartitionFunction] | None = None,
        approximations: Sequence[Approximation] = (),
    ) -> None:
        check_seconds(time_limit)
        check_limits(iterations, enodes)
        self.clock = clock = _Clock(progress)
        self.numerics = numerics
        self.approximations = approximations
        self.deadline = time.perf_counter() + time_limit
        self.guard = LastGuard(time_limit)
        with clock.stage("load"):
            self.model = load(source, dims=dims)
            if is_partitioned(self.model):
                self.model = load(inline(self.model, operators=False))
            self.targets = load_targets(targets)
            self.partition_functions = dict(partition_functions or {})
            check_names(self.partition_functions, self.targets)
            selected = select_rules(rules, numerics)
            placing, rewriting = split(selected.rules)
            self.model, placed = place(self.model, placing)
        self.outputs = list(self.model.graph.outputs)
        require_static_types(self.model.graph.inputs)
        self.notes: list[str] = []
        self.untouched = ""
        size = len(self.model.graph)
        if size > MOST_PLACED:
            self._leave(
                "size limit",
                f"the model is left as it stands: it has {size:,} operators, and at most {MOST_PLACED:,} are placed",
            )
            return
        if size > MOST_REWRITTEN:
            rewriting, egg = [], ()
            self.notes.append(f"no rule was applied: the model has {size:,} operators, and {MOST_REWRITTEN:,} may have")
        else:
            egg = selected.egg
        try:
            self._saturate(rewriting, egg, iterations, enodes, approximations, placed)
        except TimeUp:
            self._leave(
                "time limit", f"the model is left as it stands: the time limit of {time_limit:g} s was met too soon"
            )

    def _leave(self, reason: str, note: str) -> None:
        """Gives up on everything but the model itself."""
        if self.approximations:
            raise OptimizationError(
                "a model that can be searched within the limits is required to be quantized",
                place=self.model.graph.name or "",
                actual=note,
                hint="raise the time limit, or split the model",
            )
        self.untouched = reason
        self.notes.append(note)

    def _saturate(
        self,
        rewriting: Sequence[Rule],
        egg: Sequence[str],
        iterations: int | None,
        enodes: int | None,
        approximations: Sequence[Approximation],
        placed: list[RuleStatistics],
    ) -> None:
        """Builds the e-graph and prices it.

        Raises:
            TimeUp: The time limit was met before there was anything to extract from.
        """
        clock = self.clock
        left = self.deadline - time.perf_counter()
        with clock.stage("encode"):
            self.saturation = Saturation(
                self.model,
                rewriting,
                self.targets,
                Limits(Limits.iterations if iterations is None else iterations, enodes, left / 2),
                lambda iteration, nodes: clock.say(Event("saturate", iteration=iteration, enodes=nodes)),
                egg,
                approximations,
                self.guard,
            )
        with clock.stage("saturate"):
            self.saturation.run()
            self.saturation.statistics += placed
            self.snapshot = snapshot(self.saturation)
        with clock.stage("price"):
            self.pricing = Pricing(self.snapshot, CostModel(self.targets))
            self.formulation = self.formulate()

    def formulate(self, forbidden: Container[int] = ()) -> Formulation:
        """The extraction problem without some e-nodes."""
        return formulate(self.snapshot, self.saturation.encoding, self.outputs, self.pricing, forbidden)

    def audit(self, samples: int = SAMPLES) -> AuditReport:
        """Computes every e-node from the values of its operands' classes and compares it with the value of its class.

        This tests all rules on this model at once, whether or not the chosen program uses what they made. Each
        disagreement is told with the rule that made the e-node and the shortest chain of unions. Memory grows with the
        sum of all tensors; those of more than four million elements are left out.

        Args:
            samples: On how many random inputs.
        """
        from eqsat.audit import audit

        if self.untouched:
            return AuditReport(0, 0, 0, {self.untouched: len(self.model.graph)}, ())
        with self.clock.stage("audit"):
            return audit(self.saturation, samples)

    def extract(
        self,
        objective: Objective = "best",
        seed: int = 0,
        *,
        formulation: Formulation | None = None,
        solved: Problem | None = None,
        slack: float = 0.0,
        share: float = 1.0,
    ) -> Result:
        """One program; the least costly within what is left of the time, or another one to test rules with.

        Args:
            objective: Which one.
            seed: Of a random one.
            formulation: The problem, if it is not that of the whole e-graph.
            solved: A problem with the same programs, to be solved in place of it.
            slack: By how much a program may be dearer there.
            share: How much of the time that is left may be used.
        """
        if objective not in get_args(Objective):
            names = ", ".join(get_args(Objective))
            raise OptimizationError(f"an objective ({names}) is required", place="objective", actual=repr(objective))
        if not isinstance(seed, int) or seed < 0:
            raise OptimizationError("a seed of 0 or more is required", place="seed", actual=repr(seed))
        if self.untouched:
            return self._as_it_stands(objective)
        clock, encoding = self.clock, self.saturation.encoding
        formulation = formulation or self.formulation
        problem = formulation.problem
        with clock.stage("extract"):
            solution = solve(
                solved or problem,
                time_limit=max(share * (self.deadline - time.perf_counter()), 0.1),
                objective=objective,
                seed=seed,
                # Where programs are restricted, the input's own need not be one of them.
                incumbent=formulation.original if needed(problem, formulation.original) is not None else None,
                progress=lambda step, cost, bound: clock.say(Event("extract", cost=cost, bound=bound)),
            )
            choices = together(formulation, solution.choices)
            if choices != solution.choices:
                solution = replace(solution, choices=choices, cost=program_cost(problem, choices))
            if solved is not None:
                cost = program_cost(problem, solution.choices)
                bound = min(max(solution.bound - slack, 0.0), cost)
                solution = replace(solution, cost=cost, bound=bound)
            elif objective == "best":
                solution = replace(solution, choices=settle_ties(formulation, solution.choices))
        with clock.stage("partition"):
            # Behind the classes of the e-graph there may be some that only carry weights.
            choices = {c: choice for c, choice in solution.choices.items() if c < len(formulation.eclass)}
            assembled = assemble(formulation, choices, encoding, self.outputs)
            assembled = annotate_composites(assembled, self.targets, self.partition_functions)
            pieces = regions(assembled.plan)
            optimised = to_model(assembled.plan, pieces, self.model)
        summary = collect(
            self.model,
            self.saturation,
            formulation,
            solution,
            assembled,
            pieces,
            self.pricing,
            self.targets,
            clock.seconds,
            objective,
            self.numerics,
            self.notes,
        )
        return Result(
            model=optimised,
            cost=solution.cost,
            baseline_cost=formulation.baseline,
            bound=solution.bound,
            stop_reason=solution.stop_reason,
            regions=region_infos(summary),
            seconds=dict(clock.seconds),
            summary=summary,
            plan=assembled.plan,
            choices=solution.choices,
        )

    def _as_it_stands(self, objective: Objective) -> Result:
        """The model itself, on the host."""
        clock = self.clock
        costs = CostModel(self.targets)
        with clock.stage("price"):
            summary = summarize_untouched(
                self.model, costs, clock.seconds, objective, self.numerics, self.untouched, self.notes
            )
        names = tuple(t.name for t in self.targets)
        return Result(
            model=self.model,
            cost=summary.after.cost,
            baseline_cost=summary.before.cost,
            bound=summary.bound,
            stop_reason=summary.stop_reason,
            regions=region_infos(summary),
            seconds=dict(clock.seconds),
            summary=replace(summary, seconds=dict(clock.seconds)),
            plan=Plan(names, tuple(costs.dispatch(d) for d in range(len(names))), (), (), (), {}, {}, {}),
            choices={},
        )
