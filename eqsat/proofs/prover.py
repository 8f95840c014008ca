"""Proves one rule: each clause in each way that its element types allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import onnx_ir as ir

from eqsat.proofs import all_values, conditions
from eqsat.proofs.assumptions import elements_of
from eqsat.proofs.bounded import LeftSides, TooMuch
from eqsat.proofs.bounded_right import NoAnswer, Right
from eqsat.proofs.choices import LEVELS, SizeBounds
from eqsat.proofs.equal import Decision, Question
from eqsat.proofs.every_rank import EveryRank
from eqsat.proofs.polynomial import Ring
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, forget
from eqsat.rules.ast import Rule
from eqsat.rules.element_types import DTYPES
from eqsat.rules.expand import Clause, expand
from eqsat.rules.tensor_types import possible_types
from eqsat.schema.declared_operators import declared
from eqsat.schema.opset import dtype_of

_Group = tuple[frozenset[str], frozenset[str]]
ENOUGH = 200
"""Combinations within a bound after which no wider one is tried."""
MOST_TRIED = 3_000
"""Combinations of shapes and attributes of one clause within one bound."""
MOST_TYPES = 400
"""Combinations of element types of one clause."""


@dataclass(frozen=True)
class Attempted:
    """The result of a proof.

    Attributes:
        proven: Whether the rule is proven for all ranks and sizes.
        how: The strongest method that was needed.
        reason: Why it is not proven.
    """

    proven: bool
    how: str = ""
    reason: str = ""


_STRENGTH = ("same", "ring", "reals", "bits", "values")


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


def _sides(
    rule: Rule, clause: Clause, dtypes: dict[str, ir.DataType]
) -> tuple[EveryRank, list[tuple[ScalarTerm, ScalarTerm]]]:
    forget()
    sides = EveryRank(rule, clause, dtypes)
    return sides, sides.pairs()


def _typed(rule: Rule, clause: Clause, dtypes: dict[str, ir.DataType]) -> Decision:
    """One combination of element types."""
    sides, pairs = _sides(rule, clause, dtypes)
    how = "same"
    for number, (left, right) in enumerate(pairs):
        root = dtypes.get(f".{number}")
        if left is right or _is_of_another_type(left, root) or _is_of_another_type(right, root):
            continue
        if root is None:
            return Decision(reason="the element type of the result is not known")
        question = Question(rule.numerics, sides.parts, dtypes, root, frozenset(sides.positive), Ring())
        decision = question.decide(left, right)
        if not decision.proven:
            decision = _by_values(question, left, right) or decision
        if not decision.proven:
            return Decision(reason=f"{decision.reason} ({root.name.lower()})")
        how = max(how, decision.how, key=_STRENGTH.index)
    return Decision(how)


def _is_of_another_type(term: ScalarTerm, root: ir.DataType | None) -> bool:
    """Whether a side is cast to a type other than that of the result, so that there is no such instance."""
    to = dict(term.data).get("to") if term.op == "Cast" else None
    return isinstance(to, tuple) and to[:1] == ("name",) and DTYPES.get(to[1], root) != root


def _by_values(question: Question, left: ScalarTerm, right: ScalarTerm) -> Decision | None:
    """The decision from computing all values of the elements; None if there are too many, or some differ."""
    try:
        equal = all_values.agree(left, right, question.root, question.dtypes, question.parts)
    except NotModelled:
        return None
    return Decision("values") if equal else None


def _assignments(groups: Sequence[_Group], varied: Sequence[_Group]) -> Iterator[dict[str, ir.DataType]]:
    """Element types by name: all combinations of some groups, the first type of the others."""
    choices = []
    for group in groups:
        names, allowed = group
        types = list(filter(None, map(dtype_of, allowed)))
        tried = sorted(types, key=_narrow) if group in varied else [min(types, key=_common)]
        choices.append([(names, t) for t in tried])
    for chosen in product(*choices):
        yield {name: dtype for names, dtype in chosen for name in names}


def _common(dtype: ir.DataType) -> tuple[bool, int]:
    return dtype != ir.DataType.FLOAT, dtype.value


def _narrow(dtype: ir.DataType) -> tuple[int, int]:
    """Sort key, narrow types first: there the solver refutes a wrong rule soonest."""
    return dtype.bitwidth if dtype != ir.DataType.STRING else 0, dtype.value


# ---- bounded ranks and sizes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Within:
    """The extent of a proof at bounded sizes.

    Attributes:
        tried: Number of compared combinations of shapes and attributes.
    """

    bounds: SizeBounds | None = None
    tried: int = 0
    how: str = "same"
    reason: str = ""


def prove_bounded(rule: Rule) -> Within:
    """Tries to prove a rule for all values, at all shapes and attributes within bounds, as wide as the work allows."""
    if rule.numerics.kind not in ("exact", "real"):
        return Within(reason=f"a rule of class {rule.numerics} changes values")
    best = Within(reason="no shapes within the bounds meet its conditions")
    with declared(rule.operators):
        for bounds in LEVELS:
            if best.tried >= ENOUGH:
                break
            try:
                found = _within(rule, bounds)
            except NotModelled as reason:
                if best.bounds is None:
                    return Within(reason=str(reason))
                break
            except TooMuch:
                found = Within(reason="too many shapes and attributes to try")
            if found.bounds is None:
                if best.bounds is None and found.reason:
                    best = found
                if found.reason and found.reason not in _UNDECIDED:
                    return found
                if found.reason == _UNDECIDED[0]:
                    break
            else:
                best = found
    return best


_UNDECIDED = ("too many shapes and attributes to try", "no shapes within the bounds meet its conditions")


def _within(rule: Rule, bounds: SizeBounds) -> Within:
    tried, how = 0, "same"
    for clause in expand(rule.left):
        parts = conditions.assumed(rule, clause)
        groups = None if conditions.is_contradiction(parts) else possible_types(clause, rule.right, parts)
        if groups is None:
            continue
        count = 0
        for dtypes in _types_to_try(groups):
            forget()
            left = LeftSides(rule, clause, bounds, dtypes)
            ring = Ring()
            for state in left.states():
                ring.work = 0
                right = Right(left, state)
                try:
                    pairs = list(dict.fromkeys(right.pairs()))
                except NoAnswer:
                    continue
                count += 1
                if count > MOST_TRIED:
                    raise TooMuch
                for a, b in pairs:
                    if a is b:
                        continue
                    root = dtypes.get(".0", ir.DataType.FLOAT)
                    positive = conditions.positive(parts)
                    decision = Question(rule.numerics, left.parts, dtypes, root, positive, ring).decide(a, b)
                    if not decision.proven:
                        return Within(reason=decision.reason)
                    how = max(how, decision.how, key=_STRENGTH.index)
        if not count:
            return Within(reason=_UNDECIDED[1])
        tried += count
    if how in ("reals", "bits") and _may_be_integer(rule):
        return Within(reason="its integers are not modelled at bounded sizes")
    return Within(bounds, tried, how)


def _types_to_try(groups: Sequence[_Group]) -> Iterator[dict[str, ir.DataType]]:
    """One combination of element types: shapes and places do not depend on them, and what does is refused."""
    yield next(_assignments(groups, ()))


def _may_be_integer(rule: Rule) -> bool:
    for clause in expand(rule.left):
        for names, allowed in possible_types(clause, rule.right, conditions.assumed(rule, clause)) or ():
            if any(name.startswith(".") for name in names) and any("int" in t for t in allowed):
                return True
    return False
