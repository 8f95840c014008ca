"""Where kernel families are registered and found, and how their templates are filled."""

from __future__ import annotations

from typing import Any

from eqsat.backends.templates import environment
from eqsat.codegen.kernel import Family, Task
from eqsat.schema.types import OpKey

_FAMILIES: dict[OpKey, list[Family]] = {}


def register(family: Family) -> Family:
    """Add a family; families of higher rank are tried first, and among equals the earlier one."""
    for operator in family.operators:
        entries = _FAMILIES.setdefault(operator, [])
        if any(e.name == family.name for e in entries):
            raise ValueError(f"{operator} has two families {family.name!r}")
        entries.append(family)
        entries.sort(key=lambda e: -e.rank)
    return family


def families(operator: OpKey) -> tuple[Family, ...]:
    """All families of an operator, the most specialised first."""
    return tuple(_FAMILIES.get(operator, ()))


def find(task: Task) -> Family | None:
    """The most specialised family that can do a task, or None."""
    return next((family for family in families(task.operator) if family.accepts(task)), None)


def entry_name(family: str) -> str:
    """Name of a family in a target file: ``direct_convolution``."""
    return "".join(c if c.isalnum() else "_" for c in family.lower())


def operators() -> list[OpKey]:
    """All operators that have a family."""
    return sorted(_FAMILIES)


def render(template: str, **values: Any) -> str:
    """Fill a template, named by its path in ``kernels/``: ``render("loops/pool.c.jinja", kernel=(3, 3))``."""
    return environment("eqsat.codegen", "kernels").get_template(template).render(**values)
