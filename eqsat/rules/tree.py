"""The common part of all trees of the rule language: nodes with places, and how they are walked and changed.

A node is a frozen dataclass whose fields hold other nodes, tuples of them, or plain values. Each question about a tree
is a short function over :func:`walk`, :func:`parts` or :func:`replaced`; none needs a case per kind of node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, dataclass_transform

DEEPEST = 60
"""How deep terms, patterns and `let`s inside of each other may be nested: they are walked recursively."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a node in a rule file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Span:
    """First and last line of a clause (1-based, inclusive)."""

    first: int
    last: int


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Node:
    """A part of a tree; each class of nodes is a frozen dataclass.

    A node keeps its hash: trees are keys of caches, and a hash visits the whole tree.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
        cls.__hash__ = _kept(cls.__hash__)

    def __getstate__(self) -> dict[str, Any]:
        # Hashes of strings differ between processes, so a file must not bring one along.
        return {name: value for name, value in vars(self).items() if name != _HASH}


_HASH = "_hash"


def _kept(computed: Callable[[Any], int]) -> Any:
    def kept(self: Node) -> int:
        values = vars(self)
        found = values.get(_HASH)
        if found is None:
            found = values[_HASH] = computed(self)
        return found

    return kept


def parts(node: Node) -> list[Any]:
    """The nodes that a node is directly made of, in the order of its fields."""
    found: list[Any] = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += _nodes(value)
    return found


def walk(tree: Any, into: Callable[[Any], Sequence[Any]] = parts, *, once: bool = False) -> Iterator[Any]:
    """All nodes of a tree, or of a tuple of trees, each before its parts.

    Args:
        into: Selects the parts of a node that are visited.
        once: Whether an object at several places is visited only at the first. The body of a ``let`` is one object even
            if it is used often, so a tree can have exponentially more nodes than objects.
    """
    seen: set[int] = set()
    left = _nodes(tree)[::-1]
    while left:
        node = left.pop()
        if once:
            if id(node) in seen:
                continue
            seen.add(id(node))
        yield node
        left += [part for part in reversed(into(node)) if part is not None]


def replaced(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A tree, or a tuple of trees, with some nodes replaced. An object at several places stays one object.

    Args:
        change: Gives the replacement of a node, a :class:`Place` included; None to keep it.
    """
    made: dict[int, Any] = {}

    def visit(part: Any) -> Any:
        found = change(part)
        if found is not None:
            return found
        if isinstance(part, tuple) and not hasattr(part, "_fields"):
            return tuple(map(visit, part))
        if not isinstance(part, Node):
            return part
        if id(part) not in made:
            made[id(part)] = replace(part, **{name: visit(getattr(part, name)) for name in _fields(type(part))})
        return made[id(part)]

    return visit(tree)


def without_places(tree: Any) -> Any:
    """A tree (or a tuple of them) with all places equal, to compare contents without places.

    The result is cached in the node: it is needed for each operator of a pattern, and contains the results of all nodes
    below.
    """
    if isinstance(tree, Place):
        return _NOWHERE
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(map(without_places, tree))
    if not isinstance(tree, Node):
        return tree
    found = tree.__dict__.get(_BARE)
    if found is None:
        found = made(type(tree), [without_places(getattr(tree, name)) for name in _fields(type(tree))])
        tree.__dict__[_BARE] = found.__dict__[_BARE] = found
    return found


def made(kind: type[Node], parts: Sequence[Any]) -> Any:
    """A node of its fields in order, as its constructor makes it, in a third of the time."""
    node = object.__new__(kind)
    node.__dict__.update(zip(_fields(kind), parts, strict=True))
    return node


_BARE = "_without_places"
_NOWHERE = Place("", 0, 0)


@cache
def _fields(kind: type[Node]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _nodes(value: object) -> list[Any]:
    if isinstance(value, tuple | list):
        return [node for item in value for node in ((item,) if isinstance(item, Node) else _nodes(item))]
    return [value] if isinstance(value, Node) else []
