"""The rules that a result or a proof depends on, the verdict on each, and the weakest link among them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from eqsat.explain.origin import Origin
from eqsat.rules.ast import Rule
from eqsat.rules.selection import NumericsClass
from eqsat.rules.verdicts import Trust, known_verdict, weakest_verdict
from eqsat.text import name_of

_SHOWN = 3
_NO_VERDICT = "no verdict is known"
_MEANING = {
    "proven": "proven for all shapes and values",
    "bounded": "proven for all values at bounded shapes",
    "decided": "decided by exact arithmetic",
    "executed": "executed on random instances",
    "undecided": "undecided",
    "refuted": "refuted on extreme values",
}


@dataclass(frozen=True, slots=True)
class TrustInRules:
    """The rules that a result or a proof depends on.

    Attributes:
        rules: Their names, in the order of the rule files.
        numerics: The weakest numerics class among them; None without rules.
        numerics_by: The rules of that class.
        proof: The weakest verdict that is known of them; None if some have none, or without rules.
        proof_by: The rules with that verdict, or without any.
        verdicts: What is known of each rule, by name; None for those without a verdict.
    """

    rules: tuple[str, ...]
    numerics: NumericsClass | None = None
    numerics_by: tuple[str, ...] = ()
    proof: Trust | None = None
    proof_by: tuple[str, ...] = ()
    verdicts: Mapping[str, Trust | None] = field(default_factory=dict)


def trust_in(origins: Mapping[str, Origin], rules: Sequence[Rule]) -> TrustInRules:
    """The rules that the chains of a result's nodes name, and their weakest classes.

    Args:
        origins: By node of the result.
        rules: All that were selected.
    """
    return trust_of({step.rule for origin in origins.values() for step in origin.steps}, rules)


def trust_of(names: Collection[str], rules: Sequence[Rule]) -> TrustInRules:
    """The same for rules given by name; unknown names are left out."""
    # A rule in both directions is two rules of one name.
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.name in names:
            found.setdefault(rule.name, []).append(rule)
    if not found:
        return TrustInRules(())
    kinds: tuple[NumericsClass, ...] = get_args(NumericsClass)
    classes: dict[str, NumericsClass] = {name: same[0].numerics.kind for name, same in found.items()}
    numerics = max(classes.values(), key=kinds.index)
    verdicts: dict[str, Trust | None] = {name: known_verdict(same) for name, same in found.items()}
    unknown = tuple(name for name, verdict in verdicts.items() if verdict is None)
    proof = weakest_verdict(verdicts.values())
    return TrustInRules(
        tuple(found),
        numerics,
        tuple(name for name, kind in classes.items() if kind == numerics),
        proof,
        unknown or tuple(name for name, verdict in verdicts.items() if verdict == proof),
        verdicts,
    )


def trust_line(found: TrustInRules) -> str:
    """The weakest links of at least one rule, in one line."""
    weakest = f"weakest class: {found.numerics} ({_some(found.numerics_by)})"
    return f"trust     {count_of_rules(found)}; {weakest}; {weakest_proof(found)}"


def count_of_rules(found: TrustInRules) -> str:
    return f"{len(found.rules):,} rule{'s' if len(found.rules) != 1 else ''}"


def weakest_proof(found: TrustInRules) -> str:
    """The weakest proof of at least one rule, in words."""
    words = _NO_VERDICT if found.proof is None else _MEANING[found.proof]
    return f"weakest proof: {words} ({_some(found.proof_by)})"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(name_of, names[:_SHOWN])) + more
