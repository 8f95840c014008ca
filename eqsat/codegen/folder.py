"""A generated program as a folder: the model, its weights, and a program that checks it against a stored run."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import onnx_ir as ir

from eqsat.backends.find_backends import GivenBackend, chosen
from eqsat.codegen import c_types
from eqsat.codegen.buffers import ALIGNMENT
from eqsat.codegen.compiler import FLAGS
from eqsat.codegen.emitted import Emitted, EntryParameter
from eqsat.codegen.expressions import small_floats
from eqsat.codegen.generate import generate
from eqsat.codegen.generation_options import Generation
from eqsat.codegen.isa import ALL, find
from eqsat.codegen.program_templates import render
from eqsat.codegen.weights import FORMS, WeightsForm, literal, usual_form
from eqsat.errors import CodegenError
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.files import cannot_fill, filling, reason
from eqsat.model.read.dims import sizes_of
from eqsat.model.read.given_sizes import Bound, split
from eqsat.schema.dtypes import BYTES
from eqsat.stages.event import Event, Progress

RELATIVE = {"float": 1e-4, "double": 1e-9, "float16": 1e-2, "bfloat16": 4e-2}
"""Difference that the check allows, relative to the largest magnitude of an output."""


@dataclass(frozen=True)
class Stored:
    """An array of the stored run.

    Attributes:
        label: Name of the tensor.
        offset: Bytes from the beginning of the block.
        exact: Whether results must be equal.
        allowed: Largest difference, as a C literal.
        room: Elements for which the program needs memory.
        found: Whether the program reports the shape.
    """

    label: str
    c_name: str
    c_type: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    exact: bool
    allowed: str
    room: int
    found: bool

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def load(self, element: str) -> str:
        """The element as a number."""
        kind = c_types.converted(ir.DataType[self.dtype.upper()])
        return element if kind is None else f"{kind}_to_float({element})"


def write_program(
    model: ir.Model,
    folder: str | os.PathLike[str],
    *,
    name: str = "model",
    weights: WeightsForm | None = None,
    isas: Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    vendors: Collection[str] | None = None,
    backends: Sequence[GivenBackend] = (),
    progress: Progress | None = None,
    **options: Unpack[Generation],
) -> Emitted:
    """Generates the program of a model and writes it; see :func:`write_folder`.

    Args:
        name: Prefix of all files and of all names in the program.
        isas: Instruction sets by name, for which kernels are written in addition to the portable ones; all by default.
        vendors: Targets whose backend, found by name, executes their regions; by default all that exist. The
            program runs without their libraries as well.
        backends: Further backends: objects, or Python files, which are executed.
        progress: Receives events: the stages are ``generate`` and ``execute``, the stored run.
        options: As for :func:`eqsat.codegen.generate.generate`.

    Raises:
        CodegenError: The model cannot become C (all reasons are listed, and nothing is written), an argument has an
            unknown value, or the folder cannot be written to.
    """
    if weights is not None and weights not in FORMS:
        raise CodegenError(f"one of {', '.join(FORMS)} is required for the weights", actual=repr(weights))
    obstacle = cannot_fill(Path(folder))
    if obstacle:
        raise _unwritable(folder, obstacle)
    report: Progress = progress or (lambda event: None)
    report(Event("generate"))
    instructions = ALL if isas is None else find(isas)
    emitted = generate(
        model,
        name=name,
        isas=instructions,
        embedded=weights != "blob",
        backends=chosen(model, vendors, backends),
        **options,
    )
    report(Event("execute"))
    write_folder(emitted, model, folder, weights=weights, inputs=inputs, dims=split(options.get("dims"))[0], seed=seed)
    report(Event("execute", done=True))
    return emitted


def write_folder(
    emitted: Emitted,
    model: ir.Model,
    folder: str | os.PathLike[str],
    *,
    weights: WeightsForm | None = None,
    inputs: Mapping[str, Any] | None = None,
    dims: Mapping[str, Bound] | None = None,
    seed: int = 0,
) -> list[Path]:
    """Writes the program of a model.

    Args:
        emitted: From :func:`eqsat.codegen.generate.generate`, with ``embedded`` unless ``weights`` is ``"blob"``.
        model: The model of the program; the stored outputs are those of the numpy executor.
        folder: Created if it does not exist. Existing files are replaced: all of them, or none if one cannot be.
        weights: As string literals, as a file for the assembler, or as a file that the program loads; by default
            literals, or a file for the assembler if literals would take the compiler long.
        inputs: Of the stored run, by name; missing ones are drawn at random.
        dims: Sizes of symbolic dimensions, and the expressions with which the model was loaded.
        seed: Of random inputs.

    Returns:
        The files that were written.

    Raises:
        CodegenError: The folder cannot be written to.
        ExecutionError: The model cannot be executed on the inputs.
    """
    form = weights or usual_form(len(emitted.weights))
    usual = {size.name: size.typical for size in emitted.sizes}
    given = {name: n for name, n in (dims or {}).items() if isinstance(n, int)}
    known = usual | {name: n for name, n in sizes_of(model, inputs or {}).items() if name in usual} | given
    arrays = complete_inputs(model, inputs, dims=known, seed=seed)
    results = Executor(model).run(arrays)
    block = bytearray()
    stored_inputs = [_store(x, arrays[x.name], block) for x in emitted.inputs]
    rounds = _computes_floats(model)
    stored_outputs = [_store(y, results[y.name], block, rounds=rounds) for y in emitted.outputs]
    values: dict[str, Any] = {
        "name": emitted.name,
        "upper": emitted.name.upper(),
        "model": emitted.model,
        "form": form,
        "alignment": ALIGNMENT,
        "flags": " ".join(flag for flag in FLAGS if flag.startswith("-f")),
        "served": emitted.served,
        "stateful": [served for served in emitted.served if served.code.stateful],
        "threads": emitted.threads,
        "sizes": [known[size.name] for size in emitted.sizes],
        "inputs": stored_inputs,
        "outputs": stored_outputs,
        "helpers": tuple(dict.fromkeys(h for y in stored_outputs for h in small_floats.to_float(_dtype(y)))),
    }
    name = emitted.name
    files: dict[str, str | bytes | memoryview] = {
        f"{name}.h": emitted.header,
        f"{name}.c": emitted.source,
        f"{name}_example.c": render("example.c.jinja", **values, literal=literal(bytes(block) or b"\0")),
        "main.c": render("main.c.jinja", **values),
        "CMakeLists.txt": render("CMakeLists.txt.jinja", **values),
    }
    files.update(emitted.files)
    if form == "string":
        files[f"{name}_weights.c"] = render("weights.c.jinja", **values, literal=literal(emitted.weights[:-1]))
    else:
        files[f"{name}_weights.bin"] = emitted.weights.data
        if form == "incbin":
            files[f"{name}_weights.c"] = render("weights.c.jinja", **values)
    return _write(Path(folder), files)


def _dtype(stored: Stored) -> ir.DataType:
    return ir.DataType[stored.dtype.upper()]


def _computes_floats(model: ir.Model) -> bool:
    scopes = (model.graph, *model.functions.values())
    nodes = (node for scope in scopes for node in ir.traversal.RecursiveGraphIterator(scope))
    values = (*model.graph.inputs, *(value for node in nodes for value in node.outputs))
    return any(value.dtype is not None and value.dtype.is_floating_point() for value in values)


def _store(argument: EntryParameter, array: Any, block: bytearray, *, rounds: bool = False) -> Stored:
    """Appends an array to a block.

    Args:
        rounds: Whether integers may have been rounded from floats.
    """
    dtype = ir.DataType[argument.dtype.upper()]
    values = np.asarray(array)
    block.extend(bytes(-len(block) % ALIGNMENT))
    offset = len(block)
    block.extend(c_types.as_stored(values).tobytes())
    exact, allowed = True, "0.0"
    if dtype.is_floating_point():
        finite = np.abs(values.astype(np.float64))
        finite = finite[np.isfinite(finite)]
        relative = RELATIVE.get(argument.dtype, 1e-1) if argument.c_type != "float" else RELATIVE["float"]
        exact, allowed = False, f"{relative * max(float(finite.max()) if finite.size else 0.0, 1e-2):.6g}"
    elif rounds and dtype in BYTES:
        exact, allowed = False, "1.0"  # A float sum in another order may round to the next integer.
    return Stored(
        argument.name,
        argument.c_name,
        argument.c_type,
        argument.dtype,
        values.shape,
        offset,
        exact,
        allowed,
        argument.elements if argument.found else values.size,
        argument.found,
    )


def _write(folder: Path, files: dict[str, str | bytes | memoryview]) -> list[Path]:
    try:
        with filling(folder) as part:
            for name, content in files.items():
                (part / name).write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise _unwritable(folder, reason(error)) from error
    return [folder / name for name in files]


def _unwritable(folder: str | os.PathLike[str], why: str) -> CodegenError:
    return CodegenError(
        "a folder that can be written to is required",
        place=str(folder),
        actual=why,
        hint="give another folder; nothing was written",
    )
