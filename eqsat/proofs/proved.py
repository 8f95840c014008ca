"""The strongest statement about each rule: proven, decided, executed, or refuted."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqsat.arguments import checks_arguments
from eqsat.check.checked import verdict_of, why_undecided
from eqsat.check.outcome import Outcome
from eqsat.check.rule import check_rule
from eqsat.errors import EqsatError, RuleError, reason
from eqsat.proofs.prover import Attempted, Within, prove_bounded, prove_every_rank
from eqsat.rules import rules_cache
from eqsat.rules.ast import Rule
from eqsat.rules.user_operators import Declaration
from eqsat.rules.user_operators import declarations as declaring
from eqsat.rules.verdicts import Trust, content_of, keep_verdict

INSTANCES = 40
"""Executions of a rule that is not proven."""
ATTEMPTS = 4_000
"""To draw them."""
MOST_KEPT = 4_096
"""Verdicts in the cache."""
_ROOMS = ("proofs", "check", "egraph", "execute")

WORDS: dict[Trust, str] = {
    "proven": "proven for all ranks and sizes",
    "bounded": "proven for all values at bounded ranks and sizes",
    "decided": "decided by exact arithmetic",
    "executed": "executed",
    "refuted": "refuted",
    "undecided": "not executed, since no instance was found",
}
"""From the strongest to the weakest."""
_HOW = {
    "same": "both sides apply the same operators to the same elements",
    "ring": "both sides are the same sums of products",
    "reals": "over the real numbers",
    "bits": "in the arithmetic of each element type",
    "values": "for all ranks and sizes: all values of the elements were computed",
}


@dataclass(frozen=True)
class ProvenRule:
    """The result of proving a rule.

    Attributes:
        trust: The verdict: ``"proven"``, ``"bounded"``, ``"decided"``, ``"executed"``, ``"refuted"``, ``"undecided"``.
        detail: How it was proven, the bounds, or the counterexample of a refuted rule.
        why_not: Why it is not proven.
        instances: Number of executed instances of a rule that is not proven.
    """

    rule: Rule = field(repr=False)
    trust: Trust
    detail: str = ""
    why_not: str = ""
    instances: int = 0

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def words(self) -> str:
        """The verdict as a sentence has it."""
        if self.trust == "executed":
            return f"executed {self.instances} time{'' if self.instances == 1 else 's'}"
        return WORDS[self.trust]

    def __str__(self) -> str:
        lines = [f"{self.trust:9}  {self.rule.name} : {self.rule.numerics}  ({self.words})"]
        lines += [f"    {line}" for line in self.detail.splitlines()]
        if self.why_not:
            lines.append(f"    not proven for all ranks: {self.why_not}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.rule.name,
            "numerics": str(self.rule.numerics),
            "place": str(self.rule.place),
            "verdict": self.trust,
            "words": self.words,
            "detail": self.detail,
            "not_proven": self.why_not,
            "instances": self.instances,
        }


@checks_arguments
def prove_rules(
    sources: str | Path | Rule | Sequence[str | Path | Rule] | None = None,
    *,
    names: Sequence[str] = (),
    declarations: Sequence[Declaration] = (),
) -> list[ProvenRule]:
    """Proves rules as far as possible, and executes the others.

    Limits count steps, so that a rule always gets the same verdict. The user's cache keeps verdicts by the content of
    the rule.

    Args:
        sources: Rule files, target files, whose own rules are proven, or single rules; the shipped rules by default.
        names: Of the rules to prove; all of them by default.
        declarations: Files and operators that declare operators that the rules name.

    Returns:
        One entry a rule, in order; a rule ``<=>`` is two, the second named ``NAME.reverse``.

    Raises:
        RuleError: A file cannot be read, there is no rule of a name, or the solver is not installed.
    """
    from eqsat.rules.selection import named_rules, rules_in, shipped_rules

    given = shipped_rules() if sources is None else [sources] if isinstance(sources, str | Path | Rule) else sources
    _require_solver()
    with declaring(*declarations):
        return [prove(rule) for rule in named_rules(rules_in(given), names)]


def prove(rule: Rule) -> ProvenRule:
    """The verdict on one rule, from the cache if it is there."""
    found = _found(rule)
    keep_verdict(rule, found.trust)
    return found


def _found(rule: Rule) -> ProvenRule:
    key = _key(rule)
    text = None if key is None else rules_cache.find_text("proven", key)
    if text is not None:
        found = _restored(rule, text)
        if found is not None:
            return found
    found = _proven(rule)
    if key is not None:
        entry = json.dumps([found.trust, found.detail, found.why_not, found.instances])
        rules_cache.keep_text("proven", key, entry, MOST_KEPT)
    return found


def _proven(rule: Rule) -> ProvenRule:
    if any(rule.name == str(operator.op) for operator in rule.operators):
        return ProvenRule(rule, "proven", "the body of an operator is its meaning")
    attempt = _attempted(rule)
    if attempt.proven:
        return ProvenRule(rule, "decided" if attempt.how == "values" else "proven", _HOW[attempt.how])
    # A rule that is proven within bounds may be wrong beyond them: a counterexample counts more.
    outcome = _executed(rule)
    verdict = "undecided" if isinstance(outcome, str) else verdict_of(outcome)
    if verdict == "refuted" and not isinstance(outcome, str):
        text = str(outcome.counterexamples[0]).removeprefix(f"{rule.place}: ")
        return ProvenRule(rule, "refuted", text, instances=outcome.instances)
    within = _bounded(rule)
    if within.bounds is not None:
        count = f"{within.tried:,} combination{'' if within.tried == 1 else 's'} of shapes and attributes"
        return ProvenRule(rule, "bounded", f"{within.bounds}: {count}, {_HOW[within.how]}", attempt.reason)
    if isinstance(outcome, str):
        return ProvenRule(rule, "undecided", outcome, attempt.reason)
    if verdict == "undecided":
        return ProvenRule(rule, "undecided", why_undecided(outcome), attempt.reason)
    return ProvenRule(rule, "executed", why_not=attempt.reason, instances=outcome.instances)


def _attempted(rule: Rule) -> Attempted:
    try:
        return prove_every_rank(rule)
    except EqsatError as error:  # an expression that takes more steps than it may
        return Attempted(False, reason=reason(error))


def _bounded(rule: Rule) -> Within:
    try:
        return prove_bounded(rule)
    except (EqsatError, ValueError, IndexError, TypeError) as error:  # an operator that refuses what was tried
        return Within(reason=reason(error))


def _executed(rule: Rule) -> Outcome | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of means of empty arrays and the like
        try:
            return check_rule(rule, instances=INSTANCES, attempts=ATTEMPTS, pointed=True)
        except Exception as error:  # functions of users may be among the executed operators
            return f"it cannot be executed: {reason(error)}"


def _require_solver() -> None:
    try:
        import z3  # noqa: F401
    except ImportError:
        raise RuleError(
            "the solver z3 is required to prove rules",
            actual="an environment without it",
            hint="pip install 'eqsat[prove]'; `eqsat rules check` executes rules and does not need it",
        ) from None


def _key(rule: Rule) -> str | None:
    """The name in the cache; None for rules about operators that are functions of this process."""
    import z3

    text = content_of(rule)
    given = (INSTANCES, ATTEMPTS, *z3.get_version())
    return None if text is None else rules_cache.key_of([("rule", text)], given, rooms=_ROOMS)


def _restored(rule: Rule, text: str) -> ProvenRule | None:
    try:
        trust, detail, why_not, instances = json.loads(text)
    except ValueError:
        return None
    return ProvenRule(rule, trust, detail, why_not, instances) if trust in WORDS else None
