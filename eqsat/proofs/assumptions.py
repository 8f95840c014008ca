"""Conditions on contents as formulas about the elements that a proof is about.

A condition holds for every element, so also for those that occur. A condition that cannot be translated is left out:
then less is assumed, and a proof stays valid.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import onnx_ir as ir

from eqsat.proofs import conditions
from eqsat.proofs.bits import Bits
from eqsat.proofs.reals import Reals
from eqsat.proofs.scalar_terms import ScalarTerm, walk
from eqsat.proofs.symbolic_shapes import SOLE
from eqsat.rules import ast
from eqsat.rules.element_types import DTYPES
from eqsat.rules.tree import walk as walk_terms
from eqsat.schema.dtypes import limits

_SIGNS = ("<", "<=", ">", ">=", "==", "!=")


class _Untranslated(Exception):
    pass


def of_reals(
    solver: Reals, parts: Sequence[ast.Expr], terms: Iterable[ScalarTerm], dtypes: Mapping[str, ir.DataType]
) -> list[Any]:
    """The known facts about the numbers in some terms: conditions, and the ranges of their types."""
    elements = elements_of(terms)
    found: list[Any] = []
    for name, symbols in elements.items():
        if name in dtypes and dtypes[name] not in (ir.DataType.BOOL, ir.DataType.STRING):
            low, high = (solver.z3.RealVal(Fraction(v)) for v in limits(dtypes[name]))
            for symbol in symbols:
                found += [solver.formula(symbol) >= low, solver.formula(symbol) <= high]
    attributes = {t.data[1]: t for t in walk(*terms) if t.op == "symbol" and t.data[0] == "attribute"}
    return found + _RealTranslation(solver, elements, attributes, dtypes).facts(parts)


def of_bits(
    solver: Bits, parts: Sequence[ast.Expr], terms: Iterable[ScalarTerm], dtypes: Mapping[str, ir.DataType]
) -> list[Any]:
    """Facts for elements of known types, in their own arithmetic: comparisons with each other and with numbers."""
    return _BitTranslation(solver, elements_of(terms), dtypes).facts(parts)


def elements_of(terms: Iterable[ScalarTerm]) -> dict[str, list[ScalarTerm]]:
    """The elements that occur, by the name of their tensor."""
    found: dict[str, list[ScalarTerm]] = {}
    for part in walk(*terms):
        if part.op == "symbol" and isinstance(part.data, tuple) and part.data[0] == "element":
            found.setdefault(part.data[1], []).append(part)
    return found


def _meet(left: ast.Expr, right: ast.Expr, elements: Mapping[str, Sequence[ScalarTerm]]) -> bool:
    """Whether the elements on both sides of a comparison are compared with each other.

    Whole tensors are compared position by position; moved elements come from other positions.
    """
    names = {conditions.member(part, "value") for side in (left, right) for part in walk_terms(side)} - {None}
    if len(names) < 2:
        return True
    places = {symbol.data[2] for name in names for symbol in elements.get(str(name), ())}
    return all(place == SOLE or _is_direct(place) for place in places)


def _is_direct(place: Hashable) -> bool:
    if not isinstance(place, tuple):
        return False
    return place[0] == "at" or (place[0] == "fit" and isinstance(place[2], tuple) and place[2][0] == "at")


def _number(solver: Bits, value: Fraction, dtype: ir.DataType) -> Any:
    low, high = limits(dtype)
    if not Fraction(low) <= value <= Fraction(high):
        return None
    if dtype.is_floating_point() and Fraction(float(dtype.numpy().type(float(value)))) != value:
        return None  # A comparison with a number that the type does not hold.
    return solver.number(value, dtype) if dtype.is_floating_point() or value.denominator == 1 else None


def _plain(expr: ast.Expr, dtypes: Mapping[str, ir.DataType]) -> Fraction | None:
    """A number that does not depend on contents."""
    if isinstance(expr, ast.Number):
        return Fraction(expr.value) if abs(expr.value) != float("inf") else None
    if isinstance(expr, ast.Unary) and expr.op == "-":
        inner = _plain(expr.operand, dtypes)
        return None if inner is None else -inner
    if isinstance(expr, ast.Apply) and expr.function in ("lowest", "highest") and len(expr.args) == 1:
        name = conditions.member(expr.args[0], "dtype")
        if name is not None and name in dtypes:
            return Fraction(limits(dtypes[name])[expr.function == "highest"])
    return None


def _contents_of(expr: ast.Expr) -> str | None:
    return conditions.member(expr, "value")


def _compared(a: Any, sign: str, b: Any) -> Any:
    match sign:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "==":
            return a == b
        case "!=":
            return a != b
    return True


class Translation(ABC):
    """Conditions as formulas of any kind.

    Args:
        elements: By the name of their tensor.
        dtypes: By the same names.
    """

    def __init__(self, elements: Mapping[str, Sequence[ScalarTerm]], dtypes: Mapping[str, ir.DataType]) -> None:
        self.elements = elements
        self.dtypes = dtypes

    @abstractmethod
    def known(self, value: bool) -> Any:
        """A formula that is true, or one that is false."""

    @abstractmethod
    def all_of(self, parts: Sequence[Any]) -> Any:
        """Whether all of some formulas hold."""

    @abstractmethod
    def any_of(self, parts: Sequence[Any]) -> Any:
        """Whether at least one of some formulas holds."""

    @abstractmethod
    def comparison(self, left: ast.Expr, sign: str, right: ast.Expr) -> Any:
        """A comparison of contents, by a sign of ``_SIGNS``.

        Raises:
            _Untranslated: The comparison has no formula.
        """

    def facts(self, parts: Iterable[ast.Expr]) -> list[Any]:
        """The consequences of some conditions, as far as they can be translated."""
        found: list[Any] = []
        for part in parts:
            with contextlib.suppress(_Untranslated):
                found.append(self._truth(part))
        return found

    def _truth(self, expr: ast.Expr) -> Any:
        match expr:
            case ast.Binary(op="or"):
                return self.any_of([self._truth(expr.left), self._truth(expr.right)])
            case ast.Binary(op="and"):
                return self.all_of(self.facts((expr.left, expr.right)))
            case ast.Compare():
                is_of_type = _type_comparison(expr, self.dtypes)
                if is_of_type is not None:
                    return self.known(is_of_type)
                found: list[Any] = []
                for left, sign, right in conditions.comparisons([expr]):
                    with contextlib.suppress(_Untranslated):
                        if sign in _SIGNS and _meet(left, right, self.elements):
                            found.append(self.comparison(left, sign, right))
                if found:
                    return self.all_of(found)
        raise _Untranslated


class ElementTranslation(Translation):
    """Conditions on elements of known types, in the arithmetic of these types."""

    @abstractmethod
    def compare(self, left: ScalarTerm | Fraction, sign: str, right: ScalarTerm | Fraction, dtype: ir.DataType) -> Any:
        """The comparison of two elements, or of one with a number; None if the type does not hold the number."""

    def comparison(self, left: ast.Expr, sign: str, right: ast.Expr) -> Any:
        names = {name for name in (_contents_of(left), _contents_of(right)) if name is not None}
        types = {self.dtypes[name] for name in names if name in self.dtypes}
        if len(types) != 1:
            raise _Untranslated
        (dtype,) = types
        found = self.compare(self._side(left), sign, self._side(right), dtype)
        if found is None:
            raise _Untranslated
        return found

    def _side(self, expr: ast.Expr) -> ScalarTerm | Fraction:
        name = _contents_of(expr)
        if name is not None and len(self.elements.get(name, ())) == 1:
            return self.elements[name][0]
        plain = _plain(expr, self.dtypes) if name is None else None
        if plain is None:
            raise _Untranslated
        return plain


def _type_comparison(expr: ast.Compare, dtypes: Mapping[str, ir.DataType]) -> bool | None:
    """Whether ``x.dtype == float32`` is true; None for other comparisons."""
    name = conditions.member(expr.first, "dtype")
    if name is None or name not in dtypes or len(expr.rest) != 1:
        return None
    ((sign, right),) = expr.rest
    if not isinstance(right, ast.Name) or right.name not in DTYPES or sign not in ("==", "!="):
        return None
    return (dtypes[name] == DTYPES[right.name]) == (sign == "==")


class _Formulas(Translation):
    """Formulas of z3."""

    def __init__(
        self, z3: Any, elements: Mapping[str, Sequence[ScalarTerm]], dtypes: Mapping[str, ir.DataType]
    ) -> None:
        super().__init__(elements, dtypes)
        self.z3 = z3

    def known(self, value: bool) -> Any:
        return self.z3.BoolVal(value)

    def all_of(self, parts: Sequence[Any]) -> Any:
        return self.z3.And(*parts)

    def any_of(self, parts: Sequence[Any]) -> Any:
        return self.z3.Or(*parts)


class _BitTranslation(_Formulas, ElementTranslation):
    """Comparisons of elements in their own arithmetic."""

    def __init__(
        self, solver: Bits, elements: Mapping[str, Sequence[ScalarTerm]], dtypes: Mapping[str, ir.DataType]
    ) -> None:
        super().__init__(solver.z3, elements, dtypes)
        self.solver = solver

    def compare(self, left: ScalarTerm | Fraction, sign: str, right: ScalarTerm | Fraction, dtype: ir.DataType) -> Any:
        z3 = self.z3
        a, b = (
            self.solver.symbol(side.data, dtype) if isinstance(side, ScalarTerm) else _number(self.solver, side, dtype)
            for side in (left, right)
        )
        if a is None or b is None:
            return None
        if z3.is_fp(a):
            relation = {"<": z3.fpLT, "<=": z3.fpLEQ, ">": z3.fpGT, ">=": z3.fpGEQ, "==": z3.fpEQ, "!=": z3.fpNEQ}
            return relation[sign](a, b)
        relation = {"<": z3.ULT, "<=": z3.ULE, ">": z3.UGT, ">=": z3.UGE}
        return relation[sign](a, b) if dtype.name.startswith("UINT") and sign in relation else _compared(a, sign, b)


class _RealTranslation(_Formulas):
    """Expressions over contents as real numbers."""

    def __init__(
        self,
        solver: Reals,
        elements: Mapping[str, Sequence[ScalarTerm]],
        attributes: Mapping[str, ScalarTerm],
        dtypes: Mapping[str, ir.DataType],
    ) -> None:
        super().__init__(solver.z3, elements, dtypes)
        self.solver = solver
        self.attributes = attributes

    def comparison(self, left: ast.Expr, sign: str, right: ast.Expr) -> Any:
        return _compared(self.number(left), sign, self.number(right))

    def number(self, expr: ast.Expr) -> Any:
        plain = _plain(expr, self.dtypes)
        if plain is not None:
            return self.z3.RealVal(plain)
        name = _contents_of(expr)
        if name is not None and len(self.elements.get(name, ())) == 1:
            return self.solver.formula(self.elements[name][0])
        match expr:
            case ast.Name() if expr.name in self.attributes:
                return self.solver.formula(self.attributes[expr.name])
            case ast.Unary(op="-"):
                return -self.number(expr.operand)
            case ast.Binary(op="+" | "-" | "*"):
                a, b = self.number(expr.left), self.number(expr.right)
                return a + b if expr.op == "+" else a - b if expr.op == "-" else a * b
            case ast.Apply() if expr.function == "abs":
                inner = self.number(expr.args[0])
                return self.z3.If(inner >= 0, inner, -inner)
            case ast.Apply() if expr.function in ("min", "max") and len(expr.args) == 1:
                return self._extreme(expr.function, expr.args[0])
        raise _Untranslated

    def _extreme(self, function: str, of: ast.Expr) -> Any:
        """The least or greatest of all elements: no further than any that occurs."""
        name = _contents_of(of)
        if name is None or not self.elements.get(name):
            raise _Untranslated
        bound = self.solver.real((function, name))
        for symbol in self.elements[name]:
            element = self.solver.formula(symbol)
            self.solver.facts.append(bound <= element if function == "min" else bound >= element)
        return bound


__all__ = ["ElementTranslation", "elements_of", "of_bits", "of_reals"]
