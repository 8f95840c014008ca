"""The public functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from eqsat.arguments import checks_arguments, with_options
from eqsat.bounds import GRACE, GUARD, within_bounds
from eqsat.codegen.public import compile, write_c
from eqsat.equivalence.verdict import Equivalence
from eqsat.execute.compare import Comparison
from eqsat.execute.compare import compare as compare_models
from eqsat.model.load import GivenModel
from eqsat.model.load import load as load_model
from eqsat.model.read.given_sizes import Bound
from eqsat.model.save import save
from eqsat.model.write.written_definitions import with_definitions
from eqsat.optimization import optimized
from eqsat.progress import ProgressOption, received, shows_progress
from eqsat.result import Result
from eqsat.rules.ast import Target
from eqsat.rules.selection import NumericsClass
from eqsat.rules.user_operators import Declaration
from eqsat.rules.user_operators import declarations as declaring
from eqsat.stages.options import Objective, ProofArguments, ResultArguments, SearchArguments, SearchOptions

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from eqsat.backends.coverage import Coverage
    from eqsat.backends.find_backends import GivenBackend
    from eqsat.codegen.run_model import Means
    from eqsat.quantization.calibration_data import DataSource
    from eqsat.quantization.methods import AnyMethod
    from eqsat.quantization.noise_limits import NoiseBudget
    from eqsat.quantization.options import ActivationType, Conversions
    from eqsat.quantization.result import QuantizationResult

PATIENCE = 20.0
"""How many times the time limit a quantization may take: its stages execute the samples again and again."""

__all__ = ["Result", "compare", "compile", "load", "optimize", "prove", "quantize", "run", "save", "write_c"]


@checks_arguments
def load(
    source: GivenModel,
    *,
    dims: Mapping[str, Bound] | None = None,
    values: Mapping[str, Any] | None = None,
    declarations: Sequence[Declaration] = (),
) -> ir.Model:
    """Loads, checks and normalises a model; see :func:`eqsat.model.load.load`.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``; the last two are not changed.
        dims: Sizes for symbolic dimensions, such as ``{"N": 1}``, or expressions of others, ``{"T": "P + S"}``.
        values: Values for inputs, which become constants, such as ``{"sr": 16000}``.
        declarations: Files, also Python files, which are executed, and operators of :func:`eqsat.operator` that declare
            operators of domains of your own. The model gets their bodies as functions, so that it has a meaning alone.

    Raises:
        ModelError: The source is not a model, or it has an error; the message gives the place.
        LimitError: Loading exceeds the limits of memory or time.
        RuleError, TargetError: A declaration is wrong.
    """
    with declaring(*declarations):
        model = load_model(source, dims=dims, values=values)
        return with_definitions(model) if declarations else model


@checks_arguments
@shows_progress
@within_bounds(lambda seconds: 2 * GUARD * seconds + GRACE)
@with_options(SearchArguments, SearchOptions, trust=False)
def optimize(
    source: GivenModel,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    objective: Objective = "best",
    memory_limit: int | str | None = None,
    seed: int = 0,
    progress: ProgressOption = None,
    audit: bool = False,
    verify: bool = True,
    prove: bool = False,
    **search: Unpack[SearchArguments],
) -> Result:
    """Finds the cheapest equal program and its placement on host and accelerators.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        targets: Accelerators by name or target file.
        host: The target that runs everything that no accelerator takes, by name or target file: ``"cpu"`` (the
            default), a runtime with a kernel for each operator; ``"c"``, generated C, whose kernels and layouts are
            chosen as well; or ``"ort"``, ONNX Runtime with its fused kernels.
        rules: Rule files, or rules, in addition to the shipped ones.
        default_rules: Whether the shipped rules are applied.
        dims: Sizes for symbolic dimensions, by name. A number binds a dimension; a range ``(least, most)`` or ``(least,
            most, typical)`` leaves it free, as does a name that is missing. The result is right for all sizes of the
            range; costs are computed at the typical size. A list ``[16, 128, 512]`` leaves it free as well; costs are
            the mean over these sizes. An expression ``"P + S"`` gives it in terms of other dimensions.
        values: Values for inputs, by name; these become constants, and control flow that depends on them disappears.
        declarations: Files, also Python files, which are executed, and operators of :func:`eqsat.operator` that declare
            operators of domains of your own, besides those that rules and targets declare.
        numerics: How far rules may change values: ``"exact"`` to the bit, ``"real"`` equal over the reals.
        ops: Domains of the operators that rules and composites may bring into the result: ``"onnx"`` for the standard
            only, ``"onnx,com.microsoft"`` to allow those of ONNX Runtime; by default all.
        opset: The newest ONNX opset that the result may need, 7 to 26; a note tells what a newer one would have saved.
        objective: ``"worst"`` and ``"random"`` choose other equal programs, to test rules.
        time_limit: An amount of work, in seconds of a machine of 2024. Saturation and extraction may each do a third of
            it; the result is the best program found so far. A clock ends them only on much slower machines.
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of the memory that the machine, its container or the limits of the process allow.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``, and of the numbers with which the result is verified.
        progress: Receives events. By default a line in terminals and notebooks shows them; False hides it.
        partition_functions: By the name of a composite (``"ccompiler.add_subtract_multiply"``) a function of its call
            and its operands that returns the result with annotations.
        audit: Compute and compare all expressions that the e-graph holds to be equal, see :meth:`Search.audit`; meant
            for models of up to some hundred operators.
        verify: Execute the result and compare it with the input; ``summary.verification`` gives the details.
        prove: Prove by rules, from the two models alone, that the result equals the input, as :func:`prove` does;
            ``summary.proof`` gives the answer. The proof has a time limit of its own, of the same length.
        trust: Do not execute your own rules on random operands before they are used, see :func:`check_rules`.

    Raises:
        ModelError: The model is broken or not supported.
        RuleError, TargetError: A rule or target file is wrong, or executing a rule shows that it is.
        OptimizationError: The rank of an input is unknown.
        LimitError: The model takes more memory or work than it may, or loading it much more time.
        AuditError: Expressions that the e-graph holds to be equal differ, so a rule is wrong.
        VerificationError: The result does not compute what the input computes.
    """
    options = SearchOptions(targets=targets, free_sizes=True, **search)
    return optimized(
        source, options, objective, seed=seed, progress=received(progress), audit=audit, verify=verify, prove=prove
    )


@checks_arguments
@shows_progress
@within_bounds(lambda seconds: PATIENCE * seconds)
@with_options(ResultArguments, SearchOptions, trust=False)
def quantize(
    source: GivenModel,
    calibration: DataSource,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    budget: NoiseBudget = None,
    method: AnyMethod = "minmax",
    percentile: float = 99.99,
    activation: ActivationType = "uint8",
    symmetric: bool = False,
    per_channel: bool = True,
    balance: bool = True,
    skip: Sequence[str] = (),
    operators: Sequence[str] | None = None,
    simulate: bool = False,
    conversions: Conversions = "disabled",
    samples: int | None = None,
    noise_samples: int | None = None,
    check_samples: int = 16,
    sweep: int = 0,
    objective: Objective = "best",
    memory_limit: int | str | None = None,
    seed: int = 0,
    progress: ProgressOption = None,
    **search: Unpack[ResultArguments],
) -> QuantizationResult:
    """Finds the cheapest program whose error stays within a budget, with integers where they are cheaper.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        calibration: Samples of the inputs; see :class:`~eqsat.quantization.calibration_data.CalibrationData`.
        targets: Accelerators by name or target file.
        host: As for :func:`eqsat.optimize`.
        budget: The lowest acceptable signal-to-quantization-noise ratio, such as ``"30dB"`` or 30, for all float
            outputs or by output name. It holds for the error measured on calibration samples; otherwise there is an
            error. None takes the cheapest program, whatever its error.
        method: How ranges are found; ``"auto"`` takes the method with the smallest error if everything is rounded.
        percentile: Percentage of the values inside a range, for the method of that name.
        activation: Element type of activations, ``"uint8"`` or ``"int8"``.
        symmetric: Use ranges that are symmetric around zero.
        per_channel: Use a scale for each output channel of a weight.
        balance: Let rounding errors of an output channel cancel; see :class:`~eqsat.quantization.options.Options`.
        skip: Nodes that stay floats, by their name or by that of one of their outputs.
        operators: Operators to quantize, such as ``("Conv", "Gemm")``; None for all that have an integer form.
        simulate: Compute with floats what integers would give: float operators between pairs of ``QuantizeLinear`` and
            ``DequantizeLinear``, on the host. Without a budget all tensors are rounded; with a budget, those that the
            cheapest integer program for the targets rounds.
        conversions: ``"disabled"``: one graph. ``"enabled"``: functions ``prefix``, ``core`` and ``suffix``, the core
            without floats. ``"fully_integral"``: the same, and the prefix only quantizes, the suffix only dequantizes.
        rules, default_rules, declarations, opset: As for :func:`eqsat.optimize`.
        dims: Sizes for symbolic dimensions, or ranges as for :func:`eqsat.optimize`. A dimension that is not bound
            stays free, and samples may have any size there; costs are computed at their median.
        values: Values for inputs, by name; these become constants, and control flow that depends on them disappears.
        samples: The greatest number of calibration samples to use.
        noise_samples: Samples on which the noise of each tensor is measured. By default from 8 for small models to 1
            for large ones, as the model runs once for each of them and each tensor.
        check_samples: Samples on which the result is measured.
        sweep: Number of further programs, from the cheapest to the most accurate, whose cost and error the report
            compares with those of the result: at least two, or 0 for none.
        objective: ``"worst"`` and ``"random"`` choose other programs, to test rules; they ignore the budget.
        time_limit: Seconds for saturation and extraction; all stages together may take twenty times as much.
        memory_limit: As for :func:`eqsat.optimize`.
        iterations: Limit of saturation rounds.
        enodes: Limit of the e-graph's size.
        seed: Of ``objective="random"``.
        progress: Receives events. By default a line in terminals and notebooks shows them; False hides it.
        partition_functions: As for :func:`eqsat.optimize`, as is ``trust``.

    Raises:
        QuantizationError: The data do not fit the model, an option does not exist, the budget cannot be kept, or an
            operator has no integer form where all must have one.
        ModelError, RuleError, TargetError, OptimizationError, LimitError: As for :func:`eqsat.optimize`.
    """
    from eqsat.quantization.options import Options, QuantizationOptions
    from eqsat.quantization.pipeline import quantize as quantized

    return quantized(
        source,
        calibration,
        QuantizationOptions(
            budget=budget,
            # "auto" is settled when there are statistics.
            integers=Options(
                method="minmax" if method == "auto" else method,
                percentile=percentile,
                activation=activation,
                symmetric=symmetric,
                per_channel=per_channel,
                skip=skip,
                operators=operators,
                balance=balance,
            ),
            auto=method == "auto",
            simulate=simulate,
            conversions=conversions,
            samples=samples,
            noise_samples=noise_samples,
            check_samples=check_samples,
            sweep=sweep,
        ),
        SearchOptions(targets=targets, **search),
        objective=objective,
        seed=seed,
        progress=received(progress),
    )


@checks_arguments
@within_bounds()
def run(
    source: GivenModel,
    inputs: Mapping[str, np.ndarray],
    *,
    dims: Mapping[str, Bound] | None = None,
    declarations: Sequence[Declaration] = (),
    backend: Means = "numpy",
    vendors: Collection[str] = (),
    backends: Sequence[GivenBackend] = (),
    coverage: dict[str, Coverage] | None = None,
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    steps: int | None = None,
) -> dict[str, np.ndarray]:
    """Executes a model.

    Args:
        source: As for :func:`optimize`.
        inputs: Arrays by input name.
        dims: Sizes for symbolic dimensions, or expressions of others.
        declarations, memory_limit: As for :func:`optimize`.
        backend: ``"numpy"``, or ``"c"``: the model is written as C, compiled and called.
        vendors: Targets whose backend, found by name, executes their regions with ``"c"``: ``["dnnl"]`` for oneDNN.
        backends: Further backends: objects, or Python files, which are executed.
        coverage: Receives by target how many kernels its backend has executed, and why not the others.
        time_limit: Seconds; none by default.
        steps: Operators that may be executed, with each round of a loop counted; 5 million by default.

    Returns:
        Arrays by output name.

    Raises:
        ExecutionError: An input is missing, unknown, or of another type or shape.
        LimitError: It takes more memory, time or steps than it may.
        CodegenError, BackendError: The model cannot become C, there is no compiler, or a backend is not found or fails.
    """
    from eqsat.codegen.run_model import Runs

    with declaring(*declarations):
        return Runs(load_model(source, dims=dims)).run(inputs, backend, vendors, backends, coverage)


@checks_arguments
@within_bounds()
def compare(
    first: GivenModel,
    second: GivenModel,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    dims: Mapping[str, Bound] | None = None,
    values: Mapping[str, Any] | None = None,
    declarations: Sequence[Declaration] = (),
    seed: int = 0,
    numerics: NumericsClass = "real",
    rtol: float | None = None,
    atol: float | None = None,
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    steps: int | None = None,
) -> Comparison:
    """Executes two models on the same inputs and reports where they first differ.

    Args:
        inputs: Arrays by input name; those not given are drawn at random with ``seed``.
        declarations, memory_limit, values: As for :func:`optimize`.
        dims: Sizes for symbolic dimensions, or expressions of others.
        rtol, atol: Allowed difference, relative to the largest magnitude of a tensor, and absolute.
        time_limit: Seconds; none by default.
        steps: Operators that each may execute, with each round of a loop counted; 5 million by default.

    Raises:
        ModelError, ExecutionError: A model cannot be loaded or executed, or the two differ in inputs or outputs.
        LimitError: A model takes more memory, time or steps than it may.
    """
    with declaring(*declarations):
        # The second may have the sizes and values already, as an optimized model has; it gets those that are left.
        a, b = load_model(first, dims=dims, values=values), load_model(second)
        left = {name: x for name, x in (values or {}).items() if name in {v.name for v in b.graph.inputs}}
        b = load_model(second, values=left) if left else b
        return compare_models(a, b, inputs, dims=dims, seed=seed, numerics=numerics, rtol=rtol, atol=atol)


@checks_arguments
@shows_progress
@within_bounds(lambda seconds: 2 * GUARD * seconds + GRACE)
@with_options(ProofArguments, SearchOptions, trust=False, time_limit=60.0)
def prove(
    first: GivenModel,
    second: GivenModel,
    *,
    samples: int = 3,
    seed: int = 0,
    memory_limit: int | str | None = None,
    progress: ProgressOption = None,
    **search: Unpack[ProofArguments],
) -> Equivalence:
    """Proves by rules that two models are equal, or finds an input on which they differ.

    Args:
        first: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        second: The same. Its inputs and outputs are paired with those of the first by name, or else by position.
        rules: Rule files, or rules, in addition to the shipped ones.
        default_rules: Whether the shipped rules are used.
        dims: Sizes, or ranges, for symbolic dimensions of the first model; the proof covers all sizes of the others.
        values: Values for inputs, by name; these become constants.
        declarations, memory_limit: As for :func:`optimize`.
        numerics: The weakest class of rules that may be used: ``"exact"`` proves equality to the bit.
        samples: Inputs on which both models are executed.
        seed: Of these inputs.
        time_limit: Seconds, counted as work.
        progress: Receives events. By default a line in terminals and notebooks shows them; False hides it.
        trust: Do not execute your own rules on random operands before they are used, see :func:`check_rules`.

    Raises:
        ModelError: A model is broken, or the two differ in inputs or outputs.
        RuleError: A rule file is wrong, or executing a rule shows that it is.
        LimitError: A model takes more memory or work than it may.
    """
    from eqsat.equivalence.compare_models import equivalence

    options = SearchOptions(free_sizes=True, **search)
    return equivalence(first, second, options, samples=samples, seed=seed, progress=received(progress))
