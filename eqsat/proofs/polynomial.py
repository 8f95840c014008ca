"""Normal forms of terms over the reals: polynomials with rational coefficients over atoms.

An atom is a symbol, or an operator that is not arithmetic, applied to normal forms; its exponent may be negative. Two
terms with one normal form are equal wherever both are defined, and the divisors of each are kept with it: a side may
only be undefined where the other is. For integers the same holds modulo 2^n, unless there are divisions. The operators
in this file are the arithmetic of polynomials; others are expressed by them (:mod:`eqsat.ops.over_reals`).
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

from eqsat.proofs.definitions import expanded
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, walk

Monomial = tuple[tuple[int, int], ...]
"""Atoms by number, ascending, with their exponents."""
Poly = dict[Monomial, Fraction]
PolynomialKey = tuple[tuple[Monomial, Fraction], ...]
MOST_MONOMIALS = 4_000
"""Most terms of one polynomial."""
MOST_WORK = 2_000_000
"""Products of monomials for one rule."""
MOST_POWER = 8
ROOTS = {2: 1, 4: 2, 8: 3}
"""By the denominator of an exponent, how many square roots it is."""
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Neg", "Sum", "number", "zero", "symbol", "Identity"})
_UNIT: Monomial = ()


class TooLarge(Exception):
    """A normal form exceeds the limit on work."""


class Ring:
    """The atoms of the terms of one rule, and their normal forms.

    Attributes:
        atoms: The atom of each number.
        work: Products of monomials so far.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.atoms: list[Hashable] = []
        self._forms: dict[ScalarTerm, Poly] = {}
        self._required: dict[ScalarTerm, tuple[Hashable, ...]] = {}
        self.work = 0

    # ---- forms ------------------------------------------------------------------------------------

    def form(self, term: ScalarTerm) -> Poly:
        """The normal form.

        Raises:
            TooLarge: See there.
            NotModelled: An infinite number.
        """
        for part in walk(term):
            if part not in self._forms:
                self._forms[part] = self._form(part)
        return self._forms[term]

    def needs(self, term: ScalarTerm) -> set[Hashable]:
        """Conditions for a term to be defined."""
        found: set[Hashable] = set()
        pending, seen = [term], {term}
        while pending:
            part = pending.pop()
            self.form(part)
            found.update(self._required.get(part, ()))
            meaning = expanded(part)
            for inner in (*part.args, *(() if meaning is None else (meaning,))):
                if inner not in seen:
                    seen.add(inner)
                    pending.append(inner)
        return found

    def key(self, poly: Poly) -> PolynomialKey:
        """A polynomial as something that can be compared."""
        return tuple(sorted(poly.items()))

    def atom(self, key: Hashable, power: int = 1) -> Poly:
        """The polynomial of one atom."""
        return {((self._number(key), power),): Fraction(1)}

    def _number(self, key: Hashable) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.atoms)
            self.atoms.append(key)
        return found

    def _form(self, term: ScalarTerm) -> Poly:
        forms = [self.form(a) for a in term.args]
        match term.op:
            case "number" | "zero":
                value = term.value or Fraction(0)
                return {_UNIT: value} if value else {}
            case "infinity":
                raise NotModelled("an infinite number: not modelled over the reals")
            case "symbol":
                return self.atom(("symbol", term.data))
            case "Add" | "Sum":
                total: Poly = {}
                for form in forms:
                    total = self.plus(total, form)
                return total
            case "Sub":
                return self.plus(forms[0], forms[1], -1)
            case "Neg":
                return self.plus({}, forms[0], -1)
            case "Mul":
                return self.product(forms[0], forms[1])
            case "Div":
                return self.product(forms[0], self._inverse(term, forms[1]))
            case "Pow" if (power := term.args[1].value) is not None and power.denominator == 1:
                return self._power(term, forms[0], int(power))
            case "Pow" if (power := term.args[1].value) is not None and power.denominator in ROOTS:
                found = forms[0]
                for _ in range(ROOTS[power.denominator]):
                    found = self._root(term, found)
                return self._power(term, found, power.numerator)
            case "Sqrt":
                return self._root(term, forms[0])
            case "Exp":
                return self._exponential(forms[0])
            case "Log":
                return self._logarithm(term, forms[0])
            case "Max" | "Min":
                return self._extreme(term.op, forms)
        meaning = expanded(term)
        if meaning is not None:
            return self.form(meaning)
        attributes = tuple(
            (k, self.key(self.form(v)) if isinstance(v, ScalarTerm) else v)
            for k, v in (term.data if isinstance(term.data, tuple) else ())
        )
        return self.atom((term.op, attributes, tuple(self.key(f) for f in forms)))

    # ---- arithmetic -------------------------------------------------------------------------------

    def plus(self, a: Poly, b: Poly, sign: int = 1) -> Poly:
        total = dict(a)
        for monomial, factor in b.items():
            value = total.get(monomial, 0) + sign * factor
            if value:
                total[monomial] = Fraction(value)
            else:
                del total[monomial]
        self._count(len(total), len(b))
        return total

    def product(self, a: Poly, b: Poly) -> Poly:
        self._count(0, len(a) * len(b))
        total: Poly = {}
        again: Poly = {}
        for m, f in a.items():
            for n, g in b.items():
                monomial = _merged(m, n)
                into = again if any(abs(p) > 1 and self._is_root(i) for i, p in monomial) else total
                value = into.get(monomial, 0) + f * g
                if value:
                    into[monomial] = Fraction(value)
                else:
                    into.pop(monomial, None)
        self._count(len(total), 0)
        for monomial, factor in again.items():
            total = self.plus(total, self._without_square(monomial, factor))
        return total

    def _is_root(self, atom: int) -> bool:
        key = self.atoms[atom]
        return isinstance(key, tuple) and key[0] == "root"

    def _without_square(self, monomial: Monomial, factor: Fraction) -> Poly:
        """A monomial in which the operand of a root replaces the square of the root."""
        total: Poly = {_UNIT: factor}
        for atom, power in monomial:
            key = self.atoms[atom]
            if not self._is_root(atom) or abs(power) < 2:
                total = self.product(total, {((atom, power),): Fraction(1)})
                continue
            assert isinstance(key, tuple)
            times, rest = divmod(abs(power), 2)
            inner: Poly = dict(key[1])
            if power < 0:
                inner = self._inverse(None, inner)
            for _ in range(times):
                total = self.product(total, inner)
            if rest:
                total = self.product(total, {((atom, 1 if power > 0 else -1),): Fraction(1)})
        return total

    def _inverse(self, term: ScalarTerm | None, poly: Poly) -> Poly:
        if term is not None:
            self._require_nonzero(term, poly)
        if not poly:
            return self.atom(("division by zero", 0 if term is None else term.number))
        if len(poly) == 1:
            ((monomial, factor),) = poly.items()
            return {tuple((a, -p) for a, p in monomial): 1 / factor}
        common = tuple((atom, -power) for atom, power in self._common(poly) if self._is_above_zero(atom))
        items = self.key(self.product(poly, {common: Fraction(1)}))
        lead = items[0][1]
        scaled = tuple((m, f / lead) for m, f in items)
        return self.product({common: 1 / lead}, {((self._number(("sum", scaled)), -1),): Fraction(1)})

    def _power(self, term: ScalarTerm, poly: Poly, power: int) -> Poly:
        if abs(power) > MOST_POWER:
            return self.atom(("Pow", power, self.key(poly)))
        total: Poly = {_UNIT: Fraction(1)}
        for _ in range(abs(power)):
            total = self.product(total, poly)
        if power < 0:
            self._require_nonzero(term, poly)
            return self._inverse(None, total)
        return total

    def _root(self, term: ScalarTerm, poly: Poly) -> Poly:
        key = self.key(poly)
        if not self._is_positive(poly) and poly:
            self._require(term, ("not negative", key))
        return self.atom(("root", key)) if poly else {}

    def _exponential(self, poly: Poly) -> Poly:
        total: Poly = {_UNIT: Fraction(1)}
        for monomial, factor in sorted(poly.items()):
            inner = ()
            if len(monomial) == 1 and monomial[0][1] == 1 and factor.denominator == 1:
                key = self.atoms[monomial[0][0]]
                if isinstance(key, tuple) and key[0] == "logarithm" and abs(factor) <= MOST_POWER:
                    inner = key[1]
            if inner:
                one = dict(inner) if factor > 0 else self._inverse(None, dict(inner))
                for _ in range(abs(int(factor))):
                    total = self.product(total, one)
                continue
            # A fraction with a large numerator is not a power of something simpler.
            unit, power = Fraction(1, factor.denominator), factor.numerator
            if abs(power) > MOST_POWER:
                unit, power = abs(factor), 1 if factor > 0 else -1
            base = self._number(("exponential", monomial, unit))
            total = self.product(total, {((base, power),): Fraction(1)})
        return total

    def _logarithm(self, term: ScalarTerm, poly: Poly) -> Poly:
        """The logarithm of a sum of exponentials, without their common factor; also of odd powers and roots."""
        if self._is_positive(poly):
            found: Poly = {}
            for atom, power in self._common(poly):
                key = self.atoms[atom]
                assert isinstance(key, tuple)
                inner = {key[1]: key[2]} if key[0] == "exponential" else self._logarithm(term, dict(key[1]))
                found = self.plus(found, self.product({_UNIT: Fraction(power)}, inner))
                poly = self.product(poly, {((atom, -power),): Fraction(1)})
            lead = self.key(poly)[0][1]
            for rest in ({_UNIT: lead}, self.product(poly, {_UNIT: 1 / lead})):
                found = found if rest == {_UNIT: 1} else self.plus(found, self.atom(("logarithm", self.key(rest))))
            return found
        inner, power = self._base(poly)
        if power != 1:
            return self.product({_UNIT: power}, self._logarithm(term, inner))
        self._require(term, ("positive", self.key(poly)))
        return self.atom(("logarithm", self.key(poly)))

    def _is_above_zero(self, atom: int) -> bool:
        """Whether an atom is an exponential, or a divisor that is a sum of exponentials."""
        key = self.atoms[atom]
        return isinstance(key, tuple) and (
            key[0] == "exponential" or (key[0] == "sum" and self._is_positive(dict(key[1])))
        )

    def _common(self, poly: Poly) -> Monomial:
        """The greatest monomial that divides all, so that no exponent is below zero and one of each atom is zero."""
        powers = [dict(monomial) for monomial in poly]
        atoms = sorted({atom for monomial in powers for atom in monomial})
        least = ((atom, min(monomial.get(atom, 0) for monomial in powers)) for atom in atoms)
        return tuple((atom, power) for atom, power in least if power)

    def _base(self, poly: Poly) -> tuple[Poly, Fraction]:
        """The positive base of a form, and the exponent."""
        if len(poly) != 1:
            return poly, Fraction(1)
        ((monomial, factor),) = poly.items()
        if factor != 1 or len(monomial) != 1:
            return poly, Fraction(1)
        ((atom, power),) = monomial
        key = self.atoms[atom]
        if isinstance(key, tuple) and key[0] == "root":
            return dict(key[1]), Fraction(power, 2)
        return ({((atom, 1),): Fraction(1)}, Fraction(power)) if power % 2 else (poly, Fraction(1))

    def _extreme(self, op: str, forms: list[Poly]) -> Poly:
        keys: set[Hashable] = set()
        for form in forms:
            key = self._extreme_of(op, form)
            keys |= {self.key(form)} if key is None else set(key)
        if len(keys) == 1:
            return forms[0]
        return self.atom((op, (), tuple(sorted(keys, key=repr))))

    def _extreme_of(self, op: str, form: Poly) -> tuple[Hashable, ...] | None:
        """The operands of a form that is the same extreme."""
        if len(form) != 1:
            return None
        ((monomial, factor),) = form.items()
        if factor != 1 or len(monomial) != 1 or monomial[0][1] != 1:
            return None
        key = self.atoms[monomial[0][0]]
        return key[2] if isinstance(key, tuple) and key[0] == op else None

    def _is_positive(self, poly: Poly) -> bool:
        """Whether a form is a sum of products of exponentials, with positive factors."""
        return bool(poly) and all(
            factor > 0 and all(self._is_above_zero(atom) for atom, _ in monomial) for monomial, factor in poly.items()
        )

    def _require_nonzero(self, term: ScalarTerm, poly: Poly) -> None:
        if self._is_positive(poly):
            return
        if len(poly) == 1:
            ((monomial, _),) = poly.items()
            for atom, power in monomial:
                if power > 0 and not self._is_above_zero(atom):
                    self._require(term, ("nonzero", self.atoms[atom]))
            return
        items = self.key(poly)
        self._require(term, ("nonzero", tuple((m, f / items[0][1]) for m, f in items)))

    def _require(self, term: ScalarTerm, need: Hashable) -> None:
        self._required[term] = (*self._required.get(term, ()), need)

    def _count(self, monomials: int, products: int) -> None:
        self.work += products
        if monomials > MOST_MONOMIALS or self.work > MOST_WORK:
            raise TooLarge


def _merged(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted((atom, power) for atom, power in powers.items() if power))


def is_ring(*terms: ScalarTerm) -> bool:
    """Whether terms consist only of sums and products of elements, so that they are also equal modulo 2^n.

    An attribute is a float, even next to integers: a product with it is rounded.
    """
    return all(
        part.op in _ARITHMETIC
        and (part.value is None or part.value.denominator == 1)
        and not (part.op == "symbol" and part.data[:1] == ("attribute",))
        for part in walk(*terms)
    )
