"""What the result rests on: the rules that lead from the input to it, and the weakest link among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, get_args

from eqsat.explain.origin import Origin
from eqsat.rules.ast import Rule
from eqsat.rules.selection import NumericsClass
from eqsat.rules.verdicts import Trust, known_verdict
from eqsat.text import name_of

K = TypeVar("K")

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
    """The rules behind a result.

    Attributes:
        rules: Their names, in the order of the rule files.
        numerics: The weakest numerics class among them; None without rules.
        numerics_by: The rules of that class.
        proof: The weakest verdict that is known of them; None if some have none, or without rules.
        proof_by: The rules with that verdict, or without any.
    """

    rules: tuple[str, ...]
    numerics: NumericsClass | None = None
    numerics_by: tuple[str, ...] = ()
    proof: Trust | None = None
    proof_by: tuple[str, ...] = ()


def trust_in(origins: Mapping[str, Origin], rules: Sequence[Rule]) -> TrustInRules:
    """The rules that the chains of a result's nodes name, and their weakest classes.

    Args:
        origins: By node of the result.
        rules: All that were selected.
    """
    applied = {step.rule for origin in origins.values() for step in origin.steps}
    # A rule that holds in both directions is two rules of one name.
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.name in applied:
            found.setdefault(rule.name, []).append(rule)
    if not found:
        return TrustInRules(())
    kinds: tuple[NumericsClass, ...] = get_args(NumericsClass)
    order: tuple[Trust, ...] = get_args(Trust)
    classes: dict[str, NumericsClass] = {name: same[0].numerics.kind for name, same in found.items()}
    numerics = _last(classes.values(), kinds)
    verdicts: dict[str, Trust | None] = {name: known_verdict(same) for name, same in found.items()}
    unknown = tuple(name for name, verdict in verdicts.items() if verdict is None)
    known: list[Trust] = [verdict for verdict in verdicts.values() if verdict is not None]
    proof = None if unknown else _last(known, order)
    return TrustInRules(
        tuple(found),
        numerics,
        tuple(name for name, kind in classes.items() if kind == numerics),
        proof,
        unknown or tuple(name for name, verdict in verdicts.items() if verdict == proof),
    )


def trust_line(found: TrustInRules) -> str:
    """The weakest link of at least one rule, in one line."""
    count = f"{len(found.rules):,} rule{'s' if len(found.rules) != 1 else ''}"
    proof = _NO_VERDICT if found.proof is None else _MEANING[found.proof]
    return (
        f"trust     {count}; weakest class: {found.numerics} ({_some(found.numerics_by)}); "
        f"weakest proof: {proof} ({_some(found.proof_by)})"
    )


def _last(values: Iterable[K], order: Sequence[K]) -> K:
    return max(values, key=order.index)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(name_of, names[:_SHOWN])) + more
