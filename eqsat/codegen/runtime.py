"""Runs a model as C from Python: it is compiled once, arrays are passed without copies, and the GIL is released."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from typing import Any, Unpack

import cffi
import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.backends.asking import primitives, unavailable
from eqsat.backends.backend import Primitive
from eqsat.backends.find_backends import GivenBackend, chosen
from eqsat.codegen.backend_code import Served
from eqsat.codegen.binding import ArgumentBinder
from eqsat.codegen.compiler import compile_library, find_compiler, native_isas
from eqsat.codegen.contexts import Contexts, declarations, entry_name
from eqsat.codegen.emitted import Emitted
from eqsat.codegen.generate import generate
from eqsat.codegen.generation_options import Generation
from eqsat.codegen.isa import Isa
from eqsat.codegen.pools import THREADS_FLAGS, pool
from eqsat.codegen.weights import aligned
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.disagreement import explained
from eqsat.stages.event import Event, Progress

_NAME = "model"
SIZE_OUT_OF_RANGE = 4
"""The status of a program that was given or found a size beyond its range."""
NO_PORTABLE_CODE = 5
"""The status of a program whose backend leaves a kernel to portable code that does not exist."""
PROFILE = ("-DMODEL_PROFILE",)
"""Flags of the compiler with which a model measures its kernels."""
_ATTEMPTS = 8
"""How often loading is tried again if another process damages or removes the library between its check and its use."""


class CModel:
    """A compiled model.

    Threads may run it at the same time; each takes an arena of its own.

    Args:
        model: As loaded.
        isas: Instruction sets; by default the best that this machine has.
        flags: Further flags of the compiler.
        profile: Whether the program measures its kernels.
        vendors: Targets whose backend, found by name, executes their regions: ``dnnl``.
        backends: Further backends: objects, or Python files, which are executed.
        progress: Receives events.
        options: As for :func:`eqsat.codegen.generate.generate`; the arrays of each run determine the sizes of ``dims``
            that are ranges.

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
        isas: Sequence[Isa] | None = None,
        flags: tuple[str, ...] = (),
        profile: bool = False,
        vendors: Collection[str] = (),
        backends: Sequence[GivenBackend] = (),
        progress: Progress | None = None,
        **options: Unpack[Generation],
    ) -> None:
        report: Progress = progress or (lambda event: None)
        serving = chosen(model, vendors, backends)
        for backend in serving.values():
            if backend.emits:
                backend.require(find_compiler())
        self._ffi: Any = None
        self._library: Any = None
        self._contexts: list[Contexts] = []
        lacking: dict[str, dict[str, str]] = {}
        while True:
            report(Event("generate"))
            self.emitted = emitted = generate(
                model,
                name=_NAME,
                isas=isas or native_isas(),
                embedded=False,
                backends=serving,
                unavailable=lacking,
                **options,
            )
            self._served = [s for s in emitted.served if s.backend in serving.values()]
            self._stateful = [s for s in emitted.served if s.code.stateful]
            _require_backends(emitted, self._served)
            self._weights = emitted.weights
            self._flags = flags
            report(Event("compile"))
            self._load(profile)
            # Kernels that are not implemented on this machine are left out, so that the rest of their region is
            # executed.
            found = False
            for served, contexts in zip(self._stateful, self._contexts, strict=True):
                known = lacking.setdefault(served.backend.target, {})
                more = unavailable(served.backend, contexts.loaded)
                found = found or not known.keys() >= more.keys()
                known.update(more)
            if not found:
                break
        self._model = model
        self._binding = ArgumentBinder(model, emitted)
        report(Event("compile", done=True))

    def profiled(self) -> CModel:
        """The program built with measurements of its kernels."""
        found = copy(self)
        found._load(profile=True)
        return found

    def _load(self, profile: bool) -> None:
        """Compile, load, and initialize."""
        emitted = self.emitted
        more = [f"-D{_NAME.upper()}_USE_{s.target.upper()}" for s in self._served]
        more += PROFILE if profile else ()
        more += THREADS_FLAGS if emitted.threads > 1 else ()
        more += [flag for s in self._served for flag in s.code.flags]
        libraries = tuple(library for s in self._served for library in s.code.libraries)
        self._ffi = ffi = cffi.FFI()
        if emitted.threads > 1:
            ffi.cdef(f"typedef struct eqsat_pool_2 {_NAME}_pool;")
        ffi.cdef(declaration(emitted))
        ffi.cdef(declarations(_NAME, declaration(emitted), self._stateful))
        if profile:
            ffi.cdef(f"extern double {_NAME}_seconds[{max(len(emitted.kernels), 1)}];")
        for attempt in range(_ATTEMPTS):
            library = compile_library(sources(emitted), flags=(*self._flags, *more), libraries=libraries)
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
        self._constants = self._ffi.from_buffer(self._weights)
        self._contexts = [Contexts(ffi, self._library, self._constants, _NAME, s) for s in self._stateful]
        entry = entry_name(_NAME, self._stateful) if self._stateful else f"{_NAME}_run"
        # Left by earlier runs for later ones; operations on lists are atomic.
        self._arenas: list[Any] = []
        # All pointers have one type here: the element types were checked with the arrays.
        tensors = len(emitted.inputs) + len(emitted.outputs)
        kinds = ["void *"] * tensors + ["size_t"] * len(emitted.sizes)
        others = sum(y.found for y in emitted.outputs) + 2 + (emitted.threads > 1)
        kinds += ["void *"] * (others + bool(self._stateful))
        self._entry = ffi.cast(f"int (*)({', '.join(kinds)})", getattr(self._library, entry))

    def primitives(self) -> list[Primitive]:
        """The primitives that backends' libraries execute in a run, if they report them, in order."""
        pairs = zip(self._stateful, self._contexts, strict=True)
        return [p for served, contexts in pairs for p in primitives(served.backend, contexts.loaded)]

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Run the model.

        Args:
            inputs: Array by input name, of exactly the declared type and shape.
            out: Arrays for outputs, by name; the others are new.

        Returns:
            Array by output name; they are the caller's.

        Raises:
            ExecutionError: Missing, unknown or unfit arrays.
            LimitError: The arena is larger than the memory limit.
        """
        binding = self._binding
        given, shapes = binding.arrays(inputs)
        results = binding.results(shapes, out)
        arguments = binding.pointers(given) + binding.pointers(results)
        if out:
            binding.require_apart(arguments)
        try:
            arena = self._arenas.pop()
        except IndexError:
            arena = self._new_arena()
        reported = binding.reported()
        arguments += (*shapes.sizes, *binding.pointers(reported), arena, self._constants)
        if self.emitted.threads > 1:
            arguments.append(pool(self.emitted.threads))
        status = self._call(arguments)
        self._arenas.append(arena)
        if status != 0:
            raise explained(self._model, inputs, self._failure(status))
        return dict(zip(binding.outputs, binding.shaped(results, reported), strict=True))

    def _failure(self, status: int) -> ExecutionError:
        if status == SIZE_OUT_OF_RANGE:
            return ExecutionError(
                "sizes within the bounds of the generated program are required",
                place=f"model {self.emitted.model!r}",
                actual="data that asks for a greater one, or for one that does not fit another tensor",
                hint="generate the program with greater bounds (--dim)",
            )
        if status == NO_PORTABLE_CODE:
            return ExecutionError(
                "a backend that executes what has no portable code is required",
                place=f"model {self.emitted.model!r}",
                actual=f"one that left it to portable code ({self._names()})",
                hint='run the model with numpy: backend="numpy"',
            )
        return ExecutionError("a run without failures is required", actual=f"status {status} of {self._names()}")

    def _call(self, arguments: list[Any]) -> int:
        if not self._contexts:
            return self._entry(*arguments)
        if len(self._contexts) == 1:
            with self._contexts[0].one() as context:
                return self._entry(*arguments, context)
        with ExitStack() as stack:
            contexts = [stack.enter_context(c.one()) for c in self._contexts]
            return self._entry(*arguments, self._ffi.new("void *[]", contexts))

    def _names(self) -> str:
        return " or ".join(s.backend.library or s.target for s in self._served) or "the program"

    def seconds(self) -> list[float]:
        """CPU seconds of each kernel so far, of a model that measures them."""
        return list(self._library.model_seconds)[: len(self.emitted.kernels)]

    def _new_arena(self) -> Any:
        bounds.current().admit(self.emitted.arena, what="an arena")
        return self._ffi.from_buffer(aligned(self.emitted.arena))


def _require_backends(emitted: Emitted, served: Sequence[Served]) -> None:
    """Raises an error if the program needs functions of a vendor that nobody has given.

    Raises:
        CodegenError: It does.
    """
    for one in emitted.served:
        if one.operators and one not in served:
            raise CodegenError(
                "all operators must be expressible in C, or a backend must execute them",
                place=f"model {emitted.model!r}",
                actual=f"{', '.join(one.operators)}, which the functions that the file of target {one.target!r} names "
                "compute",
                hint="`eqsat codegen` writes the program, which is linked with them; `eqsat run` executes the model "
                "with numpy",
            )


def sources(emitted: Emitted) -> dict[str, str]:
    """The C declarations that are compiled to call the model; the weights are passed."""
    return {f"{emitted.name}.h": emitted.header, f"{emitted.name}.c": emitted.source, **emitted.files}


def declaration(emitted: Emitted) -> str:
    """The header's declaration of the entry function, without preprocessor directives."""
    found = re.search(rf"^int {emitted.name}_run\([^;]*;", emitted.header, re.MULTILINE)
    assert found is not None
    return found[0]
