"""What a model's outputs must be, and which differences have a reason that lies in the model.

A difference is explained only by one of these:

- *conditioning*: it is within what rounding in the types of the tensors does to the two programs (``worlds.py``),
  a tie of an operator that jumps included;
- *input*: the input model itself leaves the range of its types there: executed in its types it gives infinity, NaN,
  or something else than over the reals;
- *between*: a value that the result computes leaves the range of its type where the input's do not, which rules of
  class ``real`` may do ("Constants, and the range of their types" in ``docs/rules.md``); a constant must not;
- *judges*: ONNX Runtime and ``onnx.reference`` disagree about the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from tests.fuzz.generator import Case
from tests.fuzz.runtime import NoKernelError, ort_outputs
from tests.fuzz.values import Value, spread, step_of
from tests.fuzz.widen import is_float
from tests.fuzz.worlds import REACH, execute

UNITS = 8
"""Roundings of a result that need no conditioning."""


class DisagreementError(AssertionError):
    """A program computes something else."""


class Judge:
    """Knows what the outputs of one case must be.

    Attributes:
        explained: How many elements were not held against a program, by reason; ``compared`` are all there were.
        right: Outputs over the reals, and what rounding may do to them.
        runtime: Outputs of ONNX Runtime; None if it has no kernels.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.explained: Counter[str] = Counter()
        self.right = execute(case.model, case.feeds, seed=case.seed)
        self._loose: dict[str, Value] | None = None
        self.content = case.model.SerializeToString(deterministic=True)
        self.doubtful: set[str] = set()
        self.refusal = ""
        try:
            self.runtime: dict[str, Any] | None = ort_outputs(self.content, case.feeds)
        except (NoKernelError, ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph) as error:
            self.runtime = None
            self.refusal = " ".join(str(error).split())
        if self.runtime is not None:
            for name, value in self.right.items():
                if _wrong(value, value, self.runtime[name], None, Counter()) is not None:
                    self.doubtful.add(name)

    def loose(self) -> dict[str, Value]:
        """The outputs where quantized integers may be off by one."""
        if self._loose is None:
            self._loose = execute(self.case.model, self.case.feeds, seed=self.case.seed, lsb=1.0)
        return self._loose

    def program(self, model: onnx.ModelProto, *, lsb: bool) -> dict[str, Value]:
        """A result's own outputs in all worlds.

        Raises:
            UnjudgedError: It has an operator without an implementation.
        """
        return execute(model, self.case.feeds, seed=self.case.seed + 1, lsb=float(lsb), constants=True)

    def compare(
        self, place: str, found: Mapping[str, Any], other: Mapping[str, Value] | None = None, *, lsb: bool = False
    ) -> None:
        """Raises unless every difference is explained.

        Args:
            found: Outputs by name.
            other: The outputs of the program that computed them, in all worlds; None if it is the input's.
            lsb: Whether rules were used by which integers may be off by one.

        Raises:
            DisagreementError: A difference is not.
        """
        if list(self.right) != list(found):
            raise DisagreementError(f"{place}: outputs {list(found)} instead of {list(self.right)}")
        right = self.loose() if lsb else self.right
        for name, value in right.items():
            message = _wrong(
                self.right[name], value, found[name], None if other is None else other[name], self.explained
            )
            if message is None:
                continue
            if name in self.doubtful:
                self.explained["judges"] += 1
                continue
            raise DisagreementError(f"{place}: {name} {message}")

    def same_bits(self, place: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Raises unless all is equal to the bit, the bits of a NaN aside.

        Raises:
            DisagreementError: Something is not.
        """
        for name, left in expected.items():
            right = found[name]
            if not isinstance(left, np.ndarray):
                continue
            if left.dtype != right.dtype or left.shape != right.shape:
                raise DisagreementError(f"{place}: {name} is {right.dtype}{right.shape}, not {left.dtype}{left.shape}")
            equal = left == right
            if is_float(left.dtype):
                a, b = left.astype(np.float64), right.astype(np.float64)
                equal = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
            if not np.all(equal):
                first = tuple(int(i) for i in np.argwhere(~np.asarray(equal))[0]) if left.ndim else ()
                raise DisagreementError(f"{place}: {name}{list(first)} is {right[first]!r}, not {left[first]!r}")


def _allowed(value: Value, other: Value | None) -> np.ndarray:
    exact = value.exact
    far = value.spread() if other is None else value.spread() + _fitting(other, exact.shape)
    if value.dtype is None or not is_float(value.dtype):
        return 2 * far
    half, least, _ = step_of(value.dtype)
    size = np.where(np.isfinite(exact), np.abs(exact), 0.0)
    return REACH * far + UNITS * half * size + 2 * np.minimum(least, np.where(size > 0, least, 0.0))


def _fitting(other: Value, shape: tuple[int, ...]) -> np.ndarray:
    far = spread(other.worlds)
    return far if far.shape == shape else np.zeros(shape)


def _wrong(plain: Value, value: Value, found: Any, other: Value | None, explained: Counter[str]) -> str | None:
    """What is wrong with an output; None if nothing is, or all that differs is explained."""
    exact = value.exact
    if not isinstance(exact, np.ndarray):
        return None if repr(exact) == repr(found) else "is another sequence"
    dtype = value.dtype
    if found.shape != exact.shape:
        if value.spread().size and np.isinf(value.spread()).all():
            explained["ties"] += 1
            return None
        return f"has shape {found.shape}, not {exact.shape}"
    if dtype is not None and found.dtype != dtype and dtype.kind not in "OUS":
        return f"is {found.dtype}, not {dtype}"
    explained["compared"] += exact.size
    if exact.dtype.kind in "OUS" or exact.dtype == np.bool_ or dtype is None:
        unsure = np.zeros(exact.shape, bool) if exact.dtype.kind in "OUS" else value.spread() > 0
        wrong = (found != exact) & ~unsure
        explained["ties"] += int(np.sum((found != exact) & unsure))
        if exact.dtype == np.bool_:
            # A number that vanishes in its type is false; no small change of it is zero.
            beyond = (plain.typed != exact) | plain.left
            explained["input"] += int(np.sum(wrong & beyond))
            wrong &= ~beyond
        return None if not wrong.any() else _first(wrong, found, exact)
    with np.errstate(all="ignore"):
        numbers, right = found.astype(np.float64), exact.astype(np.float64)
        allowed = _allowed(value, other)
        off = ~((np.abs(numbers - right) <= allowed) | (found == exact))
        if other is not None and other.exact.shape == exact.shape:
            meant = other.exact.astype(np.float64)
            off |= ~((np.abs(meant - right) <= allowed) | (meant == right))
        if not off.any():
            return None
        typed = plain.typed.astype(np.float64)
        beyond = ~np.isfinite(right) | ~(np.abs(typed - right) <= allowed) | plain.left
        explained["input"] += int(np.sum(off & beyond))
        off &= ~beyond
        if other is not None and other.exact.shape == exact.shape:
            meant, other_typed = other.exact.astype(np.float64), other.typed.astype(np.float64)
            between = (np.abs(meant - right) <= allowed) & ~(np.abs(other_typed - meant) <= allowed) | other.left
            explained["between"] += int(np.sum(off & between))
            off &= ~between
    return None if not off.any() else _first(off, found, exact, allowed)


def _first(wrong: np.ndarray, found: np.ndarray, exact: np.ndarray, allowed: np.ndarray | None = None) -> str:
    place = tuple(int(i) for i in np.argwhere(np.asarray(wrong))[0]) if exact.ndim else ()
    within = "" if allowed is None else f" (±{float(allowed[place]):.2g})"
    return f"{list(place)} is {found[place]}, not {exact[place]}{within}; {int(np.sum(wrong))} of {exact.size} differ"
