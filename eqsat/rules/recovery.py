"""Reading on after a syntax error: the declaration that has it is left out, and the rest of the file is read."""

from __future__ import annotations

import re

from eqsat.errors import EqsatError
from eqsat.rules import declarations as s
from eqsat.rules.parse import parse
from eqsat.rules.source import Source, Sources, position_of

MOST = 50
"""Most syntax errors reported for one file; each one costs another reading of the file."""
_LINE = re.compile(r"^([ \t]*)([^\s#])", re.MULTILINE)
"""A line that has more than a comment."""
_HEADERS = ("rule", "target", "host", "operator", "let")
_HEADER = re.compile(rf"(?:{'|'.join(_HEADERS)})\b")
_ITEM = re.compile(r"(?:supports|composite|family)\b")
_NAMED = re.compile(r"(?:operator|let)\s+(\w+)")


def parse_recovering(source: Source, sources: Sources) -> tuple[s.Node, ...]:
    """The declarations without syntax errors; the errors are added to the mistakes of ``sources``."""
    mistakes = sources.mistakes
    assert mistakes is not None
    text = source.text
    for _ in range(MOST):
        try:
            return parse(Source(source.name, text), sources).declarations
        except EqsatError as error:
            mistakes.append(error)
            first, last = _part(text, error)
            lost = text[first:last]
            sources.lost.update(_NAMED.findall(lost))
            text = text[:first] + re.sub(r"[^\n]", " ", lost) + text[last:]
    return ()


def _part(text: str, error: EqsatError) -> tuple[int, int]:
    """The extent of the declaration with an error: at least its line, so that reading can continue."""
    position = _position(text, error)
    line = text.rfind("\n", 0, position) + 1
    tops, items = _starts(text)
    begins = sorted((*tops, *items))
    first = max((b for b in begins if b <= line), default=0)
    if first == line and not text[first:position].strip():
        header = (_HEADER if first in tops else _ITEM).match(text, position)
        before = max((b for b in begins if b < line), default=0)
        if header is not None and text[before:first].strip():
            # The error is at a beginning, so the declaration before it is incomplete.
            ends = [b for b in begins if b > first] if header[0] == "let" else [first]
            return before, min(ends, default=len(text))
    # Without its header, the items of a target are nothing.
    ends = tops if first in tops and first == line else begins
    return first, max(min((b for b in ends if b > line), default=len(text)), min(position + 1, len(text)))


def _starts(text: str) -> tuple[list[int], list[int]]:
    """The beginnings of declarations and items of targets, found by first words and by indentation."""
    lines = list(_LINE.finditer(text))
    tops: list[int] = []
    items: list[int] = []
    indentation: int | None = None
    in_target = False
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        indent = len(line[1])
        if not indent:
            header = _HEADER.match(text, line.start())
            has_body = following is not None and len(following[1]) > 0
            if header is not None or (has_body and line[2].isalpha()):
                tops.append(line.start())
                in_target = header is None or header[0] in ("target", "host")
                indentation = None
        elif in_target and (indentation is None or indent <= indentation):
            indentation = indent
            items.append(line.start())
    return tops, items


def _position(text: str, error: EqsatError) -> int:
    """The position of an error in its text."""
    line, column = position_of(error)
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return min(start + column - 1, len(text))
