"""Pools of threads that compiled models share: one for each number of threads, kept as long as the process lives.

A pool belongs to the process that made it. After a fork the child has none of its threads, and makes a pool of its own.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import cffi

from eqsat.codegen.compiler import compile_library
from eqsat.codegen.program_templates import render

_NAME = "eqsat"
THREADS_FLAGS = ("-pthread",)
"""Flags of the compiler for programs with threads."""

_LOCK = threading.Lock()
_POOLS: dict[tuple[int, int], Any] = {}
_LIBRARIES: list[tuple[Any, Any]] = []


def pool(threads: int) -> Any:
    """The pool of this many threads, including the caller's; NULL where there are no threads.

    Raises:
        CodegenError: No C compiler accepts the pool's source.
    """
    key = (os.getpid(), threads)
    found = _POOLS.get(key)
    if found is None:
        with _LOCK:
            if key not in _POOLS:
                _POOLS[key] = _library().eqsat_pool_create(threads)
            found = _POOLS[key]
    return found


def _library() -> Any:
    if not _LIBRARIES:
        ffi: Any = cffi.FFI()
        ffi.cdef("void *eqsat_pool_create(int threads);")
        path = compile_library({"pool.c": _source()}, flags=THREADS_FLAGS)
        _LIBRARIES.append((ffi, ffi.dlopen(str(path))))
    return _LIBRARIES[0][1]


def _source() -> str:
    head = (
        "#define _POSIX_C_SOURCE 200809L\n#include <stddef.h>\ntypedef struct eqsat_pool_2 eqsat_pool;\n"
        "eqsat_pool *eqsat_pool_create(int threads);\nvoid eqsat_pool_destroy(eqsat_pool *pool);\n"
    )
    return head + render("pool.c.jinja", name=_NAME, upper=_NAME.upper(), shares=False)


def _after_fork() -> None:
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
