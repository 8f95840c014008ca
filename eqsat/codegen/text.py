"""The templates of a program's files, and text that may stand in C comments."""

from __future__ import annotations

import re
from functools import lru_cache

import jinja2


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Templates of the project's files."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("eqsat.codegen", "project"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["comment"] = lambda text: printable(str(text))
    return made


def printable(text: str) -> str:
    """Text for a comment."""
    return re.sub(r"[^ -~]", "?", text).replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def render(template: str, **values: object) -> str:
    """Fill a template of the project's files."""
    return environment().get_template(template).render(**values)
