"""Saturation: analysis to its fixed point, then one round of all rules, until nothing changes or a limit is met.

A rule is one or more clauses. Each round first *finds* (writes matches and signatures), then answers the new
signatures, then *applies*. A clause with too many matches is held back for some rounds, doubling each time, and
named in the statistics: it can slow a run down but not end it (the back-off scheduler of egg, Willsey et al.,
POPL 2021).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.egraph.answer import Answerer
from eqsat.egraph.compile import CompiledClause, Compiler
from eqsat.egraph.encode import COMMUTED, Encoder
from eqsat.egraph.engine import Engine, Fact
from eqsat.egraph.facts import Facts
from eqsat.egraph.intern import Tables
from eqsat.egraph.language import PRELUDE, Constructor, declare
from eqsat.egraph.seeds import seed_unknown_types
from eqsat.model.types import OpKey
from eqsat.rules.ast import Composite, Rule, Target


@dataclass(frozen=True)
class Limits:
    """When saturation ends at the latest.

    Attributes:
        iterations: Rounds of all rules.
        nodes: e-nodes; None allows a generous multiple of the model's own.
        seconds: Wall-clock time.
        matches: Matches of one clause in one round before it is held back; None as for ``nodes``.
    """

    iterations: int = 30
    nodes: int | None = None
    seconds: float = 30.0
    matches: int | None = None

    def for_model(self, nodes: int) -> Limits:
        """The limits with numbers in place of None, for a model of so many nodes."""
        return Limits(
            self.iterations,
            20 * nodes + 5_000 if self.nodes is None else self.nodes,
            self.seconds,
            4 * nodes + 500 if self.matches is None else self.matches,
        )


@dataclass
class RuleStatistics:
    """What one rule did.

    Attributes:
        matches: How often its pattern matched.
        applied: On how many distinct signatures it applied.
        seconds: Search and apply time inside egglog and answering time in Python.
        held_back: Rounds in which it was held back because it matched too often.
        mismatches: Signatures on which its two sides have different types; there it is not applied.
        mismatch: The first such contradiction, empty if none.
    """

    name: str
    place: str
    matches: int = 0
    applied: int = 0
    seconds: float = 0.0
    held_back: int = 0
    mismatches: int = 0
    mismatch: str = ""


@dataclass
class _State:
    """Run-time state of a clause."""

    clause: CompiledClause
    answerer: Answerer
    statistics: RuleStatistics
    served: set[tuple[int, ...]] = field(default_factory=set)
    pending: int = 0
    banned_until: int = 0
    bans: int = 0


class Saturation:
    """One e-graph with its rules.

    Args:
        model: Loaded and normalised model.
        rules: Rewrite rules that may run (already filtered by numerics).
        targets: Targets whose composites are added.
        limits: When to stop.
        progress: Called with (iteration, e-nodes) after each round.

    Attributes:
        stop_reason: ``"saturated"``, ``"rules held back"``, ``"iteration limit"``, ``"node limit"`` or ``"time limit"``.
        names: Rule number -> name; 0 is the model itself.
    """

    def __init__(
        self,
        model: ir.Model,
        rules: Sequence[Rule],
        targets: Sequence[Target],
        limits: Limits | None = None,
        progress: Callable[[int, int], None] | None = None,
        raw: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.limits = (limits or Limits()).for_model(len(model.graph))
        self.progress = progress
        self.engine = Engine()
        self.tables = Tables()
        self.facts = Facts(self.engine, self.tables)
        self.constructors: dict[str, Constructor] = {}
        self.names = ["", "commutativity"]
        self.statistics: list[RuleStatistics] = []
        self.stop_reason = ""
        self.iterations = 0
        self.enodes = 0
        self._states: list[_State] = []
        self._composite_states: list[_State] = []
        self._by_op: dict[OpKey, list[Constructor]] = {}
        self._prepare(rules, targets, raw)

    # ---- preparation ------------------------------------------------------------------------------

    def _prepare(self, rules: Sequence[Rule], targets: Sequence[Target], raw: Sequence[str]) -> None:
        self.engine.run_text(_commands(PRELUDE))
        encoder = Encoder(self.engine, self.tables)
        self.encoding = encoder.number(self.model)
        for constructor in self.encoding.constructors:
            self._add(constructor)
        clauses = self._compile(rules)
        self._declare_all()
        encoder.write(*self.facts.prime(self.encoding))
        seed_unknown_types(self.engine, self.facts, self.tables.types, self.encoding)
        self._states = [self._state(c) for c in clauses]
        composites = [
            clause
            for number, composite, target in self._number_composites(targets)
            for clause in Compiler(self._by_op).composite(composite, target, number)
        ]
        for i, clause in enumerate(composites):
            clause.key = f"k{i}"
            for constructor in clause.built:
                if constructor.name not in self.constructors:
                    self._add(constructor)
                    self.engine.run_text(declare(constructor, COMMUTED))
        self._composite_states = [self._state(c) for c in composites]
        self._raw = bool(raw)
        if raw:
            self.engine.run_text(["(ruleset user)", *raw])

    def _number_composites(self, targets: Sequence[Target]) -> list[tuple[int, Composite, str]]:
        found = []
        for target in targets:
            for composite in target.composites:
                found.append((self._register(f"{target.name}.{composite.name}", str(composite.place)), composite, target.name))
        return found

    def _register(self, name: str, place: str) -> int:
        self.names.append(name)
        self.statistics.append(RuleStatistics(name, place))
        return len(self.names) - 1

    def _compile(self, rules: Sequence[Rule]) -> list[CompiledClause]:
        """Compiles until no rule builds a constructor that is not there yet."""
        numbers = [self._register(rule.name, str(rule.place)) for rule in rules]
        size = -1
        clauses: list[CompiledClause] = []
        largest = 2 * max((c.inputs for c in self.constructors.values()), default=1) + 8
        compiler = Compiler(self._by_op)
        while size != len(self.constructors):
            size = len(self.constructors)
            clauses = [c for rule, number in zip(rules, numbers, strict=True) for c in compiler.rule(rule, number)]
            for clause in clauses:
                for constructor in clause.built:
                    if constructor.name not in self.constructors and constructor.inputs <= largest:
                        self._add(constructor)
        clauses = [c for c in clauses if all(b.name in self.constructors for b in c.built)]
        for i, clause in enumerate(clauses):
            clause.key = f"r{i}"
        return clauses

    def _add(self, constructor: Constructor) -> None:
        self.constructors[constructor.name] = constructor
        self._by_op.setdefault(constructor.op, []).append(constructor)
        if constructor.outputs and not has_fixed_outputs(constructor):
            self._add_plain(constructor)

    def _add_plain(self, constructor: Constructor) -> None:
        plain = Constructor(constructor.op, constructor.inputs)
        if plain.name not in self.constructors:
            self._add(plain)

    def _declare_all(self) -> None:
        for constructor in self.constructors.values():
            self.engine.run_text(declare(constructor, COMMUTED))
        for constructor in self.constructors.values():
            self.facts.declare(constructor)
            if constructor.outputs and not has_fixed_outputs(constructor):
                plain = Constructor(constructor.op, constructor.inputs)
                call, alone = constructor.call("a", constructor.operands), plain.call("a", plain.operands)
                rule = f"((union e {alone}) {plain.made('a', plain.operands, '0')})"
                self.engine.run_text([f"(rule ((= m {call}) (= e (out m 0))) {rule} :ruleset analysis)"])

    def _state(self, clause: CompiledClause) -> _State:
        self.engine.run_text(clause.commands())
        return _State(clause, Answerer(clause, self.tables), self.statistics[clause.number - 2])

    # ---- running ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Saturates with the rules, then adds the targets' composites."""
        start = time.perf_counter()
        limits = self.limits
        self.facts.saturate()
        self.stop_reason = "iteration limit"
        assert limits.matches is not None and limits.nodes is not None
        for iteration in range(limits.iterations):
            changed = self.engine.step("commute")
            changed |= self._round(self._states, iteration)
            if self._raw:
                changed |= self.engine.step("user")
            self.facts.saturate()
            self.iterations = iteration + 1
            self.enodes = self.count()
            if self.progress is not None:
                self.progress(self.iterations, self.enodes)
            if not changed:
                # Waiting changes nothing; what is held back goes on only if its doubled share suffices.
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
            if time.perf_counter() - start > limits.seconds:
                self.stop_reason = "time limit"
                break
        self.engine.step("commute", saturate=True)
        self.facts.saturate()
        self._round(self._composite_states, 0, throttle=False)
        self.enodes = self.count()
        self._collect()

    def _round(self, states: Sequence[_State], iteration: int, throttle: bool = True) -> bool:
        active = [s for s in states if s.banned_until <= iteration]
        for state in active:
            before = self.engine.matches[f"find {state.clause.key}"]
            self.engine.step(f"find_{state.clause.key}")
            state.pending += self.engine.matches[f"find {state.clause.key}"] - before
        if throttle:
            active = [s for s in active if not self._hold_back(s, iteration)]
        self._answer(active)
        changed = False
        for state in active:
            state.pending = 0
            changed |= self.engine.step(f"apply_{state.clause.key}")
        return changed

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
        facts: list[Fact] = []
        for state in states:
            rows = frozen[f"need_{state.clause.key}"].rows
            if len(rows) == len(state.served):
                continue
            start = time.perf_counter()
            for key in self.engine.integers(rows):
                if key in state.served:
                    continue
                state.served.add(key)
                found = state.answerer.answer(key)
                if found is not None:
                    state.statistics.applied += 1
                    facts.append((f"yes_{state.clause.key}", (*key, *found), None))
            state.statistics.seconds += time.perf_counter() - start
        self.facts.announce_constants()
        self.engine.set_facts(facts)

    def count(self) -> int:
        """Number of e-nodes."""
        frozen = self.engine.tables()
        return sum(len(frozen[name].rows) for name in self.constructors)

    def _collect(self) -> None:
        for state in [*self._states, *self._composite_states]:
            key, statistics = state.clause.key, state.statistics
            statistics.matches += self.engine.matches[f"find {key}"]
            statistics.seconds += self.engine.seconds[f"find {key}"] + self.engine.seconds[f"apply {key}"]
            statistics.mismatches += state.answerer.mismatches
            statistics.mismatch = statistics.mismatch or state.answerer.mismatch


def has_fixed_outputs(constructor: Constructor) -> bool:
    """Whether a tuple's size is part of the operator's meaning, so that it has no plain form."""
    from eqsat.egraph.encode import has_variadic_outputs

    return has_variadic_outputs(constructor.op)


def _commands(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line]
