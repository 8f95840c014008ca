"""Contexts of a compiled program that calls oneDNN: the first one makes primitives, each thread gets one of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eqsat.errors import CodegenError

_DECLARATIONS = """
typedef struct model_dnnl model_dnnl;
int model_dnnl_init(model_dnnl **context, const void *weights);
int model_dnnl_share(model_dnnl **context, const model_dnnl *other);
void model_dnnl_free(model_dnnl *context);
const char *model_dnnl_refused(const model_dnnl *context, int region);
int model_dnnl_primitive(const model_dnnl *context, int k, const char **kernel, const char **implementation);
"""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive that a run executes.

    Attributes:
        kernel: Name of its kernel in the model; empty for a reorder.
        implementation: oneDNN's name of it, such as ``brgconv:avx512_core``.
    """

    kernel: str
    implementation: str

    @property
    def is_reorder(self) -> bool:
        return not self.kernel


def declarations(entry: str) -> str:
    """What cffi has to know, given the declaration of the portable entry function."""
    run = entry.replace("model_run(", "model_dnnl_run(").rstrip().removesuffix(");")
    return f"{_DECLARATIONS}{run}, model_dnnl *context);"


class Contexts:
    """Contexts of a library that has been loaded.

    Args:
        ffi: With the declarations.
        library: Loaded.
        weights: Address of the weights, which outlive this.
        regions: How many there are.

    Raises:
        CodegenError: oneDNN fails.
    """

    def __init__(self, ffi: Any, library: Any, weights: Any, regions: int) -> None:
        self._ffi = ffi
        self._library = library
        self._regions = regions
        self._lock = threading.Lock()
        self._all: list[Any] = []
        self._idle = [self._make(lambda made: library.model_dnnl_init(made, weights))]
        weakref.finalize(self, _free, library, self._all)

    def refused(self) -> list[str]:
        """Kernels for which a region runs in portable C."""
        found = (self._library.model_dnnl_refused(self._all[0], k) for k in range(self._regions))
        return [self._text(name) for name in found if name != self._ffi.NULL]

    def primitives(self) -> list[Primitive]:
        """What a run executes, in order."""
        kernel, implementation = self._ffi.new("const char **"), self._ffi.new("const char **")
        found = []
        while self._library.model_dnnl_primitive(self._all[0], len(found), kernel, implementation):
            name = self._text(kernel[0])
            found.append(Primitive("" if name == "reorder" else name, self._text(implementation[0])))
        return found

    @contextmanager
    def one(self) -> Iterator[Any]:
        """A context that nobody else uses meanwhile."""
        with self._lock:
            context = self._idle.pop() if self._idle else None
        if context is None:
            context = self._make(lambda made: self._library.model_dnnl_share(made, self._all[0]))
        try:
            yield context
        finally:
            with self._lock:
                self._idle.append(context)

    def _make(self, call: Callable[[Any], int]) -> Any:
        made = self._ffi.new("model_dnnl **")
        status = call(made)
        if status != 0:
            raise CodegenError(
                "oneDNN is required to make its primitives",
                actual="too little memory" if status == 16 else f"status {status}",
                hint="without vendors the model runs in portable C",
            )
        with self._lock:
            self._all.append(made[0])
        return made[0]

    def _text(self, pointer: Any) -> str:
        return self._ffi.string(pointer).decode("utf-8", "replace")


def _free(library: Any, contexts: list[Any]) -> None:
    """The first one last: the others share what it owns."""
    for context in reversed(contexts):
        library.model_dnnl_free(context)
