"""Prints how much of a model backends execute, and why not the rest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eqsat.cli.console import echo

if TYPE_CHECKING:
    from eqsat.backends.coverage import Coverage


def show_coverage(coverage: Mapping[str, Coverage], instead: str, *, err: bool = False) -> None:
    """How many kernels each backend executes.

    Args:
        coverage: Coverage by target.
        instead: Where the others run.
        err: Whether to print to stderr, apart from the results of the command.
    """
    for target, one in sorted(coverage.items()):
        for line in one.lines(target, instead):
            echo(line, err=err)


@contextmanager
def quietly() -> Iterator[None]:
    """Leaves out the warning of a backend that executes nothing, which is one of the lines that are printed."""
    from eqsat.errors import BackendWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BackendWarning)
        yield
