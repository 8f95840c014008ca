"""Finds plain operators of a target that may never run: no drawn instance meets all conditions of their entry.

Conditions are evaluated as in placement, with the names that :mod:`eqsat.targets.condition_names` binds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from eqsat.check.attempt import draw
from eqsat.check.draw_state import Drawing
from eqsat.check.instance import Instance
from eqsat.errors import EqsatError
from eqsat.model.inference.infer import infer_types
from eqsat.ops.sampling.chance import Chance
from eqsat.rules.ast import (
    Apply,
    Binary,
    Comprehension,
    Condition,
    Expr,
    Match,
    Member,
    Name,
    Numerics,
    Optional,
    Pattern,
    Rule,
    Supports,
)
from eqsat.rules.constness import conjuncts
from eqsat.rules.evaluation import holds
from eqsat.rules.expand import expand
from eqsat.rules.print_term import flat
from eqsat.rules.signatures import Signature, signature
from eqsat.rules.tree import replaced, walk
from eqsat.schema.types import OpKey, TensorType
from eqsat.targets.condition_names import bind_operands

ATTEMPTS = 2_000
"""Attempts for each operator of an entry."""
FEWEST = 40
"""Instances of an operator from which anything follows."""
_MOST_OPERANDS = 3
"""Number of operands drawn for a variadic one."""
_MOST_CLAUSES = 32
"""Choices of optional operands that are tried."""


def never_runs(op: OpKey, entry: Supports) -> str:
    """Why an operator may never run by an entry: the conditions that no instance meets; empty if one meets all."""
    found = signature(op)
    if found is None or not entry.where:
        return ""
    conditions = [part for condition in entry.where for part in _parts(condition)]
    seen = _Seen()
    if _is_met(found, entry, conditions, seen):
        return ""
    asked = {n.name for c in conditions for n in walk(c.expr) if isinstance(n, Member) and _is(n.of, "node")}
    if seen.instances < FEWEST or asked - seen.attributes:
        return ""  # Nothing follows, or an attribute that conditions ask for is never drawn.
    for condition in reversed(conditions):
        fewer = [c for c in conditions if c is not condition]
        if not _is_met(found, entry, fewer, seen):
            conditions = fewer
    said = [f"`{flat(c.expr)}` ({c.place.line}:{c.place.column})" for c in conditions]
    listed = " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
    return f"of {seen.instances:,} instances, none meets {listed}"


@dataclass
class _Seen:
    """How many instances were drawn of an operator, and which attributes they had."""

    instances: int = 0
    attributes: set[str] = field(default_factory=set)


def _is_met(found: Signature, entry: Supports, conditions: Sequence[Condition], seen: _Seen) -> bool:
    """Whether conditions hold together on some instance."""
    drawings = [
        Drawing(rule, clause, pointed=True, executed=False)
        for rule in _rules(found, entry, conditions)
        for clause in expand(rule.left)[:_MOST_CLAUSES]
    ]
    for drawing in drawings:
        drawing.conditions = []  # They are asked as placement asks them.
    for attempt in range(ATTEMPTS):
        chance = Chance(zlib.crc32(str(found.op).encode()), attempt)
        try:
            instance = draw(drawings[attempt % len(drawings)], chance)
            environments = list(_environments(found, instance))
        except Exception:  # operators of users may be among the drawn ones, and drawn operands may not fit together
            continue
        seen.instances += 1
        seen.attributes |= {name for name, _ in instance.steps[-1].attrs}
        if any(holds(conditions, env) is None for env in environments):
            return True
    return False


def _parts(condition: Condition) -> list[Condition]:
    return [Condition(part, None, getattr(part, "place", condition.place)) for part in conjuncts(condition.expr)]


def _is(term: Any, name: str) -> bool:
    return isinstance(term, Name) and term.name == name


# ---- the operator as a pattern ---------------------------------------------------------------------------------------


def _rules(found: Signature, entry: Supports, conditions: Sequence[Condition]) -> Iterator[Rule]:
    """The operator as the left side of rules: with any of its optional operands, and some numbers of variadic ones."""
    variadic = found.inputs[-1] if found.variadic else None
    counts = range(max(found.least_inputs - len(found.inputs) + 1, 1), _MOST_OPERANDS + 1) if variadic else (0,)
    for count in counts:
        args: list[Pattern | None] = []
        for parameter in found.inputs[:-1] if variadic else found.inputs:
            args.append((Optional if parameter.optional else Name)(parameter.name, entry.place))
        rest = [f"{variadic.name}_{k}" for k in range(count)] if variadic else []
        args += [Name(name, entry.place) for name in rest]
        root = Match((found.op,), None, tuple(args), (), "y", 0, entry.place)
        first = found.inputs[0].name if found.inputs else ""
        change = _renaming(found, {"x": rest[0] if variadic is found.inputs[0] and rest else first}, rest)
        where = tuple(Condition(change(c.expr), None, c.place) for c in conditions)
        yield Rule(str(found.op), Numerics("exact"), (root,), (), where, entry.place)


def _renaming(found: Signature, names: Mapping[str, str], rest: Sequence[str]) -> Any:
    """Conditions of an entry in the names of the pattern, in which the result and its node are ``y``."""
    results = {"node", found.outputs[0].name} if found.outputs else {"node"}
    variadic = found.inputs[-1].name if found.variadic else None

    def change(part: Any) -> Any:
        if isinstance(part, Name) and part.name in names:
            return Name(names[part.name], part.place)
        if isinstance(part, Name) and part.name in results:
            return Name("y", part.place)
        if isinstance(part, Apply) and part.function == "all" and len(part.args) == 1 and rest:
            (each,) = part.args
            if isinstance(each, Comprehension) and each.condition is None and _is(each.source, variadic or ""):
                return _of_all(each, rest)
        return None

    return lambda expr: replaced(expr, change)


def _of_all(each: Comprehension, rest: Sequence[str]) -> Expr:
    """The conditions that ``all([... for v in inputs])`` sets for each operand."""
    said = [
        replaced(each.item, lambda p, name=name: Name(name, p.place) if _is(p, each.variable) else None)
        for name in rest
    ]
    whole = said[0]
    for part in said[1:]:
        whole = Binary("and", whole, part, each.place, each.place)
    return whole


# ---- what conditions see of it ---------------------------------------------------------------------------------------


def _environments(found: Signature, instance: Instance) -> Iterator[dict[str, object]]:
    """The names and facts of an instance, with each choice of results that something reads."""
    step = instance.steps[-1]
    leaves = {leaf.name: leaf.facts for leaf in instance.leaves}
    inputs = [None if name is None else leaves[name] for name in step.inputs]
    types = [None if facts is None else facts.type for facts in inputs]
    values = [None if facts is None else facts.value for facts in inputs]
    counts = {len(step.outputs), *(() if found.variadic_outputs else (len(found.outputs),))}
    for count in sorted(counts):
        try:
            results = infer_types(step.op, step.attrs, types, values, count)
        except EqsatError:
            continue
        for read in product((True, False), repeat=count):
            if any(read):
                shown: list[TensorType | None] = [t if r else None for t, r in zip(results, read, strict=True)]
                yield bind_operands(step.op, step.attrs, inputs, shown)
