"""The options of C generation, defined once for all functions that pass them on to ``generate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """The keywords of all functions that generate a program; :class:`ProgramOptions` explains them."""

    dims: Mapping[str, GivenSize] | None
    threads: int
    winograd: bool
    numerics: NumericsClass
    host: str | Path | Target | None
    select: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """How a program is generated.

    Attributes:
        dims: Sizes of symbolic dimensions, or ranges of those that the program receives as arguments.
        threads: Number of threads that may share a kernel.
        winograd: Whether convolutions may be computed by Winograd's algorithm where that is faster: up to three times,
            with ten times the rounding error and four times the weights. It is short for ``numerics="approximate"``.
        numerics: How far the host's rules and kernels may change values.
        host: The host whose file lists the kernels and their costs; the shipped ``c`` by default.
        select: Whether extraction chooses families and layouts. Otherwise, and for anything that extraction leaves
            open, the most specialised family is used, and conversions are inserted where it requires another layout.
    """

    dims: Mapping[str, GivenSize] | None = None
    threads: int = 1
    winograd: bool = False
    numerics: NumericsClass = "real"
    host: str | Path | Target | None = None
    select: bool = True


class GenerationOptions(Generation, total=False):
    """How a model is compiled; see :func:`eqsat.compile`."""

    vendors: Collection[str]
    backends: Sequence[GivenBackend]
    progress: Progress | None
