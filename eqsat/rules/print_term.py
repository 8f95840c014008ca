"""Prints terms: with the necessary parentheses, on one line or, if too long, on several."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.rules import ast
from eqsat.rules.infix import COMPARE, LEVELS, NOT, OR, POWER, SUM, UNARY

WIDTH = 120
"""Lines are broken beyond this many characters."""

_BIND, _CONDITIONAL, _CHOICE = range(OR - 3, OR)
_POSTFIX, _ATOM = POWER + 1, POWER + 2
_OWN = dict.fromkeys((ast.Apply, ast.Index, ast.Slice, ast.Member), _POSTFIX) | {
    ast.Bind: _BIND,
    ast.Conditional: _CONDITIONAL,
    ast.Alternatives: _CHOICE,
    ast.Compare: COMPARE,
}


def quote(text: str) -> str:
    """A string in the syntax of rule files, with its quotes; JSON has escapes that the syntax lacks."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def level(term: ast.Term) -> int:
    """How tightly the outermost part of a term binds."""
    match term:
        case ast.Number(text=text) if text.startswith("-"):
            return UNARY
        case ast.Binary(op=op):
            return LEVELS[op]
        case ast.Unary(op=op):
            return NOT if op == "not" else UNARY
        case _:
            return _OWN.get(type(term), _ATOM)


def flat(term: ast.Term, least: int = _BIND) -> str:
    """A term on one line, in parentheses if it binds less tightly than ``least``."""
    text = _flat(term)
    return f"({text})" if level(term) < least else text


def _flat(term: ast.Term) -> str:
    match term:
        case ast.Name():
            return term.name
        case ast.Number() | ast.String():
            return term.text
        case ast.Truth():
            return "true" if term.value else "false"
        case ast.Optional():
            return f"{term.name}?"
        case ast.Rest():
            return f"{term.name}..."
        case ast.Spread():
            return f"**{term.name}"
        case ast.Parentheses():
            return f"({flat(term.inner)})"
        case ast.Keyword():
            return f"{term.name}={flat(term.value)}"
        case ast.Bind():
            return f"{term.name}: {flat(term.value)}"
        case ast.Alternatives():
            return " | ".join(flat(option, OR) for option in term.options)
        case ast.Apply():
            return f"{flat(term.callee, _POSTFIX)}({', '.join(flat(a) for a in term.args)})"
        case ast.Index():
            return f"{flat(term.of, _POSTFIX)}[{flat(term.index, _CONDITIONAL)}]"
        case ast.Slice():
            start, stop = ("" if b is None else flat(b, _CONDITIONAL) for b in (term.start, term.stop))
            simple = all(b is None or isinstance(b, ast.Number) or level(b) == _ATOM for b in (term.start, term.stop))
            bounds = f"{start}:{stop}" if simple else f"{start} : {stop}".strip()
            return f"{flat(term.of, _POSTFIX)}[{bounds}]"
        case ast.Member():
            return f"{flat(term.of, _POSTFIX)}.{term.name}"
        case ast.Unary():
            return f"not {flat(term.operand, NOT)}" if term.op == "not" else f"-{flat(term.operand, UNARY)}"
        case ast.Binary(op="**"):
            return f"{flat(term.left, _POSTFIX)} ** {flat(term.right, UNARY)}"
        case ast.Binary():
            own = LEVELS[term.op]
            return f"{flat(term.left, own)} {term.op} {flat(term.right, own + 1)}"
        case ast.Compare():
            return " ".join([flat(term.first, SUM), *(f"{op} {flat(e, SUM)}" for op, e in term.rest)])
        case ast.Conditional():
            then, condition = flat(term.then, _CHOICE), flat(term.condition, _CHOICE)
            return f"{then} if {condition} else {flat(term.otherwise, _CONDITIONAL)}"
        case ast.Sequence():
            items = ", ".join(flat(item) for item in term.items)
            if term.square:
                return f"[{items}]"
            return f"({items},)" if len(term.items) == 1 else f"({items})"
        case ast.Comprehension():
            condition = "" if term.condition is None else f" if {flat(term.condition, OR)}"
            source = flat(term.source, OR)
            return f"[{flat(term.item, _CONDITIONAL)} for {term.variable} in {source}{condition}]"
        case _:
            raise TypeError(f"{term!r} is not written anywhere")


def lines(term: ast.Term, first: int, indent: int, least: int = _BIND) -> list[str]:
    """A term on as few lines as fit.

    Args:
        first: Column at which the first line begins (counted from 0).
        indent: Column at which further lines begin.

    Returns:
        The lines; the first without, the others with their indentation.
    """
    text = flat(term, least)
    if first + len(text) <= WIDTH:
        return [text]
    if level(term) < least:
        return _enclosed(lines(term, first + 1, indent + 1))
    match term:
        case ast.Bind():
            return prefixed(f"{term.name}: ", lines(term.value, first + len(term.name) + 2, indent))
        case ast.Keyword():
            return prefixed(f"{term.name}=", lines(term.value, first + len(term.name) + 1, indent))
        case ast.Parentheses():
            return _enclosed(lines(term.inner, first + 1, indent + 1))
        case ast.Alternatives() if all(isinstance(option, ast.Name | ast.Member) for option in term.options):
            return _fill([flat(option) for option in term.options], first, indent)
        case ast.Alternatives():
            return _chain(
                [("", option) for option in term.options[:1]] + [("| ", o) for o in term.options[1:]],
                first,
                indent,
                OR,
            )
        case ast.Binary(op="and" | "or" | "+" | "-" | "*" | "/" | "@"):
            return _chain(_operands(term), first, indent, LEVELS[term.op] + 1, fill=True)
        case ast.Apply():
            callee = lines(term.callee, first, indent, _POSTFIX)
            if len(callee) > 1:
                return [*callee[:-1], f"{callee[-1]}({', '.join(flat(a) for a in term.args)})"]
            return _bracketed(f"{callee[0]}(", term.args, ")", indent)
        case ast.Sequence() if len(term.items) > 1:
            opening, closing = ("[", "]") if term.square else ("(", ")")
            return _bracketed(opening, term.items, closing, indent)
        case ast.Index():
            inner = lines(term.of, first, indent, _POSTFIX)
            return [*inner[:-1], f"{inner[-1]}[{flat(term.index, _CONDITIONAL)}]"]
        case _:
            return [text]


def prefixed(prefix: str, inner: list[str]) -> list[str]:
    """Lines with a text before the first."""
    return [prefix + inner[0], *inner[1:]]


def _enclosed(inner: list[str]) -> list[str]:
    return [f"({inner[0]}", *inner[1:-1], f"{inner[-1]})"] if len(inner) > 1 else [f"({inner[0]})"]


def _operands(term: ast.Binary) -> list[tuple[str, ast.Term]]:
    """Operands of a chain of one precedence, each with the sign before it."""
    chain: list[tuple[str, ast.Term]] = []
    step: ast.Term = term
    while isinstance(step, ast.Binary) and LEVELS[step.op] == LEVELS[term.op] and step.op != "**":
        chain.append((f"{step.op} ", step.right))
        step = step.left
    return [("", step), *chain[::-1]]


def _chain(
    parts: Sequence[tuple[str, ast.Term]], first: int, indent: int, least: int, *, fill: bool = False
) -> list[str]:
    """Operands below each other, each line beginning with a sign; with ``fill`` as many a line as fit."""
    result: list[str] = []
    column = first
    for i, (sign, operand) in enumerate(parts):
        # The first operand may be of the chain's own precedence; it needs no parentheses there.
        wanted = least - 1 if i == 0 and least > OR else least
        text = flat(operand, wanted)
        if fill and i and column + 1 + len(sign) + len(text) <= WIDTH:
            result[-1] += f" {sign}{text}"
            column += 1 + len(sign) + len(text)
            continue
        start = first if i == 0 else indent
        inner = lines(operand, start + len(sign), indent + len(sign), wanted)
        head = sign + inner[0]
        result += [head if i == 0 else " " * indent + head, *inner[1:]]
        column = start + len(head) if len(inner) == 1 else len(inner[-1])
    return result


def _fill(names: Sequence[str], first: int, indent: int) -> list[str]:
    """Alternative names, as many a line as fit."""
    result, column = [names[0]], first + len(names[0])
    for name in names[1:]:
        if column + len(name) + 3 > WIDTH:
            result.append(f"{' ' * indent}| {name}")
            column = indent + len(name) + 2
        else:
            result[-1] += f" | {name}"
            column += len(name) + 3
    return result


def _bracketed(opening: str, items: Sequence[ast.Term], closing: str, indent: int) -> list[str]:
    """Items between brackets: on one line if they fit, otherwise one below the other."""
    inside = indent + 4
    row = ", ".join(flat(item) for item in items)
    if inside + len(row) <= WIDTH:
        return [opening, " " * inside + row, " " * indent + closing]
    result = [opening]
    for item in items:
        inner = lines(item, inside, inside)
        result += [" " * inside + inner[0], *inner[1:]]
        result[-1] += ","
    result[-1] = result[-1].removesuffix(",")
    return [*result, " " * indent + closing]
