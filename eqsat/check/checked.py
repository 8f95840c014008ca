"""Checks the rules of files as their author wants it: a verdict for each, where it fails, and what makes it useless."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from eqsat.arguments import checks_arguments
from eqsat.check import lints
from eqsat.check.domain import Domain
from eqsat.check.instance import show
from eqsat.check.outcome import Outcome, RuleCounterexample
from eqsat.check.rule import ObservedInstance, check_rule
from eqsat.errors import RuleError
from eqsat.rules.ast import Rule
from eqsat.rules.expand import expand
from eqsat.rules.selection import named_rules, rules_in, select_rules
from eqsat.rules.user_operators import Declaration
from eqsat.rules.user_operators import declarations as declaring
from eqsat.schema.declared_operators import declared

SAMPLES = 40
"""Instances of a rule."""
_ENDLESS = 10**9

RuleVerdict = Literal["holds", "refuted", "undecided"]


@dataclass(frozen=True)
class CheckedRule:
    """The result of executing a rule.

    Attributes:
        verdict: ``"refuted"`` with a counterexample, ``"undecided"`` if no instance was found, else ``"holds"``.
        outcome: All instances; its ``counterexamples`` have the graph, the data and both results.
        reason: Why it is undecided.
        where: A condition that is true where the two sides differ and false where they agree, ``only where c < x``;
            empty if none was found.
        lints: Reasons why the rule is useless although it is not wrong.
        repeat: The command that repeats the check.
    """

    rule: Rule
    verdict: RuleVerdict
    outcome: Outcome = field(repr=False)
    reason: str = ""
    where: str = ""
    lints: tuple[str, ...] = ()
    repeat: str = ""

    @property
    def counterexample(self) -> RuleCounterexample | None:
        """The one with the fewest elements."""
        return self.outcome.counterexamples[0] if self.verdict == "refuted" else None

    def __str__(self) -> str:
        head = f"{self.verdict:9}  {self.rule.name} : {self.rule.numerics}"
        lines = [f"{head}  ({_count(self.outcome.instances, 'instance')})" if self.verdict == "holds" else head]
        if self.counterexample is not None:
            lines += [f"    {line}" for line in str(self.counterexample).splitlines()]
        if self.where:
            lines.append(f"    it fails {self.where}")
        if self.reason:
            lines.append(f"    {self.reason}")
        lines += [f"    note: {lint}" for lint in self.lints]
        if self.verdict == "refuted" and self.repeat:
            lines.append(f"    repeat: {self.repeat}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = self.counterexample
        return {
            "name": self.rule.name,
            "numerics": str(self.rule.numerics),
            "place": str(self.rule.place),
            "verdict": self.verdict,
            "reason": self.reason,
            "instances": self.outcome.instances,
            "element_types": dict(self.outcome.dtypes),
            "where": self.where,
            "notes": list(self.lints),
            "repeat": self.repeat,
            "counterexample": None if found is None else _counterexample(found),
        }


@checks_arguments
def check_rules(
    sources: str | Path | Rule | Sequence[str | Path | Rule],
    *,
    names: Sequence[str] = (),
    samples: int = SAMPLES,
    seed: int = 0,
    declarations: Sequence[Declaration] = (),
) -> list[CheckedRule]:
    """Executes both sides of rules on random instances, and compares the results.

    The work is limited by the number of instances and their sizes, so that a seed always gives the same verdict.

    Args:
        sources: Rule files, target files, whose own rules are checked, or single rules.
        names: Names of the rules to check; all of them by default.
        samples: Instances of each rule.
        seed: Seed of the instances.
        declarations: Files, also Python files, which are executed, and operators of :func:`eqsat.operator` that declare
            operators that the rules name.

    Returns:
        One entry for each rule, in order; a rule ``<=>`` is two, the second named ``NAME.reverse``.

    Raises:
        RuleError, TargetError: A file cannot be read, there is no rule of a name, or a number is out of range.
    """
    if samples < 1:
        raise RuleError("a whole number, 1 or more, is required", place="samples", actual=repr(samples))
    given = [sources] if isinstance(sources, str | Path | Rule) else list(sources)
    with declaring(*declarations):
        return _check(given, names, samples, seed)


def _check(sources: Sequence[str | Path | Rule], names: Sequence[str], samples: int, seed: int) -> list[CheckedRule]:
    rules = rules_in(sources)
    chosen = named_rules(rules, names)
    given = {rule.place for rule in rules}
    shipped = [r for r in select_rules((), "approximate", default_rules=True).rules if r.place not in given]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of means of empty arrays and the like
        return [_checked(rule, [*rules, *shipped], samples, seed) for rule in chosen]


def _checked(rule: Rule, others: Sequence[Rule], samples: int, seed: int) -> CheckedRule:
    seen: list[ObservedInstance] = []
    outcome = check_rule(
        rule, instances=samples, seed=seed, stop=_ENDLESS, pointed=True, observe=lambda *observed: seen.append(observed)
    )
    repeat = f"eqsat rules check {shlex.quote(rule.place.file)} --rule {rule.name} --samples {samples} --seed {seed}"
    found = CheckedRule(rule, verdict_of(outcome), outcome, repeat=repeat)
    outcome.counterexamples.sort(key=lambda c: (c.kind == "silent", sum(leaf.array.size for leaf in c.instance.leaves)))
    if found.verdict == "refuted":
        if any(c.kind in ("type", "failure") for c in outcome.counterexamples):
            return found  # The differences that were found may not be all.
        domain = Domain(rule)
        for observed in seen:
            domain.add(*observed)
        return replace(found, where=domain.text())
    instances = [instance for instance, *_ in seen]
    with declared(rule.operators):
        notes = [*lints.silent(outcome), *lints.grows(rule, instances)]
        related = [r for r in others if _roots(r) & _roots(rule)]
        notes += lints.implied(rule, related, instances)
    if outcome.fires:
        return replace(found, lints=tuple(notes))
    return replace(found, reason=why_undecided(outcome), lints=tuple(notes))


def verdict_of(outcome: Outcome) -> RuleVerdict:
    """The consequence of an outcome for the rule."""
    if any(c.kind != "silent" for c in outcome.counterexamples):
        return "refuted"
    return "holds" if outcome.fires else "undecided"


def why_undecided(outcome: Outcome) -> str:
    """The message for a rule without an instance."""
    return f"no instance was found in {_count(outcome.attempts, 'attempt')}: {outcome.why_silent()}"


def _roots(rule: Rule) -> set[Any]:
    return {op for clause in expand(rule.left) for root in clause.roots for op in root.ops}


def _counterexample(found: RuleCounterexample) -> dict[str, Any]:
    instance = found.instance
    return {
        "kind": found.kind,
        "message": found.message,
        "operands": [
            {"name": leaf.name, "type": str(leaf.type), "constant": leaf.constant, "value": show(leaf.array)}
            for leaf in instance.leaves
        ],
        "left": [str(step) for step in instance.steps],
        "value": found.name,
        "right": found.right,
        "left_value": None if found.values is None else show(found.values[0]),
        "right_value": None if found.values is None else show(found.values[1]),
        "seed": list(found.seed),
    }


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
