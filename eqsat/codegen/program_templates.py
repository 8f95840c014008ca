"""Templates of a program's files."""

from __future__ import annotations

from eqsat.backends.c_templates import environment


def render(template: str, **values: object) -> str:
    """Fill a template of the project's files."""
    return environment("eqsat.codegen", "project").get_template(template).render(**values)
