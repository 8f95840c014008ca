"""The public functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.execute.compare import Comparison
from eqsat.execute.compare import compare as compare_models
from eqsat.execute.executor import Executor
from eqsat.model.load import Source, load
from eqsat.model.save import save
from eqsat.partition.partition_functions import PartitionFunction
from eqsat.quantizing.pipeline import quantize
from eqsat.quantizing.result import QuantizationResult
from eqsat.report.event import Event
from eqsat.rules.ast import Rule, Target
from eqsat.rules.select import NumericsClass
from eqsat.search import Objective, Result, Search

if TYPE_CHECKING:
    import numpy as np

__all__ = ["QuantizationResult", "Result", "compare", "load", "optimize", "quantize", "run", "save"]


def optimize(
    source: Source,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    rules: Sequence[str | Path | Rule] | None = None,
    dims: Mapping[str, int] | None = None,
    numerics: NumericsClass = "real",
    objective: Objective = "best",
    time_limit: float = 30.0,
    iterations: int | None = None,
    enodes: int | None = None,
    seed: int = 0,
    progress: Callable[[Event], None] | None = None,
    partition_functions: Mapping[str, PartitionFunction] | None = None,
) -> Result:
    """Finds the cheapest equal program and its placement on host and accelerators.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        targets: Accelerators by name or target file; the host ``cpu`` is always there.
        rules: Rule files (or rules) instead of the shipped ones; an empty list rewrites nothing.
        dims: Sizes for symbolic dimensions.
        numerics: How far rules may change values: ``"exact"`` to the bit, ``"real"`` equal over the reals.
        objective: ``"worst"`` and ``"random"`` take other equal programs, to test rules.
        time_limit: Seconds for saturation and extraction; then the best so far is the result.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``.
        progress: Receives events.
        partition_functions: By the name of a composite (``"ccompiler.add_subtract_multiply"``) a function of its call
            and its operands that returns the result with annotations.

    Raises:
        ModelError: The model is broken or not supported.
        RuleError, TargetError: A rule or target file is.
        OptimizationError: Sizes are unknown.
    """
    search = Search(
        source,
        targets,
        rules=rules,
        dims=dims,
        numerics=numerics,
        time_limit=time_limit,
        iterations=iterations,
        enodes=enodes,
        progress=progress,
        partition_functions=partition_functions,
    )
    return search.extract(objective, seed)


def run(
    source: Source, inputs: Mapping[str, np.ndarray], *, dims: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Executes a model with numpy.

    Args:
        source: As for :func:`optimize`.
        inputs: Arrays by input name.

    Returns:
        Arrays by output name.

    Raises:
        ExecutionError: An input is missing, unknown, or of another type or shape.
    """
    return Executor(load(source, dims=dims)).run(inputs)


def compare(
    first: Source,
    second: Source,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    numerics: NumericsClass = "real",
    rtol: float | None = None,
    atol: float | None = None,
) -> Comparison:
    """Executes two models on the same inputs and says where they first differ.

    Args:
        inputs: Arrays by input name; those not given are drawn at random with ``seed``.
        rtol, atol: Allowed difference, relative to the largest magnitude of a tensor, and absolute.
    """
    # The second may have the sizes already, as an optimized model has; the inputs tell it those that are left.
    a, b = load(first, dims=dims), load(second)
    return compare_models(a, b, inputs, dims=dims, seed=seed, numerics=numerics, rtol=rtol, atol=atol)
