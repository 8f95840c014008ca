"""The call and the annotations of a composite.

``call "f({x}, {c.group})"`` is literal C with ``{expression}`` holes, as in Python's f-strings; ``annotate
CastHint(dtype=int8), StopFusion`` adds these annotations to the result, in this order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.ast import RESULT
from eqsat.rules.build_definition import Builder
from eqsat.rules.callee import dotted_name, known, operator
from eqsat.rules.check_kinds import check_attribute
from eqsat.rules.evaluation import evaluate
from eqsat.rules.known_facts import Unknown
from eqsat.rules.parse import parse_term
from eqsat.rules.scope import PatternBinding
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import Attrs, OpKey

_PARTS = re.compile(r"\{\{|\}\}|\{[^}]*\}|[{}]|[^{}]+")


def read_call(call: s.Call, builder: Builder, results: Sequence[str] = ("",)) -> tuple[str | ast.Expr, ...]:
    """Literal text and expressions, alternating in the order of the call. ``{{`` and ``}}`` mean braces.

    A tensor in a placeholder is its buffer; anything else is a value.

    Args:
        call: The clause.
        builder: The builder that has the names of the pattern.
        results: Names of the results; each of several must be written by the call.

    Raises:
        TargetError: A hole is not closed, or holds no expression over the pattern's names; or a result has no hole.
    """
    if len(results) == 1:
        builder.context.bindings.setdefault(RESULT, PatternBinding("tensor", call.texts[0].place))
    parts: list[str | ast.Expr] = []
    for string in call.texts:
        for part in _split(string, builder):
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    written = {part.name for part in parts if isinstance(part, ast.Name)}
    missing = [name for name in results if name not in written]
    if len(results) > 1 and missing:
        raise builder.context.error(
            call.texts[0].place,
            f"a call must have a placeholder for each result: {', '.join(f'{{{name}}}' for name in results)}",
            actual=f"none for `{missing[0]}`",
        )
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


def read_annotations(clause: s.Annotate, builder: Builder) -> tuple[tuple[OpKey, Attrs], ...]:
    """Annotations with their attributes, the innermost first.

    Raises:
        TargetError: One is not an annotation, or its attributes depend on what the pattern matches.
    """
    return tuple(_annotation(term, builder) for term in clause.terms)


def _annotation(term: ast.Term, builder: Builder) -> tuple[OpKey, Attrs]:
    context = builder.context
    callee, arguments = (term.callee, term.args) if isinstance(term, ast.Apply) else (term, ())
    name = dotted_name(callee)
    choices = " or ".join(sorted(op.name for op in ANNOTATIONS))
    if name is None:
        raise context.error(term.place, f"an annotation is required: {choices}")
    op = operator(name, callee.place, context)
    if op not in ANNOTATIONS:
        raise context.error(callee.place, f"an annotation is required: {choices}", actual=f"`{name}`")
    attributes: dict[str, object] = {}
    for argument in arguments:
        if not isinstance(argument, ast.Keyword):
            raise context.error(
                argument.place,
                f"attributes of `{name}` by name are required",
                hint="the annotated value is the composite's result, and is not written",
            )
        if argument.name not in known(op).attributes or argument.name in attributes:
            actual = f"`{argument.name}`" + (" twice" if argument.name in attributes else "")
            allowed = ", ".join(f"`{a}`" for a in known(op).attributes)
            raise context.error(argument.place, f"an attribute of `{name}` is required", actual=actual, hint=allowed)
        expr, kind = builder.templates.expressions.typed(argument.value, builder.frame)
        check_attribute(argument.name, known(op), expr, kind, argument.value, context)
        try:
            attributes[argument.name] = evaluate(expr, {})
        except Unknown:
            raise context.error(
                argument.value.place,
                f"a fixed value is required for `{argument.name}`",
                actual="one that depends on what the pattern matches",
                hint="a partition function in Python may look at the composite",
            ) from None
    return op, make_attrs(op, attributes)
