"""The public functions that make C of a model: as a folder, or as a compiled model in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from eqsat.arguments import checks_arguments, with_options
from eqsat.bounds import within_bounds
from eqsat.codegen.generation_options import Generation, ProgramOptions
from eqsat.model.load import GivenModel
from eqsat.model.load import load as load_model
from eqsat.model.read.given_sizes import split
from eqsat.progress import ProgressOption, received, shows_progress
from eqsat.rules.user_operators import Declaration
from eqsat.rules.user_operators import declarations as declaring

if TYPE_CHECKING:
    import numpy as np

    from eqsat.backends.find_backends import GivenBackend
    from eqsat.codegen.compiled import CompiledModel
    from eqsat.codegen.emitted import Emitted
    from eqsat.codegen.weights import WeightsForm


@checks_arguments
@shows_progress
@within_bounds()
@with_options(Generation, ProgramOptions)
def compile(
    source: GivenModel,
    *,
    values: Mapping[str, Any] | None = None,
    declarations: Sequence[Declaration] = (),
    vendors: Collection[str] = (),
    backends: Sequence[GivenBackend] = (),
    progress: ProgressOption = None,
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    **generation: Unpack[Generation],
) -> CompiledModel:
    """Compiles a model, optimized or not, to machine code, which can be called like a function.

    The user's cache keeps compiled code: another process that compiles the same model does not run the compiler.

    Args:
        source: As for :func:`optimize`; also a file that ``Result.save`` wrote.
        threads: How many threads share large kernels, the calling one included. Results do not depend on it.
        dims: Sizes for symbolic dimensions, by name. A number binds a dimension; a range ``(least, most)`` or
            ``(least, most, typical)`` leaves it free within the range, for one program.
        values: Values for inputs, by name; these become constants, and control flow that depends on them disappears.
        declarations: Files, also Python files, which are executed, and operators of :func:`eqsat.operator` that declare
            operators of domains of your own.
        winograd: Whether convolutions may be computed by Winograd's algorithm where that is faster.
        numerics: How far the host's rules and kernels may change values.
        host: Name or file of the host that lists the kernels and their costs; ``c`` by default.
        select: Whether an extraction chooses kernels and layouts; else each operator gets the most specialised one.
        vendors: Targets whose backend, found by name, executes their regions: ``["dnnl"]`` for oneDNN.
        backends: Further backends: objects, or Python files, which are executed.
        progress: Receives events, or False, as for :func:`eqsat.optimize`: the stages are ``generate`` and ``compile``.
        time_limit: Seconds; none by default.
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of the memory that the machine, its container or the limits of the process allow.

    Returns:
        For ``compiled(x)``, ``compiled({"x": x})`` and ``compiled.run({"x": x})``: arrays of the types and shapes in
        ``compiled.inputs`` give those in ``compiled.outputs``.

    Raises:
        ModelError: The model is broken or not supported.
        CodegenError: The model cannot become C (all reasons are listed), a size has no upper bound, or there is no C
            compiler.
        LimitError: It takes more memory or time than it may.
        TargetError: There is no such host.
        BackendError: A backend cannot be found, or fails.
    """
    from eqsat.codegen.compiled import CompiledModel

    with declaring(*declarations):
        bound, generation["dims"] = split(generation.get("dims"))
        return CompiledModel(
            load_model(source, dims=bound, values=values),
            vendors=vendors,
            backends=backends,
            progress=received(progress),
            **generation,
        )


@checks_arguments
@shows_progress
@within_bounds()
@with_options(Generation, ProgramOptions)
def write_c(
    source: GivenModel,
    folder: str | Path,
    *,
    name: str = "model",
    weights: WeightsForm | None = None,
    isas: Sequence[str] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    values: Mapping[str, Any] | None = None,
    declarations: Sequence[Declaration] = (),
    seed: int = 0,
    vendors: Collection[str] | None = None,
    backends: Sequence[GivenBackend] = (),
    progress: ProgressOption = None,
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    **generation: Unpack[Generation],
) -> Emitted:
    """Writes a model as a C program that checks itself against a stored run.

    Args:
        source: As for :func:`optimize`.
        folder: Made if it is not there.
        name: Prefix of all files and of all names in the program.
        weights: As ``"string"`` literals, as a file for the assembler (``"incbin"``) or to be loaded (``"blob"``); by
            default literals, and a file for the assembler if they are more than 16 MB.
        isas: Instruction sets by name, for which kernels are written in addition to the portable ones; all by default.
        threads: How many threads may share large kernels. If more than one, the entry function receives a pool of
            threads that the caller creates.
        inputs: Arrays of the stored run by input name; those not given are drawn at random with ``seed``.
        dims: Sizes for symbolic dimensions, by name. A number binds a dimension; a range ``(least, most)`` or
            ``(least, most, typical)`` makes it an argument of the program, which is right for every size in the range.
        values: Values for inputs, by name; these become constants, and control flow that depends on them disappears.
        declarations: Files, also Python files, which are executed, and operators of :func:`eqsat.operator` that declare
            operators of domains of your own.
        seed: Of random inputs.
        winograd: Whether convolutions may be computed by Winograd's algorithm where it is faster: up to three times as
            fast, with ten times the rounding error and four times the weights. It is short for
            ``numerics="approximate"``.
        numerics: How far the host's rules and kernels may change values.
        host: Name or file of the host that lists the kernels and their costs; ``c`` by default.
        select: Whether an extraction chooses kernels and layouts; else each operator gets the most specialised one.
        vendors: Targets whose backend, found by name, executes their regions if the program is compiled for it; all
            that are found by default.
        backends: Further backends: objects, or Python files, which are executed.
        progress: Receives events, or False, as for :func:`eqsat.optimize`: the stages are ``generate`` and
            ``execute``, the stored run.
        time_limit: Seconds; none by default.
        memory_limit: Bytes of tensors that may be held at the same time, also as text such as ``"8GB"``; by default
            half of the memory that the machine, its container or the limits of the process allow.

    Raises:
        CodegenError: The model cannot become C: all reasons are listed, and nothing is written.
        LimitError: It takes more memory or time than it may.
        TargetError: There is no such host.
        BackendError: A backend cannot be found, or fails.
    """
    from eqsat.codegen.folder import write_program

    with declaring(*declarations):
        bound, generation["dims"] = split(generation.get("dims"))
        model = load_model(source, dims=bound, values=values)
        return write_program(
            model,
            folder,
            name=name,
            weights=weights,
            isas=isas,
            inputs=inputs,
            seed=seed,
            vendors=vendors,
            backends=backends,
            progress=received(progress),
            **generation,
        )
