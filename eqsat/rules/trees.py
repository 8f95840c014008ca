"""Walking and changing what stands in rule files: terms, patterns, templates and declarations are trees of one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from eqsat.rules.syntax import Place


def parts(node: Any) -> Iterator[Any]:
    """The nodes that a node is directly made of, in the order of its fields."""
    for name in _fields(type(node)):
        yield from _nodes(getattr(node, name))


def walk(tree: Any) -> Iterator[Any]:
    """All nodes of terms, patterns, templates or declarations, or of a tuple of them, each before its parts."""
    for node in _nodes(tree):
        yield node
        for part in parts(node):
            yield from walk(part)


def replaced(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A tree with other nodes in it.

    Args:
        change: What stands in the place of a node, a :class:`Place` included; None for what it is.
    """
    found = change(tree)
    if found is not None:
        return found
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(replaced(item, change) for item in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{f.name: replaced(getattr(tree, f.name), change) for f in fields(tree)})
    return tree


def without_places(tree: Any) -> Any:
    """A tree (or a tuple of them) with all places equal, to compare what is said and not where."""
    return replaced(tree, lambda node: _NOWHERE if isinstance(node, Place) else None)


_NOWHERE = Place("", 0, 0)


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _nodes(value: object) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
    elif is_dataclass(value) and not isinstance(value, Place | type):
        yield value
