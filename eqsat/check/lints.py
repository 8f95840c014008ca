"""Finds useless rules: a rule that never applies, that applies to its own results without end, or that others imply."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eqsat.check.instance import Instance
from eqsat.check.outcome import Outcome
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.rules.ast import Rule
from eqsat.rules.expand import expand
from eqsat.rules.listing import short_place
from eqsat.rules.selection import allowed
from eqsat.rules.tensor_types import impossible

ROUNDS = 10
"""Rounds after which a rule alone must have come to an end on a single instance."""
ENODES = 1_500
"""E-nodes at which it is given up before."""
_IMPLIED = Limits(iterations=5, nodes=ENODES)


def silent(outcome: Outcome) -> list[str]:
    """Remarks on alternatives without an instance, and on sides of different types."""
    found: list[str] = []
    rule = outcome.rule
    never = impossible(expand(rule.left), [condition.expr for condition in rule.where])
    if never is not None:
        return [f"it never applies: {never[1]}"]
    if outcome.mismatch is not None:
        where = outcome.mismatch.message.splitlines()[0]
        if not outcome.fires:
            found.append(f"it never applies: on {sum(outcome.mismatches.values())} instances, {where}")
        else:
            found.append(f"a condition is missing: on some instances, where the rule is not applied, {where}")
    if any(c.kind == "silent" for c in outcome.counterexamples):
        found.append("on some instances all conditions hold and yet it does not apply")
    clauses = outcome.silent_clauses
    if clauses and outcome.fires:
        count = len(expand(rule.left))
        listed = ", ".join(str(k + 1) for k in clauses[:5]) + (" ..." if len(clauses) > 5 else "")
        found.append(f"of the {count} alternatives of the left side, no instance was found of number {listed}")
    if outcome.holds:
        found += [f"no instance met {side}: that side of `or` was not tried" for side in outcome.unmet]
    return found


def grows(rule: Rule, instances: Sequence[Instance]) -> list[str]:
    """Whether a rule applies to its own results again and again."""
    for instance in instances[:3]:
        limits = Limits(iterations=ROUNDS, nodes=ENODES, matches=10**9)
        saturation = Saturation(instance.model(), [rule], [], limits)
        saturation.run()
        if saturation.stop_reason in ("iteration limit", "node limit"):
            before, after = len(instance.steps) + len(instance.leaves), saturation.enodes
            return [
                f"it grows without end: alone, it makes {after:,} e-nodes of {before} in {saturation.iterations} "
                "rounds, and goes on"
            ]
    return []


def implied(rule: Rule, others: Sequence[Rule], instances: Sequence[Instance]) -> list[str]:
    """Whether other rules make all that a rule makes, and which one alone."""
    known = [r for r in others if allowed(r.numerics, rule.numerics.kind) and _where(r) != _where(rule)]
    chosen = instances[:3]
    if chosen and adds_nothing(rule, [], chosen):
        return ["it says nothing new: both sides are the same operators, of operands in an order that does not matter"]
    if not chosen or not known or not adds_nothing(rule, known, chosen):
        return []
    for other in known:
        if adds_nothing(rule, [other], chosen):
            return [f"`{other.name}` ({short_place(other.place)}) implies it"]
    return ["other rules together imply it"]


def _where(rule: Rule) -> tuple[Path, int, int]:
    """The place of a rule in its file; a file may have been read under two names."""
    return Path(rule.place.file).resolve(), rule.place.line, rule.place.column


def adds_nothing(rule: Rule, others: Sequence[Rule], instances: Sequence[Instance]) -> bool:
    """Whether the e-graph that other rules saturate stays unchanged if the rule runs as well."""
    for instance in instances:
        without, complete = _size(instance, others)
        if not complete or _size(instance, [*others, rule]) != (without, True):
            return False
    return True


def _size(instance: Instance, rules: Sequence[Rule]) -> tuple[tuple[int, int], bool]:
    saturation = Saturation(instance.model(), rules, [], _IMPLIED)
    saturation.run()
    found = snapshot(saturation)
    return (len(found.nodes), len(found.classes)), saturation.stop_reason == "saturated"
