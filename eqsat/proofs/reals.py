"""Equality of two terms over the real numbers, decided by z3 if normal forms do not decide it.

The left side is assumed to be defined: its divisors are not zero, and the arguments of roots and logarithms are in
their domains. The right side must then be defined as well, and equal. Elementary functions are unknown, except that
exponentials are positive and that the product of exponentials is the exponential of the sum. The operators in this file
are the basic ones, which the solver knows; all others are expressed by them (:mod:`eqsat.ops.over_reals`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from eqsat.proofs.definitions import expanded
from eqsat.proofs.polynomial import MOST_POWER, ROOTS, Monomial, Poly, Ring, TooLarge
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, walk
from eqsat.proofs.solver import contradict

if TYPE_CHECKING:
    import z3

WORK = 1_000_000
"""Limit of the solver, in its own unit, for one pair of elements."""


class Reals:
    """Terms as formulas of z3.

    Attributes:
        facts: Known facts about the symbols.
        defined: Conditions for the terms translated since it was emptied to be defined.
    """

    def __init__(self, ring: Ring) -> None:
        import z3

        self.z3: Any = z3
        self.ring = ring
        self.facts: list[z3.BoolRef] = []
        self.defined: list[z3.BoolRef] = []
        self._found: dict[ScalarTerm, Any] = {}
        self._needs: dict[ScalarTerm, list[Any]] = {}
        self._symbols: dict[Hashable, Any] = {}
        self._functions: dict[Hashable, str] = {}

    # ---- formulas ---------------------------------------------------------------------------------

    def formula(self, term: ScalarTerm) -> Any:
        """A term as a number or truth value of z3; adds its conditions to ``defined``."""
        for part in walk(term):
            if part not in self._found:
                before, self.defined = self.defined, []
                self._found[part] = self._translate(part)
                self._needs[part] = self.defined
                self.defined = before
        for part in walk(term):
            self.defined += self._needs[part]
        return self._found[term]

    def truth(self, name: Hashable) -> Any:
        """A symbol that is true or false."""
        return self._symbol(("truth", name), lambda n: self.z3.Bool(n))

    def _symbol(self, key: Hashable, make: Any) -> Any:
        if key not in self._symbols:
            self._symbols[key] = make(f"s{len(self._symbols)}")
        return self._symbols[key]

    def real(self, key: Hashable) -> Any:
        """A symbol that is a number."""
        return self._symbol(("real", key), lambda n: self.z3.Real(n))

    def _number(self, value: Fraction) -> Any:
        return self.z3.RealVal(value)

    def _translate(self, term: ScalarTerm) -> Any:
        z3 = self.z3
        value = term.value
        if value is not None:
            return self._number(value)
        args = [self._found[a] for a in term.args]
        match term.op:
            case "infinity":
                raise NotModelled("an infinite number: not modelled over the reals")
            case "symbol":
                return self.real(term.data)
            case "Add" | "Sum":
                return sum(args[1:], args[0])
            case "Sub":
                return args[0] - args[1]
            case "Neg":
                return -args[0]
            case "Mul":
                return args[0] * args[1]
            case "Div":
                return self._quotient(args[0], args[1])
            case "Max" | "Min":
                return self._extreme(term.op, args)
            case "Where":
                return z3.If(self._as_truth(term.args[0], args[0]), args[1], args[2])
            case "Less":
                return args[0] < args[1]
            case "LessOrEqual":
                return args[0] <= args[1]
            case "Equal":
                return args[0] == args[1]
            case "Not":
                return z3.Not(self._as_truth(term.args[0], args[0]))
            case "And" | "Or":
                join = z3.And if term.op == "And" else z3.Or
                return join(*(self._as_truth(t, a) for t, a in zip(term.args, args, strict=True)))
            case "IsNaN":
                raise NotModelled("IsNaN: not modelled over the reals")
            case "Sqrt":
                return self._root(args[0])
            case "Pow":
                return self._power(term, args)
            case "Exp" | "Log":
                return self._of_form(self.ring.form(term), term)
        meaning = expanded(term)
        if meaning is not None:
            return self.formula(meaning)
        if any(self._is_truth(a) for a in args):
            raise NotModelled(f"{term.op}: not modelled over the reals")
        key = self.ring.key(self.ring.form(term))
        self._functions[key] = term.op
        return self.real(("function", key))

    def _as_truth(self, term: ScalarTerm, found: Any) -> Any:
        return self.truth(term) if term.op == "symbol" else found

    def _is_truth(self, found: Any) -> bool:
        return bool(self.z3.is_bool(found))

    def _quotient(self, a: Any, b: Any) -> Any:
        self.defined.append(b != 0)
        return a / b

    def _extreme(self, op: str, args: list[Any]) -> Any:
        best = args[0]
        for arg in args[1:]:
            best = self.z3.If(best >= arg if op == "Max" else best <= arg, best, arg)
        return best

    def _root(self, arg: Any) -> Any:
        root = self.real(("root", arg.sexpr()))
        self.facts += [self.z3.Implies(arg >= 0, self.z3.And(root >= 0, root * root == arg))]
        self.defined.append(arg >= 0)
        return root

    def _power(self, term: ScalarTerm, args: list[Any]) -> Any:
        power, base = term.args[1].value, args[0]
        if power is None or power.denominator not in (1, *ROOTS) or abs(power.numerator) > MOST_POWER:
            raise NotModelled("Pow: modelled for small whole exponents and square roots only")
        for _ in range(ROOTS.get(power.denominator, 0)):
            base = self._root(base)
        total = self._number(Fraction(1))
        for _ in range(abs(power.numerator)):
            total = total * base
        return total if power >= 0 else self._quotient(self._number(Fraction(1)), total)

    # ---- normal forms as formulas -----------------------------------------------------------------

    def _of_form(self, poly: Poly, term: ScalarTerm) -> Any:
        """A form made of exponentials and logarithms."""
        if term.op == "Log":
            arg = self._found[term.args[0]]
            self.defined.append(arg > 0)
        total = self._number(Fraction(0))
        for monomial, factor in sorted(poly.items()):
            total = total + self._number(factor) * self._of_monomial(monomial)
        return total

    def _of_monomial(self, monomial: Monomial) -> Any:
        total = self._number(Fraction(1))
        for atom, power in monomial:
            base = self._of_atom(self.ring.atoms[atom])
            for _ in range(abs(power)):
                total = total * base if power > 0 else total / base
        return total

    def _of_atom(self, key: Hashable) -> Any:
        assert isinstance(key, tuple)
        if key[0] == "symbol":
            return self.real(key[1])
        found = self.real(("function", ((self.ring.key(self.ring.atom(key))),)))
        if key[0] == "exponential":
            self.facts.append(found > 0)
        elif key[0] != "logarithm":
            raise NotModelled(f"an exponential of {key[0]}: not modelled")
        return found

    # ---- proof ------------------------------------------------------------------------------------

    def equal(self, left: ScalarTerm, right: ScalarTerm, assumptions: Iterable[Any] = ()) -> bool | None:
        """Whether two terms are equal wherever the left one is defined; None if the solver gives up."""
        z3 = self.z3
        self.defined = []
        a = self.formula(left)
        defined, self.defined = self.defined, []
        known, self._functions = self._functions, {}
        b = self.formula(right)
        for key in [*(k for k in self._functions if k not in known), *(k for k in known if k not in self._functions)]:
            raise NotModelled(f"{(self._functions | known)[key]}: not modelled over the reals")
        if self._is_truth(a) != self._is_truth(b):
            a, b = self._as_truth(left, a), self._as_truth(right, b)
            if self._is_truth(a) != self._is_truth(b):
                raise NotModelled("a truth value beside a number")
        differ = z3.Not(z3.And(*self.defined, a == b))
        return contradict([*self.facts, *assumptions, *defined, differ], WORK, "QF_NRA")


def same(ring: Ring, left: ScalarTerm, right: ScalarTerm) -> bool:
    """Whether normal forms show that two terms are equal over the reals, where the left one is defined."""
    try:
        if ring.form(left) != ring.form(right):
            return False
        return ring.needs(right) <= ring.needs(left)
    except TooLarge:
        return False


__all__ = ["WORK", "Reals", "same"]
