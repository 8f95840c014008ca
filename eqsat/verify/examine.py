"""One piece on one sample: both sides executed and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from eqsat.execute.difference import is_integer, magnitude
from eqsat.ops.evaluate import TensorValue
from eqsat.partition.onnx_nodes import has_subgraphs
from eqsat.verify import judge_values
from eqsat.verify.conditioning import shaken_apart, shaken_input, shaken_result, shaken_steps, shaken_weights
from eqsat.verify.judge_values import ValueDifference
from eqsat.verify.leaf_samples import Style
from eqsat.verify.oracle import EvaluationRefused, Failed, FallbackOracle, own
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import CallOperator, Programs, wide
from eqsat.verify.sides import LeafValues, ValuesByClass, fed, run_left, run_right
from eqsat.verify.type_ranges import Meaning, Meanings


@dataclass
class Tolerance:
    """The changes that the applied rules may make.

    Attributes:
        strict: Whether no changes are allowed, because all rules that applied are exact.
        lsb: Largest change of integers of up to 16 bits, in units.
        exact: The rules that applied and are exact.
        steps: Whether rules that change such integers applied.
    """

    strict: bool
    lsb: int
    exact: frozenset[str] = frozenset()
    steps: bool = False


@dataclass
class Examiner:
    """Executes pieces of one pair of programs.

    Attributes:
        oracle: The oracle of the input's side.
        second: The oracle used where eqsat's kernels contradict the first.
        worst: Largest difference found, relative to the largest magnitude of its tensor.
        suspects: By value, pieces with a difference that only rules over the reals may make, although only exact ones
        left traces.
    """

    programs: Programs
    tolerance: Tolerance
    oracle: FallbackOracle
    second: FallbackOracle = field(default_factory=lambda: FallbackOracle(("onnx.reference",)))
    worst: float = 0.0
    suspects: dict[int, tuple[ComparedPiece, ValueDifference, Style]] = field(default_factory=dict)

    def examine(
        self, piece: ComparedPiece, style: Style, sample: LeafValues, *, precise: bool
    ) -> tuple[ValueDifference | None, ValuesByClass]:
        """The difference between both sides, and the values of the input's side.

        Args:
            precise: Compute both sides in float64 as well.
        """
        values: ValuesByClass = {}
        before = dict(self.oracle.used)
        try:
            left = self._left(piece, sample, self.oracle, values)
        except Failed:
            return None, values
        by = {name for name, count in self.oracle.used.items() if count > before.get(name, 0)}
        theirs = fed(piece, values)
        meanings = Meanings(self.programs, piece, sample, judge_values.narrowest(self._types(piece)))
        try:
            right = self._right(piece, dict(theirs), own)
        except Failed as error:
            return self._failed(piece, sample, meanings, str(error)), values
        found = judge_values.incomparable(left, right)
        if found is not None or not isinstance(left, np.ndarray):
            return None if found is None or self._kernels_differ(piece, sample, right) else found, values
        if precise:
            found = self._in_float64(piece, sample, style, meanings, left)
        if found is None:
            found = self._natively(piece, sample, style, meanings, left, right, precise)
        if found is None and style.is_ordinary:
            by_first = left if by <= {self.oracle.names[0]} else None
            found = self._elsewhere(piece, sample, style, meanings, theirs, by_first)
        if found is None:
            self._note(left, right, style)
        return found, values

    def _elsewhere(
        self,
        piece: ComparedPiece,
        sample: LeafValues,
        style: Style,
        meanings: Meanings,
        theirs: Mapping[int, TensorValue],
        by_first: np.ndarray | None,
    ) -> ValueDifference | None:
        """The difference if the input's implementation executes the result: it must be right there as well.

        Args:
            by_first: The input's side if this implementation alone has computed it.
        """
        first = FallbackOracle(self.oracle.names[:1])
        try:
            left = self._left(piece, sample, first, {}) if by_first is None else by_first
        except Failed:
            return None
        try:
            right = self._right(piece, dict(theirs), first)
        except EvaluationRefused as error:
            return ValueDifference(f"{first.names[0]} executes the input but not the result: {str(error)[:200]}")
        except Failed:
            return None
        found = judge_values.incomparable(left, right)
        if found is not None:
            return None if self._kernels_differ(piece, sample, right) else found
        return self._natively(piece, sample, style, meanings, left, right, precise=False)

    def _note(self, left: np.ndarray, right: np.ndarray, style: Style) -> None:
        if style.is_ordinary and left.dtype.kind not in "bOUS":
            error, scale = judge_values.distance(left, right), magnitude(left)
            if scale:
                self.worst = max(self.worst, float(np.max(error, where=np.isfinite(error), initial=0.0)) / scale)

    def _failed(
        self, piece: ComparedPiece, sample: LeafValues, meanings: Meanings, reason: str
    ) -> ValueDifference | None:
        """The result cannot be executed although the input can, even with the same kernels."""
        try:
            self._left(piece, sample, own, {})
        except Failed:
            return None
        if not self.tolerance.strict and self._may_leave(meanings.get()):
            return None
        return ValueDifference(f"the result cannot be executed: {reason[:200]}")

    @staticmethod
    def _may_leave(meaning: Meaning) -> bool:
        """Whether the difference can be due to numbers outside of the range of their type."""
        return meaning.input_leaves or meaning.result_leaves

    def _in_float64(
        self, piece: ComparedPiece, sample: LeafValues, style: Style, meanings: Meanings, native: np.ndarray
    ) -> ValueDifference | None:
        if native.dtype.kind in "OUS" or not any("float" in n for n in self._types(piece)):
            return None
        both = self._both(piece, sample, wide)
        if both is None or both[0].dtype.kind != "f" or both[0].shape != native.shape:
            return None
        left, right = both
        mask = judge_values.beyond_wide(left, right, meanings.rtol)
        mask = self._without_steps(mask, piece, sample, left, right, wide)
        if mask.any() and not self.tolerance.strict:
            shaken = shaken_input(self.programs, piece, sample, wide)
            mask = judge_values.without_ill_conditioned(mask, left, right, meanings.rtol / 4, shaken)
        if mask.any():
            # A value that overflows in float64 as well may be finite in an even wider type.
            meaning = meanings.get()
            differs = meaning.differs()
            if differs is not None:
                mask &= differs & ~meaning.beyond_the_widest()
            mask &= ~meaning.input_excused(native)
        if mask.any() and piece.right and not self.tolerance.strict:
            # Roundings of float64 itself, if the result is another program over the reals.
            shaken = shaken_result(self.programs, piece, sample, wide)
            mask = judge_values.without_ill_conditioned(mask, right, left, 2 * float(np.finfo(np.float64).eps), shaken)
        if mask.any() and piece.right:
            # Where constants of the result cancel, their rounding becomes visible.
            weights = shaken_weights(self.programs, piece, sample, strict=self.tolerance.strict)
            mask = judge_values.without_ill_conditioned(mask, right, left, self._epsilon(piece) / 2, weights)
        if mask.any() and style.kind == "natural":
            apart = shaken_apart(self.programs, piece, sample, left, right)
            mask = judge_values.without_ill_conditioned(mask, left, right, self._epsilon(piece), apart)
        return judge_values.difference(mask, left, right) if mask.any() else None

    def _natively(
        self,
        piece: ComparedPiece,
        sample: LeafValues,
        style: Style,
        meanings: Meanings,
        left: np.ndarray,
        right: np.ndarray,
        precise: bool,
    ) -> ValueDifference | None:
        if self.tolerance.strict:
            found = self._by_same_kernels(piece, sample)
            if found is not None:
                return found
        mask = judge_values.beyond(left, right, strict=False, lsb=self.tolerance.lsb)
        if not mask.any():
            return None
        self._suspect(piece, sample, style)
        integer = is_integer(left.dtype) or left.dtype.kind == "b"
        if not integer and precise and not style.is_ordinary:
            # float64 has seen no difference, and large and tiny numbers may leave the type's range between operators.
            return None
        # Each test excuses elements by itself. So the order is that of the work, and the longest float comes last.
        shaken = shaken_result(self.programs, piece, sample, own)
        # The result may be another program over the reals, which rounds other terms than the input.
        mask = judge_values.without_ill_conditioned(mask, right, left, 8 * self._epsilon(piece), shaken)
        mask = self._without_steps(mask, piece, sample, left, right, self.oracle)
        if mask.any():
            shaken = shaken_input(self.programs, piece, sample, self.oracle)
            mask = judge_values.without_ill_conditioned(mask, left, right, 64 * self._epsilon(piece), shaken)
        if mask.any():
            mask &= ~meanings.get().excused(left, right)
        if not mask.any():
            return None
        if self._kernels_differ(piece, sample, right) or (
            not style.is_ordinary and self._agrees_elsewhere(piece, sample)
        ):
            return None
        return judge_values.difference(mask, left, right)

    def _without_steps(
        self,
        mask: np.ndarray,
        piece: ComparedPiece,
        sample: LeafValues,
        left: np.ndarray,
        right: np.ndarray,
        call: CallOperator,
    ) -> np.ndarray:
        """The differing elements without those that other integers inside of the piece change as much."""
        if not self.tolerance.steps or not mask.any():
            return mask
        shaken = shaken_steps(self.programs, piece, sample, call, self.tolerance.lsb)
        return judge_values.without_ill_conditioned(mask, left, right, 0.0, shaken, judge_values.SAFETY_OF_STEPS)

    def _by_same_kernels(self, piece: ComparedPiece, sample: LeafValues) -> ValueDifference | None:
        """The difference where only the order of additions may differ: both sides by eqsat's kernels.

        Others execute the bodies of control flow, so that there is nothing to say of a loop and its rounds.
        """
        if any(has_subgraphs(self.programs.nodes[i].attrs) for i in piece.left):
            return None
        both = self._both(piece, sample, own)
        if both is None:
            return None
        mask = judge_values.beyond(*both, strict=True, lsb=0)
        return judge_values.difference(mask, *both) if mask.any() else None

    def _suspect(self, piece: ComparedPiece, sample: LeafValues, style: Style) -> None:
        """Remembers an inexact piece in which only exact rules left traces."""
        exact = self.tolerance.exact
        if self.tolerance.strict or not exact or piece.value in self.suspects:
            return
        if all(rule in exact for rule in piece.rules(self.programs)):
            found = self._by_same_kernels(piece, sample)
            if found is not None:
                self.suspects[piece.value] = (piece, found, style)

    def _kernels_differ(self, piece: ComparedPiece, sample: LeafValues, right: np.ndarray) -> bool:
        """Whether the implementations differ about the input itself, and the specification supports the result."""
        try:
            second = self._left(piece, sample, self.second, {})
        except Failed:
            try:
                second = self._left(piece, sample, own, {})
            except Failed:
                return False
        if not isinstance(second, np.ndarray) or judge_values.incomparable(second, right) is not None:
            return False
        return not judge_values.beyond(second, right, strict=False, lsb=self.tolerance.lsb).any()

    def _agrees_elsewhere(self, piece: ComparedPiece, sample: LeafValues) -> bool:
        """Whether both sides agree by the input's oracle: then eqsat's kernels differ from those of the oracle.

        They may differ for large and tiny numbers, whose products overflow only inside some kernels.
        """
        both = self._both(piece, sample, self.oracle)
        if both is None:
            return False
        return not judge_values.beyond(*both, strict=self.tolerance.strict, lsb=self.tolerance.lsb).any()

    # ---- both sides -------------------------------------------------------------------------------

    def _both(
        self, piece: ComparedPiece, sample: LeafValues, call: CallOperator
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Both sides by one implementation; None if it fails, or if they cannot be compared."""
        values: ValuesByClass = {}
        try:
            left = self._left(piece, sample, call, values)
            right = self._right(piece, fed(piece, values), call)
        except Failed:
            return None
        if not isinstance(left, np.ndarray) or judge_values.incomparable(left, right) is not None:
            return None
        return left, right

    def _left(self, piece: ComparedPiece, sample: LeafValues, call: CallOperator, values: ValuesByClass) -> TensorValue:
        return run_left(self.programs, piece, sample, call, values)

    def _right(self, piece: ComparedPiece, values: ValuesByClass, call: CallOperator) -> TensorValue:
        return run_right(self.programs, piece, values, call)

    def _types(self, piece: ComparedPiece) -> set[str]:
        programs = self.programs
        classes = {programs.classes[k] for i in (*piece.before, *piece.left) for k in programs.nodes[i].results}
        classes |= {c for i in piece.right for c in programs.kernels[i].outputs if c is not None}
        classes |= {*piece.leaves, piece.eclass}
        kinds = [programs.type(c) for c in classes]
        return {k.dtype.numpy().name for k in kinds if k is not None and k.dtype != ir.DataType.STRING}

    def _epsilon(self, piece: ComparedPiece) -> float:
        import ml_dtypes

        floats = [n for n in self._types(piece) if "float" in n]
        return max((float(ml_dtypes.finfo(np.dtype(n)).eps) for n in floats), default=1e-7)
