"""Text to declarations: the lark grammar, the layout rules about first columns and line beginnings, syntax errors."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.errors import EqsatError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.ast import Place
from eqsat.rules.source import Source, Sources
from eqsat.schema.opset import LONGEST_NAME

if TYPE_CHECKING:
    from lark import Lark

_LONG_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{{LONGEST_NAME},}}")


@cache
def _parser() -> Lark:
    from lark import Lark

    from eqsat.rules.postlex import LineMarks

    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", propagate_positions=True, postlex=LineMarks())


def parse(source: Source, sources: Sources, *, keep_parentheses: bool = False) -> s.File:
    """The declarations of a text.

    Args:
        keep_parentheses: Whether the terms contain ``Parentheses``; otherwise only the structure shows them.

    Raises:
        RuleError: The text has a syntax error.
    """
    text = source.text
    long = _LONG_NAME.search(text)
    if long is not None:
        line = text.count("\n", 0, long.start()) + 1
        column = long.start() - text.rfind("\n", 0, long.start())
        raise sources.error(
            Place(source.name, line, column),
            f"names of at most {LONGEST_NAME} letters are required",
            actual=long.group(),
        )
    # Texts in the cache on disk are not parsed, and most processes need no others.
    from lark.exceptions import UnexpectedInput, VisitError

    from eqsat.rules.syntax_errors import explain
    from eqsat.rules.transformer import TreeTransformer

    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        found = explain(error, text)
        place = Place(source.name, found.line, found.column)
        raise sources.error(place, found.requirement, actual=found.actual, hint=found.hint) from None
    try:
        return TreeTransformer(source, sources, keep_parentheses).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, EqsatError):
            raise error.orig_exc from None
        raise


def parse_term(text: str, place: Place, sources: Sources) -> ast.Term:
    """A single expression inside a string, such as a placeholder of a C call, with its place.

    Raises:
        RuleError: It is not an expression.
    """
    # Parsed inside a declaration, so that the grammar has one start symbol; then moved to its place in the file.
    line, column = max(place.line, 2), place.column
    padded = Source(place.file, "let hole =" + "\n" * (line - 1) + " " * (column - 1) + text)
    try:
        found = parse(padded, sources).declarations
    except EqsatError as error:
        raise sources.error(place, "an expression is required", actual=f"`{text}`", hint=error.hint) from None
    if len(found) != 1 or not isinstance(found[0], s.Let):
        raise sources.error(place, "a single expression is required", actual=f"`{text}`")
    return found[0].body
