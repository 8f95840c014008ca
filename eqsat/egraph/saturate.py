"""Saturation: analysis to its fixed point, then one round of all rules, until nothing changes or a limit is reached.

A rule is one or more clauses. Each round first *finds* (writes matches and signatures), then answers the new
signatures, then *applies*. A clause with too many matches is held back for some rounds, doubling each time, and
named in the statistics: it can slow a run down but not end it (the back-off scheduler of egg, Willsey et al.,
POPL 2021).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.bounds import without_collection
from eqsat.egraph import magnitudes
from eqsat.egraph.alternatives import Alternative, constructors, write_alternatives
from eqsat.egraph.answer import Answerer
from eqsat.egraph.approximate import DEQUANTIZE, NAME, QUANTIZE, Approximation, write_approximations
from eqsat.egraph.bindings import bindings
from eqsat.egraph.combinations import MOST_COMBINATIONS, most_matches
from eqsat.egraph.compile_rules import CompiledClause
from eqsat.egraph.demand_tables import Facts
from eqsat.egraph.encode import Encoder
from eqsat.egraph.engine import SPAN, Engine, FactRow, call, integer
from eqsat.egraph.free_constants import PINNED, declarations, pinned
from eqsat.egraph.intern import Tables
from eqsat.egraph.joins import Columns
from eqsat.egraph.known_sizes import NAME as NAME_OF_SIZES
from eqsat.egraph.known_sizes import readers, write_sizes
from eqsat.egraph.language import PRELUDE, Constructor, declare
from eqsat.egraph.limits import LastGuard, Limits, RuleStatistics
from eqsat.egraph.template import Answer
from eqsat.egraph.vocabulary import Vocabulary
from eqsat.rules.ast import Rule, Target
from eqsat.rules.turned_constants import operators_on_constants

STEP, MATCH, ANSWER, VISIT = 1e-4, 1.5e-6, 5e-4, 1.7e-5
"""Units of work of a run of a ruleset, of a match, of an answer to a signature, and of an e-node in a round."""


@dataclass
class _State:
    """Run-time state of a clause; ``served`` has the answer to each signature, ``sent`` is set once egglog knows it."""

    clause: CompiledClause
    answerer: Answerer
    statistics: RuleStatistics
    served: dict[tuple[int, ...], Answer | None] = field(default_factory=dict)
    variants: set[frozenset[int]] = field(default_factory=set)
    pending: int = 0
    banned_until: int = 0
    bans: int = 0
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Additions:
    """Contents of an e-graph besides a model, rules and composites.

    Attributes:
        raw: Texts of raw egglog rules.
        approximations: Tensors that may be rounded.
        alternatives: Other programs of pieces of the model.
        places: Sizes by symbol at which costs are taken, where sizes are free.
        bounds: For each input by name, the exponent of a power of two that no element reaches in magnitude.
    """

    raw: Sequence[str] = ()
    approximations: Sequence[Approximation] = ()
    alternatives: Sequence[Alternative] = ()
    places: Sequence[Mapping[str, int]] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)


NOTHING = Additions()


class Saturation:
    """One e-graph with its rules.

    Args:
        model: Loaded and normalised model.
        rules: Rewrite rules that may run (already filtered by numerics).
        targets: Targets whose composites are added.
        limits: When to stop.
        additions: Further contents of the e-graph.
        progress: Called with (iteration, e-nodes) after each round.
        guard: When the time is over, :class:`eqsat.egraph.engine.TimeUp` is raised, here and in ``run``.
        record: Whether matches are kept in full, so that unions can be traced (:mod:`eqsat.audit.unions`).

    Attributes:
        stop_reason: ``"saturated"``, ``"rules held back"``, ``"iteration limit"``, ``"node limit"``, ``"work limit"``,
            ``"time limit"``, the last guard.
        names: Rule number -> name; 0 is the model itself.
        has_infinities: Whether the model contains a constant that is not finite.
    """

    def __init__(
        self,
        model: ir.Model,
        rules: Sequence[Rule],
        targets: Sequence[Target],
        limits: Limits | None = None,
        additions: Additions = NOTHING,
        *,
        progress: Callable[[int, int], None] | None = None,
        guard: LastGuard | None = None,
        record: bool = False,
    ) -> None:
        self.model = model
        self.additions = additions
        self.record = record
        self._sources = (tuple(rules), tuple(targets))
        beside = sum(len(alternative.model.graph) for alternative in additions.alternatives)
        self.limits = (limits or Limits()).for_model(len(model.graph) + beside)
        self.progress = progress
        self.engine = Engine()
        self.engine.guard = guard or LastGuard()
        # An e-graph is only given up if it cannot be finished in the other half.
        self._growth = LastGuard(self.engine.guard.left / 2)
        self.tables = Tables(operators_on_constants(targets))
        self.facts = Facts(self.engine, self.tables)
        self.vocabulary = Vocabulary()
        self.names = ["", "commutativity"]
        self.statistics: list[RuleStatistics] = []
        self.stop_reason = ""
        self.iterations = 0
        self.enodes = 0
        self._declared: set[str] = set()
        self._answered = 0
        self._visited = 0
        self._states: list[_State] = []
        self._composite_states: list[_State] = []
        with without_collection():
            self._prepare(rules, targets, additions.raw)

    # ---- preparation ------------------------------------------------------------------------------

    def _prepare(self, rules: Sequence[Rule], targets: Sequence[Target], raw: Sequence[str]) -> None:
        engine, vocabulary = self.engine, self.vocabulary
        engine.run_text([*PRELUDE, *declarations(), *magnitudes.declarations()])
        encoder = Encoder(engine, self.tables)
        self.encoding = encoder.number(self.model)
        for constructor in (*self.encoding.constructors, *readers(self.encoding)):
            vocabulary.add(constructor)
        for constructor in (QUANTIZE, DEQUANTIZE) if self.additions.approximations else ():
            vocabulary.add(constructor)
        for constructor in constructors(self.additions.alternatives):
            vocabulary.add(constructor)
        own = () if raw else tuple(vocabulary.constructors.values())
        numbers = [self._register(rule.name, str(rule.place)) for rule in rules]
        clauses = vocabulary.compile_rules(rules, numbers, engine.look_at_clock)
        for constructor in own or vocabulary.constructors.values():
            self._declare(constructor)
            self.facts.declare(constructor)
        types, values = self.facts.prime(self.encoding)
        self.facts.known_sizes.read_first(self.encoding, types)
        encoder.write(types, values)
        self._write_sizes()
        self._pin()
        self._bound()
        self.has_infinities = self.facts.has_infinities(self.encoding)
        if self.has_infinities:
            for clause in clauses:
                clause.watch()
        self.facts.saturate()
        self._states = [self._state(c) for c in clauses]
        coarse = [(t, c, self._register(f"{t.name}.{c.name}", str(c.place))) for t in targets for c in t.composites]
        self._write_alternatives()
        if self.additions.approximations:
            self.names.append(NAME)
            write_approximations(engine, self.tables, self.encoding, self.additions.approximations, len(self.names) - 1)
        composites = vocabulary.compile_composites(coarse)
        self._composite_states = [self._state(c) for c in composites]
        columns = Columns(engine.tables())
        for state in [*self._states, *self._composite_states]:
            self._send(state, columns)
        self._raw = bool(raw)
        if raw:
            engine.run_text(["(ruleset user)", *raw])

    def _declare(self, constructor: Constructor) -> None:
        """Tells egglog of a constructor, and of the plain form of one with a tuple, before it gets e-nodes."""
        if constructor.name in self._declared:
            return
        self._declared.add(constructor.name)
        self.engine.run_text(declare(constructor))
        if constructor.first_stands_alone:
            self._declare(constructor.first)

    @property
    def constructors(self) -> list[Constructor]:
        """Constructors of possible e-nodes, in the order of the vocabulary."""
        return [c for name, c in self.vocabulary.constructors.items() if name in self._declared]

    def _write_sizes(self) -> None:
        known = self.facts.known_sizes
        if known.literals or known.parts:
            number = self._register(NAME_OF_SIZES, "")
            statistics = self.statistics[number - 2]
            statistics.matches = statistics.applied = len(known.literals) + len(known.parts)
            write_sizes(self.engine, self.encoding, known, number)

    def _write_alternatives(self) -> None:
        numbers: dict[str, int] = {}
        for alternative in self.additions.alternatives:
            if alternative.name not in numbers:
                numbers[alternative.name] = self._register(alternative.name, "")
            statistics = self.statistics[numbers[alternative.name] - 2]
            statistics.matches, statistics.applied = statistics.matches + 1, statistics.applied + 1
        write_alternatives(
            self.engine,
            self.tables,
            self.encoding,
            self.additions.alternatives,
            [numbers[a.name] for a in self.additions.alternatives],
            len(self.encoding.values) + len(self.additions.approximations),
        )

    def _pin(self) -> None:
        facts = [
            bindings.Set(SPAN, gathering.fact, [call("ref", integer(k))], integer(PINNED))
            for gathering, values in pinned(self.encoding).items()
            for k in values
        ]
        self.engine.run_in_chunks(facts)

    def _bound(self) -> None:
        values = {value.name or "": self.encoding.number[value] for value in self.encoding.inputs}
        bounds = self.additions.bounds.items()
        reach = [(call("ref", integer(values[name])), integer(exponent)) for name, exponent in bounds]
        if reach:
            self.engine.run_once([bindings.Set(SPAN, "magnitude", [value], exponent) for value, exponent in reach])

    def _register(self, name: str, place: str) -> int:
        self.names.append(name)
        self.statistics.append(RuleStatistics(name, place))
        return len(self.names) - 1

    def recorded(self) -> Saturation:
        """Repeats the saturation and records its matches in full."""
        again = Saturation(self.model, *self._sources, self.limits, self.additions, record=True)
        again.run()
        return again

    def _state(self, clause: CompiledClause) -> _State:
        if self.record:
            clause.record()
        return _State(clause, Answerer(clause, self.tables, self.additions.places), self.statistics[clause.number - 2])

    # ---- running ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Saturates with the rules, then adds the targets' composites."""
        limits = self.limits
        self.facts.saturate()
        self.stop_reason = "iteration limit"
        assert limits.matches is not None and limits.nodes is not None
        for iteration in range(limits.iterations):
            changed = self.engine.step("commute")
            changed |= self._round(self._states, iteration)
            changed |= self._gather(iteration)
            if self._raw:
                changed |= self.engine.step("user")
            self.facts.saturate()
            self.iterations = iteration + 1
            self._count()
            if self.progress is not None:
                self.progress(self.iterations, self.enodes)
            if not changed:
                # Waiting changes nothing; a rule that is held back continues only if its doubled share suffices.
                waiting = [s for s in self._states if s.banned_until > iteration]
                ready = [s for s in waiting if s.pending <= limits.matches << s.bans]
                for state in ready:
                    state.banned_until = 0
                if not ready:
                    self.stop_reason = "rules held back" if waiting else "saturated"
                    break
            if self.enodes > limits.nodes:
                self.stop_reason = "node limit"
                break
            if self._is_over():
                self.stop_reason = "work limit" if self.work > limits.work else "time limit"
                break
        self.engine.step("commute", saturate=True)
        self.facts.saturate()
        self._round(self._composite_states, 0, throttle=False)
        self.enodes = self.count()
        self._collect()

    def _round(self, states: Sequence[_State], iteration: int, throttle: bool = True) -> bool:
        active = []
        # Finding adds no e-nodes, so that one check serves the whole round.
        frozen: Columns | None = None
        for state in states:
            if state.banned_until > iteration:
                continue
            if throttle and self._is_over():
                break
            if not state.sent:
                frozen = frozen or Columns(self.engine.tables())
                if not self._send(state, frozen):
                    continue
            active.append(state)
            if len(state.clause.query.roots) > 1:
                frozen = frozen or Columns(self.engine.tables())
                matches = most_matches(state.clause.query.sites, frozen.tables)
                if matches > MOST_COMBINATIONS:
                    state.pending = matches
                    state.statistics.held_back += not throttle
                    continue
            before = self.engine.matches[f"find {state.clause.key}"]
            self.engine.step(f"find_{state.clause.key}")
            state.pending += self.engine.matches[f"find {state.clause.key}"] - before
        if throttle:
            active = [s for s in active if not self._hold_back(s, iteration)]
        self._answer(active)
        changed = False
        for state in active:
            state.pending = 0
            if self.engine.step(f"apply_{state.clause.key}"):
                changed = True
                for constructor in state.clause.built:
                    self.facts.declare(constructor)
        return changed

    def _send(self, state: _State, columns: Columns) -> bool:
        """Gives a clause to egglog once it may match: most clauses never can."""
        state.sent = columns.may_join(state.clause.query.sites)
        if state.sent:
            self.engine.run_text(state.clause.commands())
        return state.sent

    def _gather(self, iteration: int) -> bool:
        """Runs the rules that gather constants to their fixed point: it takes as many steps as a sum has terms, and
        rounds do not depend on that.
        """
        assert self.limits.nodes is not None
        gathering = [s for s in self._states if s.clause.gathers]
        changed = False
        while gathering and self.enodes <= self.limits.nodes and not self._is_over():
            self.facts.saturate()
            self.engine.step("commute")
            if not self._round(gathering, iteration):
                break
            self._count()
            changed = True
        return changed

    @property
    def work(self) -> float:
        """The work so far, in units of about a second on a usual machine; the same in each run."""
        engine = self.engine
        return STEP * engine.steps + MATCH * engine.matched + ANSWER * self._answered + VISIT * self._visited

    def _count(self) -> None:
        self.enodes = self.count()
        self._visited += self.enodes

    def _is_over(self) -> bool:
        """Whether rules end between two clauses, long before a guard gives up the e-graph."""
        return self.work > self.limits.work or self._growth.is_over()

    def _hold_back(self, state: _State, iteration: int) -> bool:
        assert self.limits.matches is not None
        if state.pending <= self.limits.matches << state.bans:
            return False
        state.bans += 1
        state.banned_until = iteration + 1 + (1 << state.bans)
        state.statistics.held_back += 1 << state.bans
        return True

    def _answer(self, states: Sequence[_State]) -> None:
        frozen = self.engine.tables()
        facts: list[FactRow] = []
        for state in states:
            rows = frozen[f"need_{state.clause.key}"].rows
            if len(rows) == len(state.served):
                continue
            start = time.perf_counter()
            for key in self.engine.integers(rows):
                if key in state.served:
                    continue
                if len(state.served) % 64 == 0:
                    self.engine.look_at_clock()
                found = state.served[key] = state.answerer.answer(key)
                self._answered += 1
                if found is not None:
                    state.statistics.applied += 1
                    if found.folded not in state.variants:
                        state.variants.add(found.folded)
                        for constructor in state.clause.built:
                            self._declare(constructor)
                        self.engine.run_text(state.clause.apply_commands(found.folded))
                    facts.append((state.clause.yes(found.folded), (*key, *found.columns), None))
            state.statistics.seconds += time.perf_counter() - start
        self.facts.announce_constants()
        self.engine.set_facts(facts)

    def clauses(self) -> Iterator[tuple[CompiledClause, Answerer]]:
        """All clauses that egglog has searched for, each with the answerer of its signatures."""
        for state in [*self._states, *self._composite_states]:
            if state.sent:
                yield state.clause, state.answerer

    def answered(self) -> Iterator[tuple[CompiledClause, Mapping[tuple[int, ...], Answer | None]]]:
        """All clauses that egglog has searched for, each with the answers that its signatures had."""
        for state in [*self._states, *self._composite_states]:
            if state.sent:
                yield state.clause, state.served

    def count(self) -> int:
        """Number of e-nodes."""
        frozen = self.engine.tables()
        return sum(len(frozen[name].rows) for name in (*(c.name for c in self.constructors), "Wide", "WideM"))

    def _collect(self) -> None:
        for state in [*self._states, *self._composite_states]:
            key, statistics = state.clause.key, state.statistics
            statistics.matches += self.engine.matches[f"find {key}"]
            statistics.seconds += self.engine.seconds[f"find {key}"]
            statistics.seconds += sum(self.engine.seconds[state.clause.applying(v)] for v in state.variants)
            statistics.mismatches += state.answerer.mismatches
            statistics.mismatch = statistics.mismatch or state.answerer.mismatch
            statistics.misfits += state.answerer.misfits
            statistics.misfit = statistics.misfit or state.answerer.misfit
            statistics.unknown = statistics.unknown or state.answerer.unknown
            undecided = state.answerer.undecided
            statistics.undecided += undecided.signatures
            statistics.undecided_condition = statistics.undecided_condition or undecided.example
