"""Finds backends: in eqsat's own folders, entry points of installed packages, objects, and files."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import onnx_ir as ir

from eqsat import backends as home
from eqsat.backends.backend import Backend
from eqsat.errors import BackendError, BackendWarning, note
from eqsat.files import execute_file
from eqsat.partition.read_plan import called_regions, region_target
from eqsat.schema.opset import did_you_mean

GivenBackend = Backend | str | Path
"""A backend as users give it: an object, or the Python file that it is in."""
GROUP = "eqsat.backends"
"""Entry points: ``npu = "my_package.my_module:BACKEND"``, by the name of the target."""
_ATTRIBUTES = {"target": str, "library": str, "joins": bool, "whole": bool, "free_sizes": bool}
"""Types of the attributes of a backend."""


def names() -> list[str]:
    """Targets that have a backend which is found by name."""
    return sorted({*_shipped(), *_installed()})


def named(target: str) -> Backend:
    """The backend of a target.

    Raises:
        BackendError: There is no backend of this name, or it cannot be loaded.
    """
    own, installed = _shipped(), _installed()
    if target in own:
        return own[target]
    if target not in installed:
        raise BackendError(
            f"one of {', '.join(names()) or 'no names'} is required as the vendor",
            actual=repr(target),
            hint="a backend of your own is given as an object (backends=[...]) or as a file (--backend FILE.py)",
        )
    point = installed[target]
    try:
        found = point.load()
    except Exception as error:
        raise BackendError(
            "an entry point that can be loaded is required",
            place=f"{GROUP}: {point.name} = {point.value}",
            actual=f"{type(error).__name__}: {error}",
            hint="install the package that registers it again, or remove it",
        ) from error
    return checked(found() if isinstance(found, type) else found, f"{GROUP}: {point.name} = {point.value}")


def from_file(path: str | Path) -> Backend:
    """The backend of a Python file. The file is executed, because naming it here means to run it.

    It is the file's ``BACKEND``, or the only subclass of ``Backend`` that it defines.

    Raises:
        BackendError: The file cannot be read or executed, or has no backend.
    """
    path = Path(path)
    module = execute_file(path, "eqsat_backend", "a Python file with a backend", BackendError)
    name = module.__name__
    found = vars(module).get("BACKEND")
    if found is None:
        own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == name]
        classes = [v for v in own if issubclass(v, Backend)]
        if len(classes) != 1:
            raise BackendError(
                "one subclass of eqsat.Backend, or a backend called BACKEND, is required",
                place=str(path),
                actual=", ".join(c.__name__ for c in classes) or "none",
                hint=f"write `BACKEND = {classes[0].__name__ if classes else 'MyBackend'}()` at the end of the file",
            )
        found = classes[0]
    return checked(found() if isinstance(found, type) else found, str(path))


def checked(found: object, place: str = "backends") -> Backend:
    """The backend of an argument.

    Raises:
        BackendError: The argument is not a backend.
    """
    if not isinstance(found, Backend):
        raise BackendError(
            "an eqsat.Backend is required",
            place=place,
            actual=repr(found)[:200],
            hint="derive its class from eqsat.Backend",
        )
    if not found.target:
        raise BackendError(
            "a backend that names its target is required",
            place=place,
            actual=type(found).__name__,
            hint='write `target = "NAME"` in its class, with the name of the target whose regions it executes',
        )
    for name, kind in _ATTRIBUTES.items():
        value = getattr(found, name)
        if not isinstance(value, kind):
            what = "a text" if kind is str else "True or False"
            raise BackendError(
                f"{what} as {type(found).__name__}.{name} is required", place=place, actual=repr(value)[:200]
            )
    return found


def chosen(model: ir.Model, vendors: Collection[str] | None, backends: Sequence[GivenBackend]) -> dict[str, Backend]:
    """Backends by target.

    Args:
        model: The model whose regions they execute.
        vendors: Names of those that are found by name; None for all of them that have regions in the model.
        backends: Objects and Python files, which are preferred. A warning names those that have no region in it.

    Raises:
        BackendError: As :func:`named` and :func:`checked`, or two serve the same target.
    """
    found: dict[str, Backend] = {}
    for given in backends:
        backend = from_file(given) if isinstance(given, str | Path) else checked(given)
        if backend.target in found:
            raise BackendError(
                "one backend for each target is required",
                actual=f"several for {backend.target!r}",
                hint="leave all but one of them out",
            )
        found[backend.target] = backend
    present = _targets(model)
    for backend in found.values():
        if backend.target not in present:
            text = f"the backend {type(backend).__name__} has nothing to execute: {without_regions(model, backend)}"
            note(text, BackendWarning)
    if vendors is None:
        vendors = [name for name in names() if name in present]
    for name in vendors:
        if name not in found:
            found[name] = named(name)
    return found


def without_regions(model: ir.Model, backend: Backend) -> str:
    """A remark on a backend whose target has no region in a model; empty if it has one."""
    present = _targets(model)
    if backend.target in present:
        return ""
    there = f"; its regions are of {', '.join(f'`{name}`' for name in sorted(present))}" if present else " or others"
    hint = did_you_mean(backend.target, present)
    return f"the model has no region of `{backend.target}`{there}{f'; {hint}' if hint else ''}"


def _targets(model: ir.Model) -> set[str]:
    """The targets that have regions in a model."""
    return {target for _, function in called_regions(model) if (target := region_target(function))}


def _shipped() -> Mapping[str, Backend]:
    """Backends in folders next to this file, by target."""
    folders = [m.name for m in pkgutil.iter_modules(home.__path__) if m.ispkg]
    found = [importlib.import_module(f"{home.__name__}.{folder}").BACKEND for folder in folders]
    return {backend.target: backend for backend in found}


def _installed() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
