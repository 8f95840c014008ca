"""The parameters of a program's entry function: tensors and free sizes."""

from __future__ import annotations

import re
from dataclasses import replace

from eqsat.codegen import c_types
from eqsat.codegen.c_names import unique
from eqsat.codegen.emitted import EntryParameter, SizeArgument
from eqsat.codegen.program import Program, ProgramTensor
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.size_questions import symbols
from eqsat.schema.symbol import Symbol


def argument(name: str, c_name: str, tensor: ProgramTensor, shape_name: str = "") -> EntryParameter:
    dtype = tensor.dtype
    kind = c_types.storage(dtype), c_types.size(dtype), tensor.shape, dtype.name.lower()
    return EntryParameter(name, c_name, *kind, shape_name)


def interface(program: Program, prefix: str) -> tuple[list[EntryParameter], list[EntryParameter], list[SizeArgument]]:
    """Inputs, outputs and sizes of the function of a program."""
    found = set(program.found)
    reported = [any(s in found for n in t.shape for s in symbols(n)) for _, t in program.outputs]
    named = [*(t.name for t in program.inputs), *(n for n, _ in program.outputs), *(n for n, _ in program.sizes)]
    named += [f"{n}_shape" for (n, _), is_found in zip(program.outputs, reported, strict=True) if is_found]
    names = iter(unique(named, "t", prefix))
    inputs = [argument(t.name, next(names), t) for t in program.inputs]
    outputs = [argument(n, next(names), t) for n, t in program.outputs]
    sizes = [size_argument(size, next(names)) for size in program.sizes]
    outputs = [
        replace(y, shape_name=next(names)) if is_found else y for y, is_found in zip(outputs, reported, strict=True)
    ]
    return inputs, outputs, sizes


def size_argument(received: tuple[str, FreeSize], c_name: str) -> SizeArgument:
    name, size = received
    assert size.most is not None
    return SizeArgument(name, c_name, Symbol(name, size).c_name, size.least, size.most, size.typical)


def sizes_in(text: str) -> list[str]:
    """The variables of sizes that C text reads."""
    return sorted(set(re.findall(r"\bdim_\w+", text)))
