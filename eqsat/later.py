"""Imports that wait: sympy until a size is computed with symbols, and the cycle collector until an import has ended.

`onnx_ir` imports sympy, which takes a fifth of a second, for its symbolic dimensions alone, and most models have none.
Its core therefore gets a stand-in, which imports sympy once an attribute is asked for. Nobody else sees the stand-in:
`sys.modules` has sympy itself or nothing.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

_CORE = "onnx_ir._core"
_PARSER = "_symbolic_shapes"
"""The module of `onnx_ir` that uses sympy when it is imported; its core only calls it."""


def defer_sympy() -> None:
    """From now on, `onnx_ir` imports sympy where it uses it; one that is imported already stays as it is."""
    known = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    if not known and _CORE not in sys.modules and "sympy" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


def imported(name: str) -> ModuleType:
    """A module, imported while the cycle collector rests: it would scan all that is made, and nothing of it is garbage.

    Raises:
        ImportError: It cannot be imported.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if enabled:
            gc.enable()


class Later(ModuleType):
    """Stands for a module, which is imported once an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


class _Finder(MetaPathFinder):
    """Finds the core of `onnx_ir`, once, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _CORE:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and "sympy" not in sys.modules:
            spec.loader = _CoreLoader(spec.loader)
        return spec


class _CoreLoader(Loader):
    """Loads the core with an `import` of its own: Python looks for it in the module's builtins."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # Such as `get_source`, which tracebacks ask for.

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            module.__loader__ = spec.loader = self._loader
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        self._loader.exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """As the builtin, with stand-ins for sympy and the module that needs it."""
    if name == "sympy" and not fromlist:
        return Later(name)
    found = builtins.__import__(name, globals, locals, [n for n in fromlist or () if n != _PARSER], level)
    if name != "onnx_ir" or _PARSER not in (fromlist or ()):
        return found
    names = {n: getattr(found, n) for n in fromlist or () if n != _PARSER}
    return SimpleNamespace(**names, **{_PARSER: Later(f"onnx_ir.{_PARSER}")})
