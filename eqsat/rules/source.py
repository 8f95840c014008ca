"""The text of a rule file: its lines and comments, and errors that point into it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from eqsat.errors import EqsatError, RuleError, TargetError
from eqsat.rules.ast import Place

STRING_OR_COMMENT = re.compile(r'"(?:\\[^\n]|[^"\\\n])*"|#[^\n]*')


WIDEST = 160
"""Characters of a line that an error shows."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment without its sign; ``alone`` if there is nothing else on its line."""

    line: int
    text: str
    alone: bool


@dataclass(frozen=True)
class Source:
    """A rule file's text under the name that errors and places give it."""

    name: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def comments(self) -> tuple[Comment, ...]:
        """All comments, in order."""
        found = []
        line, counted = 1, 0
        for match in STRING_OR_COMMENT.finditer(self.text):
            if match.group().startswith("#"):
                line += self.text.count("\n", counted, match.start())
                counted = match.start()
                before = self.text[self.text.rfind("\n", 0, match.start()) + 1 : match.start()]
                found.append(Comment(line, match.group()[1:].removeprefix(" ").rstrip(), not before.strip()))
        return tuple(found)

    def excerpt(self, line: int, column: int) -> str:
        """The line with a caret below the column."""
        if not 1 <= line <= len(self.lines):
            return ""
        text = self.lines[line - 1].rstrip()
        if len(text) > WIDEST:
            # Only the part of a very long line around the column.
            first = max(0, min(column - 1, len(text)) - WIDEST // 2)
            text, column = text[first : first + WIDEST], column - first
        # Tabs are kept in the caret's line, so that it stands below its character at any tab width.
        indent = "".join("\t" if c == "\t" else " " for c in text[: column - 1]).ljust(column - 1)
        return f"{text}\n{indent}^"

    @cached_property
    def _texts(self) -> tuple[dict[int, str], dict[int, str]]:
        """Comments by line: those with a line of their own, and those at the end of a line."""
        alone = {c.line: c.text for c in self.comments if c.alone}
        trailing = {c.line: c.text for c in self.comments if not c.alone}
        return alone, trailing

    def doc(self, header: int, last: int, body: int) -> str:
        """Comment lines right above line ``header``, on it up to ``last``, and right below up to line ``body``."""
        alone, trailing = self._texts
        above = []
        line = header - 1
        while line in alone:
            above.append(alone[line])
            line -= 1
        texts = above[::-1] + [trailing[n] for n in range(header, last + 1) if n in trailing]
        line = last + 1
        while line in alone and line < body:
            texts.append(alone[line])
            line += 1
        return "\n".join(texts).strip()


def shortened(text: str) -> str:
    """A text for a message, without its middle where it is very long."""
    return text if len(text) <= 2 * WIDEST else f"{text[:WIDEST]} … {text[-WIDEST:]}"


def position_of(error: EqsatError) -> tuple[int, int]:
    """Line and column that an error points to; zeros for one about a whole file."""
    found = re.search(r":([0-9]+):([0-9]+)\Z", error.place)
    return (int(found[1]), int(found[2])) if found else (0, 0)


class Sources:
    """The texts that one reading involves (a file and the prelude), to make errors that show the line meant."""

    def __init__(self) -> None:
        self._by_name: dict[str, Source] = {}
        self.in_target = False
        """Whether the declaration being read is a target: its errors are target errors."""
        self.expanding: list[tuple[str, Place]] = []
        """Macros being expanded, outermost first: name and place of use."""
        self.mistakes: list[EqsatError] | None = None
        """The errors so far, if they are all collected."""
        self.lost: set[str] = set()
        """Names of declarations with mistakes: that these are not known is not a mistake of its own."""

    def add(self, source: Source) -> None:
        self._by_name[source.name] = source

    @classmethod
    def of(cls, text: str, name: str) -> tuple[Source, Sources]:
        """A file's text, without a byte order mark and with line feeds only, and a reading that begins with it."""
        source, sources = Source(name, text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")), cls()
        sources.in_target = name.endswith(".target")
        sources.add(source)
        return source, sources

    @contextmanager
    def recovering(self, name: str = "") -> Iterator[None]:
        """Reads a declaration, or an item of one: where all errors are collected, its error does not end the reading.

        Args:
            name: What other declarations may know it by.
        """
        try:
            yield
        except EqsatError as error:
            if self.mistakes is None:
                raise
            self.expanding.clear()
            text = f"{error.requirement} {error.actual}"
            if not any(f"`{name}`" in text for name in self.lost):
                self.mistakes.append(error)
            if name:
                self.lost.add(name)

    def error(self, place: Place, requirement: str, *, actual: str = "", hint: str = "") -> EqsatError:
        """An error that points to a place; inside a macro of another file it says where the macro is used."""
        source = self._by_name.get(place.file)
        if self.expanding:
            name, used = self.expanding[0]
            requirement = f"{requirement} (in `{name}`, used at {used})"
        kind = TargetError if self.in_target else RuleError
        return kind(
            requirement,
            place=str(place),
            actual=shortened(actual),
            hint=hint,
            excerpt=source.excerpt(place.line, place.column) if source else "",
        )
