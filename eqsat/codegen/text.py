"""Templates of C: those of a program's files, and what they have in common with those of kernels."""

from __future__ import annotations

from functools import lru_cache

import jinja2

from eqsat.text import c_string, plain


@lru_cache(maxsize=2)
def environment(folder: str) -> jinja2.Environment:
    """Templates of a folder of ``eqsat.codegen``."""
    # C, not HTML: nothing to escape. Undefined names are errors.
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("eqsat.codegen", folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["comment"] = plain
    made.filters["string"] = c_string
    return made


def render(template: str, **values: object) -> str:
    """Fill a template of the project's files."""
    return environment("project").get_template(template).render(**values)
