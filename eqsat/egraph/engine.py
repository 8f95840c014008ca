"""A thin layer over egglog's bindings: runs commands, reads tables as integers, and keeps statistics.

Commands are parsed one at a time: spans hold their whole source text, so parsing many commands at once takes quadratic
time. The clock is checked before each command, and rulesets run to a fixed point some rounds at a time: the number of
rounds grows with the length of a chain of operators without types.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from eqsat.egraph.bindings import bindings
from eqsat.egraph.limits import LastGuard
from eqsat.errors import OptimizationError

SPAN = bindings.PanicSpan()

ROUNDS = 50
"""Rounds towards a fixed point between two checks of the clock."""

CHUNK = 300
"""Actions that are run together."""
FactRow = tuple[str, tuple[int, ...], int | None]
"""Function or relation, arguments, value; the value is None for a row of a relation."""


class TimeUp(Exception):
    """Raised when the time is over and the e-graph is in a state from which no program can be read."""


def integer(value: int) -> bindings.Lit:
    """An integer literal."""
    return bindings.Lit(SPAN, bindings.Int(value))


def call(name: str, *args: Any) -> bindings.Call:
    """An application of a constructor or function."""
    return bindings.Call(SPAN, name, list(args))


class Engine:
    """One egglog e-graph.

    Attributes:
        seconds: Search and apply time by egglog rule name.
        matches: Number of matches by egglog rule name.
        steps: How often a ruleset was run.
        matched: Number of all matches.
        guard: Tells when the time is over.
    """

    def __init__(self) -> None:
        self.egraph = bindings.EGraph()
        self.seconds: dict[str, float] = defaultdict(float)
        self.matches: dict[str, int] = defaultdict(int)
        self.steps = 0
        self.matched = 0
        self.guard = LastGuard()
        self._rules = 0

    def run_text(self, commands: Iterable[str]) -> None:
        """Runs declarations and rules, each string one command."""
        parsed = [c for text in commands for c in self.egraph.parse_program(text)]
        if parsed:
            self.run_commands(parsed)

    def look_at_clock(self) -> None:
        """Raises: TimeUp: The time is over."""
        if self.guard.is_over():
            raise TimeUp

    def run_commands(self, commands: list[Any]) -> list[Any]:
        self.look_at_clock()
        try:
            return self.egraph.run_program(*commands)
        except bindings.EggSmolError as error:
            raise OptimizationError(
                "a program that egglog accepts is required",
                place="e-graph",
                actual=str(error),
                hint="check raw *.egg rules",
            ) from error

    def step(self, ruleset: str, saturate: bool = False) -> bool:
        """Runs one ruleset once, or to its fixed point; returns whether anything changed."""
        schedule: Any = bindings.Run(SPAN, bindings.RunConfig(ruleset))
        if not saturate:
            return self._run(schedule)
        changed = False
        while self._run(bindings.Repeat(SPAN, ROUNDS, schedule)):
            changed = True
        return changed

    def _run(self, schedule: Any) -> bool:
        report = self.run_commands([bindings.RunSchedule(schedule)])[0].report
        self.steps += 1
        for name, count in report.num_matches_per_rule.items():
            self.matches[name] += count
            self.matched += count
        for name, spent in report.search_and_apply_time_per_rule.items():
            self.seconds[name] += spent.total_seconds()
        return report.updated

    def set_facts(self, facts: Iterable[FactRow]) -> None:
        """Writes facts; many facts are written as one rule, which costs egglog half as much as single commands."""
        actions: list[Any] = []
        for function, args, value in facts:
            keys: list[Any] = [integer(a) for a in args]
            if value is None:
                actions.append(bindings.Expr_(SPAN, bindings.Call(SPAN, function, keys)))
            else:
                actions.append(bindings.Set(SPAN, function, keys, integer(value)))
        if len(actions) <= 10:
            self.run_commands([bindings.ActionCommand(a) for a in actions])
        else:
            self.run_once(actions)

    def run_once(self, actions: list[Any]) -> None:
        """Runs actions as the head of a rule without premises."""
        name = f"once{self._rules}"
        self._rules += 1
        rule = bindings.Rule(SPAN, list(actions), [], name, name)
        self.run_commands([bindings.AddRuleset(SPAN, name), bindings.RuleCommand(rule)])
        self.step(name)

    def run_in_chunks(self, actions: Sequence[Any]) -> None:
        """Runs actions that do not share variables, some at a time."""
        for start in range(0, len(actions), CHUNK):
            self.run_once([*actions[start : start + CHUNK]])

    def tables(self) -> dict[str, Any]:
        """The frozen tables by name; rows have ``inputs`` and ``output`` values."""
        return self.egraph.freeze().functions

    def integers(self, rows: Iterable[Any]) -> list[tuple[int, ...]]:
        """Rows whose columns are all integers."""
        to_int = self.egraph.value_to_i64
        return [tuple(map(to_int, row.inputs)) for row in rows]
