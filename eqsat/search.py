"""The whole pipeline on one screen: a saturated e-graph, from which one or more programs are extracted.

load -> encode and saturate -> price -> extract -> assemble -> regions -> ONNX model
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import onnx_ir as ir

from eqsat.audit.report import SAMPLES, AuditReport
from eqsat.bounds import check_seconds
from eqsat.egraph.approximate import Approximation
from eqsat.egraph.engine import TimeUp
from eqsat.egraph.limits import MOST_PLACED, MOST_REWRITTEN, LastGuard, Limits, RuleStatistics, check_limits
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.errors import EqsatError, OptimizationError, VerificationError
from eqsat.execute.settle import settled
from eqsat.extract.cost import needed, program_cost
from eqsat.extract.from_egraph import Formulation, Pricing, formulate, require_static_types
from eqsat.extract.problem import Problem
from eqsat.extract.runtime import Runtime
from eqsat.extract.solve import solve
from eqsat.extract.ties import settle_ties
from eqsat.extract.together import together
from eqsat.model.load import Source, load
from eqsat.partition.assemble import assemble
from eqsat.partition.functions import to_model
from eqsat.partition.partition_functions import PartitionFunction, annotate_composites, check_names
from eqsat.partition.place import place, split
from eqsat.partition.plan import Plan
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline, is_partitioned
from eqsat.report.collect import collect, region_infos
from eqsat.report.event import Event, Progress
from eqsat.report.untouched import summarize_untouched
from eqsat.result import Result
from eqsat.rules.ast import Rule, Target
from eqsat.rules.select import NumericsClass, select_rules
from eqsat.targets.cost import CostModel
from eqsat.targets.registry import load_targets
from eqsat.verify.verify import Verifier, switched_off

if TYPE_CHECKING:
    import onnx

Objective = Literal["best", "worst", "random"]


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
        self.numerics: NumericsClass = numerics
        self.approximations = approximations
        self.deadline = time.perf_counter() + time_limit
        self.guard = LastGuard(time_limit)
        with clock.stage("load"):
            self.model = load(source, dims=dims)
            if is_partitioned(self.model):
                self.model = load(inline(self.model, operators=False))
            self.model = settled(self.model)
            self.targets = load_targets(targets)
            self.partition_functions = dict(partition_functions or {})
            check_names(self.partition_functions, self.targets)
            selected = select_rules(rules, numerics)
            self.rules = selected.rules
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
            runtime = Runtime(self.snapshot, self.saturation.encoding)
            self.pricing = Pricing(self.snapshot, CostModel(self.targets, bindable=False), runtime)
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
        verify: bool = True,
    ) -> Result:
        """One program; the least costly within what is left of the time, or another one to test rules with.

        Args:
            objective: Which one.
            seed: Of a random one.
            formulation: The problem, if it is not that of the whole e-graph.
            solved: A problem with the same programs, to be solved in place of it.
            slack: By how much a program may be dearer there.
            share: How much of the time that is left may be used.
            verify: Execute the program against the input.

        Raises:
            VerificationError: It computes something else.
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
        # What is rounded is not what it was: quantization measures it instead.
        rounds = bool(self.saturation.approximations)
        verification = switched_off("rounding is measured instead" if rounds else "switched off")
        if verify and not rounds:
            with clock.stage("verify"):
                verification = self.verifier(assembled.plan, optimised, seed).run()
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
        summary = replace(summary, verification=verification)
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
        costs = CostModel(self.targets, bindable=False)
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
            summary=replace(summary, seconds=dict(clock.seconds), verification=switched_off("nothing was rewritten")),
            plan=Plan(names, tuple(costs.dispatch(d) for d in range(len(names))), (), (), (), {}, {}, {}),
            choices={},
        )

    def verifier(self, plan: Plan, result: ir.Model, seed: int = 0, *, blame: bool = True) -> Verifier:
        """What executes a program against the input, and with ``blame`` finds the rule that is wrong."""
        applied = {s.name for s in self.saturation.statistics if s.applied}
        return Verifier(
            self.model,
            self.saturation.encoding,
            self.snapshot,
            plan,
            result,
            self.outputs,
            self.numerics,
            {rule.name: rule.numerics.kind for rule in self.rules if rule.name in applied},
            seed,
            fails=self._fails if blame else None,
        )

    def _fails(self, model: onnx.ModelProto, rules: Container[str]) -> bool:
        """Whether some of the rules alone make something else of a model."""
        try:
            search = Search(model, rules=[r for r in self.rules if r.name in rules], numerics=self.numerics)
            programs: list[tuple[Objective, int]] = [("best", 0), ("worst", 0), *(("random", s) for s in range(4))]
            for objective, seed in programs:
                found = search.extract(objective, seed, verify=False)
                search.verifier(found.plan, found.model, blame=False).run()
        except VerificationError:
            return True
        except EqsatError:
            return False
        return False
