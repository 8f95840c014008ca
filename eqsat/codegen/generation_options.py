"""The options of C generation, defined once for all functions that pass them on to ``generate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from eqsat.backends.find_backends import GivenBackend
    from eqsat.model.read.given_sizes import GivenSize
    from eqsat.rules.ast import Target
    from eqsat.rules.selection import NumericsClass
    from eqsat.stages.event import Progress


class Generation(TypedDict, total=False):
    """How a program is generated; see :func:`eqsat.codegen.generate.generate`."""

    dims: Mapping[str, GivenSize] | None
    threads: int
    winograd: bool
    numerics: NumericsClass
    host: str | Path | Target | None
    select: bool


class GenerationOptions(Generation, total=False):
    """How a model is compiled; see :func:`eqsat.compile`."""

    vendors: Collection[str]
    backends: Sequence[GivenBackend]
    progress: Progress | None
