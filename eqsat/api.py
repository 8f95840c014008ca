"""The public functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.bounds import GRACE, within_bounds
from eqsat.execute.compare import Comparison
from eqsat.execute.compare import compare as compare_models
from eqsat.model.load import Source, load
from eqsat.model.save import save
from eqsat.partition.partition_functions import PartitionFunction
from eqsat.quantizing.pipeline import quantize
from eqsat.quantizing.result import QuantizationResult
from eqsat.report.event import Event
from eqsat.result import Backend, Result, execute
from eqsat.rules.ast import Rule, Target
from eqsat.rules.select import NumericsClass
from eqsat.search import Objective, Search

if TYPE_CHECKING:
    import numpy as np

    from eqsat.codegen.emitted import Emitted
    from eqsat.codegen.weights import Form

__all__ = ["QuantizationResult", "Result", "compare", "load", "optimize", "quantize", "run", "save", "write_c"]


@within_bounds(lambda seconds: seconds + GRACE)
def optimize(
    source: Source,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    rules: Sequence[str | Path | Rule] | None = None,
    dims: Mapping[str, int] | None = None,
    numerics: NumericsClass = "real",
    objective: Objective = "best",
    time_limit: float = 30.0,
    memory_limit: int | str | None = None,
    iterations: int | None = None,
    enodes: int | None = None,
    seed: int = 0,
    progress: Callable[[Event], None] | None = None,
    partition_functions: Mapping[str, PartitionFunction] | None = None,
    audit: bool = False,
    verify: bool = True,
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
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of what the machine, its container or the limits of the process allow.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``, and of the numbers that the result is verified on.
        progress: Receives events.
        partition_functions: By the name of a composite (``"ccompiler.add_subtract_multiply"``) a function of its call
            and its operands that returns the result with annotations.
        audit: Compute all that the e-graph holds for equal, and not only the result, see :meth:`Search.audit`; meant
            for models of up to some hundred operators.
        verify: Execute the result against the input; ``summary.verification`` says how.

    Raises:
        ModelError: The model is broken or not supported.
        RuleError, TargetError: A rule or target file is.
        OptimizationError: Sizes are unknown.
        LimitError: The model takes more memory or work than it may, or loading it much more time.
        AuditError: The e-graph contradicts itself, so a rule is wrong.
        VerificationError: The result computes something else than the input.
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
    if audit:
        report = search.audit()
        report.require(search.model.graph.name or "")
        result = search.extract(objective, seed, verify=verify)
        return replace(result, summary=replace(result.summary, audit=report))
    return search.extract(objective, seed, verify=verify)


@within_bounds()
def run(
    source: Source,
    inputs: Mapping[str, np.ndarray],
    *,
    dims: Mapping[str, int] | None = None,
    backend: Backend = "numpy",
    vendors: Collection[str] = (),
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    steps: int | None = None,
) -> dict[str, np.ndarray]:
    """Executes a model.

    Args:
        source: As for :func:`optimize`.
        inputs: Arrays by input name.
        dims: Sizes for symbolic dimensions.
        backend: ``"numpy"``, or ``"c"``: the model is written as C, compiled and called.
        vendors: With ``"c"``, targets whose library executes their regions: ``["dnnl"]`` for oneDNN.
        time_limit: Seconds; none by default.
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of what the machine, its container or the limits of the process allow.
        steps: Operators that may be executed, with each round of a loop counted; 5 million by default.

    Returns:
        Arrays by output name.

    Raises:
        ExecutionError: An input is missing, unknown, or of another type or shape.
        LimitError: It takes more memory, time or steps than it may.
        CodegenError: The model cannot become C, or there is no C compiler or no library of a vendor.
    """
    return execute(load(source, dims=dims), inputs, backend, vendors)


@within_bounds()
def write_c(
    source: Source,
    folder: str | Path,
    *,
    name: str = "model",
    weights: Form | None = None,
    isas: Sequence[str] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    winograd: bool = False,
    host: str | Path | Target | None = None,
    select: bool = True,
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
) -> Emitted:
    """Writes a model as a C program that checks itself against a stored run.

    Args:
        source: As for :func:`optimize`.
        folder: Made if it is not there.
        name: Prefix of all files and of all names in the program.
        weights: As ``"string"`` literals, as a file for the assembler (``"incbin"``) or to be loaded (``"blob"``); by
            default literals, and a file for the assembler if they are more than 16 MB.
        isas: Instruction sets by name, for which kernels are written besides the portable ones; all by default.
        inputs: Arrays of the stored run by input name; those not given are drawn at random with ``seed``.
        dims: Sizes for symbolic dimensions.
        seed: Of random inputs.
        winograd: Whether convolutions may be computed by Winograd's algorithm where that is faster: up to three times,
            with ten times the rounding error and four times the weights.
        host: Name or file of the host whose ``kernel`` entries say what families of kernels cost; ``cpu`` by default.
        select: Whether an extraction chooses kernels and layouts; else each operator gets the most special kernel.
        time_limit: Seconds; none by default.
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of what the machine, its container or the limits of the process allow.

    Raises:
        CodegenError: The model cannot become C: all reasons are listed, and nothing is written.
        LimitError: It takes more memory or time than it may.
        TargetError: There is no such host.
    """
    from eqsat.codegen.folder import write_program

    model = load(source, dims=dims)
    return write_program(
        model,
        folder,
        name=name,
        weights=weights,
        isas=isas,
        inputs=inputs,
        seed=seed,
        winograd=winograd,
        host=host,
        select=select,
    )


@within_bounds()
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
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    steps: int | None = None,
) -> Comparison:
    """Executes two models on the same inputs and says where they first differ.

    Args:
        inputs: Arrays by input name; those not given are drawn at random with ``seed``.
        rtol, atol: Allowed difference, relative to the largest magnitude of a tensor, and absolute.
        time_limit: Seconds; none by default.
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of what the machine, its container or the limits of the process allow.
        steps: Operators that each may execute, with each round of a loop counted; 5 million by default.

    Raises:
        ModelError, ExecutionError: One of them cannot be loaded or executed, or they differ in inputs or outputs.
        LimitError: One takes more memory, time or steps than it may.
    """
    # The second may have the sizes already, as an optimized model has; the inputs tell it those that are left.
    a, b = load(first, dims=dims), load(second)
    return compare_models(a, b, inputs, dims=dims, seed=seed, numerics=numerics, rtol=rtol, atol=atol)
