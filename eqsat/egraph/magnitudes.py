"""Bounds on how large the numbers of a value are, for rules that would be wrong at the largest ones.

A mask hides keys of an attention by adding a number to their scores: ``-inf``, the lowest number of the type, or one
that is large enough. Whether a value may hold such a number follows from where it comes from. Constants are inspected,
integers have the bounds of their type, movement and selection keep the bound, sums and products of numbers widen it,
except a sum with a term that is negligible beside the other. Sums of products and functions with a bounded result give
ordinary numbers, far inside the range of their type: rules over the reals assume that of all values. An input of floats
may hold anything.

The fact is a function of egglog, the exponent of a power of two that no element but zeros reaches in magnitude. The
smallest answer counts, so that a class that contains an expression of itself (``x + 0``) keeps its bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np
import onnx_ir as ir

from eqsat.egraph.intern import Numbers, Tables
from eqsat.egraph.language import Constructor
from eqsat.ops.operators import operator
from eqsat.ops.wide import largest_finite
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import CAST, OpKey, TensorType

UNBOUNDED = 1 << 30
"""The exponent of a value that may be infinite or is unknown."""
ZERO = -(1 << 20)
"""The exponent of zeros, and the least of all; its power of two is 0."""
_MOST_READ = 1 << 18
"""Elements of a constant up to which they are looked at."""
_ORDINARY = 0.75
"""Share of the exponents of a type that sums of products use: 2^96 of 2^128."""
_SUMS = (OpKey("", "Add"), OpKey("", "Sub"))
_PRODUCT = OpKey("", "Mul")
_SCALED = OpKey("", "DequantizeLinear")
_CLIP = OpKey("", "Clip")
_ARITHMETIC = (*_SUMS, _PRODUCT, _SCALED, CAST)
"""Operators whose result may be larger than their operands."""


def declarations() -> Iterator[str]:
    """Commands that declare the fact, and rules that do not depend on operators."""
    yield "(function magnitude (T) i64 :merge (min old new))"
    yield "(function nums_magnitude (i64) i64 :merge old)"
    yield "(function type_magnitude (i64) i64 :merge old)"
    yield "(function ordinary (i64) i64 :merge old)"
    yield "(function digits (i64) i64 :merge old)"
    for fact in ("live", "isc"):
        yield f'(rule (({fact} e)) ((set (magnitude e) {UNBOUNDED})) :ruleset analysis :name "magnitude of {fact}")'
    yield (
        "(rule ((isc e) (= n (nums e)) (= m (nums_magnitude n))) ((set (magnitude e) m)) "
        ':ruleset analysis :name "magnitude of constant")'
    )
    yield (
        "(rule ((= t (type e)) (= m (type_magnitude t))) ((set (magnitude e) m)) "
        ':ruleset analysis :name "magnitude of integers")'
    )


def propagation(c: Constructor) -> Iterator[str]:
    """Rules that derive the fact of a constructor's e-nodes from its operands'."""
    if c.composite or c.outputs:
        return
    node = f"(= e {c.call('a', c.operands)})"
    magnitude = operator(c.op).magnitude
    if magnitude is not None and magnitude.ordinary:
        yield f"(rule ({node} (= t (type e)) (= m (ordinary t))) ((set (magnitude e) m)) :ruleset analysis)"
        return
    read = _operands(c)
    if not read:
        return
    known = " ".join(f"(= m{i} (magnitude x{i})) (< m{i} {UNBOUNDED})" for i in read)
    if c.op in _ARITHMETIC:
        # Integers may wrap around: -1 is the largest number of an unsigned type.
        known += " (= t (type e)) (= d (digits t))"
    yield f"(rule ({node} {known}) ((set (magnitude e) {_result(c.op, read)})) :ruleset analysis)"
    if c.op in _SUMS:
        for larger, smaller in ((0, 1), (1, 0)):
            beside = f"(<= (+ m{smaller} d) m{larger})"
            yield f"(rule ({node} {known} {beside}) ((set (magnitude e) m{larger})) :ruleset analysis)"


def _result(op: OpKey, read: Sequence[int]) -> str:
    result = f"m{read[0]}"
    for i in read[1:]:
        result = f"(+ {result} m{i})" if op in (_PRODUCT, _SCALED) else f"(max {result} m{i})"
    if op in (_PRODUCT, _SCALED):
        # Zeros may be products of themselves, and would become smaller without end.
        result = f"(max {ZERO} {result})"
    # A cast to a narrower type rounds up; a zero point may be as large as the number from which it is subtracted.
    return f"(+ {result} 1)" if op in _SUMS or op in (CAST, _SCALED) else result


def _operands(c: Constructor) -> tuple[int, ...]:
    """The operands that bound the result; empty if nothing follows."""
    magnitude = operator(c.op).magnitude
    if magnitude is not None:
        return magnitude.bounding(c.inputs)
    if c.op in _SUMS or c.op in (_PRODUCT, _SCALED):
        return (0, 1)
    if c.op == _CLIP:
        return (1, 2) if c.inputs == 3 else ()
    return (0,) if c.op == CAST else ()


def of_numbers(tables: Tables, numbers: Numbers) -> int | None:
    """The exponent of a constant expression; None if it is unknown."""
    if numbers.bounds is not None:
        return exponent(math.inf if numbers.bounds.endless else numbers.bounds.most)
    constant = tables.constants[numbers.constant]
    if constant.type is None or constant.type.dtype not in FLOATS or (constant.type.elements or 0) > _MOST_READ:
        return None
    array = constant.numpy()
    assert array is not None
    most = float(np.abs(array).max()) if array.size else 0.0
    return exponent(most)


def of_type(kind: TensorType) -> Iterator[tuple[str, int]]:
    """The exponents that follow from a type, with the names of the functions in egglog."""
    if kind.dtype in FLOATS:
        yield "ordinary", int(exponent(largest_finite(kind.dtype)) * _ORDINARY)
        # Less than a quarter of the last place is rounded away, also below a power of two.
        yield "digits", ml_dtypes.finfo(kind.dtype.numpy()).nmant + 3
    elif kind.dtype == ir.DataType.BOOL:
        yield "type_magnitude", 1
    elif kind.dtype.is_integer():
        yield "type_magnitude", kind.dtype.bitwidth


def exponent(most: float) -> int:
    """The least exponent, 0 or more, of a power of two above a number that is not 0."""
    if not most:
        return ZERO
    return max(math.frexp(most)[1], 0) if most < math.inf else UNBOUNDED


def bound(exponent: int) -> float:
    """The power of two."""
    return math.ldexp(1.0, exponent) if exponent <= 1023 else math.inf
