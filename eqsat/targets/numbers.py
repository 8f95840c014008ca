"""The numbers in a target file, their positions, and the same text with other numbers.

Measured are a host's own settings, and numbers that have a name: ``let conv_rate = 58e9``. What stands inside an
expression (the 16 of a vector's lanes) is structure and stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import floor, log10

from eqsat.errors import TargetError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.ast import Expr, Place
from eqsat.rules.parse import parse
from eqsat.rules.source import Sources
from eqsat.rules.tree import replaced, walk

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number of a target file.

    Attributes:
        name: ``"bandwidth"``, ``"peak float32"``, or that of a ``let``.
        is_let: Whether it is a ``let``.
        value: Its value.
        text: Its text in the file.
        place: Its place in the file.
    """

    name: str
    is_let: bool
    value: float
    text: str
    place: Place


def numerals(text: str, name: str, host: str) -> list[Numeral]:
    """The numbers of a host in the order of the file, those of the file's own ``let``s included.

    Settings that are not plain numbers are left out.

    Args:
        text: Text of the file.
        name: Name of the file, as given to the reader.
        host: Name of the host.

    Raises:
        RuleError: The text is not a target file.
    """
    source, sources = Sources.of(text, name)
    sources.in_target = True
    found: list[Numeral] = []
    for declaration in parse(source, sources).declarations:
        if isinstance(declaration, s.Let):
            found += _let(declaration)
        elif isinstance(declaration, s.TargetDeclaration) and declaration.name == host:
            for item in declaration.items:
                found += _let(item) if isinstance(item, s.Let) else _setting(item)
    return found


def _let(item: s.Let) -> Iterator[Numeral]:
    if item.parameters is None and isinstance(item.body, ast.Number):
        yield Numeral(item.name, True, float(item.body.value), item.body.text, item.body.place)


def _setting(item: object) -> Iterator[Numeral]:
    if isinstance(item, s.Setting):
        for name, term, _ in item.assignments:
            if isinstance(term, ast.Number):
                yield Numeral(f"{item.section} {name}".strip(), False, float(term.value), term.text, term.place)


def rewritten(text: str, changes: Mapping[Numeral, float]) -> str:
    """The text with other numbers; everything else stays, line ends and comments included.

    Raises:
        TargetError: A number is not at its place.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    lines = _LINES.findall(text.removeprefix(mark))
    for numeral, value in sorted(changes.items(), key=lambda c: (c[0].place.line, -c[0].place.column)):
        line, at = lines[numeral.place.line - 1], numeral.place.column - 1
        if not line.startswith(numeral.text, at):
            raise TargetError("a number is required", place=str(numeral.place), actual=f"`{line[at : at + 12]}`")
        lines[numeral.place.line - 1] = line[:at] + written(value) + line[at + len(numeral.text) :]
    return mark + "".join(lines)


def written(value: float) -> str:
    """A positive number as people write it in target files: ``58e9``, ``1.25e-6``, ``0.7``; three digits.

    >>> written(5.7999e10), written(3.14159e-8), written(1e6), written(0.7), written(16.0)
    ('58e9', '31.4e-9', '1e6', '0.7', '16')
    """
    rounded = float(f"{value:.{_DIGITS}g}")
    if rounded <= 0 or 1e-2 <= rounded < 1e4:
        return f"{rounded:g}"
    exponent = 3 * floor(log10(rounded) / 3 + 1e-12)
    return f"{rounded / 10.0**exponent:.{_DIGITS}g}e{exponent}"


def substituted(expr: Expr, values: Mapping[Place, float]) -> Expr:
    """An expression with other numbers at some places of its file."""

    def change(node: object) -> object:
        if not isinstance(node, ast.Number) or node.place not in values:
            return None
        return replace(node, value=values[node.place], text=str(values[node.place]))

    return replaced(expr, change)


def places(expr: Expr) -> frozenset[Place]:
    """Places of the numbers in an expression."""
    return frozenset(x.place for x in walk(expr) if isinstance(x, ast.Number))
