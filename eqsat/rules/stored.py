"""Serializes rule files: the trees of a :class:`~eqsat.rules.ast.RuleFile` to JSON and back.

One table holds every value once, after its parts, so that an object at several places stays one object. An entry that
is a list begins with the number of its kind and refers to earlier entries; any other entry is the value itself. Only
the kinds of ``_KINDS`` can be made, and making one executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from eqsat.rules import ast
from eqsat.rules.tree import Node, Place, Span, made
from eqsat.schema.types import OpKey

_NODES = sorted(
    (kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, Node) and kind is not Node),
    key=lambda kind: kind.__name__,
)
_KINDS: list[type[Any]] = [tuple, Place, Span, OpKey, *_NODES]
_NUMBER = {kind: number for number, kind in enumerate(_KINDS)}
_FIELDS = {kind: tuple(f.name for f in fields(kind)) for kind in _KINDS[1:] if kind is not OpKey}


def to_text(files: Sequence[ast.RuleFile]) -> str | None:
    """The text from which :func:`from_text` restores the files; None if a value cannot be stored as text."""
    table: list[Any] = []
    known: dict[Any, int] = {}
    kept: list[Any] = []  # Objects are known by their ids, so they must not be freed before.

    def add(value: Any) -> int:
        kind = type(value)
        number = _NUMBER.get(kind)
        entry: Any = value
        if isinstance(value, Node):
            key: Any = id(value)
            if key not in known:
                entry = [number, *(add(getattr(value, name)) for name in _FIELDS[kind])]
        elif number is not None:
            parts = value if isinstance(value, tuple) else [getattr(value, name) for name in _FIELDS[kind]]
            entry = [number, *map(add, parts)]
            key = tuple(entry)
        elif value is None or kind in (str, int, float, bool):
            key = (kind, value.hex() if isinstance(value, float) else value)  # 0.0 and -0.0 are equal.
        else:
            raise _NoTextError
        if key not in known:
            kept.append(value)
            known[key] = len(table)
            table.append(entry)
        return known[key]

    try:
        add(tuple(files))
        return json.dumps(table, ensure_ascii=False, separators=(",", ":"))
    except (_NoTextError, RecursionError, ValueError):  # The last: of integers with thousands of digits.
        return None


def from_text(text: str) -> list[ast.RuleFile]:
    """The files of a text.

    Raises:
        ValueError: It is not a text that :func:`to_text` has made.
    """
    values: list[Any] = []
    makers = [_maker(kind) for kind in _KINDS]
    try:
        for entry in json.loads(text):
            if type(entry) is list:
                values.append(makers[entry[0]]([values[at] for at in entry[1:]]))
            else:
                values.append(entry)
        files = list(values[-1])
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("a table of values is required") from error
    if not all(isinstance(file, ast.RuleFile) for file in files):
        raise ValueError("rule files are required")
    return files


class _NoTextError(Exception):
    """A value that cannot be stored as text, such as an operator that Python defines."""


def _maker(kind: type[Any]) -> Callable[[list[Any]], Any]:
    if kind is tuple:
        return tuple
    if not issubclass(kind, Node):
        return lambda parts: kind(*parts)
    return partial(made, kind)
