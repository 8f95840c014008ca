"""egglog's compiled bindings without the Python package around them.

``import egglog`` also loads a formatter of Python code, graphs and widgets, for its own language of e-graphs. That
takes longer than optimizing a small model, and eqsat uses the bindings only.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING

_NAME = "egglog.bindings"


def _load() -> ModuleType:
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = PathFinder.find_spec("egglog")
    inside = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(_NAME, inside) if inside is not None else None
    if "egglog" in sys.modules or spec is None or spec.loader is None:
        return importlib.import_module(_NAME)
    module = module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    finally:
        # A later import of the package finds the same module, also as an attribute of the package.
        del sys.modules[_NAME]
    return module


if TYPE_CHECKING:
    from egglog import bindings
else:
    bindings = _load()

__all__ = ["bindings"]
