"""Checks that the kernel families in a host's file exist."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.codegen.kernels.shared.families import entry_name, families, operators
from eqsat.errors import TargetError
from eqsat.rules.ast import Target
from eqsat.schema.opset import did_you_mean


def family_names() -> list[str]:
    """All families as target files name them, sorted."""
    return sorted({entry_name(family.name) for operator in operators() for family in families(operator)})


def unknown_families(target: Target) -> Iterator[TargetError]:
    """Errors about the family names in a host's entries."""
    named = [(entry.names, entry.place) for entry in target.families]
    named += [((e.family,), e.place) for e in (*target.supports, *target.composites) if e.family]
    known = family_names() if named else []
    for names, place in named:
        for name in names:
            if name not in known:
                yield TargetError(
                    "a family of generated kernels is required",
                    place=str(place),
                    actual=f"`{name}`",
                    hint=did_you_mean(name, known) or f"families: {', '.join(known)}",
                )
