"""The kernel families, one a file, and how a task finds its family.

To add one, write a file here whose functions fill a :class:`~eqsat.codegen.kernel.Family`, pass it to ``register``, and
put its C into a template beside it (``render("pool.c.jinja", ...)`` fills it). Every file of this folder is loaded;
nothing lists them.

What helps: :mod:`eqsat.codegen.loops` writes C loops over strided views, loads of operands and the epilogue at
the point where an element is stored; :mod:`eqsat.codegen.expressions` has a C expression for each elementwise operator.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from eqsat.codegen.kernels.registry import families, find, operators, register, render

for _name in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_name}")

__all__ = ["families", "find", "operators", "register", "render"]
