"""The canonical form of rule files: one layout, comments kept.

A file is a sequence of clauses (a header, a ``let``, a side of a rule, a condition, ...), each of which is printed anew
from its syntax. Comments stay with the clause they stand beside or above; those inside a clause move below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from eqsat.rules import syntax as s
from eqsat.rules.format_clauses import INDENT, Clause, print_declaration
from eqsat.rules.parse import parse
from eqsat.rules.print_term import WIDTH
from eqsat.rules.source import Comment, Source, Sources


def format_file(text: str, name: str = "<text>") -> str:
    """The text of a rule or target file in canonical form.

    Raises:
        RuleError, TargetError: It is not written in the rule language.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    source, sources = Source(name, text), Sources()
    sources.in_target = name.endswith(".target")
    sources.add(source)
    clauses: list[Clause] = []
    was_let = False
    for declaration in parse(source, sources, keep_parentheses=True).declarations:
        is_let = isinstance(declaration, s.Let)
        first, *others = print_declaration(declaration)
        # Several `let`s in a row stand together or apart as in the source.
        clauses += [replace(first, separate=not (is_let and was_let)), *others]
        was_let = is_let
    return _assemble(clauses, source)


def print_clauses(clauses: Iterable[Clause], doc: str = "") -> str:
    """The text of clauses that stand in no file; ``doc`` becomes comments below their first."""
    rows = [_Line(clause, [], None, []) for clause in clauses]
    if doc:
        rows[0].below = [Comment(0, line, True) for line in doc.split("\n")]
    out: list[str] = []
    for i, row in enumerate(rows):
        _put(out, row, rows[i - 1] if i else None)
    return "".join(line.rstrip() + "\n" for line in out)


# ---- clauses and comments ------------------------------------------------------------------------


@dataclass
class _Line:
    """A clause with its comments: above it, behind its last line, and those to be put below."""

    clause: Clause
    above: list[Comment]
    behind: Comment | None
    below: list[Comment]


def _assemble(clauses: list[Clause], source: Source) -> str:
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


def _place_comments(clauses: list[Clause], comments: list[Comment]) -> tuple[list[_Line], list[Comment]]:
    rows = [_Line(clause, [], None, []) for clause in clauses]
    left = comments
    for i, row in enumerate(rows):
        span = row.clause.span
        row.above = [c for c in left if c.line < span.first]
        left = [c for c in left if c.line >= span.first]
        following = rows[i + 1].clause.span.first if i + 1 < len(rows) else None
        # What stands on one line with a later clause is that clause's, except for a header's.
        last = span.last if row.clause.header or following is None or following > span.last else span.last - 1
        inside = [c for c in left if c.line <= last]
        left = [c for c in left if c.line > last]
        if inside and not inside[-1].alone and (inside[-1].line == span.last or row.clause.header):
            row.behind = inside[0] if row.clause.header else inside[-1]
            row.below = inside[1:] if row.clause.header else inside[:-1]
        else:
            row.below = inside
    return rows, left


def _separate(out: list[str], row: _Line, source: Source) -> None:
    """The blank line before a declaration or composite, and those of the source before other items of a target."""
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
    if before is not None and clause.joins and not (before.behind or before.below or row.above):
        one_line = len(clause.text) == len(before.clause.text) == 1
        if one_line and len(out[-1]) + len(clause.joins) + len(clause.text[0]) <= WIDTH:
            out[-1] += clause.joins + clause.text[0]
            _comments(out, row)
            return
    out.append(" " * clause.indent + clause.text[0])
    out += clause.text[1:]
    _comments(out, row)


def _comments(out: list[str], row: _Line) -> None:
    if row.behind is not None:
        out[-1] += f"  {_text(row.behind)}"
    indent = row.clause.indent + (INDENT if row.clause.header else 0)
    out += [" " * indent + _text(comment) for comment in row.below]


def _text(comment: Comment) -> str:
    return f"# {comment.text}".rstrip() if not comment.text.startswith(("#", "!")) else f"#{comment.text}"
