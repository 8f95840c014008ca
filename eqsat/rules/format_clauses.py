"""The clauses of a rule file printed anew from their syntax: headers, ``let``s, sides, conditions, settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eqsat.rules import syntax as s
from eqsat.rules.print_term import WIDTH, flat, lines
from eqsat.rules.quoting import quote

INDENT = 4
_REASONS = 60
"""Reasons of conditions up to this long are aligned."""


@dataclass
class Clause:
    """A piece of a file that comments can stand beside.

    Attributes:
        span: Lines in the source.
        text: Printed lines, without the indentation of the first.
        indent: Column of the first line.
        separate: Whether a blank line stands before it.
        header: Whether comments on its lines are documentation and stay before those of later clauses.
        joins: What stands between it and the clause before on one line; empty if it begins one.
        item: Whether blank lines before it are kept.
    """

    span: s.Span
    text: list[str]
    indent: int
    separate: bool = False
    header: bool = False
    joins: str = ""
    item: bool = False


def print_declaration(declaration: s.Declaration) -> Iterator[Clause]:
    """The clauses of a declaration."""
    match declaration:
        case s.Let():
            yield replace(_let(declaration, 0), item=True)
        case s.Rule():
            yield from print_rule(declaration)
        case s.Target():
            word = "host" if declaration.is_host else "target"
            line = declaration.place.line
            yield Clause(s.Span(declaration.span.first, line), [f"{word} {declaration.name}"], 0, True, True)
            for item in declaration.items:
                first, *others = _item(item)
                yield replace(first, item=True)
                yield from others


def _let(let: s.Let, indent: int) -> Clause:
    parameters = "" if let.parameters is None else f"({', '.join(let.parameters)})"
    head = f"let {let.name}{parameters} ="
    text = flat(let.body)
    if indent + len(head) + 1 + len(text) <= WIDTH:
        return Clause(let.span, [f"{head} {text}"], indent)
    inside = indent + INDENT
    body = lines(let.body, inside, inside)
    return Clause(let.span, [head, " " * inside + body[0], *body[1:]], indent)


def numerics_text(numerics: s.Numerics) -> str:
    """``exact``, or ``within 2 lsb``."""
    return f"within {numerics.amount} {numerics.unit}" if numerics.word == "within" else numerics.word


def print_rule(rule: s.Rule) -> Iterator[Clause]:
    """The clauses of a rule."""
    header = s.Span(rule.span.first, rule.numerics.place.line)
    yield Clause(header, [f"rule {rule.name} : {numerics_text(rule.numerics)}"], 0, True, True)
    for let in rule.before:
        yield _let(let, INDENT)
    arrow = "<=>" if rule.both else "=>"
    yield Clause(_span(rule.left), _roots(rule.left, INDENT), INDENT)
    right = _roots(rule.right, 2 * INDENT + len(arrow) + 2)
    one_line = rule.left[-1].span.last == rule.right[0].span.first
    yield Clause(_span(rule.right), _after(f"{arrow}  ", right), 2 * INDENT, joins="  " if one_line else "")
    for clause in rule.after:
        yield from [_let(clause, INDENT)] if isinstance(clause, s.Let) else _where(clause, INDENT)


def _after(prefix: str, text: list[str]) -> list[str]:
    return [prefix + text[0], *text[1:]]


def _span(roots: tuple[s.Root, ...]) -> s.Span:
    return s.Span(roots[0].span.first, roots[-1].span.last)


def _roots(roots: tuple[s.Root, ...], indent: int) -> list[str]:
    parts = [("" if r.target is None else f"{flat(r.target)} = ", r.value) for r in roots]
    one_line = ", ".join(head + flat(value) for head, value in parts)
    if indent + len(one_line) <= WIDTH:
        return [one_line]
    result: list[str] = []
    for i, (head, value) in enumerate(parts):
        inner = lines(value, indent + len(head), indent)
        result += [("" if i == 0 else " " * indent) + head + inner[0], *inner[1:]]
        result[-1] += "," if i + 1 < len(parts) else ""
    return result


def _where(where: s.Where, indent: int) -> Iterator[Clause]:
    """Conditions in the rows of the source, reasons below each other."""
    inside = indent + len("where ")
    rows = [row for group in _rows(where.conditions) for row in _broken(group, inside)]
    widths = [_width(text, inside) for row, text in rows if row[-1].because]
    column = max((w for w in widths if w <= _REASONS), default=0)
    for i, (row, text) in enumerate(rows):
        if row[-1].because:
            text = _with_reason(text, row[-1].because, column, inside)
        if i + 1 < len(rows):
            text = [*text[:-1], f"{text[-1]},"]
        span = s.Span(row[0].span.first, row[-1].span.last)
        if i == 0:
            yield Clause(s.Span(where.span.first, span.last), _after("where ", text), indent)
        else:
            yield Clause(span, text, inside)


_Row = tuple[list[s.Condition], list[str]]


def _rows(conditions: tuple[s.Condition, ...]) -> list[list[s.Condition]]:
    """Conditions that stand side by side in the source; a reason ends a row."""
    rows: list[list[s.Condition]] = []
    for condition in conditions:
        if rows and not rows[-1][-1].because and rows[-1][-1].span.last == condition.span.first:
            rows[-1].append(condition)
        else:
            rows.append([condition])
    return rows


def _broken(row: list[s.Condition], inside: int) -> list[_Row]:
    """A row as it is printed, or as several rows where it is too long."""
    text = ", ".join(flat(c.expr) for c in row)
    if inside + len(text) < WIDTH:
        return [(row, [text])]
    if len(row) == 1:
        return [(row, lines(row[0].expr, inside, inside))]
    fits = next((n for n in range(len(row) - 1, 1, -1) if _fits(row[:n], inside)), 1)
    return [*_broken(row[:fits], inside), *_broken(row[fits:], inside)]


def _fits(row: list[s.Condition], inside: int) -> bool:
    return inside + len(", ".join(flat(c.expr) for c in row)) < WIDTH


def _width(text: list[str], inside: int) -> int:
    """Length of the last line without its indentation."""
    return len(text[-1]) - (inside if len(text) > 1 else 0)


def _with_reason(text: list[str], because: str, column: int, inside: int) -> list[str]:
    reason = f"because {quote(because)}"
    width = _width(text, inside)
    for pad in (column - width + 2, 2):
        if pad >= 2 and inside + width + pad + len(reason) < WIDTH:
            return [*text[:-1], f"{text[-1]}{' ' * pad}{reason}"]
    fits = inside + column + 2 + len(reason) < WIDTH
    return [*text, " " * (inside + (column + 2 if fits else INDENT)) + reason]


def _item(item: s.Setting | s.Text | s.RegionCall | s.Supports | s.Family | s.Let | s.Composite) -> Iterator[Clause]:
    match item:
        case s.Text():
            yield Clause(item.span, [f"{item.name} {item.text.text}"], INDENT)
        case s.RegionCall():
            texts = [t.text for t in item.texts]
            inside = " " * (INDENT + len("region call "))
            yield Clause(item.span, [f"region call {texts[0]}", *(inside + t for t in texts[1:])], INDENT)
        case s.Setting():
            yield Clause(item.span, _setting(item), INDENT)
        case s.Let():
            yield _let(item, INDENT)
        case s.Supports() | s.Family():
            last = item.after[0].span.first - 1 if item.after else item.span.last
            yield Clause(s.Span(item.span.first, max(item.span.first, last)), _entry(item), INDENT)
            for clause in item.after:
                yield from _clause(clause)
        case s.Composite():
            yield from print_composite(item)


def print_composite(item: s.Composite) -> Iterator[Clause]:
    """The clauses of a composite, indented as in a target."""
    header = s.Span(item.span.first, item.numerics.place.line)
    yield Clause(
        header,
        [f"composite {item.name} : {numerics_text(item.numerics)}"],
        INDENT,
        True,
        True,
    )
    for let in item.before:
        yield _let(let, 2 * INDENT)
    yield Clause(item.pattern_span, lines(item.pattern, 2 * INDENT, 2 * INDENT), 2 * INDENT)
    for clause in item.after:
        yield from _clause(clause)


def _clause(clause: s.Let | s.By | s.Where | s.Cost | s.Call | s.Annotate) -> Iterator[Clause]:
    indent = 2 * INDENT
    match clause:
        case s.Let():
            yield _let(clause, indent)
        case s.By():
            yield Clause(clause.span, [f"by {clause.name}"], indent)
        case s.Where():
            yield from _where(clause, indent)
        case s.Cost():
            text = lines(clause.expr, indent + len("cost "), indent + len("cost "))
            yield Clause(clause.span, _after("cost ", text), indent)
        case s.Call():
            texts = [t.text for t in clause.texts]
            inside = " " * (indent + len("call "))
            yield Clause(clause.span, [f"call {texts[0]}", *(inside + t for t in texts[1:])], indent)
        case s.Annotate():
            yield Clause(clause.span, [f"annotate {', '.join(flat(t) for t in clause.terms)}"], indent)


def _setting(item: s.Setting) -> list[str]:
    head = f"{item.section} " if item.section else ""
    return _filled(head, [f"{name} = {flat(term)}" for name, term, _ in item.assignments])


def _entry(item: s.Supports | s.Family) -> list[str]:
    head, listed = ("supports ", item.ops) if isinstance(item, s.Supports) else ("family ", item.names)
    return _filled(head, ["*"] if listed is None else [name for name, _ in listed])


def _filled(head: str, words: list[str]) -> list[str]:
    """Words after a head, as many a line as fit."""
    indent = INDENT + len(head)
    result = [head]
    for i, word in enumerate(words):
        word += "," if i + 1 < len(words) else ""
        used = len(result[-1]) + (INDENT if len(result) == 1 else 0)
        if i and used + 1 + len(word) > WIDTH:
            result.append(" " * indent)
        elif i:
            result[-1] += " "
        result[-1] += word
    return result
