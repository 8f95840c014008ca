"""The pipeline: a saturated and priced e-graph, from which one or more programs are extracted.

load -> saturate -> price -> extract -> assemble -> export, see :mod:`eqsat.stages`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from eqsat.audit.report import SAMPLES, AuditReport
from eqsat.control.as_it_stands import as_it_stands, left_unchanged
from eqsat.control.compare_rewrites import require_equal
from eqsat.control.flow import Flow, search_flow
from eqsat.control.nested import FoundProgram, Nested
from eqsat.control.totals import solution_with_bodies, verification_with_bodies, verified
from eqsat.control.whole_program import found_program, whole_program
from eqsat.egraph.alternatives import Alternative
from eqsat.egraph.approximate import Approximation
from eqsat.egraph.engine import TimeUp
from eqsat.egraph.limits import MOST_PLACED, MOST_REWRITTEN
from eqsat.egraph.saturate import Additions, Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError, OptimizationError, VerificationError
from eqsat.extract.from_egraph import MappedProblem, Pricing
from eqsat.extract.newest import Newest
from eqsat.extract.runtime_operators import Runtime
from eqsat.model.load import GivenModel
from eqsat.partition.plan import Plan
from eqsat.report.summary import SearchRun
from eqsat.result import Result
from eqsat.rules.ast import Target
from eqsat.schema.chosen_sizes import where_costed
from eqsat.schema.declared_operators import declared
from eqsat.schema.free_sizes import within
from eqsat.stages.clock import Clock
from eqsat.stages.event import Progress
from eqsat.stages.extract import Limited, check_objective, extract
from eqsat.stages.load import LoadedInput, load
from eqsat.stages.newer import about_opset
from eqsat.stages.notes import about_model, about_undecided
from eqsat.stages.options import Objective, SearchOptions
from eqsat.stages.price import PricedGraph, costs_of, price
from eqsat.stages.saturate import saturate
from eqsat.verify.verify import Verifier, switched_off

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Search:
    """A model's saturated and priced e-graph.

    A model that is too large for all of this falls back in steps, and the summary's notes say so: it is placed on the
    targets but not rewritten, or left unchanged. The latter also happens when the time is over before there
    is an e-graph to extract from.

    Attributes:
        options: What was asked for.
        clock: The time that is left.
        loaded: The model, its targets and the rules.
        found: The e-graph; None if the model is left unchanged.
        untouched: Why it is: ``"size limit"`` or ``"time limit"``; empty where it is not.
        notes: What was left out, a sentence each.
        nested: The searches of the bodies of control flow.
        given: The model before its control flow was made simpler, once rules were carried out on it.
        alternatives: Other programs of its loops.
    """

    options: SearchOptions
    clock: Clock
    loaded: LoadedInput
    found: PricedGraph | None
    untouched: str = ""
    notes: tuple[str, ...] = ()
    nested: Nested[Search] = field(default_factory=Nested)
    given: ir.Model | None = None
    alternatives: tuple[Alternative, ...] = ()

    @classmethod
    def of(
        cls,
        source: GivenModel,
        targets: str | Sequence[str | Path | Target] = (),
        *,
        approximations: Sequence[Approximation] = (),
        progress: Progress | None = None,
        **options: Any,
    ) -> Search:
        """The same as :meth:`run` with the keyword arguments of :class:`~eqsat.stages.options.SearchOptions`."""
        asked = SearchOptions(targets=targets, **options)
        return cls.run(source, asked, approximations=approximations, progress=progress)

    @classmethod
    def run(
        cls,
        source: GivenModel,
        options: SearchOptions,
        *,
        approximations: Sequence[Approximation] = (),
        progress: Progress | None = None,
    ) -> Search:
        """Loads, saturates and prices.

        Args:
            source: As for :func:`eqsat.optimize`.
            options: The programs to search, and the limits.
            approximations: Tensors that may be rounded; one then extracts from a problem that limits them.
            progress: Receives events.

        Raises:
            OptimizationError: There are approximations, and the model cannot be searched within the limits.
        """
        clock = Clock(options.time_limit, progress)
        with clock.stage("load"):
            loaded = load(source, options)
        loaded = _believed(loaded, options, clock)
        with declared(loaded.operators), within(loaded.sizes):
            return cls.of_loaded(loaded, options, clock, approximations)

    @classmethod
    def of_loaded(
        cls,
        loaded: LoadedInput,
        options: SearchOptions,
        clock: Clock,
        approximations: Sequence[Approximation],
        counts: dict[str, int] | None = None,
    ) -> Search:
        """Saturates and prices; the operators that the input declares are known.

        Args:
            counts: Of a body: by target the number of the last region that has a name.
        """
        given, numbers = loaded.model, {} if counts is None else counts
        notes = [*loaded.notes, *(about_model(loaded) if counts is None else ())]
        loaded, untouched, about_size = _within_size(loaded)
        notes += about_size
        if not untouched:
            with clock.stage("bodies"):
                flow = search_flow(
                    loaded,
                    clock,
                    lambda body, part: cls.of_loaded(body, options, part, (), numbers),
                    numbers,
                    options.numerics,
                    changes=not approximations,
                )
            loaded = flow.loaded
            notes += flow.nested.notes
            try:
                found = _saturated(flow, options, clock, approximations)
                return cls(options, clock, loaded, found, "", tuple(notes), flow.nested, given, flow.alternatives)
            except TimeUp:
                untouched, limit = "time limit", f"{options.time_limit:g} s"
                notes.append(f"the model is left unchanged: the time limit of {limit} was reached too early")
        loaded = left_unchanged(loaded, options.opset)
        if approximations:
            raise OptimizationError(
                "a model that can be searched within the limits is required for quantization",
                place=loaded.model.graph.name or "",
                actual=notes[-1],
                hint="raise the time limit, or split the model",
            )
        return cls(options, clock, loaded, None, untouched, tuple(notes), given=given)

    @property
    def model(self) -> ir.Model:
        return self.loaded.model

    @property
    def outputs(self) -> list[ir.Value]:
        return self.loaded.outputs

    @property
    def priced(self) -> PricedGraph:
        """The e-graph of a model that is not left unchanged."""
        assert self.found is not None
        return self.found

    @property
    def saturation(self) -> Saturation:
        return self.priced.saturated.saturation

    @property
    def snapshot(self) -> Snapshot:
        return self.priced.saturated.snapshot

    @property
    def formulation(self) -> MappedProblem:
        return self.priced.formulation

    def audit(self, samples: int = SAMPLES) -> AuditReport:
        """Computes every e-node from the values of its operands' classes and compares it with the value of its class.

        This tests all rules on this model at once, whether or not the chosen program uses their results. Each
        disagreement is reported with the rule that made the e-node and the shortest chain of unions. Memory grows with
        the sum of all tensors; those of more than four million elements are left out.

        Args:
            samples: On how many random inputs.
        """
        from eqsat.audit.audit_nodes import audit

        if self.untouched:
            return AuditReport(0, 0, 0, {self.untouched: len(self.model.graph)}, ())
        with self.clock.stage("audit"), declared(self.loaded.operators), within(self.loaded.sizes):
            return audit(self.saturation, samples)

    def extract(
        self,
        objective: Objective = "best",
        seed: int = 0,
        *,
        limited: Limited | None = None,
        share: float = 1.0,
        verify: bool = True,
    ) -> Result:
        """One program; the cheapest one within the remaining time, or another one to test rules with.

        Args:
            objective: Which one.
            seed: Of a random one.
            limited: The problem within a budget, if it is not that of the whole e-graph.
            share: How much of the time that is left may be used.
            verify: Execute the program against the input.

        Raises:
            VerificationError: It computes something else.
        """
        check_objective(objective, seed)
        with declared(self.loaded.operators), within(self.loaded.sizes):
            if self.untouched:
                return as_it_stands(self.loaded, self.options, self.clock, objective, self.untouched, self.notes)
            found = self._found(objective, seed, limited, share)
            if not verify and not self.saturation.additions.approximations:
                return verified(found.result, switched_off("switched off"), self.clock.seconds)
            return self.checked(found, seed)

    def find(self, objective: Objective, seed: int, counts: dict[str, int]) -> FoundProgram:
        """One program, not executed; as a body, where its regions are numbered on from ``counts``."""
        return self._found(objective, seed, None, 1.0, counts)

    def _found(
        self,
        objective: Objective,
        seed: int,
        limited: Limited | None,
        share: float,
        counts: dict[str, int] | None = None,
    ) -> FoundProgram:
        clock, loaded = self.clock, self.loaded
        priced = self.priced if limited is None else replace(self.priced, formulation=limited.formulation)
        solution = extract(priced.formulation, clock, objective, seed, limited=limited, share=share)
        with clock.stage("partition"):
            bodies, numbers = self.nested.find(objective, seed, counts)
            whole = whole_program(priced, solution, loaded, self.options, bodies, numbers)
        is_best = objective == "best" and limited is None
        newer = about_opset(loaded.newer, priced, solution, clock) if is_best else ()
        solution = solution_with_bodies(solution, whole.program, priced.pricing, self.nested.costs_of(whole.inner))
        notes = (*self.notes, *about_undecided(self.saturation.statistics), *newer)
        run = SearchRun(objective, self.options.numerics, clock.seconds, notes)
        return found_program(whole, priced, solution, loaded, self.options, run)

    def checked(self, found: FoundProgram, seed: int) -> Result:
        """The result with its verification, and that of its bodies.

        Raises:
            VerificationError: The result computes something else than the input.
        """
        result, summary = found.result, found.result.summary
        if self.saturation.additions.approximations:
            # Rounded values differ from the input: quantization measures the difference instead. In bodies none are.
            with self.clock.stage("verify"):
                for body in found.inner:
                    body.checked(seed)
            return replace(result, summary=replace(summary, verification=switched_off("rounding is measured instead")))
        with self.clock.stage("verify"):
            changed = self.loaded.given is not self.model
            skipped = require_equal(self.loaded, self.model, seed) if changed else ()
            inner = [body.checked(seed) for body in found.inner]
            seen = verification_with_bodies(self.verifier(result.plan, result.model, seed).run(), inner)
            seen = replace(seen, skipped=(*skipped, *seen.skipped))
        return verified(result, seen, self.clock.seconds)

    def verifier(self, plan: Plan, result: ir.Model, seed: int = 0, *, blame: bool = True) -> Verifier:
        """The verifier, which executes a program against the input and with ``blame`` finds the rule that is wrong."""
        statistics = (*self.saturation.statistics, *self.loaded.placed)
        applied = {s.name for s in statistics if s.applied}
        return Verifier(
            self.model,
            self.saturation.encoding,
            self.snapshot,
            plan,
            result,
            self.outputs,
            self.options.numerics,
            {
                **{rule.name: rule.numerics.kind for rule in self.loaded.every_rule if rule.name in applied},
                **{alternative.name: alternative.numerics for alternative in self.alternatives},
            },
            seed,
            fails=partial(_fails, self) if blame else None,
            sizes=self.loaded.sizes,
            guard=self.clock.guard,
        )


def _believed(loaded: LoadedInput, options: SearchOptions, clock: Clock) -> LoadedInput:
    """The input with notes on its rules that do not ship; they are executed on random operands before."""
    strange = [] if options.trust else loaded.strange
    if not strange:
        return loaded
    from eqsat.check.gate import require_believed

    with clock.paused(), clock.stage("check"), declared(loaded.operators):
        return replace(loaded, notes=(*loaded.notes, *require_believed(strange)))


def _within_size(loaded: LoadedInput) -> tuple[LoadedInput, str, list[str]]:
    """The input, without rules if it is too large for them; why it is left unchanged, if it is; notes on both."""
    size = len(loaded.model.graph)
    if size > MOST_PLACED:
        note = f"the model is left unchanged: it has {size:,} operators, and at most {MOST_PLACED:,} are placed"
        return loaded, "size limit", [note]
    if size <= MOST_REWRITTEN:
        return loaded, "", []
    note = f"no rule was applied: the model has {size:,} operators, and at most {MOST_REWRITTEN:,} are rewritten"
    return replace(loaded, rewriting=(), egg=()), "", [note]


def _saturated(
    flow: Flow[Search], options: SearchOptions, clock: Clock, approximations: Sequence[Approximation]
) -> PricedGraph:
    """The e-graph with its costs.

    Raises:
        TimeUp: The time was over before there was anything to extract from.
    """
    loaded, nested = flow.loaded, flow.nested
    saturated = saturate(
        loaded.model,
        loaded.rewriting,
        loaded.targets,
        clock,
        iterations=options.iterations,
        enodes=options.enodes,
        additions=Additions(
            raw=loaded.egg,
            approximations=tuple(approximations),
            alternatives=flow.alternatives,
            places=tuple(where_costed(loaded.sizes)) if loaded.sizes else (),
        ),
    )
    seen, encoding = saturated.snapshot, saturated.saturation.encoding
    newest = None if options.opset is None else Newest(options.opset, nested.graphs, nested.newer)
    pricing = Pricing(seen, costs_of(loaded), Runtime(seen, encoding), nested.costs, newest)
    return price(saturated, pricing, loaded.outputs, clock)


def _fails(found: Search, model: onnx.ModelProto, rules: Container[str]) -> bool:
    """Whether some rules of a search alone change what a model computes."""
    try:
        suspects = [rule for rule in found.loaded.every_rule if rule.name in rules]
        options = SearchOptions(rules=suspects, default_rules=False, numerics=found.options.numerics, free_sizes=True)
        search = Search.run(model, options)
        programs: list[tuple[Objective, int]] = [("best", 0), ("worst", 0), *(("random", s) for s in range(4))]
        for objective, seed in programs:
            result = search.extract(objective, seed, verify=False)
            search.verifier(result.plan, result.model, blame=False).run()
    except VerificationError:
        return True
    except EqsatError:
        return False
    return False
