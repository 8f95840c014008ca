"""Proves one rule: each clause in each way that its element types allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import onnx_ir as ir

from eqsat.prove import conditions
from eqsat.prove.assumptions import elements_of
from eqsat.prove.equal import Decision, Question
from eqsat.prove.every_rank import EveryRank
from eqsat.prove.polynomial import Ring
from eqsat.prove.terms import NotModelled, Term, forget
from eqsat.rules.ast import Rule
from eqsat.rules.expand import Clause, expand
from eqsat.rules.tensor_types import possible_types
from eqsat.schema.functions import declared

_Group = tuple[frozenset[str], frozenset[str]]
MOST_TYPES = 400
"""Combinations of element types of one clause."""


@dataclass(frozen=True)
class Attempted:
    """What came of a proof.

    Attributes:
        proven: For all ranks and sizes.
        how: By what: the strongest thing that was needed.
        reason: Why it is not proven.
    """

    proven: bool
    how: str = ""
    reason: str = ""


_STRENGTH = ("same", "ring", "reals", "bits")


def prove_every_rank(rule: Rule) -> Attempted:
    """Tries to prove a rule for tensors of all ranks and sizes."""
    if rule.numerics.kind not in ("exact", "real"):
        return Attempted(False, reason=f"a rule of class {rule.numerics} changes values")
    how = "same"
    with declared(rule.operators):
        for clause in expand(rule.left):
            try:
                decision = _clause(rule, clause)
            except NotModelled as reason:
                decision = Decision(reason=str(reason))
            if not decision.proven:
                return Attempted(False, reason=decision.reason)
            how = max(how, decision.how or "same", key=_STRENGTH.index)
    return Attempted(True, how)


def _clause(rule: Rule, clause: Clause) -> Decision:
    parts = conditions.assumed(rule, clause)
    if conditions.is_contradiction(parts):
        return Decision("same")
    groups = possible_types(clause, rule.right, parts)
    if groups is None:
        return Decision("same")
    first = next(_assignments(groups, ()))
    sides, pairs = _sides(rule, clause, first)
    if not sides.reads_types and all(left is right for left, right in pairs):
        return Decision("same")
    read = set(elements_of(term for pair in pairs for term in pair)) | {f".{k}" for k in range(len(pairs))}
    varied = [g for g in groups if sides.reads_types or g[0] & read]
    how = "same"
    for number, dtypes in enumerate(_assignments(groups, varied)):
        if number >= MOST_TYPES:
            return Decision(reason="too many combinations of element types")
        decision = _typed(rule, clause, dtypes)
        if not decision.proven:
            return decision
        how = max(how, decision.how, key=_STRENGTH.index)
    return Decision(how)


def _sides(rule: Rule, clause: Clause, dtypes: dict[str, ir.DataType]) -> tuple[EveryRank, list[tuple[Term, Term]]]:
    forget()
    sides = EveryRank(rule, clause, dtypes)
    return sides, sides.pairs()


def _typed(rule: Rule, clause: Clause, dtypes: dict[str, ir.DataType]) -> Decision:
    """One combination of element types."""
    sides, pairs = _sides(rule, clause, dtypes)
    how = "same"
    for number, (left, right) in enumerate(pairs):
        root = dtypes.get(f".{number}")
        if left is right:
            continue
        if root is None:
            return Decision(reason="the element type of the result is not known")
        question = Question(rule.numerics, sides.parts, dtypes, root, frozenset(sides.positive), Ring())
        decision = question.decide(left, right)
        if not decision.proven:
            return Decision(reason=f"{decision.reason} ({root.name.lower()})")
        how = max(how, decision.how, key=_STRENGTH.index)
    return Decision(how)


def _assignments(groups: Sequence[_Group], varied: Sequence[_Group]) -> Iterator[dict[str, ir.DataType]]:
    """Element types by name: all combinations of some groups, the first type of the others."""
    choices = []
    for group in groups:
        names, allowed = group
        types = sorted(filter(None, map(_dtype, allowed)), key=_common)
        choices.append([(names, t) for t in (types if group in varied else types[:1])])
    for chosen in product(*choices):
        yield {name: dtype for names, dtype in chosen for name in names}


def _common(dtype: ir.DataType) -> tuple[bool, int]:
    return dtype != ir.DataType.FLOAT, dtype.value


def _dtype(name: str) -> ir.DataType | None:
    """The element type of ``tensor(float)``; None for what is no tensor."""
    text = name.removeprefix("tensor(").removesuffix(")")
    return ir.DataType.__members__.get({"float": "FLOAT", "double": "DOUBLE"}.get(text, text.upper()))
