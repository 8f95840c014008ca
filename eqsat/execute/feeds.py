"""Requirements on a model's inputs, prepared once so that checking a run costs next to nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from eqsat.errors import ExecutionError
from eqsat.model.map_types import is_map
from eqsat.ops.evaluate import describe
from eqsat.ops.families.casting import numpy_dtype
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import FreeSize, FreeSizes
from eqsat.schema.opset import did_you_mean
from eqsat.schema.size import Undecided, value_at

Symbols = dict[str, tuple[int, str]]
"""Symbolic dimensions bound so far: value, and the input that bound it."""


def unknown_name(what: Literal["input", "output"], name: str, known: Collection[str]) -> ExecutionError:
    """The error for an array under a name that no input, or no output, has."""
    return ExecutionError(
        f"the name of an {what} is required",
        place=f"input {name!r}" if what == "input" else f"out, {name!r}",
        actual="a name that the model does not have",
        hint=did_you_mean(name, known) or f"the {what}s are {', '.join(known) or 'none'}",
    )


def check_expressions(symbols: Symbols) -> None:
    """Raises an error where a size that is an expression of others is not what these make it.

    Raises:
        ExecutionError: One is not.
    """
    for dim, (have, name) in symbols.items():
        if dim.isidentifier():
            continue
        free = {name: FreeSize(0, None, 0) for name in symbols if name.isidentifier()}
        try:
            wanted = value_at(size_of(dim, free), {name: symbols[name][0] for name in free})
        except Undecided:
            continue
        if wanted != have:
            terms = ", ".join(f"{n} = {symbols[n][0]}" for n in sorted(ir.SymbolicDim(dim).free_symbols()))
            raise ExecutionError(
                f"a dimension of {dim} must be {wanted}",
                place=f"input {name!r}",
                actual=f"{have}, with {terms}",
                hint="give arrays whose sizes agree",
            )


def check_ranges(symbols: Symbols, ranges: FreeSizes) -> None:
    """Raises an error where a size is beyond those for which the model was optimized.

    Raises:
        ExecutionError: One is.
    """
    for name, size in ranges.items():
        have, by = symbols.get(name, (0, ""))
        if by and size.nearest(have) != have:
            raise ExecutionError(
                f"a size `{name}` within {size.span} is required, because the model was optimized for it",
                place=f"input {by!r}",
                actual=str(have),
                hint="optimize the original model for a wider range",
            )


class Feed:
    """One input of a graph.

    Args:
        value: The declared input.
        has_default: Whether an initializer is its default.
    """

    __slots__ = ("_dims", "_dtype", "_kind", "_maps", "_shape", "_string", "has_default", "name", "optional")

    def __init__(self, value: ir.Value, *, has_default: bool) -> None:
        self.name = value.name or ""
        self.has_default = has_default
        self._maps = is_map(value)
        self.optional = isinstance(value.type, ir.OptionalType) and not self._maps
        is_sequence, is_single = (isinstance(value.type, kind) for kind in (ir.SequenceType, ir.OptionalType))
        self._kind = "sequence" if is_sequence else "single" if is_single else "tensor"
        self._string = value.dtype == ir.DataType.STRING
        self._dtype = None if value.dtype is None or self._string else numpy_dtype(int(value.dtype))
        dims = None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
        self._dims = dims
        static = dims is not None and all(isinstance(d, int) for d in dims)
        self._shape = dims if static else None

    def checked(self, given: Any, symbols: Symbols) -> Any:
        """The value for the program: an array of the declared type, a list, or None.

        Raises:
            ExecutionError: The value has another type or shape.
        """
        # The usual case: exactly the declared type.
        if type(given) is np.ndarray and given.dtype == self._dtype and given.shape == self._shape:
            return given
        if self._kind != "tensor":
            return self._container(given)
        if given is None or (isinstance(given, list) and any(isinstance(x, np.ndarray) for x in given)):
            raise self._unfit(given)
        array = np.asarray(given)
        if self._string:
            if array.dtype.kind not in "OUS":
                raise ExecutionError("strings are required", place=self._place, actual=describe(array))
            array = self._strings(array)
        elif self._dtype is not None and array.dtype != self._dtype:
            message = f"an array of {self._dtype} is required"
            hint = f"convert it: .astype({self._dtype.name!r})"
            raise ExecutionError(message, place=self._place, actual=describe(array), hint=hint)
        self._check_shape(array, symbols)
        return array

    def missing(self) -> ExecutionError:
        """The error for an input that was not given."""
        return ExecutionError(
            "a value is required", place=self._place, actual="nothing", hint=f"it is {self._declared}"
        )

    def _container(self, given: Any) -> Any:
        if self._maps:
            return self._map(given)
        if self._kind == "sequence" and not isinstance(given, list | tuple):
            raise ExecutionError("a sequence is required", place=self._place, actual=describe(given))
        if not isinstance(given, list | tuple):
            return given
        arrays = [np.asarray(x) for x in given]
        return [self._strings(a) if a.dtype.kind in "OUS" else a for a in arrays]

    def _map(self, given: Any) -> Any:
        single = self._kind != "sequence"
        maps = [given] if single else given
        if not isinstance(maps, list | tuple) or not all(isinstance(one, dict) for one in maps):
            what = "a map (a dictionary)" if single else "a sequence of maps (a list of dictionaries)"
            actual = describe(given) if given is None or isinstance(given, np.ndarray | list) else type(given).__name__
            raise ExecutionError(f"{what} is required", place=self._place, actual=actual)
        typed = [one if self._dtype is None else {k: self._dtype.type(v) for k, v in one.items()} for one in maps]
        return typed[0] if single else typed

    def _strings(self, array: np.ndarray) -> np.ndarray:
        """Strings in the form for kernels: Python's, in an array of objects, which numpy neither pads nor cuts."""
        given = array.astype(object).reshape(-1).tolist()
        made = np.empty(len(given), object)
        for i, text in enumerate(given):
            try:
                made[i] = text.decode() if isinstance(text, bytes) else text
            except UnicodeDecodeError:
                raise ExecutionError(
                    "strings in UTF-8 are required", place=self._place, actual=repr(text[:40])
                ) from None
            if not isinstance(made[i], str):
                raise ExecutionError("strings are required", place=self._place, actual=repr(text)[:60])
        return made.reshape(array.shape)

    def _check_shape(self, array: np.ndarray, symbols: Symbols) -> None:
        if self._dims is None:
            return
        if array.ndim != len(self._dims):
            raise self._unfit(array)
        for axis, (have, want) in enumerate(zip(array.shape, self._dims, strict=True)):
            if isinstance(want, int):
                if have != want:
                    raise self._unfit(array)
            elif want:
                bound, by = symbols.setdefault(want, (have, self.name))
                if bound != have:
                    message = f"dimension {axis} must be {want}, which is {bound} in input {by!r}"
                    raise ExecutionError(message, place=self._place, actual=describe(array))

    def _unfit(self, given: Any) -> ExecutionError:
        return ExecutionError(f"{self._declared} is required", place=self._place, actual=describe(given))

    @property
    def _place(self) -> str:
        return f"input {self.name!r}"

    @property
    def _declared(self) -> str:
        """Type and shape that the model declares."""
        dtype = "string" if self._string else self._dtype.name if self._dtype is not None else ""
        if not dtype:
            return "a value"
        if self._dims is None:
            return f"an array of {dtype}"
        return f"{dtype}[{', '.join('?' if d is None else str(d) for d in self._dims)}]"
