"""The constants that a rule makes for one signature, and whether their element types can hold them.

Rules compute constants: the sum of two biases, weights times a scale, a literal. Over the reals that is right. But in a
type with a smallest and a largest number, an overflow would make all overflowing values equal. Constants of a right
side are therefore computed here, in a wider type and rounded once, and a rule does not apply if the result does not fit
(:func:`eqsat.ops.wide.misfit`). For large constants only bounds are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.egraph.intern import SMALL, Numbers, Tables
from eqsat.egraph.right_side import BuildStep, OperandOrigin, StepOrder
from eqsat.errors import EqsatError
from eqsat.ops.interval_arithmetic import (
    UNKNOWN,
    ConstantBounds,
    bounds_of_wide,
    keeps_numbers,
    misfit_of_bounds,
    operator_bounds,
)
from eqsat.ops.properties import contracted_inputs, requires_finite, value_inputs
from eqsat.ops.wide import SUMS, Wide, evaluate_wide, exactly, largest_finite, misfit, residue_of, smallest_normal
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import Attrs, OpKey, TensorType


class OutOfRange(Exception):
    """The rule does not apply to this signature: an element type cannot hold a constant that it would make."""


class MadeConstants:
    """The constants among the steps of a layout.

    Args:
        numbers: egglog variable -> known facts about its numbers, if it is constant.
        exact: Whether the rule computes the same bits as its left side.
    """

    def __init__(self, layout: StepOrder, tables: Tables, numbers: Mapping[str, Numbers], *, exact: bool) -> None:
        self.layout = layout
        self.tables = tables
        self.numbers = numbers
        self.exact = exact
        self._known: dict[int, Wide | ConstantBounds] = {}
        self._types: dict[int, Sequence[TensorType | None]] = {}
        self._unlimited: set[int] = set()
        self._passing: set[int] = set()
        self._moved: set[int] = set()
        self._folded: set[int] = set()

    def literal(self, index: int, value: object, dtype: ir.DataType) -> None:
        """Notes a number of the template; an infinite one is intended."""
        self._known[index] = exactly(value, dtype)
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            self._unlimited.add(index)

    def built(self, index: int, step: BuildStep, attrs: Attrs, results: Sequence[TensorType | None]) -> None:
        """Notes an operator of the template, whose operands are noted."""
        self._types[index] = results
        if index not in self.layout.constant:
            return
        data = step.operands[0] if step.operands else None
        if data is not None and keeps_numbers(step.constructor.op) and (data.variable or data.step in self._moved):
            self._moved.add(index)
        operands = [None if o is None else self._of(o) for o in step.operands]
        if any(k is None and o is not None for k, o in zip(operands, step.operands, strict=True)):
            return
        op = step.constructor.op
        small = all(t is not None and t.elements is not None and t.elements <= SMALL for t in results)
        if small and not step.constructor.outputs and not any(isinstance(k, ConstantBounds) for k in operands):
            wide = [k for k in operands if not isinstance(k, ConstantBounds)]
            try:
                found = evaluate_wide(op, attrs, wide, results)[0]
            except EqsatError:
                found = None
            self._known[index] = UNKNOWN if found is None else found
            if self._passes_on_infinities(step, attrs, wide):
                self._passing.add(index)
            if found is not None and self._folds(step, found):
                self._folded.add(index)
            return
        bounds = [bounds_of_wide(k) if isinstance(k, Wide) else k for k in operands]
        types = [None if o is None else self._type(o) for o in step.operands]
        self._known[index] = operator_bounds(op, attrs, bounds, types)

    def _passes_on_infinities(self, step: BuildStep, attrs: Attrs, operands: Sequence[Wide | None]) -> bool:
        """Whether infinite results of an operator come from elements of matched constants and literals."""
        op = step.constructor.op
        if requires_finite(op):
            if all(o is None or _is_finite(o) for o in operands):
                return False
            types = [None if o is None else self._type(o) for o in step.operands]
            bounds = operator_bounds(op, attrs, [None if o is None else bounds_of_wide(o) for o in operands], types)
            if bounds == UNKNOWN:
                return False
        passing = self._unlimited | self._passing
        made = [o.step for o in step.operands if o is not None and o.variable is None]
        return all(i in passing or _is_finite(self._known.get(i)) for i in made if i is not None)

    def folded(self) -> dict[int, int]:
        """Operators that a constant replaces, and its number."""
        found = {}
        for index in sorted(self._folded):
            known = self._known[index]
            assert isinstance(known, Wide)
            # An exact rule makes the bits that its left side computes: they have no residue.
            residue = None if self.exact else residue_of(known)
            found[index] = self.tables.constants.of_array(known.rounded(), known.dtype, residue)
        return found

    def _folds(self, step: BuildStep, result: Wide) -> bool:
        """Whether a constant replaces an operator.

        Not where integers are made or read: rounding a tensor is paid for by the e-node of its integers
        (:mod:`eqsat.quantization.budget`), so programs must go through it.
        """
        op = step.constructor.op
        if result.scale is None or (op in self.tables.written_out and keeps_numbers(op)):
            return False
        by_value = value_inputs(step.constructor.op)
        for position, operand in enumerate(step.operands):
            if operand is None or position in by_value:
                continue
            known = self._of(operand)
            if not isinstance(known, Wide) or known.scale is None:
                return False
            made = operand.step is not None and isinstance(self.layout.steps[operand.step], BuildStep)
            if made and operand.step not in self._folded:
                return False
        return True

    def check(self) -> None:
        """Checks all constants that enter the e-graph.

        Raises:
            OutOfRange: One does not fit.
        """
        for index, step in enumerate(self.layout.steps):
            if not isinstance(step, BuildStep) or index in self._folded or self._saturates(index):
                continue
            contracted = contracted_inputs(step.constructor.op)
            for position, operand in enumerate(step.operands):
                if operand is not None:
                    self._require(operand, contracted=position in contracted)
        for root in self.layout.roots:
            self._require(root, contracted=False)

    def _saturates(self, index: int) -> bool:
        """Whether an infinity, such as the reciprocal of a table's zero, ends in an integer as on the left side."""
        return self.exact and all(t is not None and t.dtype not in FLOATS for t in self._types[index])

    def _require(self, operand: OperandOrigin, *, contracted: bool) -> None:
        """Checks constants that are made; matched ones stay unchanged, wherever their numbers are moved."""
        index = operand.step
        known = None if index is None else self._known.get(index)
        if index is None or known is None or index in self._unlimited or index in self._moved:
            return
        if isinstance(known, Wide):
            limited = _with_finite_elements(known) if index in self._passing else known
            problem = misfit(limited, contracted=contracted)
        else:
            kind = self._types[index][operand.output]
            problem = "" if kind is None else misfit_of_bounds(known, kind.dtype, contracted=contracted)
        if problem:
            raise OutOfRange(problem)

    def _of(self, operand: OperandOrigin) -> Wide | ConstantBounds | None:
        if operand.variable is None:
            assert operand.step is not None
            return self._known.get(operand.step)
        numbers = self.numbers.get(operand.variable)
        if numbers is None:
            return None
        return self.tables.wide(numbers) or self.tables.bounds(numbers)

    def _type(self, operand: OperandOrigin) -> TensorType | None:
        if operand.step is not None:
            return self._types[operand.step][operand.output] if operand.step in self._types else None
        numbers = self.numbers.get(operand.variable or "")
        return None if numbers is None else self.tables.constants[numbers.constant].type


def _is_finite(known: Wide | ConstantBounds | None) -> bool:
    return isinstance(known, Wide) and bool(np.isfinite(known.values).all())


def _with_finite_elements(known: Wide) -> Wide:
    """The constant with zeros in place of the elements that are infinite or NaN."""
    if known.scale is None:
        return known
    finite = np.isfinite(known.values)
    return replace(known, values=np.where(finite, known.values, 0), scale=np.where(finite, known.scale, 0))


def residues(
    tables: Tables,
    op: OpKey,
    attrs: Attrs,
    constants: Sequence[int],
    results: Sequence[np.ndarray | None],
    types: Sequence[TensorType | None],
) -> Sequence[np.ndarray | None] | None:
    """The residue of rounding of an operator's results, on small constants that a rule made.

    Sums lose small terms; other operators have no more residue than their operands. A result that is infinite, zero or
    subnormal may be so because its element type cannot hold it.

    Returns:
        The residue of each result, see :func:`eqsat.ops.wide.residue_of`; None if an element type cannot hold one.
    """
    if (
        op not in SUMS
        and all(tables.constants[k].residue is None for k in constants)
        and all(_is_normal(r, t) for r, t in zip(results, types, strict=True))
    ):
        return [None] * len(types)
    try:
        wides = evaluate_wide(op, attrs, [tables.wide(Numbers(k)) for k in constants], types)
    except EqsatError:
        return [None] * len(types)
    if any(w is not None and misfit(w) for w, r in zip(wides, results, strict=True) if r is not None):
        return None
    return [None if w is None else residue_of(w) for w in wides]


def _is_normal(result: np.ndarray | None, kind: TensorType | None) -> bool:
    """Whether a result is certainly one that its element type can hold."""
    if result is None or kind is None or kind.dtype not in FLOATS:
        return True
    size = np.abs(result)
    return bool(((size >= smallest_normal(kind.dtype)) & (size <= largest_finite(kind.dtype))).all())
