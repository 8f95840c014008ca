"""From two equal terms to a rule, in the strictest numerics class and under the weakest condition that checks allow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from eqsat.check import lints
from eqsat.check.checked import verdict_of
from eqsat.check.rule import ObservedInstance, check_rule
from eqsat.errors import RuleError
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_text
from eqsat.schema.declared_operators import declared

SAMPLES = 20
"""Instances of each rule."""
WHOLE = "whole"
"""The name of the left side in a condition."""
CandidateVerdict = Literal["holds", "refuted", "undecided", "grows"]


@dataclass(frozen=True)
class FoundRule:
    """A rule that was found.

    Attributes:
        text: The rule in the syntax of a file.
        is_implied: Whether other rules join the terms from which it was made.
        places: Places of such terms in the model.
    """

    rule: Rule
    text: str
    is_implied: Callable[[Sequence[Rule]], bool]
    places: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Proposal:
    """Two sides of a rule.

    Attributes:
        words: Operators of the left side, from which the name of the rule is made.
        conditions: Possible conditions, from none to those that are always true.
        of_one_shape: Whether the rule requires that both sides have one shape, if they might differ.
    """

    left: str
    right: str
    words: Sequence[str]
    conditions: Sequence[str]
    of_one_shape: bool = False


def accept(proposal: Proposal, names: set[str], seed: int) -> tuple[CandidateVerdict, Rule | None, str]:
    """The last verdict, and the rule and its text if it holds; its name is then taken."""
    name = _name(proposal.words, names)
    verdict, rule, text = _tried(proposal, name, "real", proposal.conditions[-1], seed)
    if rule is None:
        return verdict, None, ""
    for condition in proposal.conditions:
        for numerics in ("exact", "real"):
            _, stricter, stricter_text = _tried(proposal, name, numerics, condition, seed)
            if stricter is not None:
                names.add(name)
                return _of_one_shape(proposal, name, numerics, condition, seed) or ("holds", stricter, stricter_text)
    names.add(name)
    return verdict, rule, text


def _of_one_shape(
    proposal: Proposal, name: str, numerics: str, condition: str, seed: int
) -> tuple[CandidateVerdict, Rule, str] | None:
    """The rule with the condition that both sides have one shape, if that is a condition at all."""
    if not proposal.of_one_shape or not proposal.right.isidentifier():
        return None
    whole = replace(proposal, left=f"{WHOLE}: {proposal.left}")
    asked = ", ".join(filter(None, [condition, f"{WHOLE}.shape == {proposal.right}.shape"]))
    verdict, rule, text = _tried(proposal, name, numerics, condition, seed, only_fitting=True)
    if verdict == "holds":
        return None
    verdict, rule, text = _tried(whole, name, numerics, asked, seed, only_fitting=True)
    return None if rule is None else (verdict, rule, text)


def needed(found: Sequence[FoundRule], known: Sequence[Rule]) -> list[FoundRule]:
    """The rules that the others and known rules do not imply; the last ones are tried first."""
    kept = list(found)
    for candidate in reversed(found):
        others = [f.rule for f in kept if f is not candidate]
        if candidate.is_implied([*known, *others]):
            kept.remove(candidate)
    return kept


def _tried(
    proposal: Proposal, name: str, numerics: str, condition: str, seed: int, *, only_fitting: bool = False
) -> tuple[CandidateVerdict, Rule | None, str]:
    """A verdict, and the rule and its text if it holds; with ``only_fitting`` both sides must always have one type."""
    lines = [f"rule {name} : {numerics}", f"    {proposal.left}  =>  {proposal.right}"]
    text = "\n".join([*lines, f"    where {condition}"] if condition else lines)
    try:
        (rule,) = read_text(text, f"{name}.rules").rules
    except RuleError:
        # Types that the language refuses: a narrower condition may do.
        return "undecided", None, ""
    seen: list[ObservedInstance] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = check_rule(
            rule, instances=SAMPLES, seed=seed, pointed=True, observe=lambda *observed: seen.append(observed)
        )
    verdict = verdict_of(outcome)
    if only_fitting and outcome.mismatch is not None:
        return "undecided", None, ""
    if verdict != "holds":
        return verdict, None, ""
    with declared(rule.operators):
        if lints.grows(rule, [instance for instance, *_ in seen]):
            return "grows", None, ""
    return verdict, rule, text


def _name(words: Sequence[str], names: set[str]) -> str:
    stem = "_of_".join(_snake(word) for word in words[:3])
    name, number = stem, 1
    while name in names:
        number += 1
        name = f"{stem}_{number}"
    return name


def _snake(word: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(word))
