"""Terms of elementwise operators, built from small ones upwards and told apart by their values.

Only one term of each value is used to build further ones (Nandi et al. 2021, "Rewrite rule inference using equality
saturation"): the others are equal to it by the rules found so far. So the number of terms grows with the number of
different functions, not with the number of their spellings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import standard
from eqsat.ops.properties import is_commutative
from eqsat.ops.traits import BROADCASTS, DIVIDES, UNARY
from eqsat.rules.signatures import signature
from eqsat.schema.opset import input_arity, input_dtypes, is_variadic
from eqsat.schema.types import OpKey

NAMES = "xyzuvw"
"""Names of variables."""
SAMPLES = 600
DIGITS = 5
LEAST_DEFINED = SAMPLES // 4
"""Samples on which a term must be finite to count as a number."""
MOST_TERMS = 60_000
"""The most terms that are evaluated; a note says how many are left out."""
_FLOATS = (-8.0, -3.0, -1.5, -1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 8.0, -700.0, 700.0)
_INTEGERS = (-128, -100, -7, -3, -2, -1, 0, 1, 2, 3, 7, 100, 127)


@dataclass(frozen=True)
class ElementwiseTerm:
    """An expression.

    Attributes:
        op: Empty for a variable and a number.
        operands: Of the operator.
        name: Of a variable.
        number: Of a literal.
    """

    op: str = ""
    operands: tuple[ElementwiseTerm, ...] = ()
    name: str = ""
    number: float | None = None

    @cached_property
    def size(self) -> int:
        """The number of its operators."""
        return (1 if self.op else 0) + sum(operand.size for operand in self.operands)

    @cached_property
    def text(self) -> str:
        """The term in the syntax of a rule file."""
        if self.op:
            return f"{self.op}({', '.join(operand.text for operand in self.operands)})"
        return self.name or f"{self.number:g}"

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """In the order in which they first occur."""
        if not self.op:
            return (self.name,) if self.name else ()
        return tuple(dict.fromkeys(name for operand in self.operands for name in operand.variables))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The names of its operators, from the root down."""
        return (self.op, *(word for operand in self.operands for word in operand.words)) if self.op else ()

    @cached_property
    def subterms(self) -> tuple[ElementwiseTerm, ...]:
        """The term and all terms in it, each once."""
        return tuple(dict.fromkeys((self, *(below for operand in self.operands for below in operand.subterms))))

    @cached_property
    def numbers(self) -> int:
        """How many literals there are."""
        return (self.number is not None) + sum(operand.numbers for operand in self.operands)

    def renamed(self, names: Mapping[str, str]) -> ElementwiseTerm:
        """With other names of the variables."""
        if self.op:
            return ElementwiseTerm(self.op, tuple(operand.renamed(names) for operand in self.operands))
        return ElementwiseTerm(name=names[self.name]) if self.name else self

    def replaced(self, part: ElementwiseTerm, by: ElementwiseTerm) -> ElementwiseTerm:
        """With a term in each place of another one."""
        if self == part:
            return by
        return (
            ElementwiseTerm(self.op, tuple(operand.replaced(part, by) for operand in self.operands))
            if self.op
            else self
        )


@dataclass(frozen=True)
class Pair:
    """Two terms of equal values on all samples; ``left`` has at least as many operators, and ``right`` may be a number
    that stands for a tensor of it.
    """

    left: ElementwiseTerm
    right: ElementwiseTerm


class Enumeration:
    """All terms up to a size with different values, and the pairs with equal values.

    Args:
        operators: Names of the default ONNX domain.
        dtype: Element type of the variables.
        variables: Number of variables.
        numbers: Literals.
        size: The most operators in a term.
        seed: Seed of the samples.

    Attributes:
        pairs: Each new term with the first one of the same value.
        evaluated: The number of terms whose values were compared.
        complete: Whether all terms of the size were examined.
    """

    def __init__(
        self,
        operators: Sequence[str],
        dtype: ir.DataType,
        variables: int,
        numbers: Sequence[float],
        size: int,
        seed: int = 0,
    ) -> None:
        self.dtype = dtype
        self.pairs: list[Pair] = []
        self.evaluated = 0
        self.complete = True
        self._operators = [(name, arity) for name in operators for arity in arities(name)]
        self._divides = frozenset(o.op.name for o in standard() if DIVIDES in o.traits)
        # Other operators take tensors of one element here, such as the bounds of Clip.
        self._stretches = {o.op.name: BROADCASTS in o.traits or UNARY in o.traits for o in standard()}
        self._first: dict[bytes, ElementwiseTerm] = {}
        self._values: dict[ElementwiseTerm, np.ndarray] = {}
        self._by_size: list[list[ElementwiseTerm]] = [[] for _ in range(size + 1)]
        self._numbers: dict[float, ElementwiseTerm] = {}
        self._leaves(variables, numbers, seed)
        for operators_of_term in range(1, size + 1):
            for term in self._terms(operators_of_term):
                if self.evaluated >= MOST_TERMS:
                    self.complete = False
                    return
                self._add(term)

    def _leaves(self, variables: int, numbers: Sequence[float], seed: int) -> None:
        rng = np.random.default_rng(seed)
        if self.dtype == ir.DataType.BOOL:
            for i, name in enumerate(NAMES):
                self._leaf(ElementwiseTerm(name=name), rng.integers(0, 2, SAMPLES).astype(bool), is_used=i < variables)
            return
        is_float = self.dtype.is_floating_point()
        # Over the reals; which rounding a rule changes is up to the check.
        wide = np.dtype(np.float64) if is_float else self.dtype.numpy()
        special = np.array(_FLOATS if is_float else _INTEGERS).astype(wide)
        for i, name in enumerate(NAMES):
            drawn = rng.choice(special, SAMPLES)
            if is_float:
                near = rng.standard_normal(SAMPLES // 3) * 3
                drawn[: len(near)] = near
            self._leaf(ElementwiseTerm(name=name), drawn, is_used=i < variables)
        for number in numbers:
            self._numbers[number] = ElementwiseTerm(number=number)
            self._put(self._numbers[number], np.full(SAMPLES, number, dtype=wide))

    def _leaf(self, term: ElementwiseTerm, values: np.ndarray, *, is_used: bool) -> None:
        if is_used:
            self._put(term, values)
        else:
            self._values[term] = values

    def _put(self, term: ElementwiseTerm, values: np.ndarray) -> None:
        self._first.setdefault(_key(values), term)
        self._values[term] = values
        self._by_size[term.size].append(term)

    def _terms(self, size: int) -> Iterator[ElementwiseTerm]:
        for name, arity in self._operators:
            commutes = is_commutative(OpKey("", name))
            for sizes in itertools.product(range(size), repeat=arity):
                if sum(sizes) != size - 1:
                    continue
                for operands in itertools.product(*(self._by_size[s] for s in sizes)):
                    if commutes and list(operands) != sorted(operands, key=lambda t: (t.size, t.text)):
                        continue
                    if any(operand.name or operand.op for operand in operands) and self._fits(name, operands):
                        yield ElementwiseTerm(name, operands)

    def _fits(self, name: str, operands: Sequence[ElementwiseTerm]) -> bool:
        if name in self._divides and self.dtype.is_integer() and operands[1].number == 0:
            return False
        dtypes = [self._values[operand].dtype for operand in operands]
        return self._has_bounds(ElementwiseTerm(name, tuple(operands))) and self._has_types(name, dtypes)

    def _has_types(self, name: str, given: Sequence[np.dtype]) -> bool:
        """Whether an operator takes operands of these types, which numpy would convert."""
        found = signature(OpKey("", name))
        agreed: dict[str, np.dtype] = {}
        for i, dtype in enumerate(given):
            own = ir.DataType.BOOL if dtype.kind == "b" else self.dtype
            if own not in input_dtypes(OpKey("", name), i):
                return False
            parameter = None if found is None else found.inputs[min(i, len(found.inputs) - 1)].type_name
            if parameter is not None and agreed.setdefault(parameter, dtype) != dtype:
                return False
        return True

    def _has_bounds(self, term: ElementwiseTerm) -> bool:
        """Whether all operands but the first are numbers where an operator needs that."""
        return self._stretches[term.op] or all(operand.number is not None for operand in term.operands[1:])

    def _computed(self, term: ElementwiseTerm) -> np.ndarray | None:
        """The values of a term on the samples; None if it has none, or is infinite on all of them."""
        if term in self._values:
            return self._values[term]
        operands = [self._computed(operand) for operand in term.operands]
        known = [operand for operand in operands if operand is not None]
        if not term.op or len(known) < len(operands) or not self._has_bounds(term):
            return None
        if not self._has_types(term.op, [values.dtype for values in known]):
            return None
        try:
            (values,) = evaluate(OpKey("", term.op), (), known)
        except EqsatError:
            return None
        return None if values is None or values.shape != (SAMPLES,) or not np.isfinite(values).any() else values

    def holds(self, pair: Pair) -> bool:
        """Whether both sides, of any of :data:`NAMES`, are equal on all samples."""
        left, right = self._computed(pair.left), self._computed(pair.right)
        if left is None or right is None or left.dtype != right.dtype:
            return False
        if pair.right.number is not None:
            return _single(left) == pair.right.number
        return _key(left) == _key(right)

    def _add(self, term: ElementwiseTerm) -> None:
        self.evaluated += 1
        values = self._computed(term)
        if values is None:
            return
        number = _single(values)
        if number is not None:
            # Nothing is built from x / x: 1 is the same, and shorter.
            known = self._numbers.get(number)
            self.pairs.extend([] if known is None else [Pair(term, known)])
            return
        known = self._first.get(_key(values))
        if known is None:
            self._put(term, values)
        elif known.variables and set(known.variables) <= set(term.variables):
            # A number alone does not have the shape of a tensor.
            is_plainer = term.size == known.size and term.numbers < known.numbers
            if is_plainer and set(term.variables) == set(known.variables):
                term, known = known, term
            self.pairs.append(Pair(term, known))


def arities(name: str) -> tuple[int, ...]:
    """The numbers of operands with which an operator is tried, at most three."""
    op = OpKey("", name)
    least, most = input_arity(op)
    if is_variadic(op):
        return (2,)
    return tuple(n for n in (least, most) if 1 <= n <= 3) if least != most else (least,) if least <= 3 else ()


def _single(values: np.ndarray) -> float | None:
    """The number that a term is wherever it is defined, if it is one."""
    defined = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if values.dtype.kind == "b" or len(defined) < LEAST_DEFINED:
        return None
    number = round(float(defined[0]), DIGITS)
    return number if np.allclose(defined.astype(np.float64), number, rtol=1e-9, atol=1e-9) else None


def _key(values: np.ndarray) -> bytes:
    """Equal for values that differ by the rounding of a float64 computation."""
    if values.dtype.kind != "f":
        return values.dtype.char.encode() + values.tobytes()
    finite = np.isfinite(values)
    with np.errstate(all="ignore"):
        small = ~finite | (np.abs(values) < 1e-9)
        exponent = np.where(small, 0.0, np.floor(np.log10(np.abs(np.where(small, 1.0, values)))))
        scale = 10.0 ** (DIGITS - exponent)
        rounded = np.where(small, 0.0, np.round(values * scale) / scale)
    kind = np.where(np.isnan(values), 1, np.where(finite, 0, np.where(values > 0, 2, 3))).astype(np.uint8)
    # Minus zero is zero here.
    return kind.tobytes() + (rounded + 0.0).tobytes()
