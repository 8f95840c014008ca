"""The text of a composite's C call: literal C with ``{expression}`` holes, as in Python's f-strings."""

from __future__ import annotations

from eqsat.rules import ast
from eqsat.rules import syntax as s
from eqsat.rules.builder import Builder
from eqsat.rules.parse import parse_term
from eqsat.rules.scope import Binding

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


def _split(string: ast.String, builder: Builder) -> list[str | ast.Expr]:
    text, parts, literal, i = string.value, [], "", 0
    while i < len(text):
        if text[i : i + 2] in ("{{", "}}"):
            literal += text[i]
            i += 2
        elif text[i] == "{":
            end = _closing(text, i, string, builder)
            parts += [literal, _hole(text[i + 1 : end], string, i + 1, builder)]
            literal, i = "", end + 1
        elif text[i] == "}":
            raise builder.context.error(
                _at(string, i), "a `{` is required before `}`", hint="write `}}` for a brace of C"
            )
        else:
            literal += text[i]
            i += 1
    return [p for p in (*parts, literal) if p != ""]


def _closing(text: str, start: int, string: ast.String, builder: Builder) -> int:
    end = text.find("}", start)
    if end < 0:
        raise builder.context.error(
            _at(string, start), "a `}` is required after `{`", hint="write `{{` for a brace of C"
        )
    return end


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
