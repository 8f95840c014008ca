"""The result of an optimization: a program as an ONNX model that can be executed, saved, reported and written as C."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import onnx_ir as ir

from eqsat.arguments import checks_arguments
from eqsat.errors import ModelError
from eqsat.explain.origin import Origin, Origins, find
from eqsat.extract.problem import Choice
from eqsat.model.save import save
from eqsat.partition.plan import Plan
from eqsat.report.measured import with_times
from eqsat.report.summary import RegionRow, Summary
from eqsat.report.write import write
from eqsat.schema.declared_operators import DeclaredOperator, declared
from eqsat.schema.free_sizes import FreeSizes

if TYPE_CHECKING:
    import numpy as np

    from eqsat.backends.coverage import Coverage
    from eqsat.backends.find_backends import GivenBackend
    from eqsat.codegen.compiled import CompiledModel, GenerationOptions
    from eqsat.codegen.emitted import Emitted
    from eqsat.codegen.profile import Profile
    from eqsat.codegen.run_model import Means, Runs
    from eqsat.model.read.given_sizes import GivenSize


@dataclass(frozen=True)
class Result:
    """The result of :func:`eqsat.optimize`.

    Attributes:
        model: The partitioned model: standard ONNX; accelerator regions and composites are local functions.
        cost: Seconds by the cost model: kernels, copies and the dispatch of regions.
        baseline_cost: Seconds of the unchanged input, entirely on the host.
        bound: No program in the e-graph costs less.
        stop_reason: Of the extraction: ``"optimal"``, ``"work limit"``, ``"time limit"``, ``"size limit"``, ...
        seconds: CPU seconds by stage.
        summary: The contents of a report.
        plan: The program before it became a model.
        choices: The program as the solver chose it.
        operators: Those that rules, targets and declarations declare; the methods below know them.
        sizes: The ranges of the sizes that stay free, by symbol.
        origins: Where each node comes from, by the name of its first result.
        opset: The newest opset of its file; None for any.
    """

    model: ir.Model
    cost: float
    baseline_cost: float
    bound: float
    stop_reason: str
    seconds: dict[str, float]
    summary: Summary
    plan: Plan = field(repr=False)
    choices: Mapping[int, Choice] = field(repr=False)
    operators: tuple[DeclaredOperator, ...] = field(default=(), repr=False, kw_only=True)
    sizes: FreeSizes = field(default_factory=dict, repr=False, kw_only=True)
    origins: Origins = field(default_factory=Origins, repr=False, kw_only=True)
    opset: int | None = field(default=None, repr=False, kw_only=True)

    @property
    def regions(self) -> tuple[RegionRow, ...]:
        """In execution order: regions of accelerators, and the pieces on the host."""
        return self.summary.regions

    @property
    def gap(self) -> float:
        """``(cost - bound) / cost``: the greatest possible distance to the optimum."""
        return self.summary.gap

    @checks_arguments
    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        backend: Means = "numpy",
        vendors: Collection[str] = (),
        backends: Sequence[GivenBackend] = (),
        coverage: dict[str, Coverage] | None = None,
    ) -> dict[str, np.ndarray]:
        """Executes the optimised model; arrays by name in and out.

        Args:
            inputs: Arrays by input name.
            backend: ``"numpy"``, or ``"c"``: the model is written as C, compiled and called. Later runs call the
                compiled code; :meth:`compile` returns it, for calls without the overhead of finding it.
            vendors: Targets whose backend, found by name, executes their regions: ``["dnnl"]`` for oneDNN, which needs
                the backend ``"c"``.
            backends: Further backends: objects, or Python files, which are executed.
            coverage: Receives by target how many kernels its backend has executed, and why not the others.

        Raises:
            ExecutionError: An input is missing, unknown, or of another type or shape.
            CodegenError: The model cannot become C, or there is no C compiler or no library of a vendor.
            BackendError: A backend cannot be found, or fails.
        """
        with declared(self.operators):
            return self._runs.run(inputs, backend, vendors, backends, coverage)

    def compile(self, **options: Unpack[GenerationOptions]) -> CompiledModel:
        """Compiles the optimised model to machine code, which can be called like a function.

        Args:
            options: ``threads``, ``dims``, ``winograd``, ``numerics``, ``host``, ``select``, ``vendors``, ``backends``
                and ``progress`` of :func:`eqsat.compile`. Without ``dims``, sizes have the ranges of the optimization.

        Returns:
            For ``compiled(x)``, ``compiled({"x": x})`` and ``compiled.run({"x": x})``: arrays of the types and shapes
            in ``compiled.inputs`` give those in ``compiled.outputs``.

        Raises:
            CodegenError: The model cannot become C, a size has no upper bound, or there is no C compiler.
            BackendError: A backend cannot be found, or fails.
        """
        from eqsat.codegen.compiled import CompiledModel

        return CompiledModel(self.model, self.operators, **{**options, "dims": self._dims(options.get("dims"))})

    @cached_property
    def _runs(self) -> Runs:
        from eqsat.codegen.run_model import Runs

        return Runs(self.model, self.sizes)

    def _dims(self, given: Mapping[str, GivenSize] | None) -> dict[str, GivenSize]:
        """The sizes of dimensions: those that the caller gives, otherwise the ranges of the optimization."""
        return {**{name: size for name, size in self.sizes.items() if size.most is not None}, **(given or {})}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_runs"}

    @checks_arguments
    def codegen(self, folder: str | Path, **options: Any) -> Emitted:
        """Writes the optimised model as a C program that checks itself against a stored run.

        Args:
            folder: Made if it is not there.
            options: ``name``, ``weights``, ``isas``, ``threads``, ``inputs``, ``dims``, ``seed``, ``winograd``,
                ``numerics``, ``host``, ``select``, ``vendors`` and ``backends`` of
                :func:`eqsat.codegen.folder.write_program`.
                Without ``dims``, sizes have the ranges of the optimization.

        Raises:
            CodegenError: The model cannot become C: all reasons are listed, and nothing is written.
        """
        from eqsat.codegen.folder import write_program

        options["dims"] = self._dims(options.get("dims"))
        with declared(self.operators):
            return write_program(self.model, folder, **options)

    @checks_arguments
    def save(
        self,
        path: str | Path,
        *,
        opset: int | None = None,
        external_data: bool | str | None = None,
        flat: bool = False,
    ) -> None:
        """Writes the optimised model as ONNX, at the opset of the input or the oldest newer one that suffices.

        Args:
            path: The file: ``.onnx``, ``.onnxtxt``, ``.textproto`` or ``.json``.
            opset: The newest opset to write, 7 to 26, by default that of the optimization. Newer operators are replaced
                by their definitions, which may cost more than the report says; the search considers only the opset of
                the optimization.
            external_data: Whether the weights go into a separate file beside the model: its name, or True for
                ``<path>.data``. By default they do from one gigabyte on.
            flat: Whether to write a file without functions, for tools that do not support them: regions and composites
                are inlined, and metadata of nodes record them. eqsat restores them.

        Raises:
            ModelError: The file cannot be written, or an operator needs a newer opset than allowed.
        """
        with declared(self.operators):
            save(self.model, path, opset=self.opset if opset is None else opset, external_data=external_data, flat=flat)

    @checks_arguments
    def explain(self, name: str) -> Origin:
        """Where a node comes from: the nodes of the input, and the rules that made it.

        Args:
            name: Of the node, or of its first result.

        Raises:
            ModelError: The result has no such node. If the input has it, the hint names the nodes that were made from
                it.
        """
        found = find(self.origins, name, self.summary.model)
        if name in self.origins or self.origins.nodes.get(name) in self.origins:
            return found[0]
        raise ModelError(
            "the name of a node of the result is required",
            place=self.summary.model,
            actual=f"{name!r}, a node of the input",
            hint=f"it is part of {', '.join(origin.name for origin in found)}",
        )

    @checks_arguments
    def report(self, path: str | Path, *, profile: Profile | None = None) -> None:
        """Writes the report: ``.html``, ``.json``, ``.txt``, or both graphs as a picture, ``.svg``, by the name.

        Args:
            path: The file.
            profile: A profile of this result, compiled, by :meth:`CompiledModel.profile`: the report then has measured
                times beside the costs, and the memory of the compiled program.

        Raises:
            EqsatError: The suffix stands for no format, the file cannot be written, or the profile is of another model.
        """
        write(self.summary if profile is None else with_times(self.summary, profile), Path(path))

    def __repr__(self) -> str:
        return (
            f"<eqsat.Result {self.summary.model}: cost {self.cost:.3g} s (was {self.baseline_cost:.3g} s), "
            f"gap {self.gap:.1g}, {self.summary.after.regions} regions, "
            f"{self.summary.after.host_operators} operators on the host>"
        )

    def __str__(self) -> str:
        from eqsat.report.table import as_text

        return as_text(self.summary)

    def _repr_html_(self) -> str:
        from eqsat.report.html import to_fragment

        return to_fragment(self.summary)
