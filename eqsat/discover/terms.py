"""Terms of elementwise operators, built from small ones upwards and told apart by their values.

Only one term of each value is used to build further ones (Nandi et al. 2021, "Rewrite rule inference using equality
saturation"): the others are equal to it by the rules found so far. So the number of terms grows with the number of
different functions, not with the number of their spellings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import standard
from eqsat.ops.properties import is_commutative
from eqsat.ops.traits import BROADCASTS, UNARY
from eqsat.schema.opset import input_arity, input_dtypes, is_variadic
from eqsat.schema.types import OpKey

SAMPLES = 600
DIGITS = 5
MOST_TERMS = 60_000
"""Terms that are evaluated; what is left out is said."""
_FLOATS = (-8.0, -3.0, -1.5, -1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 8.0, -700.0, 700.0)
_INTEGERS = (-128, -100, -7, -3, -2, -1, 0, 1, 2, 3, 7, 100, 127)


@dataclass(frozen=True)
class Term:
    """An expression.

    Attributes:
        op: Empty for a variable and a number.
        operands: Of the operator.
        name: Of a variable.
        number: Of a literal.
    """

    op: str = ""
    operands: tuple[Term, ...] = ()
    name: str = ""
    number: float | None = None

    @cached_property
    def size(self) -> int:
        """The number of its operators."""
        return (1 if self.op else 0) + sum(operand.size for operand in self.operands)

    @cached_property
    def text(self) -> str:
        """As in a rule file."""
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
    def numbers(self) -> int:
        """How many literals there are."""
        return (self.number is not None) + sum(operand.numbers for operand in self.operands)

    def renamed(self, names: dict[str, str]) -> Term:
        if self.op:
            return Term(self.op, tuple(operand.renamed(names) for operand in self.operands))
        return Term(name=names[self.name]) if self.name else self


@dataclass(frozen=True)
class Pair:
    """Two terms of equal values on all samples; ``left`` has at least as many operators."""

    left: Term
    right: Term


class Enumeration:
    """All terms up to a size, as far as their values differ, and the pairs that are equal.

    Args:
        operators: Names of the default ONNX domain.
        dtype: Element type of the variables.
        variables: How many.
        numbers: Literals.
        size: The most operators in a term.
        seed: Of the samples.

    Attributes:
        pairs: Each new term beside the first one of the same value.
        evaluated: The number of terms whose values were compared.
        complete: Whether all terms of the size were looked at.
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
        # Other operators take tensors of one element there, such as the bounds of Clip.
        self._stretches = {o.op.name: BROADCASTS in o.traits or UNARY in o.traits for o in standard()}
        self._first: dict[bytes, Term] = {}
        self._values: dict[Term, np.ndarray] = {}
        self._by_size: list[list[Term]] = [[] for _ in range(size + 1)]
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
            for i in range(variables):
                self._put(Term(name="xyzuvw"[i]), rng.integers(0, 2, SAMPLES).astype(bool))
            return
        is_float = self.dtype.is_floating_point()
        # Over the reals; which rounding a rule changes is up to the check.
        wide = np.dtype(np.float64) if is_float else self.dtype.numpy()
        special = np.array(_FLOATS if is_float else _INTEGERS).astype(wide)
        for i in range(variables):
            drawn = rng.choice(special, SAMPLES)
            if is_float:
                near = rng.standard_normal(SAMPLES // 3) * 3
                drawn[: len(near)] = near
            self._put(Term(name="xyzuvw"[i]), drawn)
        for number in numbers:
            self._put(Term(number=number), np.full(SAMPLES, number, dtype=wide))

    def _put(self, term: Term, values: np.ndarray) -> None:
        self._first.setdefault(_key(values), term)
        self._values[term] = values
        self._by_size[term.size].append(term)

    def _terms(self, size: int) -> Iterator[Term]:
        for name, arity in self._operators:
            commutes = is_commutative(OpKey("", name))
            for sizes in itertools.product(range(size), repeat=arity):
                if sum(sizes) != size - 1:
                    continue
                for operands in itertools.product(*(self._by_size[s] for s in sizes)):
                    if commutes and list(operands) != sorted(operands, key=lambda t: (t.size, t.text)):
                        continue
                    if any(operand.name or operand.op for operand in operands) and self._fits(name, operands):
                        yield Term(name, operands)

    def _fits(self, name: str, operands: Sequence[Term]) -> bool:
        for i, operand in enumerate(operands):
            is_truth = self._values[operand].dtype == bool
            wanted = ir.DataType.BOOL if is_truth else self.dtype
            if wanted not in input_dtypes(OpKey("", name), i):
                return False
        if not self._stretches[name] and any(operand.number is None for operand in operands[1:]):
            return False
        return len({self._values[o].dtype for o in operands if name != "Where"}) <= 1

    def _add(self, term: Term) -> None:
        self.evaluated += 1
        try:
            (values,) = evaluate(OpKey("", term.op), (), [self._values[operand] for operand in term.operands])
        except EqsatError:
            return
        if values is None or values.shape != (SAMPLES,) or not np.isfinite(values).any():
            return
        key = _key(values)
        known = self._first.get(key)
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
