"""Where kernel families are registered and found, and how their templates are filled."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jinja2

from eqsat.codegen.kernel import Family, Task
from eqsat.model.types import OpKey

_FAMILIES: dict[OpKey, list[Family]] = {}


def register(family: Family) -> Family:
    """Add a family; the ones of higher rank are asked first, of equal rank the earlier."""
    for operator in family.operators:
        entries = _FAMILIES.setdefault(operator, [])
        if any(e.name == family.name for e in entries):
            raise ValueError(f"{operator} has two families {family.name!r}")
        entries.append(family)
        entries.sort(key=lambda e: -e.rank)
    return family


def families(operator: OpKey) -> tuple[Family, ...]:
    """All families of an operator, the most special first."""
    return tuple(_FAMILIES.get(operator, ()))


def find(task: Task) -> Family | None:
    """The most special family that can do a task, or None."""
    return next((family for family in families(task.operator) if family.accepts(task)), None)


def operators() -> list[OpKey]:
    """All operators that have a family."""
    return sorted(_FAMILIES)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    # C, not HTML: nothing to escape. Undefined names are errors.
    return jinja2.Environment(
        loader=jinja2.PackageLoader("eqsat.codegen", "kernels"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **values: Any) -> str:
    """Fill a template of this folder: ``render("pool.c.jinja", kernel=(3, 3))``."""
    return _environment().get_template(template).render(**values)
