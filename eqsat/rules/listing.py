"""Rule files as people see them: the text of each rule, with the comment above it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from eqsat.errors import EqsatError
from eqsat.rules.ast import Composite, Place, Rule, Target
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_files
from eqsat.rules.source import Source
from eqsat.rules.tree import Span


@dataclass(frozen=True, slots=True)
class Listed:
    """A rule and its text.

    Attributes:
        rules: The rules that the text declares: two for ``<=>``.
        text: From the comment above it to its last line.
    """

    name: str
    rules: tuple[Rule, ...]
    text: str


def list_rules(paths: list[Path]) -> list[Listed]:
    """All rules of the files in their order.

    Raises:
        RuleError: A file cannot be read.
    """
    found: list[Listed] = []
    for file in read_files(paths):
        source = _source(Path(file.path))
        for _, rules in groupby(file.rules, key=lambda rule: rule.place):
            own = tuple(rules)
            found.append(Listed(own[0].name, own, _text(source, own[0].span)))
    return found


def composite_patterns(target: Target) -> dict[str, str]:
    """Place of each composite of a target -> the text of its pattern and of the ``let``s that it is made of."""
    source = _source(Path(target.place.file))
    return {str(c.place): textwrap.dedent("\n".join(_lines(source, c.span))) for c in target.composites}


def texts_of(definitions: Sequence[Rule | Composite]) -> list[str]:
    """The text of each rule or composite as :class:`Listed` has it; empty where there is no file to read."""
    sources: dict[str, Source | None] = {}
    found = []
    for definition in definitions:
        file = definition.place.file
        if file not in sources:
            try:
                sources[file] = _source(Path(file))
            except (OSError, UnicodeError, EqsatError):
                sources[file] = None
        source = sources[file]
        found.append("" if source is None else textwrap.dedent(_text(source, definition.span)))
    return found


def short_place(place: Place | str) -> str:
    """``file:line`` of a place; shipped files by their path in the repository, others as they were given.

    Rules that Python code finds have no place in a file; the text is empty.
    """
    return _short(str(place)) if place else ""


@lru_cache(maxsize=8192)
def _short(place: str) -> str:
    # From the right, since a path may contain colons; line and column are always there.
    file, line, _ = place.rsplit(":", 2)
    path = Path(file)
    if path.is_relative_to(rules_dir()):
        file = f"rules/{path.relative_to(rules_dir()).as_posix()}"
    return f"{file}:{line}"


def _source(path: Path) -> Source:
    return Source(str(path), path.read_text("utf-8").removeprefix("\ufeff"))  # with universal newlines


def _lines(source: Source, span: Span) -> list[str]:
    return [line.rstrip() for line in source.lines[span.first - 1 : span.last]]


def _text(source: Source, span: Span) -> str:
    alone = {comment.line for comment in source.comments if comment.alone}
    first = span.first
    while first - 1 in alone:
        first -= 1
    return "\n".join(_lines(source, Span(first, span.last)))
