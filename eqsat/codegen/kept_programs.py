"""Compiled programs that stay with a model, so that only the first of several runs compiles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.find_backends import GivenBackend
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, LimitError
from eqsat.execute.kept_by_model import Identity, Kept
from eqsat.model.read.dims import sizes_of
from eqsat.schema.free_sizes import FreeSizes

MOST = 8
"""Programs that are kept; each has weights and working memory of its own."""


class KeptPrograms:
    """The programs of one model; threads may share them.

    There is one program if the ranges of free sizes are known and C supports them, otherwise one for each combination
    of sizes.

    Args:
        model: The model; after it changes, older programs are no longer used.
        sizes: Ranges of its free sizes.
    """

    def __init__(self, model: ir.Model, sizes: FreeSizes) -> None:
        self._model = model
        bounded = {name: size for name, size in sizes.items() if size.most is not None}
        self._ranges = bounded if len(bounded) == len(sizes) else {}
        self._kept: Kept[CModel | None] = Kept(model, MOST)

    def program(
        self, inputs: Mapping[str, Any], vendors: Collection[str] = (), backends: Sequence[GivenBackend] = ()
    ) -> CModel:
        """The program that runs the model on some inputs.

        Raises:
            CodegenError: As :class:`CModel`.
        """
        sizes = sizes_of(self._model, inputs)
        # Most backends execute regions of fixed sizes only.
        if self._ranges and not vendors and not backends and self._contain(sizes):
            made = self._kept.get((), self._for_ranges)
            if made is not None:
                return made
        serving = tuple(Identity(one) if isinstance(one, Backend) else one for one in backends)
        key = (tuple(sorted(sizes.items())), tuple(vendors), serving)
        with self._kept.lock:
            # A file may change.
            if not all(isinstance(backend, Backend) for backend in backends):
                self._kept.forget(key)
            made = self._kept.get(
                key, lambda: CModel(self._model, dims=dict(sizes), vendors=vendors, backends=backends)
            )
        assert made is not None
        return made

    def _for_ranges(self) -> CModel | None:
        try:
            return CModel(self._model, dims=dict(self._ranges))
        except (CodegenError, LimitError):
            return None

    def _contain(self, sizes: Mapping[str, int]) -> bool:
        return all(size.nearest(sizes.get(name, 0)) == sizes.get(name) for name, size in self._ranges.items())
