"""Fills the templates of kernels' C text.

Apart from the kernel families, which read the expressions of elementwise operators: these fill templates too.
"""

from __future__ import annotations

from typing import Any

from eqsat.backends.c_templates import environment
from eqsat.schema.dimension import as_divisor


def render(template: str, **values: Any) -> str:
    """Fill a template, named by its path in ``kernels/``: ``render("loops/pool.c.jinja", kernel=(3, 3))``."""
    return environment("eqsat.codegen", "kernels").get_template(template).render(as_divisor=as_divisor, **values)
