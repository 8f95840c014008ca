"""C expressions for elementwise operators, one family a file; every file of this folder is loaded."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from eqsat.codegen.expressions.expression_table import Expression, expression, is_elementwise, scalar, vector

for _name in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_name}")

__all__ = ["Expression", "expression", "is_elementwise", "scalar", "vector"]
