"""Constants in the spelling in which a composite reads them.

A composite such as ``MatMul(x, Transpose(w, perm=[1, 0]))`` with ``const(w)`` says that its kernel reads weights as
``[outputs, inputs]``. Exporters store them in either order, and changing the order costs nothing, because constants are
computed before a program runs. So where a composite transposes a constant, each constant at that place is also
represented as the transposition of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from eqsat.rules.ast import Composite, Match, Member, Name, Number, Optional, Pattern, Rule, Sequence, Target
from eqsat.rules.ast import plain as options
from eqsat.rules.constness import asked_constant
from eqsat.rules.reader import read_text
from eqsat.rules.tree import walk
from eqsat.schema.opset import find_schema, input_arity, is_variadic
from eqsat.schema.types import OpKey

_TRANSPOSE, _GEMM = OpKey("", "Transpose"), OpKey("", "Gemm")


class _Place(NamedTuple):
    """An operand of an operator that is a transposed constant."""

    op: OpKey
    operand: int
    perm: tuple[int, ...]


def turned_constants(targets: Iterable[Target]) -> tuple[Rule, ...]:
    """A rule for each place at which composites of accelerators transpose a constant."""
    return _rules_once(tuple(target for target in targets if not target.is_host))


def operators_on_constants(targets: Iterable[Target]) -> frozenset[OpKey]:
    """Operators that composites of accelerators, or the rules above, apply to constants.

    If a rule applies one of them to a constant, the e-graph must contain it beside the result.
    """
    return _operators_once(tuple(target for target in targets if not target.is_host))


@lru_cache(maxsize=16)
def _operators_once(accelerators: tuple[Target, ...]) -> frozenset[OpKey]:
    found = {
        op
        for target in accelerators
        for composite in target.composites
        for match, constants in _matches(composite)
        if match.args and all(arg is None or _is_constant(arg, constants) for arg in match.args)
        for op in match.ops
    }
    return frozenset(found | {_TRANSPOSE} if turned_constants(accelerators) else found)


@lru_cache(maxsize=16)
def _rules_once(targets: tuple[Target, ...]) -> tuple[Rule, ...]:
    asked: dict[_Place, str] = {}
    for target in targets:
        for composite in target.composites:
            for place in _places(composite):
                asked.setdefault(place, f"{target.name}.{composite.name}")
    return tuple(_rule(place, composite) for place, composite in asked.items())


def _places(composite: Composite) -> Iterator[_Place]:
    for match, constants in _matches(composite):
        for op in match.ops:
            if find_schema(op) is None or is_variadic(op):
                continue
            for i, arg in enumerate(match.args):
                for one in options(arg) if arg is not None else ():
                    perm = _permutation(one, constants)
                    if perm is not None:
                        yield _Place(op, i, perm)
            if op == _GEMM and _asks_for_transposition(match, constants, composite):
                yield _Place(op, 1, (1, 0))


def _matches(composite: Composite) -> Iterator[tuple[Match, frozenset[str]]]:
    """The operators of a composite, each with the names of its constants."""
    names = (arg.name for c in composite.where for arg in asked_constant(c.expr) if isinstance(arg, Name))
    constants = frozenset(names)
    for node in walk(composite.patterns, once=True):
        if isinstance(node, Match):
            yield node, constants


def _is_constant(pattern: Pattern, constants: frozenset[str]) -> bool:
    return isinstance(pattern, Number) or (isinstance(pattern, Name | Optional) and pattern.name in constants)


def _permutation(pattern: Pattern, constants: frozenset[str]) -> tuple[int, ...] | None:
    """The order of axes in which a composite reads a constant."""
    if not isinstance(pattern, Match) or pattern.ops != (_TRANSPOSE,) or pattern.args[0] is None:
        return None
    if not _is_constant(pattern.args[0], constants):
        return None
    for bind in pattern.attrs:
        items = bind.equals.items if isinstance(bind.equals, Sequence) else ()
        perm = tuple(item.value for item in items if isinstance(item, Number) and isinstance(item.value, int))
        if perm and sorted(perm) == list(range(len(items))):
            return perm
    return None


def _asks_for_transposition(match: Match, constants: frozenset[str], composite: Composite) -> bool:
    """Whether a composite asks in which order a Gemm reads its constant."""
    right = match.args[1]
    if right is None or not _is_constant(right, constants):
        return False
    return any(bind.attribute == "transB" for bind in match.attrs) or any(
        isinstance(node, Member) and node.name == "transB" for node in walk(composite.where)
    )


def _rule(place: _Place, composite: str) -> Rule:
    least, most = input_arity(place.op)
    names = ["c" if i == place.operand else f"x{i}" for i in range(most)]
    left = ", ".join(n if i < max(least, place.operand + 1) else f"{n}?" for i, n in enumerate(names))
    inverse = [place.perm.index(i) for i in range(len(place.perm))]
    names[place.operand] = f"Transpose(Transpose(c, perm={inverse}), perm={list(place.perm)})"
    digits = "".join(map(str, place.perm))
    (rule,) = read_text(
        f"rule {place.op.name}_of_constant_{place.operand}_in_order_{digits} : exact\n"
        f"    n: {place.op}({left})  =>  {place.op}({', '.join(names)}, **n)\n"
        f"    where const(c), c.rank == {len(place.perm)}\n",
        "<made of targets>",
    ).rules
    return replace(rule, doc=f"A constant as {composite} reads it, transposed from another one.")


__all__ = ["operators_on_constants", "turned_constants"]
