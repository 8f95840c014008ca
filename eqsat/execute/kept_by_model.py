"""Caches things that are made from a model, as long as the model is not changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

import onnx_ir as ir

T = TypeVar("T")


class Identity:
    """A part of a key that is compared by identity; it lives as long as the key.

    Args:
        one: The object.
    """

    def __init__(self, one: object) -> None:
        self._one = one

    def __hash__(self) -> int:
        return id(self._one)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._one is other._one


class Kept(Generic[T]):
    """A cache of things made from one model; threads may share it.

    Args:
        model: The model; entries from before a change are dropped.
        most: Greatest number of entries. The least recently used one is dropped.
    """

    def __init__(self, model: ir.Model, most: int) -> None:
        self.lock = threading.RLock()
        self._model = model
        self._most = most
        self._content: list[object] = []
        self._made: dict[Hashable, T] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The thing of a key, made if it is not there."""
        with self.lock:
            content = list(_content(self._model))
            if not _same(content, self._content):
                self._made, self._content = {}, content
            found = self._made.pop(key) if key in self._made else make()
            self._made[key] = found
            while len(self._made) > self._most:
                del self._made[next(iter(self._made))]
            return found

    def forget(self, key: Hashable) -> None:
        """Lets the thing of a key be made anew."""
        with self.lock:
            self._made.pop(key, None)


def _content(model: ir.Model) -> Iterator[object]:
    """The parts of a model: another model, or a changed one, has others."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from (*graph.inputs, *graph.outputs)
        for value in graph.initializers.values():
            yield value.const_value
        for node in ir.traversal.RecursiveGraphIterator(graph):
            yield from (node.domain, node.op_type, *node.inputs, *node.outputs, *node.attributes.values())
    for value in model.graph.inputs:
        yield tuple(value.shape or ())


def _same(first: list[object], second: list[object]) -> bool:
    return len(first) == len(second) and all(
        a is b or (isinstance(a, str | tuple) and a == b) for a, b in zip(first, second, strict=True)
    )
