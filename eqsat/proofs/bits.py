"""Equality of two terms to the bit, in one element type: IEEE arithmetic or integers modulo 2^n, decided by z3.

Floats: rounding to nearest even, subnormals, infinities, signed zeros; all NaN are one. ONNX does not specify which of
two zeros of different signs a maximum or minimum gives; here it is an unknown choice, the same for equal operands.
Elementary functions are symbols: equal bits give equal bits. For strings, complex numbers and narrow types, only
equality of bits is known. The operators in this file are those that the solver knows bit by bit; all others that keep
an element type are symbols.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, walk
from eqsat.proofs.solver import contradict
from eqsat.schema.dtypes import limits
from eqsat.schema.opset import has_one_type
from eqsat.schema.types import OpKey

WORK = 8_000_000
"""Limit of the solver, in its own unit, for one pair of elements of one type, without products."""
FEW_GATES = 300
"""Circuits of this many gates halve the solver's limit."""
DIVISION = 4
"""Difficulty of a quotient relative to a product."""
_PRODUCTS = ("Mul", "Div", "Reciprocal", "Mod")
CIRCUITS = ("Add", "Sub", "Sum", *_PRODUCTS)
"""Operators that may be functions instead."""
_EXPONENTS = {
    ir.DataType.FLOAT16: (5, 11),
    ir.DataType.BFLOAT16: (8, 8),
    ir.DataType.FLOAT: (8, 24),
    ir.DataType.DOUBLE: (11, 53),
}
_INTEGERS = {ir.DataType[f"{sign}INT{width}"]: (width, sign == "") for sign in ("", "U") for width in (8, 16, 32, 64)}


class Bits:
    """Terms as formulas of z3, in known element types.

    Args:
        types: Element type by symbol.
        functions: Whether products, quotients and sums of floats are functions of which the solver knows only signs,
            NaN and commutativity. Terms that are equal for such functions are equal; circuits take the solver long.
    """

    def __init__(self, types: Mapping[Hashable, ir.DataType], *, functions: bool = False) -> None:
        import z3

        self.z3: Any = z3
        self.types = types
        self.functions = functions
        self.facts: list[Any] = []
        self.defined: list[Any] = []
        self._symbols: dict[Hashable, Any] = {}
        self._signed: dict[int, bool] = {}

    def sort(self, dtype: ir.DataType) -> Any:
        """The sort of an element type."""
        if dtype in _EXPONENTS:
            return self.z3.FPSort(*_EXPONENTS[dtype])
        if dtype in _INTEGERS:
            return self.z3.BitVecSort(_INTEGERS[dtype][0])
        if dtype == ir.DataType.BOOL:
            return self.z3.BoolSort()
        return self.z3.DeclareSort(dtype.name.lower())

    # ---- formulas ---------------------------------------------------------------------------------

    def formula(self, term: ScalarTerm, root: ir.DataType) -> Any:
        """A term of an element type, as a formula."""
        types = _types(term, root, self.types)
        found: dict[ScalarTerm, Any] = {}
        for part in walk(term):
            found[part] = self._translate(part, [found[a] for a in part.args], types)
        return found[term]

    def symbol(self, key: Hashable, dtype: ir.DataType) -> Any:
        """A symbol of an element type."""
        if (key, dtype) not in self._symbols:
            self._symbols[key, dtype] = self.z3.Const(f"s{len(self._symbols)}", self.sort(dtype))
        return self._symbols[key, dtype]

    def number(self, value: Fraction, dtype: ir.DataType) -> Any:
        """A number, rounded to an element type."""
        z3 = self.z3
        if dtype in _EXPONENTS:
            return z3.fpToFP(z3.RNE(), z3.RealVal(value), self.sort(dtype))
        if dtype in _INTEGERS and value.denominator == 1 and self._holds(dtype, value):
            return z3.BitVecVal(int(value), _INTEGERS[dtype][0])
        if dtype == ir.DataType.BOOL and value in (0, 1):
            return z3.BoolVal(bool(value))
        raise NotModelled(f"{value} as {dtype.name.lower()}")

    @staticmethod
    def _holds(dtype: ir.DataType, value: Fraction) -> bool:
        """Whether an integer type contains a number; if not, a rule with this number does not apply to tensors of the
        type.
        """
        low, high = limits(dtype)
        return low <= value <= high

    def _translate(self, term: ScalarTerm, args: list[Any], types: Mapping[ScalarTerm, ir.DataType]) -> Any:
        dtype = types[term]
        if term.op == "symbol":
            return self.symbol(term.data, dtype)
        if term.op == "zero":
            return self._zero(term, dtype)
        if term.op == "infinity":
            return self._infinity(term, dtype)
        if term.value is not None:
            return self.number(term.value, dtype)
        of = types[term.args[0]] if term.args else dtype
        if of in _EXPONENTS:
            found = self._of_floats(term, args, of)
        elif of in _INTEGERS:
            found = self._of_integers(term, args, of)
        else:
            found = self._of_others(term, args, of)
        return self._function(term, args, dtype) if found is None else found

    def _zero(self, term: ScalarTerm, dtype: ir.DataType) -> Any:
        found = self.symbol(("zero", term.data), dtype)
        zero = self.number(Fraction(0), dtype)
        self.facts.append(self.z3.fpEQ(found, zero) if dtype in _EXPONENTS else found == zero)
        return found

    def _infinity(self, term: ScalarTerm, dtype: ir.DataType) -> Any:
        if dtype not in _EXPONENTS:
            raise NotModelled(f"an infinite number of type {dtype.name.lower()}")
        make = self.z3.fpPlusInfinity if term.data > 0 else self.z3.fpMinusInfinity
        return make(self.sort(dtype))

    def _of_floats(self, term: ScalarTerm, args: list[Any], dtype: ir.DataType) -> Any:
        z3, rounding = self.z3, self.z3.RNE()
        match term.op:
            case "Sum" if len(args) == 1:
                return args[0]
            case "Add" | "Sum" | "Sub" if len(args) == 2:
                args = args if term.op != "Sub" else [args[0], z3.fpNeg(args[1])]
                return self._of_two("Add", *args) if self.functions else z3.fpAdd(rounding, *args)
            case "Mul":
                return self._product("Mul", *args) if self.functions else z3.fpMul(rounding, *args)
            case "Div" | "Reciprocal":
                args = args if term.op == "Div" else [self.number(Fraction(1), dtype), args[0]]
                return self._product("Div", *args) if self.functions else z3.fpDiv(rounding, *args)
            case "Neg":
                return z3.fpNeg(args[0])
            case "Abs":
                return z3.fpAbs(args[0])
            case "Max" | "Min":
                return self._extreme(term.op, args)
            case "Mean" if len(args) == 1:
                return args[0]
            case "Pow" if term.args[1].value == 1:
                return args[0]
            case "Relu":
                return self._extreme("Max", [args[0], self.number(Fraction(0), dtype)])
            case "Clip":
                return self._clipped(term, args, self._extreme)
            case "Less":
                return z3.fpLT(*args)
            case "LessOrEqual":
                return z3.fpLEQ(*args)
            case "Greater":
                return z3.fpGT(*args)
            case "GreaterOrEqual":
                return z3.fpGEQ(*args)
            case "Equal":
                return z3.fpEQ(*args)
            case "IsNaN":
                return z3.fpIsNaN(args[0])
        return None

    def _product(self, op: str, a: Any, b: Any) -> Any:
        """A product or quotient of floats: the signs, and a function of the magnitudes."""
        z3 = self.z3
        found = self._of_two(op, z3.fpAbs(a), z3.fpAbs(b))
        self.facts.append(z3.Not(z3.fpIsNegative(found)))
        return z3.If(z3.Xor(z3.fpIsNegative(a), z3.fpIsNegative(b)), z3.fpNeg(found), found)

    def _of_two(self, op: str, a: Any, b: Any) -> Any:
        """A function of two numbers of one sort."""
        z3 = self.z3
        function = z3.Function(f"{op} {a.sort()}", a.sort(), a.sort(), a.sort())
        if op in ("Add", "Mul"):
            self.facts.append(function(a, b) == function(b, a))
        if z3.is_fp(a):
            self.facts.append(z3.Implies(z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b)), z3.fpIsNaN(function(a, b))))
        return function(a, b)

    def _extreme(self, op: str, args: list[Any]) -> Any:
        """The greatest or least; a NaN among them is the result."""
        z3, best = self.z3, args[0]
        for arg in args[1:]:
            first = z3.fpGT(best, arg) if op == "Max" else z3.fpLT(best, arg)
            choice = self._choice(best.sort())(best, arg)
            either = z3.If(best == arg, best, z3.If(choice, best, arg))
            ordered = z3.If(first, best, z3.If(z3.fpEQ(best, arg), either, arg))
            best = z3.If(z3.fpIsNaN(best), best, z3.If(z3.fpIsNaN(arg), arg, ordered))
        return best

    def _clipped(self, term: ScalarTerm, args: list[Any], extreme: Any) -> Any:
        """The greatest of x and the lower bound, and the least of that and the upper one."""
        low, high = dict(term.data)["present"]
        found, bounds = args[0], list(args[1:])
        if low:
            found = extreme("Max", [found, bounds.pop(0)])
        return extreme("Min", [found, bounds.pop(0)]) if high else found

    def _choice(self, sort: Any) -> Any:
        return self.z3.Function(f"choice_{sort.ebits()}_{sort.sbits()}", sort, sort, self.z3.BoolSort())

    def _of_integers(self, term: ScalarTerm, args: list[Any], dtype: ir.DataType) -> Any:
        z3 = self.z3
        width, signed = _INTEGERS[dtype]
        less = (lambda a, b: a < b) if signed else z3.ULT
        at_most = (lambda a, b: a <= b) if signed else z3.ULE

        def extreme(op: str, of: list[Any]) -> Any:
            best = of[0]
            for arg in of[1:]:
                best = z3.If(less(best, arg) if op == "Max" else less(arg, best), arg, best)
            return best

        match term.op:
            case "Add" | "Sum":
                return sum(args[1:], args[0])
            case "Sub":
                return args[0] - args[1]
            case "Mul":
                return self._of_two("Mul", *args) if self.functions else args[0] * args[1]
            case "Neg":
                return -args[0]
            case "Abs" if signed:
                return z3.If(args[0] < 0, -args[0], args[0])
            case "Abs":
                return args[0]
            case "Sign":
                one, zero = z3.BitVecVal(1, width), z3.BitVecVal(0, width)
                return z3.If(less(zero, args[0]), one, z3.If(args[0] == zero, zero, -one))
            case "Div":
                self.defined.append(args[1] != 0)
                if signed:
                    least = z3.BitVecVal(1 << (width - 1), width)
                    self.defined.append(z3.Not(z3.And(args[0] == least, args[1] == -1)))
                if self.functions:
                    return self._of_two("Div", *args)
                return args[0] / args[1] if signed else z3.UDiv(*args)
            case "Mod" if (as_in_c := dict(term.data).get("fmod")) in (0, 1):
                self.defined.append(args[1] != 0)
                if self.functions:
                    return self._of_two(f"Mod {as_in_c}", *args)
                if not signed:
                    return z3.URem(*args)
                # The sign is that of the divisor, or, as in C, that of the dividend.
                return z3.SRem(*args) if as_in_c else args[0] % args[1]
            case "Max" | "Min":
                return extreme(term.op, args)
            case "Relu" if signed:
                return z3.If(args[0] < 0, z3.BitVecVal(0, width), args[0])
            case "Clip":
                return self._clipped(term, args, extreme)
            case "Pow" if (power := term.args[1].value) is not None and power.denominator == 1 and 1 <= power <= 3:
                total = args[0]
                for _ in range(int(power) - 1):
                    total = total * args[0]
                return total
            case "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual":
                relation = at_most if term.op.endswith("OrEqual") else less
                return relation(*(args if term.op.startswith("Less") else reversed(args)))
            case "Equal":
                return args[0] == args[1]
        return self._bitwise(term, args, width)

    def _bitwise(self, term: ScalarTerm, args: list[Any], width: int) -> Any:
        z3 = self.z3
        match term.op:
            case "BitwiseAnd":
                return args[0] & args[1]
            case "BitwiseOr":
                return args[0] | args[1]
            case "BitwiseXor":
                return args[0] ^ args[1]
            case "BitwiseNot":
                return ~args[0]
            case "BitShift" if (direction := dict(term.data).get("direction")) in ("LEFT", "RIGHT"):
                self.defined.append(z3.ULT(args[1], width))
                return args[0] << args[1] if direction == "LEFT" else z3.LShR(args[0], args[1])
        return None

    def _of_others(self, term: ScalarTerm, args: list[Any], of: ir.DataType) -> Any:
        z3 = self.z3
        match term.op:
            case "Where":
                return z3.If(*args)
            case "Not":
                return z3.Not(args[0])
            case "And":
                return z3.And(*args)
            case "Or":
                return z3.Or(*args)
            case "Xor":
                return z3.Xor(*args)
            case "Equal" if of in (ir.DataType.BOOL, ir.DataType.STRING):
                return args[0] == args[1]
        return None

    def _function(self, term: ScalarTerm, args: list[Any], dtype: ir.DataType) -> Any:
        """A symbol that is the same for the same operands."""
        name = f"{term.op} {term.data!r} {dtype.name}"
        if not args:
            return self.symbol(("value", name), dtype)
        return self.z3.Function(name, *(a.sort() for a in args), self.sort(dtype))(*args)

    # ---- proof ------------------------------------------------------------------------------------

    def equal(
        self, left: ScalarTerm, right: ScalarTerm, root: ir.DataType, assumptions: Iterable[Any] = ()
    ) -> bool | None:
        """Whether two terms have equal bits where the left one is defined; None if the solver gives up."""
        z3 = self.z3
        self.defined = []
        a = self.formula(left, root)
        defined, self.defined = self.defined, []
        b = self.formula(right, root)
        differ = z3.Not(z3.And(*self.defined, a == b))
        gates = 0 if self.functions else self._gates(root, left, right)
        return contradict([*self.facts, *assumptions, *defined, differ], int(WORK / (1 + gates / FEW_GATES)))

    def _gates(self, root: ir.DataType, *terms: ScalarTerm) -> int:
        """About how many the circuits of all products and quotients have: a unit of work takes longer in large ones."""
        found = 0
        for term in terms:
            types = _types(term, root, self.types)
            for part in walk(term):
                if part.op in _PRODUCTS and not any(_is_power_of_two(arg) for arg in part.args):
                    dtype = types[part.args[0]]
                    width = _EXPONENTS[dtype][1] if dtype in _EXPONENTS else _INTEGERS.get(dtype, (0, False))[0]
                    found += width**2 * (1 if part.op == "Mul" else DIVISION)
        return found


def _is_power_of_two(term: ScalarTerm) -> bool:
    """Whether a factor or divisor is a number that makes a circuit trivial."""
    value = abs(term.value or Fraction(0))
    parts = (value.numerator, value.denominator)
    return 1 in parts and all(part.bit_count() == 1 for part in parts)


_COMPARING = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "IsNaN", "IsInf")


@cache
def _has_one_type(name: str) -> bool:
    """Whether operands and results of an elementwise operator have one element type."""
    op = OpKey("", name)
    return name == "Identity" or (has(op, Trait.ELEMENTWISE) and has_one_type(op))


def _types(term: ScalarTerm, root: ir.DataType, known: Mapping[Hashable, ir.DataType]) -> dict[ScalarTerm, ir.DataType]:
    """The element type of each part: given for symbols; a number has the type of the other operands.

    Raises:
        NotModelled: A type is unknown, or one number has two types.
    """
    found: dict[ScalarTerm, ir.DataType] = {}

    def give(part: ScalarTerm, dtype: ir.DataType) -> None:
        if found.setdefault(part, dtype) != dtype:
            raise NotModelled("a number of two element types")

    parts = list(walk(term))
    for part in parts:
        if part.op == "symbol":
            if part.data not in known:
                raise NotModelled("a value of unknown element type")
            give(part, known[part.data])
        elif part.op in _COMPARING or part.op in ("Not", "And", "Or", "Xor"):
            give(part, ir.DataType.BOOL)
        elif part.op == "Where" and (typed := [a for a in part.args[1:] if a in found]):
            give(part, found[typed[0]])
        elif part.op == "Pow" and part.args[0] in found:
            give(part, found[part.args[0]])
        elif _has_one_type(part.op) and (typed := [a for a in part.args if a in found]):
            give(part, found[typed[0]])
    if term not in found:
        give(term, root)
    for part in reversed(parts):
        if part.op in ("Not", "And", "Or", "Xor"):
            operands, wanted = part.args, ir.DataType.BOOL
        elif part.op == "Where":
            operands, wanted = part.args[1:], found.get(part)
            give(part.args[0], ir.DataType.BOOL)
        elif part.op == "Pow":
            operands, wanted = part.args, found.get(part)
        elif part.op in _COMPARING:
            operands = part.args
            wanted = next((found[a] for a in part.args if a in found), None)
        elif _has_one_type(part.op):
            operands, wanted = part.args, found.get(part)
        else:
            if any(a not in found for a in part.args):
                raise NotModelled(f"{part.op}: not modelled to the bit")
            continue
        for operand in operands:
            if operand not in found and wanted is not None:
                give(operand, wanted)
    if any(part not in found for part in parts):
        raise NotModelled("a number of unknown element type")
    return found
