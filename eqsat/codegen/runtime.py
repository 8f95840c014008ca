"""Runs a model as C from Python: it is compiled once, arrays are passed without copies, and the GIL is released."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.backends.backend import Primitive
from eqsat.backends.registry import Given, chosen
from eqsat.backends.runs import asked
from eqsat.codegen.compiler import compile_library, find_compiler, native_isas
from eqsat.codegen.contexts import Contexts, declarations, entry_name
from eqsat.codegen.emitted import Emitted
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import Isa
from eqsat.codegen.weights import aligned
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.feeds import Feed, Symbols
from eqsat.model.read.dims import Size, sizes_of
from eqsat.rules.ast import Target
from eqsat.schema import opset
from eqsat.schema.size import value_at

_NAME = "model"
_ATTEMPTS = 8
"""How often loading is tried again if another process damages or removes the library between its check and its use."""


class CModel:
    """A compiled model.

    Threads may run it at the same time; each takes an arena of its own.

    Args:
        model: As loaded.
        dims: Sizes of symbolic dimensions, or ranges of those that the arrays of each run determine.
        isas: Instruction sets; by default the best that this machine has.
        flags: Further flags of the compiler.
        profile: Whether the flags make the program measure its kernels.
        winograd, host, select: As for :func:`eqsat.codegen.generate.generate`.
        vendors: Targets whose backend, found by name, executes their regions: ``dnnl``.
        backends: Further backends: objects, or Python files, which are executed.

    Raises:
        CodegenError: The model cannot be written as C, or no C compiler accepts it.
        BackendError: There is no backend with that name, or one fails.

    Example:
        >>> from eqsat.model.load import load
        >>> text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) {y = Add(x, x)}'
        >>> CModel(load(text)).run({"x": np.ones(2, np.float32)})
        {'y': array([2., 2.], dtype=float32)}
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        dims: Mapping[str, Size] | None = None,
        isas: Sequence[Isa] | None = None,
        flags: tuple[str, ...] = (),
        profile: bool = False,
        winograd: bool = False,
        host: str | Path | Target | None = None,
        select: bool = True,
        vendors: Collection[str] = (),
        backends: Sequence[Given] = (),
    ) -> None:
        serving = chosen(model, vendors, backends)
        for backend in serving.values():
            if backend.emits:
                backend.require(find_compiler())
        self._ffi: Any = None
        self._library: Any = None
        self._contexts: list[Contexts] = []
        unavailable: dict[str, dict[str, str]] = {}
        while True:
            self.emitted = emitted = generate(
                model,
                name=_NAME,
                dims=dims,
                isas=isas or native_isas(),
                embedded=False,
                winograd=winograd,
                host=host,
                select=select,
                backends=serving,
                unavailable=unavailable,
            )
            self._served = [s for s in emitted.served if s.backend in serving.values()]
            self._stateful = [s for s in emitted.served if s.code.stateful]
            self._weights = emitted.weights
            self._load(flags, profile)
            # Kernels that are not implemented on this machine are left out, so that the rest of their region is
            # executed.
            found = False
            for served, contexts in zip(self._stateful, self._contexts, strict=True):
                known = unavailable.setdefault(served.backend.target, {})
                with asked(served.backend, "unavailable"):
                    more = dict(served.backend.unavailable(contexts.loaded))
                found = found or not known.keys() >= more.keys()
                known.update(more)
            if not found:
                break
        self._arenas: list[np.ndarray] = []
        self._lock = threading.Lock()
        values = {v.name: v for v in model.graph.inputs}
        self._feeds = [Feed(values[x.name], has_default=False) for x in emitted.inputs]
        self._outputs = [(y.name, y.shape, _numpy(y.dtype)) for y in emitted.outputs]
        self._found_in = _origins(emitted)
        # An input with a default is a constant here; a value for it would have no effect.
        self._fixed = {v.name for v in model.graph.inputs} - {x.name for x in emitted.inputs}

    def _load(self, flags: tuple[str, ...], profile: bool) -> None:
        """Compile, load, and initialize."""
        emitted = self.emitted
        more = [f"-D{_NAME.upper()}_USE_{s.target.upper()}" for s in self._served]
        more += [flag for s in self._served for flag in s.code.flags]
        libraries = tuple(library for s in self._served for library in s.code.libraries)
        self._ffi = ffi = cffi.FFI()
        ffi.cdef(declaration(emitted))
        ffi.cdef(declarations(_NAME, declaration(emitted), self._stateful))
        if profile:
            ffi.cdef(f"extern double {_NAME}_seconds[{max(len(emitted.kernels), 1)}];")
        for attempt in range(_ATTEMPTS):
            library = compile_library(sources(emitted), flags=(*flags, *more), libraries=libraries)
            try:
                self._library = ffi.dlopen(str(library))
                break
            except OSError as error:
                if attempt == _ATTEMPTS - 1:
                    raise CodegenError(
                        "a library that can be loaded is required",
                        place=str(library),
                        actual=str(error),
                        hint="remove it",
                    ) from error
        # Looked up once: a run of a small model takes no longer than its arguments.
        self._input_types = [ffi.typeof(f"const {x.c_type} *") for x in emitted.inputs]
        self._output_types = [ffi.typeof(f"{y.c_type} *") for y in emitted.outputs]
        self._arena_type = ffi.typeof("void *")
        self._constants = ffi.cast("const void *", self._weights.ctypes.data)
        self._contexts = [Contexts(ffi, self._library, self._constants, _NAME, s) for s in self._stateful]
        if self._stateful:
            self._with_contexts = getattr(self._library, entry_name(_NAME, self._stateful))

    def primitives(self) -> list[Primitive]:
        """The primitives that backends' libraries execute in a run, if they report them, in order."""
        pairs = zip(self._stateful, self._contexts, strict=True)
        return [p for served, contexts in pairs for p in served.backend.primitives(contexts.loaded)]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run the model.

        Args:
            inputs: Array by input name, of exactly the declared type and shape.

        Returns:
            Array by output name; they are the caller's.

        Raises:
            ExecutionError: Missing, unknown or unfit inputs.
            LimitError: The arena is larger than the memory limit.
        """
        given = self._checked(inputs)
        sizes = self._sizes(given)
        results = [np.empty(tuple(value_at(n, sizes) for n in shape), dtype) for _, shape, dtype in self._outputs]
        arena = self._take()
        try:
            cast = self._ffi.cast
            arguments = [
                *[cast(c, x.ctypes.data) for c, x in zip(self._input_types, given, strict=True)],
                *[cast(c, y.ctypes.data) for c, y in zip(self._output_types, results, strict=True)],
                *(sizes[size.name] for size in self.emitted.sizes),
                cast(self._arena_type, arena.ctypes.data),
                self._constants,
            ]
            status = self._call(arguments)
        finally:
            with self._lock:
                self._arenas.append(arena)
        if status != 0:
            raise ExecutionError("a run without failures is required", actual=f"status {status} of {self._names()}")
        return {name: array for (name, _, _), array in zip(self._outputs, results, strict=True)}

    def _call(self, arguments: list[Any]) -> int:
        if not self._contexts:
            return self._library.model_run(*arguments)
        if len(self._contexts) == 1:
            with self._contexts[0].one() as context:
                return self._with_contexts(*arguments, context)
        with ExitStack() as stack:
            contexts = [stack.enter_context(c.one()) for c in self._contexts]
            return self._with_contexts(*arguments, self._ffi.new("void *[]", contexts))

    def _names(self) -> str:
        return " or ".join(s.backend.library or s.target for s in self._served) or "the program"

    def seconds(self) -> list[float]:
        """CPU seconds of each kernel so far, of a model that measures them."""
        return list(self._library.model_seconds)[: len(self.emitted.kernels)]

    def _take(self) -> np.ndarray:
        with self._lock:
            if self._arenas:
                return self._arenas.pop()
        bounds.current().admit(self.emitted.arena, what="an arena")
        return aligned(self.emitted.arena)

    def _checked(self, inputs: Mapping[str, Any]) -> list[np.ndarray]:
        known = [x.name for x in self.emitted.inputs]
        for name in inputs:
            if name in self._fixed:
                raise ExecutionError(
                    "C code takes only inputs without a default",
                    place=f"input {name!r}",
                    actual="an input that is a constant of the generated program",
                    hint='backend="numpy" takes it',
                )
            if name not in known:
                raise ExecutionError(
                    "the name of an input is required",
                    place=f"input {name!r}",
                    actual="a name that the model does not have",
                    hint=opset.did_you_mean(name, known) or f"the inputs are {', '.join(known) or 'none'}",
                )
        symbols: Symbols = {}
        result = []
        arrays: list[np.ndarray] = []
        for feed, x in zip(self._feeds, self.emitted.inputs, strict=True):
            if x.name not in inputs:
                raise feed.missing()
            arrays.append(np.asarray(feed.checked(inputs[x.name], symbols)))
        sizes = self._check_sizes(arrays)
        for array, x in zip(arrays, self.emitted.inputs, strict=True):
            if array.shape != (tuple(value_at(n, sizes) for n in x.shape) if sizes else x.shape):
                raise ExecutionError(
                    f"the shape {list(x.dims)} is required, because the code was generated for it",
                    place=f"input {x.name!r}",
                    actual=str(list(array.shape)),
                )
            # An array that is already dense is passed without a copy.
            flags = array.flags
            fit = flags.c_contiguous and flags.aligned
            result.append(array if fit else np.require(array, requirements=["C", "A"]))
        return result

    def _sizes(self, given: Sequence[np.ndarray]) -> dict[str, int]:
        """The sizes that the program receives, from the shapes of the inputs."""
        return {name: given[number].shape[axis] for name, (number, axis) in self._found_in.items()}

    def _check_sizes(self, given: Sequence[np.ndarray]) -> dict[str, int]:
        """The same within their ranges."""
        sizes = self._sizes(given)
        for size in self.emitted.sizes:
            if not size.least <= sizes[size.name] <= size.most:
                raise ExecutionError(
                    f"a size `{size.name}` of {size.least} to {size.most} is required, because the code was generated "
                    "for it",
                    place=f"input {self.emitted.inputs[self._found_in[size.name][0]].name!r}",
                    actual=str(sizes[size.name]),
                    hint="generate the code for a wider range",
                )
        return sizes


def _origins(emitted: Emitted) -> dict[str, tuple[int, int]]:
    """An input and an axis by size: where the size of a run is found.

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
    return {size.name: found[size.name] for size in emitted.sizes}


def run_once(
    model: ir.Model,
    inputs: Mapping[str, Any],
    *,
    dims: Mapping[str, int] | None = None,
    vendors: Collection[str] = (),
    backends: Sequence[Given] = (),
) -> dict[str, np.ndarray]:
    """Runs a model as C; the sizes of its symbolic dimensions are those of the inputs.

    Raises:
        CodegenError: As :class:`CModel`.
        ExecutionError: As :meth:`CModel.run`.
    """
    return CModel(model, dims={**sizes_of(model, inputs), **(dims or {})}, vendors=vendors, backends=backends).run(
        inputs
    )


def sources(emitted: Emitted) -> dict[str, str]:
    """The C declarations that are compiled to call the model; the weights are passed."""
    return {f"{emitted.name}.h": emitted.header, f"{emitted.name}.c": emitted.source, **emitted.files}


def declaration(emitted: Emitted) -> str:
    """The header's declaration of the entry function, without what is for the preprocessor."""
    found = re.search(rf"^int {emitted.name}_run\([^;]*;", emitted.header, re.MULTILINE)
    assert found is not None
    return found[0]


def _numpy(dtype: str) -> np.dtype:
    return ir.DataType[dtype.upper()].numpy()
