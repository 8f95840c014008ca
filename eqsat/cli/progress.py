"""The line of progress of commands: on a terminal, unless they are to be quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat.stages.event import Progress


def showing_progress(quiet: bool) -> AbstractContextManager[Progress | None]:
    """A receiver of events that keeps one line up to date; None if stderr is not a terminal or with ``quiet``."""
    # It is loaded with the pipeline, which `--help` does not need.
    from eqsat.progress import showing

    return showing(False if quiet else None)


@contextmanager
def showing_stage(stage: str, quiet: bool) -> Iterator[None]:
    """The line for one stage, while it lasts."""
    with showing_progress(quiet) as progress:
        if progress is not None:
            from eqsat.stages.event import Event

            progress(Event(stage))
        yield
