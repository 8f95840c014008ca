"""Elementwise operators taken apart: the definitions that operators declare (:mod:`eqsat.ops.over_reals`), as terms."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from eqsat.ops.operators import operator
from eqsat.ops.over_reals import RealElement, RealNumber
from eqsat.proofs.scalar_terms import ScalarTerm, apply, number
from eqsat.schema.types import OpKey


class _Element(RealElement):
    """A term with which definitions compute."""

    def __init__(self, term: ScalarTerm) -> None:
        self.term = term

    def apply(self, name: str, *others: RealElement | RealNumber) -> _Element:
        return _Element(apply(name, (self.term, *map(_term, others))))

    def constant(self, value: RealNumber) -> _Element:
        return _Element(number(value))


def expanded(term: ScalarTerm) -> ScalarTerm | None:
    """The definition of a term's operator, applied to its operands; None if it is basic or unknown."""
    define = operator(OpKey("", term.op)).over_reals
    found = None if define is None else define(_operands(term), lambda name, default: _attribute(term, name, default))
    return None if found is None else _term(found)


def _term(value: RealElement | RealNumber) -> ScalarTerm:
    if isinstance(value, RealElement):
        assert isinstance(value, _Element)
        return value.term
    return number(value)


def _operands(term: ScalarTerm) -> Sequence[_Element | None]:
    """One for each operand of the operator; terms of a Clip leave absent ones out, and say which these are."""
    given = [_Element(arg) for arg in term.args]
    present = dict(term.data).get("present") if isinstance(term.data, tuple) else None
    if term.op != "Clip":
        return given
    rest = iter(given[1:])
    wanted = present if isinstance(present, tuple) else (True, True)
    return given[0], *(next(rest, None) if there else None for there in wanted)


def _attribute(term: ScalarTerm, name: str, default: float) -> _Element | None:
    """An attribute as an element, None if it is not a number."""
    found = dict(term.data).get(name, default) if isinstance(term.data, tuple) else default
    if isinstance(found, ScalarTerm):
        return _Element(found)
    is_number = isinstance(found, int | float | Fraction) and not isinstance(found, bool)
    return _Element(number(found)) if is_number else None
