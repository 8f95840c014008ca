"""How much of a model backends execute, and why not the rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from eqsat.backends.backend import Backend
from eqsat.text import name_of

_LISTED = 4
"""Kernels that are refused for one reason and listed one by one."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of the model that a backend executes.

    Attributes:
        total: Kernels in regions of the target; from Python those of the regions that were executed.
        refused: Those that it does not execute: name, operator and reason of each.
        library: The backend's name for the library that executes the kernels.
        note: A further remark, such as that the model has no region of the target.
    """

    total: int
    refused: tuple[tuple[str, str, str], ...] = ()
    library: str = ""
    note: str = ""

    @property
    def called(self) -> int:
        return self.total - len(self.refused)

    def as_dict(self) -> dict[str, object]:
        """The same for programs."""
        refused = [{"name": name, "operator": operator, "reason": reason} for name, operator, reason in self.refused]
        found: dict[str, object] = {"kernels": self.total, "called": self.called, "refused": refused}
        return found | ({"note": self.note} if self.note else {})

    def lines(self, target: str, instead: str) -> list[str]:
        """The same as text.

        Args:
            target: Name of the target.
            instead: Where the kernels that are refused run: ``in portable C``.
        """
        if not self.total:
            return [f"{target:<9} {self.note}"] if self.note else []
        found = [f"{target:<9} {self.called:,} of {self.total:,} kernels call {self.library}"]
        by_reason: dict[str, list[str]] = {}
        for name, operator, reason in self.refused:
            by_reason.setdefault(reason, []).append(f"{name_of(name)} ({operator})")
        for reason, kernels in by_reason.items():
            more = len(kernels) - _LISTED
            rows = [f"{kernel} runs" for kernel in kernels]
            shown = rows if more <= 0 else [f"{', '.join(kernels[:_LISTED])} and {more:,} more run"]
            found += [f"{'':<9} {row} {instead}: {reason}" for row in shown]
        return found + ([f"{'':<9} {self.note}"] if self.note else [])


@dataclass
class Tally:
    """Counts the kernels that backends take and refuse, while a program is made or executed."""

    _reasons: dict[str, dict[Hashable, tuple[str, str, str]]] = field(default_factory=dict)
    _libraries: dict[str, str] = field(default_factory=dict)
    _notes: dict[str, str] = field(default_factory=dict)

    def add(self, backend: Backend, key: Hashable, name: str, operator: str, reason: str) -> None:
        """Counts a kernel.

        Args:
            backend: The backend of its target.
            key: Identifies it. One that is counted twice is refused if it is so once.
            name: Of the kernel.
            operator: As the backend sees it.
            reason: Why it is not taken; empty if it is.
        """
        self._libraries[backend.target] = backend.library or backend.target
        kernels = self._reasons.setdefault(backend.target, {})
        if reason or key not in kernels:
            kernels[key] = (name, operator, reason)

    def note(self, backend: Backend, text: str) -> None:
        """Says something about a backend, unless the text is empty."""
        if not text:
            return
        self._libraries[backend.target] = backend.library or backend.target
        self._notes[backend.target] = text

    def coverage(self) -> dict[str, Coverage]:
        """The counts by target."""
        return {target: self._of(target, self._reasons.get(target, {})) for target in sorted(self._libraries)}

    def _of(self, target: str, kernels: Mapping[Hashable, tuple[str, str, str]]) -> Coverage:
        refused = tuple(row for row in kernels.values() if row[2])
        return Coverage(len(kernels), refused, self._libraries[target], self._notes.get(target, ""))


_TALLY: ContextVar[Tally | None] = ContextVar("tally", default=None)


@contextmanager
def counted() -> Iterator[Tally]:
    """Counts the kernels of the regions that are executed from Python inside, as far as they have a backend."""
    token = _TALLY.set(tally := Tally())
    try:
        yield tally
    finally:
        _TALLY.reset(token)


def counting() -> Tally | None:
    """The counter of kernels of regions that are executed here; None if nobody requested it."""
    return _TALLY.get()
