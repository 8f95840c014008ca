"""One line that shows what the pipeline is doing: in a terminal or a notebook, unless it is told not to.

A line of its own would be noise in a file or a pipe, so that nothing is shown there by default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import wraps
from threading import Lock, Timer
from typing import Any, ParamSpec, TypeVar

from eqsat import units
from eqsat.stages.event import Event, Progress
from eqsat.text import shown

_P = ParamSpec("_P")
_R = TypeVar("_R")

ProgressOption = Progress | bool | None
"""A receiver of events: a function; False for nothing, True for lines on stderr; None for a line where people look."""

_DECIDED: ContextVar[bool] = ContextVar("progress is decided", default=False)

_MOMENT = 0.5
"""Seconds after which a run has a line below its cell."""

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


def shows_progress(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates a public function: its argument ``progress`` may be anything that :data:`ProgressOption` is."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given: Any = kwargs.pop("progress", None)
        with showing(given) as receiver:
            kwargs["progress"] = receiver
            return function(*args, **kwargs)

    return call


def received(progress: ProgressOption) -> Progress | None:
    """The receiver that :func:`shows_progress` passed to a function."""
    return progress if callable(progress) else None


@contextmanager
def showing(progress: ProgressOption = None) -> Iterator[Progress | None]:
    """The receiver of events; None if they are not shown. Inner calls show nothing unless they ask to."""
    decided = _DECIDED.get()
    token = _DECIDED.set(True)
    try:
        if callable(progress):
            yield progress
        elif progress is False or (progress is None and decided):
            yield None
        elif _in_notebook():
            with _in_cell() as receiver:
                yield receiver
        elif sys.stderr.isatty():
            with _in_terminal() as receiver:
                yield receiver
        else:
            yield _lines() if progress else None
    finally:
        _DECIDED.reset(token)


def describe(event: Event) -> str:
    """The line for an event, such as ``"choosing the cheapest program: 3.20 ms, gap 0.41 %"``."""
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


# ---- where it is shown ----------------------------------------------------------------------------------


@contextmanager
def _in_terminal() -> Iterator[Progress]:
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting") as status:
        yield lambda event: status.update(Text(shown(describe(event))))


def _in_notebook() -> bool:
    """Whether the kernel of a notebook runs this. IPython in a terminal has none."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _in_cell() -> Iterator[Progress]:
    """A line below a cell, which is empty in the end. A short run has none, since a cell keeps its empty outputs."""
    cell = _Cell()
    # A kernel finds the cell that is executed by the context, which a thread does not inherit.
    timer = Timer(_MOMENT, copy_context().run, (cell.open,))
    timer.daemon = True
    timer.start()
    try:
        yield lambda event: cell.show(shown(describe(event)))
    finally:
        timer.cancel()
        cell.close()


class _Cell:
    """The output of a cell that one line is written to, from when it is opened until it is closed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._line = "starting"
        self._closed = False
        self._handle: Any = None

    def open(self) -> None:
        from IPython.display import display

        with self._lock:
            if not self._closed:
                self._handle = display({"text/plain": self._line}, raw=True, display_id=True)

    def show(self, line: str) -> None:
        with self._lock:
            if line != self._line:
                self._line = line
                self._update()

    def close(self) -> None:
        with self._lock:
            self._closed, self._line = True, ""
            self._update()

    def _update(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": self._line}, raw=True)


def _lines() -> Progress:
    """A line on stderr for each stage that begins."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    last = ""

    def receive(event: Event) -> None:
        nonlocal last
        if event.stage != last:
            last = event.stage
            console.print(Text(shown(_DOING.get(event.stage, event.stage))))

    return receive
