"""Rules that do not ship with eqsat are executed before a model meets them.

The work is bounded by numbers of instances and attempts. A verdict belongs to the contents of a rule, in any file, and
is kept in the user's cache: a rule is executed once.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.check.checked import CheckedRule, RuleVerdict, verdict_of, why_undecided
from eqsat.check.rule import check_rule
from eqsat.errors import RuleError, reason
from eqsat.rules import rules_cache
from eqsat.rules.ast import Rule
from eqsat.rules.listing import short_place
from eqsat.rules.verdicts import content_of, keep_verdict

INSTANCES = 24
"""Instances of each rule."""
ATTEMPTS = 1_500
"""Attempts to draw the instances of each rule."""
MOST_NAMED = 5
"""Rules that a note lists."""
MOST_KEPT = 1_024
"""Verdicts in the cache."""
_MOST_KNOWN = 4_096
_ROOMS = ("check", "egraph", "execute")


@dataclass(frozen=True)
class Judgement:
    """The part of a check's result that is kept.

    Attributes:
        text: The counterexample, or why the rule is undecided.
    """

    verdict: RuleVerdict
    text: str = ""


_known: dict[int, tuple[Rule, Judgement]] = {}
"""By identity of the rule, which is kept, so that no other one gets it: rules that were read stay the same objects."""


def require_believed(rules: Iterable[Rule]) -> tuple[str, ...]:
    """Executes rules that do not ship, unless that has been done.

    Returns:
        A note on the rules without an instance, if there are any.

    Raises:
        RuleError: A rule is wrong.
    """
    undecided: list[str] = []
    for rule in rules:
        if _defines_operator(rule):
            continue
        judgement = judge(rule)
        if judgement.verdict == "refuted":
            raise RuleError(
                f"a rule whose two sides are equal is required, within what `{rule.numerics}` allows",
                place=str(rule.place),
                actual=f"`{rule.name}`, of which this is a counterexample:\n{judgement.text}",
                hint=f"`eqsat rules check {rule.place.file} --rule {rule.name}` says where it fails; "
                "trust=True (--trust) uses rules unchecked",
            )
        if judgement.verdict == "undecided":
            undecided.append(f"`{rule.name}` ({short_place(rule.place)})")
    if not undecided:
        return ()
    shown = undecided[:MOST_NAMED]
    if len(undecided) > len(shown):
        shown.append(f"and {len(undecided) - len(shown)} more")
    return (
        f"used although not checked, since no instance was found: {', '.join(shown)}; `eqsat rules check` says why",
    )


def judge(rule: Rule) -> Judgement:
    """The verdict on a rule, from the cache if it is there."""
    found = _known.get(id(rule))
    if found is not None and found[0] is rule:
        return found[1]
    key = _key(rule)
    judgement = None if key is None else _kept(key)
    if judgement is None:
        judgement = _executed(rule)
        if key is not None:
            rules_cache.keep_text("checked", key, json.dumps([judgement.verdict, judgement.text]), MOST_KEPT)
    keep_verdict(rule, "executed" if judgement.verdict == "holds" else judgement.verdict, only_first=True)
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[id(rule)] = (rule, judgement)
    return judgement


def _executed(rule: Rule) -> Judgement:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            outcome = check_rule(rule, instances=INSTANCES, attempts=ATTEMPTS, pointed=True)
        except Exception as error:  # functions of users may be among the executed operators
            return Judgement("undecided", f"it cannot be executed: {reason(error)}")
    verdict = verdict_of(outcome)
    if verdict == "refuted":
        # The message adds the place, because the same rule may be in several files.
        return Judgement(
            verdict, str(CheckedRule(rule, verdict, outcome).counterexample).removeprefix(f"{rule.place}: ")
        )
    return Judgement(verdict, why_undecided(outcome) if verdict == "undecided" else "")


def _defines_operator(rule: Rule) -> bool:
    """Whether a rule is the body of a declared operator, and so true by definition."""
    return any(rule.name == str(operator.op) for operator in rule.operators)


def _key(rule: Rule) -> str | None:
    """The name in the cache; None for rules about operators that are functions of this process."""
    text = content_of(rule)
    return None if text is None else rules_cache.key_of([("rule", text)], (INSTANCES, ATTEMPTS), rooms=_ROOMS)


def _kept(key: str) -> Judgement | None:
    text = rules_cache.find_text("checked", key)
    if text is None:
        return None
    try:
        verdict, said = json.loads(text)
    except ValueError:
        return None
    return Judgement(verdict, said) if verdict in ("holds", "refuted", "undecided") else None
