"""Runs a model by the means that the caller names, numpy or C, with backends for its regions."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.coverage import Coverage, counted
from eqsat.backends.find_backends import GivenBackend, chosen, without_regions
from eqsat.errors import ExecutionError
from eqsat.execute.executor import Executor
from eqsat.execute.kept_by_model import Identity, Kept
from eqsat.schema.free_sizes import FreeSizes

if TYPE_CHECKING:
    from eqsat.codegen.kept_programs import KeptPrograms

Means = Literal["numpy", "c"]
_MOST = 8
"""Combinations of backends for which an executor is kept."""


class Runs:
    """Runs one model, and keeps the preparations for further runs.

    Args:
        model: As loaded.
        sizes: Ranges of its free sizes, as far as they are known.
    """

    def __init__(self, model: ir.Model, sizes: FreeSizes | None = None) -> None:
        self._model = model
        self._sizes = sizes or {}
        self._executors: Kept[_Served] = Kept(model, _MOST)

    def run(
        self,
        inputs: Mapping[str, Any],
        means: Means = "numpy",
        vendors: Collection[str] = (),
        backends: Sequence[GivenBackend] = (),
        coverage: dict[str, Coverage] | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs the model; see :meth:`eqsat.Result.run`.

        Raises:
            ExecutionError: An input is missing, unknown, or of another type or shape, or there are no such means.
            CodegenError: The model cannot become C, or there is no C compiler.
            BackendError: A backend cannot be found, or fails.
        """
        if means not in ("numpy", "c"):
            raise ExecutionError("`numpy` or `c` is required as backend", actual=repr(means))
        if means == "c":
            program = self._programs.program(inputs, vendors, backends)
            results, found = program.run(inputs), program.emitted.coverage
        else:
            results, found = self._executor(vendors, backends).run(inputs)
        if coverage is not None:
            coverage.clear()
            coverage.update(found)
        return results

    @cached_property
    def _programs(self) -> KeptPrograms:
        # Nothing else needs the C compiler.
        from eqsat.codegen.kept_programs import KeptPrograms

        return KeptPrograms(self._model, self._sizes)

    def _executor(self, vendors: Collection[str], backends: Sequence[GivenBackend]) -> _Served:
        serving = chosen(self._model, vendors, backends)
        for vendor in vendors:
            if not serving[vendor].prepares:
                raise ExecutionError(
                    "the backend `c` is required to call vendors' libraries",
                    actual="'numpy'",
                    hint='add backend="c" (`--backend c`), or leave the vendors out',
                )
        # A file may change, and without backends nothing takes long.
        if not serving or not all(isinstance(backend, Backend) for backend in backends):
            return _Served(self._model, serving)
        key = (tuple(vendors), tuple(map(Identity, backends)))
        return self._executors.get(key, lambda: _Served(self._model, serving))


class _Served:
    """Executes a model with numpy and some backends; in one thread at a time, because backends may have state."""

    def __init__(self, model: ir.Model, serving: Mapping[str, Backend]) -> None:
        self._executor = Executor(model, serving)
        self._notes = [(backend, without_regions(model, backend)) for backend in serving.values()]
        self._lock = threading.Lock()

    def run(self, inputs: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Coverage]]:
        """The outputs, and how much the backends have executed."""
        with self._lock, counted() as tally:
            results = self._executor.run(inputs)
        for backend, note in self._notes:
            tally.note(backend, note)
        return results, tally.coverage()
