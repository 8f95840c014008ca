"""Rule files as people see them: the text of each rule, with the comment above it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from eqsat.rules import syntax
from eqsat.rules.ast import Place, Rule
from eqsat.rules.location import rules_dir
from eqsat.rules.parse import parse
from eqsat.rules.reader import read_files
from eqsat.rules.source import Source, Sources


@dataclass(frozen=True, slots=True)
class Listed:
    """A rule and its text.

    Attributes:
        rules: What it was read as: two rules for ``<=>``.
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
        if file.egg is not None:
            continue
        source = _source(Path(file.path))
        for declaration in parse(source, Sources()).declarations:
            if isinstance(declaration, syntax.Rule):
                own = tuple(r for r in file.rules if r.place == declaration.place)
                found.append(Listed(declaration.name, own, _text(source, declaration.span)))
    return found


def composite_patterns(path: Path) -> dict[str, str]:
    """Place of each composite of a target file -> the text of its pattern and of the ``let``s that it is made of.

    Raises:
        RuleError: The file cannot be read.
    """
    source = _source(path)
    found: dict[str, str] = {}
    for declaration in parse(source, Sources()).declarations:
        for item in declaration.items if isinstance(declaration, syntax.Target) else ():
            if isinstance(item, syntax.Composite):
                first = item.before[0].span.first if item.before else item.pattern_span.first
                lines = source.lines[first - 1 : item.pattern_span.last]
                found[str(item.place)] = textwrap.dedent("\n".join(line.rstrip() for line in lines))
    return found


def short_place(place: Place | str) -> str:
    """``file:line`` of a place; shipped files by their path in the repository, others as they were given."""
    return _short(str(place))


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


def _text(source: Source, span: syntax.Span) -> str:
    alone = {comment.line for comment in source.comments if comment.alone}
    first = span.first
    while first - 1 in alone:
        first -= 1
    last = span.last
    return "\n".join(line.rstrip() for line in source.lines[first - 1 : last])
