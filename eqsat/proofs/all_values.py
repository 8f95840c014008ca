"""Decides equality of two terms by computing them for all values of their elements, if these are few.

Elements of 8 bits and truth values have few values, so that each combination of them can be computed by the operators'
own kernels, which cover more than the solver's formulas: casts, and floats between integers. Only operators whose
results the standard fixes to the bit are computed; where it leaves a result open, as for a quotient by zero, the left
side is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.proofs.assumptions import ElementTranslation, elements_of
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, walk
from eqsat.rules import ast
from eqsat.rules.element_types import DTYPES
from eqsat.schema.attributes import make_attrs
from eqsat.schema.dtypes import limits
from eqsat.schema.types import OpKey

MOST = 1 << 24
"""Combinations of values, for one pair of terms."""
_AT_ONCE = 1 << 16
_WIDEST = 8
"""Bits of the elements whose values are tried."""
_TRIED: Mapping[str, tuple[int | str, ...]] = {"fmod": (0, 1), "direction": ("LEFT", "RIGHT")}
"""Attributes that a rule may leave open, with all their values."""
_WITHOUT_EFFECT = ("saturate", "round_mode")
"""Attributes that matter for results of narrow floats only."""


def agree(
    left: ScalarTerm, right: ScalarTerm, root: ir.DataType, dtypes: Mapping[str, ir.DataType], parts: Sequence[ast.Expr]
) -> bool:
    """Whether two terms are equal for all values of their elements, where the left one is defined.

    Args:
        root: Element type of both terms.
        dtypes: Element types by the name of a tensor.
        parts: Conditions of the rule.

    Raises:
        NotModelled: There are too many values, or something is not computed here.
    """
    if not root.is_integer() and root != ir.DataType.BOOL:
        raise NotModelled(f"results of type {root.name.lower()}: values are tried of integers and truth values only")
    elements = elements_of((left, right))
    symbols = {symbol: dtypes.get(name) for name, found in elements.items() for symbol in found}
    values = {symbol: _values(dtype) for symbol, dtype in symbols.items()}
    count = math.prod(map(len, values.values()))
    if count > MOST:
        raise NotModelled(f"{count:,} combinations of values: not tried")
    for settings in _settings(left, right):
        for arrays in _blocks(values):
            compute = _Computation(arrays, settings, root)
            a, defined = compute.result(left)
            b, defined_too = compute.result(right)
            for fact in _ValueTranslation(arrays, elements, dtypes).facts(parts):
                defined = defined & fact
            if a.dtype != b.dtype or not (defined_too & (a == b))[np.broadcast_to(defined, a.shape)].all():
                return False
    return True


def _values(dtype: ir.DataType | None) -> np.ndarray:
    if dtype == ir.DataType.BOOL:
        return np.array([False, True])
    if dtype is None or not dtype.is_integer() or dtype.bitwidth > _WIDEST:
        raise NotModelled(f"values of type {'unknown' if dtype is None else dtype.name.lower()}: too many to try")
    low, high = (int(v) for v in limits(dtype))
    return np.arange(low, high + 1).astype(dtype.numpy())


def _blocks(values: Mapping[ScalarTerm, np.ndarray]) -> Iterator[dict[ScalarTerm, np.ndarray]]:
    """All combinations, some at once: arrays of one length."""
    apart, together, size = [], [], 1
    for symbol, own in values.items():
        if size * len(own) <= _AT_ONCE:
            together.append(symbol)
            size *= len(own)
        else:
            apart.append(symbol)
    grid = np.meshgrid(*(values[s] for s in together), indexing="ij")
    inner = {s: np.ravel(array) for s, array in zip(together, grid, strict=True)}
    for chosen in product(*(values[s] for s in apart)):
        yield inner | {s: np.full(size, value) for s, value in zip(apart, chosen, strict=True)}


def _settings(*terms: ScalarTerm) -> Iterator[dict[Hashable, int | str]]:
    """All values of the attributes that the rule leaves open, by their keys."""
    found: dict[Hashable, tuple[int | str, ...]] = {}
    for term in walk(*terms):
        if _is_fixed(term):
            found |= {value: _TRIED[name] for name, value in term.data if name in _TRIED and isinstance(value, tuple)}
    for chosen in product(*found.values()):
        yield dict(zip(found, chosen, strict=True))


def _is_fixed(term: ScalarTerm) -> bool:
    return has(OpKey("", term.op), Trait.FIXED)


class _Computation:
    """Terms on some values of their elements, all computed once."""

    def __init__(
        self, arrays: Mapping[ScalarTerm, np.ndarray], settings: Mapping[Hashable, int | str], root: ir.DataType
    ) -> None:
        self.settings = settings
        self.root = root
        self.size = len(next(iter(arrays.values()))) if arrays else 1
        self._found = dict(arrays)
        self._defined: dict[ScalarTerm, np.ndarray] = {}

    def result(self, term: ScalarTerm) -> tuple[np.ndarray, np.ndarray]:
        """Its values, and where it is defined."""
        defined = np.ones(self.size, bool)
        for part in walk(term):
            if part.value is not None:
                continue
            if part not in self._found:
                self._found[part] = self._computed(part)
            defined = defined & self._defined.get(part, np.True_)
        found = self._number(term.value, self.root.numpy()) if term.value is not None else self._found[term]
        return found, defined

    def _computed(self, term: ScalarTerm) -> np.ndarray:
        if not _is_fixed(term):
            raise NotModelled(f"{term.op}: its values are not tried")
        args = self._operands(term)
        attributes = self._attributes(term)
        self._defined[term] = _defined(term.op, args, attributes)
        if term.op == "Clip":
            low, high = dict(term.data)["present"]
            found, bounds = args[0], list(args[1:])
            found = np.maximum(found, bounds.pop(0)) if low else found
            return np.minimum(found, bounds.pop(0)) if high else found
        op = OpKey("", term.op)
        try:
            (found,) = evaluate(op, make_attrs(op, attributes), args)
        except EqsatError as error:
            raise NotModelled(f"{term.op}: {error.requirement}") from None
        assert found is not None
        return found

    def _operands(self, term: ScalarTerm) -> list[np.ndarray]:
        """Arrays; a number gets the type of the other operands."""
        arrays = [None if arg.value is not None else self._found[arg] for arg in term.args]
        beside = arrays[1:] if term.op == "Where" else arrays
        typed = next((a.dtype for a in beside if a is not None), None)
        found: list[np.ndarray] = []
        for position, (arg, array) in enumerate(zip(term.args, arrays, strict=True)):
            if array is None:
                kind = np.dtype(bool) if term.op == "Where" and position == 0 else typed
                if kind is None:
                    raise NotModelled("a number of unknown element type")
                array = self._number(arg.value, kind)
            found.append(array)
        if term.op in _OPEN_FOR_ZEROS and any(a.dtype.kind not in "biu" and (a == 0).any() for a in found[-1:]):
            raise NotModelled(f"{term.op} of floats by zero: its values are not tried")
        return found

    def _number(self, value: Fraction | None, dtype: np.dtype[Any]) -> np.ndarray:
        assert value is not None
        exact = int(value) if value.denominator == 1 else float(value)
        try:
            found = np.full(self.size, exact, object).astype(dtype)
        except OverflowError:
            raise NotModelled(f"{value} as {dtype.name}") from None
        if Fraction(float(found[0])) != value:
            raise NotModelled(f"{value} as {dtype.name}")
        return found

    def _attributes(self, term: ScalarTerm) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in term.data:
            if name in _WITHOUT_EFFECT or name == "present":
                continue
            if value in self.settings:
                found[name] = self.settings[value]
            elif isinstance(value, int | str):
                found[name] = value
            elif name == "to" and isinstance(value, tuple) and value[:1] == ("name",) and value[1] in DTYPES:
                found[name] = int(DTYPES[value[1]])
            else:
                raise NotModelled(f"attribute `{name}` of {term.op}: its values are not tried")
        return found


_OPEN_FOR_ZEROS = ("Div", "Mod")
"""Operators whose results tell zeros of different signs apart, which is open after a maximum or minimum."""


def _defined(op: str, args: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> np.ndarray:
    """Where the standard specifies the result of an operator."""
    first, last = args[0], args[-1]
    if op in ("Div", "Mod") and first.dtype.kind in "iu":
        is_least = (first == np.iinfo(first.dtype).min) if first.dtype.kind == "i" else np.False_
        return (last != 0) & ~(is_least & (last.astype(np.int64) == -1) & (op == "Div"))
    if op == "BitShift":
        return np.asarray(last < 8 * last.dtype.itemsize)
    if op == "Cast" and first.dtype.kind not in "biu":
        to = ir.DataType(attributes["to"])
        if to.is_integer():
            low, high = limits(to)
            whole = np.trunc(first.astype(np.float64))
            return (whole >= low) & (whole <= high)
    return np.ones(len(first), bool)


class _ValueTranslation(ElementTranslation):
    """Conditions on the values that are tried, as truth values."""

    def __init__(
        self,
        arrays: Mapping[ScalarTerm, np.ndarray],
        elements: Mapping[str, Sequence[ScalarTerm]],
        dtypes: Mapping[str, ir.DataType],
    ) -> None:
        super().__init__(elements, dtypes)
        self.arrays = arrays

    def compare(self, left: ScalarTerm | Fraction, sign: str, right: ScalarTerm | Fraction, dtype: ir.DataType) -> Any:
        a, b = (
            self.arrays[side].astype(np.float64) if isinstance(side, ScalarTerm) else float(side)
            for side in (left, right)
        )
        return _SIGNS[sign](a, b)

    def known(self, value: bool) -> Any:
        return np.bool_(value)

    def all_of(self, parts: Sequence[Any]) -> Any:
        return np.logical_and.reduce(np.broadcast_arrays(*parts))

    def any_of(self, parts: Sequence[Any]) -> Any:
        return np.logical_or.reduce(np.broadcast_arrays(*parts))


_SIGNS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
