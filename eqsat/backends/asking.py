"""Calls the methods of a backend: failures and answers of the wrong kind become one message that names its code."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eqsat.backends.backend import Backend, Loaded, Prepared, Primitive
from eqsat.backends.code import Code, Writer
from eqsat.backends.region import Kernel, Region, Run
from eqsat.errors import BackendError, EqsatError


class asked:
    """Context of a call of a backend: its failures become one message that names it, and the line that failed.

    Args:
        backend: That is asked.
        what: The name of the method.
    """

    def __init__(self, backend: Backend, what: str) -> None:
        self.backend = backend
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, EqsatError):
            raise BackendError(
                "a backend that does not fail is required",
                place=f"{_method(self.backend, self.what)}{_line(self.backend, error)}",
                actual=f"{type(error).__name__}: {error}",
                hint="`error.__cause__` has its traceback, which --debug prints",
            ) from error


def refusals(backend: Backend, region: Region) -> dict[Kernel, str]:
    """The reasons why a backend refuses kernels of a region, empty for those that it takes.

    Raises:
        BackendError: It fails.
    """
    with asked(backend, "refusals"):
        said = backend.refusals(region)
    _require(backend, "refusals", isinstance(said, Mapping), "a dictionary of reasons by kernel", said)
    for kernel, reason in said.items():
        is_kernel = any(kernel is known for known in region.kernels)
        _require(backend, "refusals", is_kernel, "kernels of the region as the keys of its reasons", kernel)
        _require(backend, "refusals", not reason or isinstance(reason, str), "a text as the reason", reason)
    return {kernel: said.get(kernel) or "" for kernel in region.kernels}


def prepared(backend: Backend, run: Run) -> Prepared | None:
    """The function that executes a run from Python; None if numpy has to.

    Raises:
        BackendError: The backend fails.
    """
    with asked(backend, "prepare"):
        found = backend.prepare(run)
    _require(backend, "prepare", found is None or callable(found), "a function of arrays, or None", found)
    return found


def emitted(backend: Backend, writer: Writer, runs: Sequence[Run]) -> Code:
    """The C of all runs of a program.

    Raises:
        BackendError: The backend fails, or what it returns is not code for these runs.
    """
    with asked(backend, "emit"):
        code = backend.emit(writer, runs)
    _require(backend, "emit", isinstance(code, Code), "eqsat.backends.Code", code)

    def field(name: str, is_right: Callable[[Any], bool], what: str) -> None:
        found = getattr(code, name)
        _require(backend, "emit", is_right(found), f"{what} as Code.{name}", found)

    field("calls", _are_texts, "a list of texts")
    field("scratch", lambda found: _are(found, _is_bytes), "a list of numbers of bytes")
    for name in ("functions", "header", "cmake", "check", "declarations"):
        field(name, lambda found: isinstance(found, str), "a text")
    for name in ("flags", "libraries"):
        field(name, _are_texts, "a tuple of texts")
    if len(code.calls) != len(runs) or (code.scratch and len(code.scratch) != len(runs)):
        raise BackendError(
            "one call for each run is required (and one size of scratch memory, if there are any)",
            place=_method(backend, "emit"),
            actual=f"{len(code.calls)} calls and {len(code.scratch)} sizes for {len(runs)} runs",
            hint="Code.calls has a text for each element of `runs`, in the same order",
        )
    return code


def unavailable(backend: Backend, loaded: Loaded) -> dict[str, str]:
    """Kernels by name that a library turns out not to have, and why.

    Raises:
        BackendError: The backend fails.
    """
    with asked(backend, "unavailable"):
        found = backend.unavailable(loaded)
    is_right = isinstance(found, Mapping) and _are_texts([*found.keys(), *found.values()])
    _require(backend, "unavailable", is_right, "a dictionary of reasons by the name of the kernel", found)
    return dict(found)


def primitives(backend: Backend, loaded: Loaded) -> list[Primitive]:
    """The primitives that a library executes in a run of the program.

    Raises:
        BackendError: The backend fails.
    """
    with asked(backend, "primitives"):
        found = backend.primitives(loaded)
    is_right = _are(found, lambda one: isinstance(one, Primitive))
    _require(backend, "primitives", is_right, "a list of eqsat.backends.Primitive", found)
    return list(found)


def _require(backend: Backend, what: str, is_right: bool, requirement: str, found: object) -> None:
    if not is_right:
        raise BackendError(f"{requirement} is required", place=_method(backend, what), actual=_shown(found))


def _are(found: object, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(found, Sequence) and not isinstance(found, str | bytes) and all(is_right(one) for one in found)


def _are_texts(found: object) -> bool:
    return _are(found, lambda one: isinstance(one, str))


def _is_bytes(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found >= 0


def _shown(found: object) -> str:
    try:
        text = repr(found)
    except Exception:  # the object is the user's, and may raise anything
        text = "an object"
    return f"{type(found).__name__}: {text[:120]}"


def _method(backend: Backend, what: str) -> str:
    return f"backend of {backend.target!r}, {type(backend).__name__}.{what}"


def _line(backend: Backend, error: Exception) -> str:
    """The innermost line of the backend's own file in a traceback."""
    try:
        own = Path(inspect.getfile(type(backend))).resolve()
    except (TypeError, OSError):  # A class that no file defines.
        return ""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == own]
    return f" ({own}, line {lines[-1]})" if lines else ""
