"""Compiled programs that stay with a model, so that only the first of several runs compiles."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.registry import Given
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, LimitError
from eqsat.model.read.dims import sizes_of
from eqsat.schema.free_sizes import FreeSizes

MOST = 8
"""Programs that are kept; each has weights and working memory of its own."""

_Key = tuple[Any, ...]


class KeptPrograms:
    """The programs of one model; threads may share them.

    There is one for the ranges of its sizes if they are known and C can have them, else one for each combination.

    Args:
        model: Programs that were made before a change of it are not used any more.
        sizes: Ranges of its free sizes.
    """

    def __init__(self, model: ir.Model, sizes: FreeSizes) -> None:
        self._model = model
        bounded = {name: size for name, size in sizes.items() if size.most is not None}
        self._ranges = bounded if len(bounded) == len(sizes) else {}
        self._lock = threading.Lock()
        self._content: list[object] = []
        self._programs: dict[_Key, CModel | None] = {}

    def run(
        self, inputs: Mapping[str, Any], vendors: Collection[str] = (), backends: Sequence[Given] = ()
    ) -> dict[str, np.ndarray]:
        """Runs the model.

        Raises:
            CodegenError: As :class:`CModel`.
            ExecutionError: As :meth:`CModel.run`.
        """
        return self._program(inputs, tuple(vendors), tuple(backends)).run(inputs)

    def _program(self, inputs: Mapping[str, Any], vendors: tuple[str, ...], backends: tuple[Given, ...]) -> CModel:
        sizes = sizes_of(self._model, inputs)
        with self._lock:
            content = list(_content(self._model))
            if not _same(content, self._content):
                self._programs, self._content = {}, content
            # What backends execute has fixed sizes.
            if self._ranges and not vendors and not backends and self._contain(sizes):
                try:
                    made = self._made((), lambda: CModel(self._model, dims=dict(self._ranges)))
                except (CodegenError, LimitError):
                    self._programs[()] = made = None
                if made is not None:
                    return made
            key = (tuple(sorted(sizes.items())), vendors, backends)
            # A file may change.
            if not all(isinstance(backend, Backend) for backend in backends):
                self._programs.pop(key, None)
            made = self._made(key, lambda: CModel(self._model, dims=dict(sizes), vendors=vendors, backends=backends))
            assert made is not None
            return made

    def _contain(self, sizes: Mapping[str, int]) -> bool:
        return all(size.nearest(sizes.get(name, 0)) == sizes.get(name) for name, size in self._ranges.items())

    def _made(self, key: _Key, make: Any) -> CModel | None:
        """A program, compiled if there is none; the one that was used longest ago makes room."""
        found = self._programs.pop(key) if key in self._programs else make()
        self._programs[key] = found
        while len(self._programs) > MOST:
            del self._programs[next(iter(self._programs))]
        return found


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
