"""The kernel families, one per file, and how a task finds its family.

``loops/`` has plain loops over any strides, for every compiler; ``vectors/`` has float32 in SIMD registers, ``bytes/``
has 8-bit integers in SIMD registers, and ``shared/`` contains what these build on.

To add one, write a file in one of these folders whose functions fill a :class:`~eqsat.codegen.kernel.Family`, pass it
to ``register``, and put its C into a template beside it (``render("loops/pool.c.jinja", ...)`` fills it). Every file of
these folders is loaded; there is no list of them.

Useful tools: :mod:`eqsat.codegen.loop_writer` writes C loops over strided views, loads of operands and the epilogue at
the point where an element is stored; :mod:`eqsat.codegen.expressions` has a C expression for each elementwise operator.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import families, find, operators, register

for _name in sorted(module.name for module in walk_packages(__path__, f"{__name__}.")):
    import_module(_name)

__all__ = ["families", "find", "operators", "register", "render"]
