"""The arrays of one run of a program: checked, and handed over as they lie in memory.

All that depends on sizes alone is computed once for each combination of sizes, so that a run costs little more than
looking at its arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cffi
import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.codegen.emitted import Emitted
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.feeds import Feed, Symbols, unknown_name
from eqsat.ops.evaluate import describe
from eqsat.schema.size import value_at
from eqsat.schema.types import Shape

_KEPT = 1024
"""Combinations of sizes whose shapes are kept."""


@dataclass(frozen=True, slots=True)
class RunShapes:
    """The shapes of a run.

    Attributes:
        sizes: The sizes that the program receives.
        inputs: The shape of each input.
        outputs: The shape of each output; where data decides it, one number: the greatest number of elements.
    """

    sizes: tuple[int, ...]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]


class ArgumentBinder:
    """Checks arrays against the parameters of a program. Threads may share it.

    Args:
        model: From which the program was generated.
        emitted: The program.

    Raises:
        CodegenError: A size is not a dimension of an input.
    """

    def __init__(self, model: ir.Model, emitted: Emitted) -> None:
        self._emitted = emitted
        values = {v.name: v for v in model.graph.inputs}
        self.inputs = tuple(x.name for x in emitted.inputs)
        self.outputs = tuple(y.name for y in emitted.outputs)
        self._found = {y.name: len(y.shape) for y in emitted.outputs if y.found}
        self._feeds = [Feed(values[name], has_default=False) for name in self.inputs]
        self._given = [(x.name, _numpy(x.dtype)) for x in emitted.inputs]
        self._made = [_numpy(y.dtype) for y in emitted.outputs]
        self._found_in = _origins(emitted)
        # An input with a default is a constant here; a value for it would have no effect.
        self._fixed = {v.name for v in model.graph.inputs} - set(self.inputs)
        self._shapes: dict[tuple[int, ...], RunShapes] = {}
        self._ffi: Any = cffi.FFI()
        self._address = self._ffi.typeof("uintptr_t")

    def arrays(self, inputs: Mapping[str, Any]) -> tuple[list[np.ndarray], RunShapes]:
        """The arrays of a run in the order of the parameters, dense, and its shapes.

        Raises:
            ExecutionError: Missing, unknown or unfit inputs.
        """
        found = self._usual(inputs) or self._checked(inputs)
        given = found[0]
        for number, array in enumerate(given):
            # An array that is already dense is passed without a copy.
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                given[number] = np.require(array, requirements=["C", "A"])
        return found

    def results(self, shapes: RunShapes, out: Mapping[str, np.ndarray] | None) -> list[np.ndarray]:
        """Arrays for the outputs: the caller's if given, otherwise new ones.

        Raises:
            ExecutionError: The caller's arrays do not fit.
            LimitError: There is not enough memory.
        """
        if not out:
            try:
                return [np.empty(shape, dtype) for shape, dtype in zip(shapes.outputs, self._made, strict=True)]
            except MemoryError as error:
                raise bounds.out_of_memory("results") from error
        for name in out:
            if name not in self.outputs:
                raise unknown_name("output", name, self.outputs)
            if name in self._found:
                raise ExecutionError(
                    "an output of known size is required",
                    place=f"out, {name!r}",
                    actual="one whose size depends on data",
                    hint="leave it out to get a new array",
                )
        return [
            _fit(name, out[name], shape, dtype) if name in out else np.empty(shape, dtype)
            for name, shape, dtype in zip(self.outputs, shapes.outputs, self._made, strict=True)
        ]

    def reported(self) -> list[np.ndarray]:
        """Arrays for the shapes that the program reports."""
        return [np.zeros(max(axes, 1), np.uintp) for axes in self._found.values()]

    def shaped(self, results: list[np.ndarray], reported: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results after a run; an output whose shape data decides is an array of its own."""
        if not reported:
            return results
        shapes = {name: tuple(map(int, shape)) for name, shape in zip(self._found, reported, strict=True)}
        return [
            array[: math.prod(shapes[name])].reshape(shapes[name]).copy() if name in shapes else array
            for name, array in zip(self.outputs, results, strict=True)
        ]

    def pointers(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """The arguments of the program for dense arrays, which must outlive it."""
        return [self._ffi.from_buffer(array) for array in arrays]

    def require_apart(self, pointers: Sequence[Any]) -> None:
        """An output may not overlap an input or another output: kernels write it while they read others.

        Raises:
            ExecutionError: One does.
        """
        names = [*[""] * len(self.inputs), *self.outputs]
        cast, address = self._ffi.cast, self._address
        spans = [(int(cast(address, p)), len(p), name) for p, name in zip(pointers, names, strict=True) if len(p)]
        furthest, owner = 0, ""
        for start, size, name in sorted(spans):
            if start < furthest and (name or owner):
                raise ExecutionError(
                    "arrays that share no memory with inputs or other outputs are required",
                    place=f"out, {name or owner!r}",
                    actual="one that overlaps another array",
                    hint="leave it out to get a new array",
                )
            if start + size > furthest:
                furthest, owner = start + size, name

    def _usual(self, inputs: Mapping[str, Any]) -> tuple[list[np.ndarray], RunShapes] | None:
        """The usual case: arrays of the declared types, of sizes that were seen before."""
        given: list[np.ndarray] = []
        if len(inputs) != len(self._given):
            return None
        for name, dtype in self._given:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype:
                return None
            given.append(array)
        try:
            shapes = self._shapes.get(tuple([given[number].shape[axis] for number, axis in self._found_in]))
        except IndexError:
            return None
        if shapes is None:
            return None
        for array, shape in zip(given, shapes.inputs, strict=True):
            if array.shape != shape:
                return None
        return given, shapes

    def _checked(self, inputs: Mapping[str, Any]) -> tuple[list[np.ndarray], RunShapes]:
        for name in inputs:
            if name in self._fixed:
                raise ExecutionError(
                    "C code takes only inputs without a default",
                    place=f"input {name!r}",
                    actual="an input that is a constant of the generated program",
                    hint='backend="numpy" takes it',
                )
            if name not in self.inputs:
                raise unknown_name("input", name, self.inputs)
        symbols: Symbols = {}
        given: list[np.ndarray] = []
        for feed, name in zip(self._feeds, self.inputs, strict=True):
            if name not in inputs:
                raise feed.missing()
            given.append(np.asarray(feed.checked(inputs[name], symbols)))
        shapes = self._shapes_of(given)
        for array, shape, x in zip(given, shapes.inputs, self._emitted.inputs, strict=True):
            if array.shape != shape:
                raise ExecutionError(
                    f"the shape {list(x.dims)} is required, because the code was generated for it",
                    place=f"input {x.name!r}",
                    actual=str(list(array.shape)),
                    hint="a symbolic dimension with a range, as in dims={'N': (1, 8)}, lets it take other sizes",
                )
        return given, shapes

    def _shapes_of(self, given: Sequence[np.ndarray]) -> RunShapes:
        """The shapes at the sizes of the inputs."""
        emitted = self._emitted
        sizes = {
            size.name: given[number].shape[axis]
            for size, (number, axis) in zip(emitted.sizes, self._found_in, strict=True)
        }
        for size, (number, _) in zip(emitted.sizes, self._found_in, strict=True):
            if not size.least <= sizes[size.name] <= size.most:
                raise ExecutionError(
                    f"a size `{size.name}` of {size.least} to {size.most} is required, because the code was generated "
                    "for it",
                    place=f"input {emitted.inputs[number].name!r}",
                    actual=str(sizes[size.name]),
                    hint="generate the code for a wider range",
                )
        shapes = RunShapes(
            tuple(sizes.values()),
            tuple(tuple(int(value_at(n, sizes)) for n in x.shape) for x in emitted.inputs),
            tuple(
                (y.elements,) if y.found else tuple(int(value_at(n, sizes)) for n in y.shape) for y in emitted.outputs
            ),
        )
        if len(self._shapes) < _KEPT:
            self._shapes[shapes.sizes] = shapes
        return shapes


def _fit(name: str, array: object, shape: Shape, dtype: np.dtype) -> np.ndarray:
    """The caller's array for an output.

    Raises:
        ExecutionError: The program cannot write to it.
    """
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == shape:
        if array.flags.carray:
            return array
        found = "one that is read-only" if not array.flags.writeable else "one that is not dense"
    else:
        found = describe(array)
    raise ExecutionError(
        f"a dense, writable array {dtype.name}{list(shape)} is required",
        place=f"out, {name!r}",
        actual=found,
        hint=f"make it with np.empty({tuple(shape)}, {dtype.name!r})",
    )


def _origins(emitted: Emitted) -> list[tuple[int, int]]:
    """An input and an axis for each size: where the size of a run is found.

    Raises:
        CodegenError: No dimension is the size itself.
    """
    found: dict[str, tuple[int, int]] = {}
    for number, x in enumerate(emitted.inputs):
        for axis, dim in enumerate(x.dims):
            if isinstance(dim, str):
                found.setdefault(dim, (number, axis))
    missing = [size.name for size in emitted.sizes if size.name not in found]
    if missing:
        raise CodegenError(
            "an input with each size as a dimension is required to run the program from Python",
            place=f"model {emitted.model!r}",
            actual=f"{', '.join(f'`{name}`' for name in missing)} only within expressions",
            hint="bind it, or call the program from C",
        )
    return [found[size.name] for size in emitted.sizes]


def _numpy(dtype: str) -> np.dtype:
    return ir.DataType[dtype.upper()].numpy()
