"""The text of a composite's C call: literal C with ``{expression}`` holes, as in Python's f-strings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eqsat.rules import ast
from eqsat.rules import syntax as s
from eqsat.rules.builder import Builder
from eqsat.rules.parse import parse_term
from eqsat.rules.scope import Binding

_PARTS = re.compile(r"\{\{|\}\}|\{[^}]*\}|[{}]|[^{}]+")
RESULT = "y"
"""Name of the composite's result in its call, unless the pattern binds it otherwise."""


def read_call(call: s.Call, builder: Builder) -> tuple[str | ast.Expr, ...]:
    """Literal text and expressions, alternating as written. ``{{`` and ``}}`` stand for braces.

    A tensor in a hole is its buffer; anything else is a value.

    Raises:
        TargetError: A hole is not closed, or holds no expression over the pattern's names.
    """
    builder.context.bindings.setdefault(RESULT, Binding("tensor", call.texts[0].place))
    parts: list[str | ast.Expr] = []
    for string in call.texts:
        for part in _split(string, builder):
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    return tuple(parts)


def _split(string: ast.String, builder: Builder) -> Iterator[str | ast.Expr]:
    for part in _PARTS.finditer(string.value):
        text = part.group()
        if text in ("{{", "}}"):
            yield text[0]
        elif text == "{":
            raise _error(string, part, "a `}` is required after `{`", "write `{{` for a brace of C", builder)
        elif text == "}":
            raise _error(string, part, "a `{` is required before `}`", "write `}}` for a brace of C", builder)
        elif text.startswith("{"):
            yield _hole(text[1:-1], string, part.start() + 1, builder)
        else:
            yield text


def _error(string: ast.String, part: re.Match[str], requirement: str, hint: str, builder: Builder) -> Exception:
    return builder.context.error(_at(string, part.start()), requirement, hint=hint)


def _hole(text: str, string: ast.String, offset: int, builder: Builder) -> ast.Expr:
    place = _at(string, offset)
    if not text.strip():
        raise builder.context.error(place, "an expression is required between `{` and `}`")
    term = parse_term(text, place, builder.context.sources)
    expr, _ = builder.templates.expressions.typed(term, builder.frame)
    return expr


def _at(string: ast.String, offset: int) -> ast.Place:
    """The place of a character of a string; escapes before it count twice."""
    written, i, seen = string.text[1:-1], 0, 0
    while seen < offset and i < len(written):
        i += 2 if written[i] == "\\" else 1
        seen += 1
    return ast.Place(string.place.file, string.place.line, string.place.column + 1 + i)
