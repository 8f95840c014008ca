"""One line on stderr that shows what the pipeline is doing, only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eqsat.cli.console import terminal
from eqsat.text import shown

if TYPE_CHECKING:
    from eqsat.stages.event import Event, Progress

_DOING = {
    "load": "loading the model",
    "encode": "building the e-graph",
    "saturate": "applying rules",
    "extract": "choosing the cheapest program",
    "partition": "forming regions",
    "calibrate": "gathering statistics",
    "choose": "comparing methods",
    "measure": "measuring the noise of tensors",
    "check": "measuring the error of the result",
    "verify": "executing both models",
    "prove": "joining tensors",
    "generate": "writing the model as C",
    "compile": "compiling",
    "execute": "executing the model",
    "discover": "executing rules",
    "gain": "searching without each rule",
}


@contextmanager
def showing_progress(quiet: bool) -> Iterator[Progress | None]:
    """A receiver of events that keeps one line up to date; None if stderr is not a terminal or with ``quiet``."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.text import Text

    with terminal(err=True).status("starting") as status:
        yield lambda event: status.update(Text(shown(describe(event))))


@contextmanager
def showing_stage(stage: str, quiet: bool) -> Iterator[None]:
    """The line for one stage, while it lasts."""
    # The module of events is loaded with the pipeline, which is not needed where nobody looks.
    with showing_progress(quiet) as progress:
        if progress is not None:
            from eqsat.stages.event import Event

            progress(Event(stage))
        yield


def describe(event: Event) -> str:
    """The line for an event, such as ``"choosing the cheapest program: 3.20 ms, gap 0.41 %"``."""
    from eqsat.report import units

    facts: list[str] = []
    if event.step is not None:
        facts.append(f"{event.step:,} of {event.steps:,}" if event.steps is not None else f"{event.step:,}")
    if event.iteration is not None:
        facts.append(f"iteration {event.iteration}")
    if event.enodes is not None:
        facts.append(f"{event.enodes:,} e-nodes")
    if event.cost is not None:
        facts.append(units.seconds(event.cost))
    if event.gap is not None:
        facts.append(f"gap {units.percent(event.gap)}")
    doing = _DOING.get(event.stage, event.stage)
    return f"{doing}: {', '.join(facts)}" if facts else doing
