"""One piece on one sample: both sides executed and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from eqsat.ops.properties import value_inputs
from eqsat.verify import judge
from eqsat.verify.judge import Difference
from eqsat.verify.oracle import Failed, Oracle, Refused, Value, own
from eqsat.verify.pieces import Piece
from eqsat.verify.programs import Call, Programs, extended, prolonged, run_kernels, run_nodes, wide, widened
from eqsat.verify.samples import ORDINARY, Style, draw
from eqsat.verify.thresholds import BENDING, MOST_ELEMENTS, thresholds

Sample = Mapping[int, Value]
"""Values of a piece's leaves, by class."""


@dataclass
class Tolerance:
    """What rules may change.

    Attributes:
        strict: Nothing: all rules that applied are exact.
        lsb: Units of integers of up to 16 bits.
    """

    strict: bool
    lsb: int


@dataclass
class Examiner:
    """Executes pieces of one pair of programs.

    Attributes:
        oracle: Of the input's side.
        second: Asked where eqsat's kernels contradict the first.
        worst: Largest difference found, relative to the largest magnitude of its tensor.
    """

    programs: Programs
    tolerance: Tolerance
    oracle: Oracle
    seed: int
    second: Oracle = field(default_factory=lambda: Oracle(("onnx.reference",)))
    worst: float = 0.0

    # ---- samples ----------------------------------------------------------------------------------

    def obstacle(self, piece: Piece) -> str:
        """Why a piece cannot be executed on drawn values; empty if it can."""
        programs = self.programs
        for i in (*piece.before, *piece.left):
            node = programs.nodes[i]
            if not programs.is_repeatable(i):
                opaque = node.constructor.op.domain not in ("", "com.microsoft")
                return "opaque operators" if opaque else "random operators"
        for c in (*piece.leaves, piece.eclass):
            kind = programs.type(c)
            if kind is None or not kind.is_static:
                return "tensors of unknown sizes"
            if kind.dtype == ir.DataType.STRING:
                return "strings"
            if kind.dtype.name.startswith("COMPLEX"):
                return "complex numbers"
        return ""

    def sample(self, piece: Piece, style: Style, points: Sequence[float], number: int) -> dict[int, Value] | None:
        """Values for the leaves of a piece; None where the style has nothing new to say."""
        found: dict[int, Value] = {}
        fixed = self._structural(piece)
        for c in piece.leaves:
            kind = self.programs.type(c)
            assert kind is not None
            how = style
            if c in fixed and kind.dtype.is_integer():
                how = Style("indices", "constant", 0.0) if number % 2 else Style("indices", "equal")
                if style.kind == "extreme":
                    return None
            array = draw(kind, how, points, self.seed + 1000 * number, f"{c}")
            if array is None:
                return None
            found[c] = array
        return found

    def _structural(self, piece: Piece) -> set[int]:
        """Leaves that, moved and cut, say which elements or how many others have: only small ones are harmless."""
        programs = self.programs
        touched: set[int] = set()
        for i in sorted((*piece.before, *piece.left), reverse=True):
            node = programs.nodes[i]
            op = node.constructor.op
            through = bool(touched & {programs.classes[k] for k in node.results} | touched & set(node.results))
            for at, k in enumerate(node.operands):
                if k is None:
                    continue
                if (
                    at in value_inputs(op)
                    or (at > 0 and op.name in _INDEXED)
                    or (through and is_integer_type(programs, k))
                ):
                    touched.add(programs.classes[k])
        return touched & set(piece.leaves)

    def factors(self, piece: Piece, values: Mapping[int, Value]) -> tuple[float, ...]:
        """By how much normal numbers must be scaled so that both sides of each threshold are reached inside."""
        found: dict[float, None] = {}
        for i in (*piece.before, *piece.left):
            node = self.programs.nodes[i]
            if node.constructor.op.name not in BENDING:
                continue
            peak, marks = 0.0, [abs(v) for n, v in node.attrs if isinstance(v, float) and n in ("min", "max", "alpha")]
            for k in node.operands:
                value = None if k is None else values.get(k)
                if not isinstance(value, np.ndarray) or value.dtype.kind not in "fV" or not value.size:
                    continue
                if k is not None and self.programs.dynamic[k]:
                    peak = max(peak, judge.magnitude(value))
                elif value.size <= MOST_ELEMENTS:
                    marks.append(judge.magnitude(value))
            for mark in marks:
                if 0 < peak < 2 * mark < np.inf and mark < 1e30:
                    found.setdefault(2.0 ** np.ceil(np.log2(4 * mark / peak)))
        return tuple(sorted(found)[-2:])

    # ---- one sample -------------------------------------------------------------------------------

    def examine(
        self, piece: Piece, style: Style, sample: Sample, *, precise: bool
    ) -> tuple[Difference | None, dict[int, Value]]:
        """The difference between both sides, and the values of the input's side.

        Args:
            precise: Compute both sides in float64 as well.
        """
        values: dict[int, Value] = {}
        try:
            left = self._left(piece, sample, self.oracle, values)
            fed = {c: values[-1 - c] for c in piece.fed if -1 - c in values}
        except Failed:
            return None, values
        try:
            right = self._right(piece, fed, own)
        except Failed as error:
            return self._failed(piece, sample, str(error)), values
        found = judge.incomparable(left, right)
        if found is not None or not isinstance(left, np.ndarray):
            return found, values
        if precise:
            found = self._in_float64(piece, sample, left)
        if found is None:
            found = self._natively(piece, sample, style, left, right, precise)
        if found is None and style.is_ordinary:
            found = self._elsewhere(piece, sample, style, fed, left)
        if found is None:
            self._note(left, right, style)
        return found, values

    def _elsewhere(
        self, piece: Piece, sample: Sample, style: Style, fed: Mapping[int, Value], left: np.ndarray
    ) -> Difference | None:
        """The difference where the result is executed by who executes the input: it must be right there, too."""
        first = Oracle(self.oracle.names[:1])
        try:
            left = self._left(piece, sample, first, {})
        except Failed:
            return None
        try:
            right = self._right(piece, fed, first)
        except Refused as error:
            return Difference(f"{first.names[0]} executes the input and not the result: {str(error)[:200]}")
        except Failed:
            return None
        found = judge.incomparable(left, right)
        return found or self._natively(piece, sample, style, left, right, precise=False)

    def _note(self, left: np.ndarray, right: np.ndarray, style: Style) -> None:
        if style.is_ordinary and left.dtype.kind not in "bOUS":
            error, scale = judge.distance(left, right), judge.magnitude(left)
            finite = error[np.isfinite(error)]
            if finite.size and scale:
                self.worst = max(self.worst, float(finite.max()) / scale)

    def _failed(self, piece: Piece, sample: Sample, reason: str) -> Difference | None:
        """The result cannot be executed although the input can, also by the same kernels."""
        try:
            self._left(piece, sample, own, {})
        except Failed:
            return None
        return Difference(f"the result cannot be executed: {reason[:200]}")

    def _in_float64(self, piece: Piece, sample: Sample, native: np.ndarray) -> Difference | None:
        if native.dtype.kind in "OUS" or not any("float" in n for n in self._types(piece)):
            return None
        values: dict[int, Value] = {}
        try:
            left = self._left(piece, sample, wide, values)
            right = self._right(piece, {c: values[-1 - c] for c in piece.fed if -1 - c in values}, wide)
        except Failed:
            return None
        if not isinstance(left, np.ndarray) or not isinstance(right, np.ndarray) or left.dtype.kind != "f":
            return None
        if left.shape != right.shape or left.dtype != right.dtype or left.shape != native.shape:
            return None
        rtol = judge.narrowest(self._types(piece))
        # Where the input itself has left the range of its type, float64 tells nothing of it.
        inside = np.isfinite(native.astype(np.float64)) | ~np.isfinite(left)
        mask = judge.beyond_wide(left, right, rtol) & inside
        if mask.any():
            mask &= ~self._overflows(piece, sample, native)
        if mask.any() and not self.tolerance.strict:
            mask = judge.without_ill_conditioned(mask, left, right, rtol / 4, self._perturbed(piece, sample, wide))
        return judge.difference(mask, left, right) if mask.any() else None

    def _natively(
        self, piece: Piece, sample: Sample, style: Style, left: np.ndarray, right: np.ndarray, precise: bool
    ) -> Difference | None:
        strict, lsb = self.tolerance.strict, self.tolerance.lsb
        found: Difference | None = None
        if strict:
            # The same kernels on both sides: they differ by nothing but the order of additions.
            try:
                same = self._left(piece, sample, own, {})
            except Failed:
                same = None
            if isinstance(same, np.ndarray) and judge.incomparable(same, right) is None:
                mask = judge.beyond(same, right, strict=True, lsb=0)
                if mask.any():
                    return judge.difference(mask, same, right)
        mask = judge.beyond(left, right, strict=False, lsb=lsb)
        if not mask.any():
            return None
        integer = judge.is_integer(left.dtype) or left.dtype.kind == "b"
        if not integer and precise and not style.is_ordinary:
            # float64 has seen no difference, and large and tiny numbers may leave the type's range between operators.
            return None
        if not integer:
            mask &= ~self._overflows(piece, sample, left)
        delta = 64 * self._epsilon(piece)
        mask = judge.without_ill_conditioned(mask, left, right, delta, self._perturbed(piece, sample, self.oracle))
        if not mask.any():
            return None
        found = judge.difference(mask, left, right)
        return None if self._kernels_differ(piece, sample, right) else found

    def _overflows(self, piece: Piece, sample: Sample, left: np.ndarray) -> np.ndarray:
        """Elements that are finite in float64 and not in the input's own type: there it is the input that fails."""
        infinite = ~np.isfinite(left.astype(np.float64))
        if not infinite.any():
            return infinite
        try:
            exact = self._left(piece, sample, extended, {})
        except Failed:
            return np.zeros_like(infinite)
        if not isinstance(exact, np.ndarray) or exact.shape != left.shape or exact.dtype.kind != "f":
            return np.zeros_like(infinite)
        return infinite & np.isfinite(exact)

    def _kernels_differ(self, piece: Piece, sample: Sample, right: np.ndarray) -> bool:
        """Whether the implementations differ about the input itself, and the specification is on the result's side."""
        try:
            second = self._left(piece, sample, self.second, {})
        except Failed:
            try:
                second = self._left(piece, sample, own, {})
            except Failed:
                return False
        if judge.incomparable(second, right) is not None:
            return False
        return not judge.beyond(second, right, strict=False, lsb=self.tolerance.lsb).any()

    # ---- both sides -------------------------------------------------------------------------------

    def _left(
        self, piece: Piece, sample: Sample, call: Call, values: dict[int, Value], noise: Noise | None = None
    ) -> Value:
        """The input's side; ``values`` receives its values, those of class c under ``-1 - c``."""
        programs = self.programs
        change = _CHANGES.get(call, _same)
        for c, array in sample.items():
            values[-1 - c] = change(array) if noise is None else noise.on(change(array))
        for part in (piece.before, piece.left):
            computed: dict[int, Value] = {}
            inner = {k for i in part for k in programs.nodes[i].results}
            for i in part:
                node = programs.nodes[i]
                for at, k in enumerate(node.operands):
                    if k is None or k in computed or k not in programs.reads(i):
                        continue
                    c = programs.classes[k]
                    if programs.dynamic[k] and -1 - c in values:
                        computed[k] = values[-1 - c]
                    elif k not in inner:
                        value = change(programs.initial(k))
                        steady = noise is None or at in value_inputs(node.constructor.op)
                        computed[k] = value if steady or noise is None else noise.on(value)
                run_nodes(programs, [i], computed, call)
                if noise is not None:
                    # Rounding errors arise at each operator, also where those of the inputs cancel.
                    computed.update({k: noise.on(computed[k]) for k in node.results if k in computed})
                if part is piece.before:
                    for k in node.results:
                        values.setdefault(-1 - programs.classes[k], computed.get(k))
            values.update(computed)
        return values[piece.value]

    def _right(self, piece: Piece, fed: Mapping[int, Value], call: Call) -> Value:
        programs = self.programs
        change = widened if call is wide else _same
        if programs.is_constant(piece.eclass):
            return change(programs.constant(piece.eclass))
        values: dict[int, Value] = dict(fed)
        if not piece.right:
            return values[piece.eclass]
        for i in piece.right:
            for c in programs.kernels[i].inputs:
                if c is not None and c not in values and programs.is_constant(c):
                    values[c] = change(programs.constant(c))
        run_kernels(programs, piece.right, values, call)
        return values[piece.eclass]

    def _perturbed(self, piece: Piece, sample: Sample, call: Call) -> judge.Perturbed:
        def run(delta: float, seed: int) -> Value:
            try:
                return self._left(piece, sample, call, {}, Noise(delta, seed))
            except Failed:
                return None

        return run

    def _types(self, piece: Piece) -> set[str]:
        programs = self.programs
        classes = {programs.classes[k] for i in (*piece.before, *piece.left) for k in programs.nodes[i].results}
        classes |= {c for i in piece.right for c in programs.kernels[i].outputs if c is not None}
        classes |= {*piece.leaves, piece.eclass}
        kinds = [programs.type(c) for c in classes]
        return {k.dtype.numpy().name for k in kinds if k is not None and k.dtype != ir.DataType.STRING}

    def _epsilon(self, piece: Piece) -> float:
        import ml_dtypes

        floats = [n for n in self._types(piece) if "float" in n]
        return max((float(ml_dtypes.finfo(np.dtype(n)).eps) for n in floats), default=1e-7)


class Noise:
    """Random relative changes of floats."""

    def __init__(self, delta: float, seed: int) -> None:
        self.delta = delta
        self.rng = np.random.default_rng(seed)

    def on(self, value: Value) -> Value:
        """The value changed, if it is a float."""
        if not isinstance(value, np.ndarray) or (value.dtype.kind != "f" and "float" not in value.dtype.name):
            return value
        wide_value = value.astype(np.float64)
        with np.errstate(all="ignore"):
            changed = wide_value * (1 + self.delta * self.rng.uniform(-1, 1, value.shape))
            return changed.astype(value.dtype)


def _same(value: Value) -> Value:
    return value


_CHANGES: dict[Call, Callable[[Value], Value]] = {wide: widened, extended: prolonged}


_INDEXED = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter", "OneHot"})


def is_integer_type(programs: Programs, k: int) -> bool:
    """Whether a value of the input has integers of more than 8 bits."""
    kind = programs.type(programs.classes[k])
    return kind is not None and kind.dtype.is_integer() and kind.dtype.bitwidth > 8


__all__ = ["ORDINARY", "Examiner", "Sample", "Tolerance", "thresholds"]
