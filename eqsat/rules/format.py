"""The canonical form of rule files: one layout, comments kept.

A file is a sequence of clauses (a header, a ``let``, a side of a rule, a condition, ...), each of which is printed from
its syntax. Comments stay with the clause that they are beside or above; comments inside a clause move out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from eqsat.rules import declarations as s
from eqsat.rules.parse import parse
from eqsat.rules.print_clauses import PrintedPiece, print_declaration
from eqsat.rules.print_term import WIDTH
from eqsat.rules.source import Comment, Source, Sources


def format_file(text: str, name: str = "<text>") -> str:
    """The text of a rule or target file in canonical form.

    Raises:
        RuleError, TargetError: It is not written in the rule language.
    """
    source, sources = Sources.of(text, name)
    clauses: list[PrintedPiece] = []
    was_let = False
    for declaration in parse(source, sources, keep_parentheses=True).declarations:
        is_let = isinstance(declaration, s.Let)
        first, *others = print_declaration(declaration)
        # Consecutive `let`s stay together or apart as in the source.
        clauses += [replace(first, separate=not (is_let and was_let)), *others]
        was_let = is_let
    return _assemble(clauses, source)


# ---- clauses and comments ------------------------------------------------------------------------


@dataclass
class _Line:
    """A clause with the comments above it and after its last line; ``early`` ones come from the clause before."""

    clause: PrintedPiece
    above: list[Comment] = field(default_factory=list)
    early: list[Comment] = field(default_factory=list)
    trailing: Comment | None = None


def _assemble(clauses: list[PrintedPiece], source: Source) -> str:
    rows, rest = _place_comments(clauses, list(source.comments))
    out: list[str] = []
    for i, row in enumerate(rows):
        _separate(out, row, source)
        keep = row.clause.item or row.clause.separate
        for comment in row.above:
            _blank_if(out, source, comment.line, keep)
            out.append(" " * row.clause.indent + _text(comment))
        _blank_if(out, source, row.clause.span.first, keep and bool(row.above))
        _put(out, row, rows[i - 1] if i else None)
    for comment in rest:
        _blank_if(out, source, comment.line, bool(out))
        out.append(_text(comment))
    return "".join(line.rstrip() + "\n" for line in out)


def _place_comments(clauses: list[PrintedPiece], comments: list[Comment]) -> tuple[list[_Line], list[Comment]]:
    rows = [_Line(clause) for clause in clauses]
    left = comments
    for i, row in enumerate(rows):
        span = row.clause.span
        row.above = row.early + [c for c in left if c.line < span.first]
        left = [c for c in left if c.line >= span.first]
        following = rows[i + 1].clause.span.first if i + 1 < len(rows) else None
        # A comment after several clauses on a line belongs to the last of them, except after a header.
        last = span.last if row.clause.header or following is None or following > span.last else span.last - 1
        inside = [c for c in left if c.line <= last]
        left = [c for c in left if c.line > last]
        before = rows[i - 1] if i else None
        after = rows[i + 1] if i + 1 < len(rows) and not rows[i + 1].clause.separate else None
        _place_inside(row, inside, before, after)
    return rows, left


def _place_inside(row: _Line, inside: list[Comment], before: _Line | None, after: _Line | None) -> None:
    """Places comments on the lines of a clause.

    Comments of a header are documentation and stay in their order, beside and below it. For other clauses, a comment
    after the end stays there; others move above the clause, or below it if they would become documentation above.
    """
    if row.clause.header:
        if inside and not inside[0].alone:
            row.trailing, *inside = inside
    elif inside and not inside[-1].alone and inside[-1].line == row.clause.span.last:
        *inside, row.trailing = inside
    if not inside:
        return
    if not row.clause.header and (before is None or not before.clause.header):
        row.above += inside
    elif after is not None:
        after.early += inside
    else:
        texts = [c.text.strip() for c in (*([row.trailing] if row.trailing else []), *inside)]
        row.trailing = Comment(inside[0].line, " ".join(texts), False)


def _separate(out: list[str], row: _Line, source: Source) -> None:
    """A blank line before a declaration or composite; before other items of a target the blank lines of the source."""
    first = row.above[0].line if row.above else row.clause.span.first
    if out and row.clause.separate and out[-1] != "":
        out.append("")
    else:
        _blank_if(out, source, first, row.clause.item)


def _blank_if(out: list[str], source: Source, line: int, wanted: bool) -> None:
    """A blank line where the source has one before ``line``."""
    if wanted and out and out[-1] != "" and line >= 2 and not source.lines[line - 2].strip():
        out.append("")


def _put(out: list[str], row: _Line, before: _Line | None) -> None:
    clause = row.clause
    if before is not None and clause.joins and not (before.trailing or row.above):
        stood_there = before.clause.span.last == clause.span.first
        one_line = stood_there and len(clause.text) == len(before.clause.text) == 1
        if one_line and len(out[-1]) + len(clause.joins) + len(clause.text[0]) <= WIDTH:
            out[-1] += clause.joins + clause.text[0]
            _append_trailing(out, row)
            return
    out.append(" " * clause.indent + clause.text[0])
    out += clause.text[1:]
    _append_trailing(out, row)


def _append_trailing(out: list[str], row: _Line) -> None:
    if row.trailing is not None:
        out[-1] += f"  {_text(row.trailing)}"


def _text(comment: Comment) -> str:
    return f"# {comment.text}".rstrip() if not comment.text.startswith(("#", "!")) else f"#{comment.text}"
