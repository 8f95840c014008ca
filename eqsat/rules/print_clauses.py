"""The clauses of a rule file printed anew from their syntax: headers, ``let``s, sides, conditions, settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eqsat.rules import declarations as s
from eqsat.rules.print_term import WIDTH, flat, lines, prefixed, quote

INDENT = 4
_REASONS = 60
"""Reasons of conditions up to this long are aligned."""


@dataclass
class PrintedPiece:
    """A piece of a file, next to which comments can be.

    Attributes:
        span: Lines in the source.
        text: Printed lines, without the indentation of the first.
        indent: Column of the first line.
        separate: Whether a blank line precedes it.
        header: Whether comments on its lines are documentation, which stays before the comments of later clauses.
        joins: The text between it and the previous clause on its line; empty if it begins a line.
        item: Whether blank lines before it are kept.
    """

    span: s.Span
    text: list[str]
    indent: int
    separate: bool = False
    header: bool = False
    joins: str = ""
    item: bool = False


def print_declaration(declaration: s.ParsedDeclaration) -> Iterator[PrintedPiece]:
    """The clauses of a declaration."""
    match declaration:
        case s.Let():
            yield replace(_let(declaration, 0), item=True)
        case s.Definition():
            yield from _definition(declaration, 0)
        case s.OperatorDeclaration():
            yield _operator(declaration)
        case s.TargetDeclaration():
            word = "host" if declaration.is_host else "target"
            line = declaration.place.line
            yield PrintedPiece(s.Span(declaration.span.first, line), [f"{word} {declaration.name}"], 0, True, True)
            for item in declaration.items:
                first, *others = _item(item)
                yield replace(first, item=True)
                yield from others


def _operator(operator: s.OperatorDeclaration) -> PrintedPiece:
    head = f"operator {operator.name}({', '.join(map(_formal, operator.formals))})"
    if operator.body is None:
        return PrintedPiece(operator.span, [head], 0, separate=True)
    text = flat(operator.body)
    if len(head) + len(" = ") + len(text) <= WIDTH:
        return PrintedPiece(operator.span, [f"{head} = {text}"], 0, separate=True)
    body = lines(operator.body, INDENT, INDENT)
    return PrintedPiece(operator.span, [f"{head} =", " " * INDENT + body[0], *body[1:]], 0, separate=True)


def _formal(formal: s.Formal) -> str:
    if formal.default is not None:
        return f"{formal.name} = {flat(formal.default)}"
    return formal.name if formal.dtype is None else f"{formal.name}: {flat(formal.dtype)}"


def _let(let: s.Let, indent: int) -> PrintedPiece:
    parameters = "" if let.parameters is None else f"({', '.join(let.parameters)})"
    head = f"let {let.name}{parameters} ="
    text = flat(let.body)
    if indent + len(head) + 1 + len(text) <= WIDTH:
        return PrintedPiece(let.span, [f"{head} {text}"], indent)
    inside = indent + INDENT
    body = lines(let.body, inside, inside)
    return PrintedPiece(let.span, [head, " " * inside + body[0], *body[1:]], indent)


def _definition(definition: s.Definition, indent: int) -> Iterator[PrintedPiece]:
    numerics = definition.numerics
    amount = f" {numerics.amount} {numerics.unit}" if numerics.word == "within" else ""
    header = f"{definition.word} {definition.name} : {numerics.word}{amount}"
    yield PrintedPiece(s.Span(definition.span.first, numerics.place.line), [header], indent, True, True)
    for clause in definition.clauses:
        yield from _clause(clause, indent + INDENT)


def _side(side: s.Side, indent: int) -> PrintedPiece:
    if not side.arrow:
        return PrintedPiece(side.span, _roots(side.roots, indent), indent)
    indent += INDENT
    text = _roots(side.roots, indent + len(side.arrow) + 2)
    return PrintedPiece(side.span, prefixed(f"{side.arrow}  ", text), indent, joins="  ")


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


def _where(where: s.Where, indent: int) -> Iterator[PrintedPiece]:
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
            yield PrintedPiece(s.Span(where.span.first, span.last), prefixed("where ", text), indent)
        else:
            yield PrintedPiece(span, text, inside)


_Row = tuple[list[s.Condition], list[str]]


def _rows(conditions: tuple[s.Condition, ...]) -> list[list[s.Condition]]:
    """Conditions on one line of the source; a reason ends a line."""
    rows: list[list[s.Condition]] = []
    for condition in conditions:
        if rows and not rows[-1][-1].because and rows[-1][-1].span.last == condition.span.first:
            rows[-1].append(condition)
        else:
            rows.append([condition])
    return rows


def _broken(row: list[s.Condition], inside: int) -> list[_Row]:
    """A row in print, broken into several rows if it is too long."""
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


def _item(item: s.Item) -> Iterator[PrintedPiece]:
    match item:
        case s.Text():
            yield PrintedPiece(item.span, [f"{item.name} {item.text.text}"], INDENT)
        case s.RegionCall():
            texts = [t.text for t in item.texts]
            inside = " " * (INDENT + len("region call "))
            yield PrintedPiece(item.span, [f"region call {texts[0]}", *(inside + t for t in texts[1:])], INDENT)
        case s.Setting():
            head = f"{item.section} " if item.section else ""
            text = _filled(head, [f"{name} = {flat(term)}" for name, term, _ in item.assignments])
            yield PrintedPiece(item.span, text, INDENT)
        case s.Let():
            yield _let(item, INDENT)
        case s.Entry():
            last = item.clauses[0].span.first - 1 if item.clauses else item.span.last
            names = ["*"] if item.names is None else [name for name, _ in item.names]
            text = _filled(f"{item.word} ", names)
            yield PrintedPiece(s.Span(item.span.first, max(item.span.first, last)), text, INDENT)
            for clause in item.clauses:
                yield from _clause(clause, 2 * INDENT)
        case s.Definition():
            yield from _definition(item, INDENT)


def _clause(clause: s.ParsedClause, indent: int) -> Iterator[PrintedPiece]:
    match clause:
        case s.Let():
            yield _let(clause, indent)
        case s.Side():
            yield _side(clause, indent)
        case s.By():
            yield PrintedPiece(clause.span, [f"by {clause.name}"], indent)
        case s.Where():
            yield from _where(clause, indent)
        case s.Cost():
            text = lines(clause.expr, indent + len("cost "), indent + len("cost "))
            yield PrintedPiece(clause.span, prefixed("cost ", text), indent)
        case s.Call():
            texts = [t.text for t in clause.texts]
            inside = " " * (indent + len("call "))
            yield PrintedPiece(clause.span, [f"call {texts[0]}", *(inside + t for t in texts[1:])], indent)
        case s.Annotate():
            yield PrintedPiece(clause.span, [f"annotate {', '.join(flat(t) for t in clause.terms)}"], indent)
        case s.WrittenClause():
            yield PrintedPiece(clause.span, prefixed("as ", _roots((clause.root,), indent + len("as "))), indent)


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
