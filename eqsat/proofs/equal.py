"""Whether two terms are equal as far as a numerics class claims: the same object, a normal form, or by the solver.

The operators in this file have identities that a solver would not find in time, such as the absolute value of either
sign.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

import onnx_ir as ir

from eqsat.proofs import assumptions
from eqsat.proofs.bits import CIRCUITS, Bits
from eqsat.proofs.polynomial import Ring, TooLarge, is_ring
from eqsat.proofs.reals import Reals, same
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, apply, number, walk
from eqsat.rules import ast
from eqsat.rules.ast import Numerics
from eqsat.schema.dtypes import BYTES, limits

MOST_SIGNS = 4
"""Most absolute values in two terms for which both signs are tried."""


@dataclass
class Decision:
    """How elements of both sides were found to be equal, or why they were not.

    Attributes:
        how: ``"same"``: computed by the same operators; ``"ring"``: equal sums of products; ``"reals"``, ``"bits"``.
        reason: Empty if they are equal.
    """

    how: str = ""
    reason: str = ""

    @property
    def proven(self) -> bool:
        return not self.reason


@dataclass
class Question:
    """The context of a comparison of two elements.

    Attributes:
        parts: Conditions of the rule.
        dtypes: Element types by the name of a tensor.
        root: Element type of the result.
        positive: Names of tensors whose elements are all greater than zero.
    """

    numerics: Numerics
    parts: Sequence[ast.Expr] = ()
    dtypes: Mapping[str, ir.DataType] = field(default_factory=dict)
    root: ir.DataType = ir.DataType.FLOAT
    positive: frozenset[str] = frozenset()
    ring: Ring = field(default_factory=Ring)

    def decide(self, left: ScalarTerm, right: ScalarTerm) -> Decision:
        """Whether both are equal, for all values."""
        if left is right:
            return Decision("same")
        try:
            left, right = (_of_known_type(self._simplified(side)) for side in (left, right))
            if self.numerics.kind == "real":
                left, right = map(_without_infinities, (left, right))
            if left is right:
                return Decision("same")
            if self.numerics.kind == "real" and self.root.is_floating_point():
                return self._over_reals(left, right)
            return self._to_the_bit(left, right)
        except NotModelled as reason:
            return Decision(reason=str(reason))
        except TooLarge:
            return Decision(reason="the normal forms are too large")

    def _over_reals(self, left: ScalarTerm, right: ScalarTerm) -> Decision:
        if same(self.ring, left, right):
            return Decision("ring" if is_ring(left, right) else "reals")
        solver = Reals(self.ring)
        known = assumptions.of_reals(solver, self.parts, (left, right), self.dtypes)
        found = solver.equal(left, right, known)
        if found:
            return Decision("reals")
        return Decision(reason="not equal over the reals, as modelled" if found is False else "the solver gave up")

    def _to_the_bit(self, left: ScalarTerm, right: ScalarTerm) -> Decision:
        if self.root.is_integer() and all(
            is_ring(a, b) and self.ring.form(a) == self.ring.form(b) for a, b in _by_signs(left, right)
        ):
            return Decision("ring")
        types: dict[Hashable, ir.DataType] = {
            part.data: self.dtypes[part.data[1]]
            for part in walk(left, right)
            if part.op == "symbol" and isinstance(part.data, tuple) and part.data[0] == "element"
            if part.data[1] in self.dtypes
        }
        found = None
        # First with functions in place of arithmetic: terms that are equal for all functions need no circuits.
        for functions in (True, False) if any(part.op in CIRCUITS for part in walk(left, right)) else (False,):
            solver = Bits(types, functions=functions)
            known = assumptions.of_bits(solver, self.parts, (left, right), self.dtypes)
            found = solver.equal(left, right, self.root, known)
            if found:
                return Decision("bits")
        return Decision(reason="not equal to the bit, as modelled" if found is False else "the solver gave up")

    # ---- quantization -----------------------------------------------------------------------------

    def _simplified(self, term: ScalarTerm) -> ScalarTerm:
        """A term in which tables of all values are undone, and monotone operators are moved to the compared
        elements.
        """
        found: dict[ScalarTerm, ScalarTerm] = {}
        for part in walk(term):
            again = apply(part.op, (found[a] for a in part.args), part.data) if part.args else part
            found[part] = self._monotone(_of_zero_point(_within_pieces(_chosen(self._without_table(again)))))
        return found[term]

    def _without_table(self, term: ScalarTerm) -> ScalarTerm:
        """``[0, 1, ..., 127, -128, ..., -1][x]`` is x, as indices below zero count from the end."""
        if term.op != "Entry" or term.args[0].op != "Cast":
            return term
        cast = term.args[0]
        inner = cast.args[0]
        to = dict(cast.data).get("to")
        if inner.op != "symbol" or not isinstance(inner.data, tuple) or inner.data[1] not in self.dtypes:
            return term
        dtype = self.dtypes[inner.data[1]]
        if to not in (("name", "int32"), ("name", "int64")) or dtype not in BYTES:
            return term
        table = dict(term.data)["table"]
        assert isinstance(table, tuple)
        low, high = (int(v) for v in limits(dtype))
        every = range(low, high + 1)
        if all(-len(table) <= v < len(table) and table[v] == v for v in every):
            return inner
        return term

    def _monotone(self, term: ScalarTerm) -> ScalarTerm:
        """Quantization by a positive scale keeps the order: division, rounding, adding and saturating all do."""
        if term.op == "Piece":
            return apply("Piece", map(self._monotone, term.args), term.data)
        if term.op != "QuantizeLinear" or len(term.args) != 3 or not self._is_positive(term.args[1]):
            return term
        x, rest = term.args[0], term.args[1:]

        def quantized(inner: ScalarTerm) -> ScalarTerm:
            if inner.value == 0:
                return rest[1]  # 0 / scale is 0, and the zero point is in the range of its type.
            return self._monotone(apply("QuantizeLinear", (inner, *rest), term.data))

        match x.op:
            case "number" | "zero" if x.value == 0:
                return rest[1]
            case "Max" | "Min":
                return apply(x.op, map(quantized, x.args))
            case "Relu":
                return apply("Max", (quantized(x.args[0]), rest[1]))
            case "Clip":
                low, high = dict(x.data)["present"]
                found, bounds = quantized(x.args[0]), list(x.args[1:])
                if low:
                    found = apply("Max", (found, quantized(bounds.pop(0))))
                if high:
                    found = apply("Min", (found, quantized(bounds.pop(0))))
                return found
        return term

    def _is_positive(self, term: ScalarTerm) -> bool:
        """Whether a scale is a float above zero, and the results are integers, which saturate."""
        if not self.root.is_integer():
            return False
        value = term.value
        if value is not None:
            return value > Fraction(0)
        name = term.data[1] if term.op == "symbol" and isinstance(term.data, tuple) else None
        return name in self.positive and name in self.dtypes and self.dtypes[name].is_floating_point()


def _by_signs(left: ScalarTerm, right: ScalarTerm) -> Iterator[tuple[ScalarTerm, ScalarTerm]]:
    """Both terms with each choice of signs for the operands of absolute values."""
    absolute = [part for part in walk(left, right) if part.op == "Abs"]
    if len(absolute) > MOST_SIGNS:
        absolute = []
    for signs in product((1, -1), repeat=len(absolute)):
        sign_of = dict(zip(absolute, signs, strict=True))
        found: dict[ScalarTerm, ScalarTerm] = {}
        for part in walk(left, right):
            args = tuple(found[a] for a in part.args)
            if part in sign_of:
                found[part] = args[0] if sign_of[part] > 0 else apply("Neg", args)
            else:
                found[part] = apply(part.op, args, part.data) if args else part
        yield found[left], found[right]


def _chosen(term: ScalarTerm) -> ScalarTerm:
    """The operand that a known condition chooses; the other operand need not have a known type."""
    if term.op != "Where" or term.args[0].value is None:
        return term
    return term.args[1] if term.args[0].value else term.args[2]


def _without_infinities(term: ScalarTerm) -> ScalarTerm:
    """A term over the reals in which masks have been carried out: all but the infinities of the rule is finite."""
    found: dict[ScalarTerm, ScalarTerm] = {}
    for part in walk(term):
        again = apply(part.op, (found[a] for a in part.args), part.data) if part.args else part
        found[part] = _chosen(_of_infinity(again))
    return found[term]


def _of_infinity(term: ScalarTerm) -> ScalarTerm:
    infinite = [a for a in term.args if a.op == "infinity"]
    finite = [a for a in term.args if a.op != "infinity"]
    match term.op:
        case "Add" if len(infinite) == 1:
            return infinite[0]
        case "Equal" if len(infinite) == 1:
            return number(0)
        case "Max" | "Min" if infinite and finite:
            lowest = -1 if term.op == "Max" else 1
            above = next((a for a in infinite if a.data != lowest), None)
            return above or (finite[0] if len(finite) == 1 else apply(term.op, finite))
        case "Exp" if infinite and infinite[0].data < 0:
            return number(0)
    return term


def _within_pieces(term: ScalarTerm) -> ScalarTerm:
    """An operator on elements that were only moved, moved after it."""
    if term.op not in ("QuantizeLinear", "DequantizeLinear", *_OF_ONE) or term.args[0].op != "Piece":
        return term
    piece, rest = term.args[0], term.args[1:]
    inner = (_of_zero_point(_within_pieces(apply(term.op, (x, *rest), term.data))) for x in piece.args)
    return apply("Piece", inner, piece.data)


def _of_zero_point(term: ScalarTerm) -> ScalarTerm:
    """The number for the zero point is zero: (zero - zero) * scale."""
    if term.op == "DequantizeLinear" and len(term.args) == 3 and term.args[0] is term.args[2]:
        return number(0)
    return term


def _of_known_type(term: ScalarTerm) -> ScalarTerm:
    """A result without what says its element type: rules apply only where both results have one type."""
    if term.op == "Piece":
        return apply("Piece", map(_of_known_type, term.args), term.data)
    if term.op == "DequantizeLinear" and isinstance(term.data, tuple):
        return apply(term.op, term.args, tuple(pair for pair in term.data if pair[0] != "output_dtype"))
    return term


_OF_ONE = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Cast")
