"""Contexts of a compiled program: the first one of a backend owns the shared state; each thread has its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eqsat.backends.backend import Loaded
from eqsat.codegen.backend_code import Served
from eqsat.errors import CodegenError

_DECLARATIONS = """
typedef struct {0} {0};
int {0}_init({0} **context, const void *weights);
int {0}_share({0} **context, const {0} *other);
void {0}_free({0} *context);
"""
_OUT_OF_MEMORY = 16


def declarations(name: str, entry: str, served: list[Served]) -> str:
    """Declarations for cffi.

    Args:
        name: Prefix of the program.
        entry: Declaration of the portable entry function.
        served: Backends with a context.
    """
    text = "".join(_DECLARATIONS.format(f"{name}_{s.target}") + s.code.declarations for s in served)
    if served:
        last = f"{name}_{served[0].target} *context" if len(served) == 1 else "void *const *contexts"
        run = entry.replace(f"{name}_run(", f"{entry_name(name, served)}(").rstrip().removesuffix(");")
        text += f"{run}, {last});"
    return text


def entry_name(name: str, served: list[Served]) -> str:
    """The function that runs the program with contexts."""
    return f"{name}_{served[0].target}_run" if len(served) == 1 else f"{name}_contexts_run"


class Contexts:
    """Contexts of one backend in a library that has been loaded.

    Args:
        ffi: With the declarations.
        library: Loaded.
        weights: Address of the weights, which outlive this.
        name: Prefix of the program.
        served: Whose contexts these are.

    Raises:
        CodegenError: The backend fails.
    """

    def __init__(self, ffi: Any, library: Any, weights: Any, name: str, served: Served) -> None:
        self._ffi = ffi
        self._prefix = f"{name}_{served.target}"
        self._called = served.backend.library or served.target
        self._lock = threading.Lock()
        self._all: list[Any] = []
        self._share = getattr(library, f"{self._prefix}_share")
        init = getattr(library, f"{self._prefix}_init")
        self._idle = [self._make(lambda made: init(made, weights))]
        weakref.finalize(self, _free, getattr(library, f"{self._prefix}_free"), self._all)
        self.loaded = Loaded(ffi, library, self._prefix, self._all[0], len(served.runs))

    @contextmanager
    def one(self) -> Iterator[Any]:
        """A context that no other thread uses at the same time."""
        with self._lock:
            context = self._idle.pop() if self._idle else None
        if context is None:
            context = self._make(lambda made: self._share(made, self._all[0]))
        try:
            yield context
        finally:
            with self._lock:
                self._idle.append(context)

    def _make(self, call: Callable[[Any], int]) -> Any:
        made = self._ffi.new(f"{self._prefix} **")
        status = call(made)
        if status != 0:
            raise CodegenError(
                f"{self._called} must initialize the kernels that it executes",
                actual="too little memory" if status == _OUT_OF_MEMORY else f"status {status}",
                hint="without vendors and backends the model runs in portable C",
            )
        with self._lock:
            self._all.append(made[0])
        return made[0]


def _free(free: Callable[[Any], None], contexts: list[Any]) -> None:
    """Frees the first context last, because it owns the state that the others share."""
    for context in reversed(contexts):
        free(context)
