"""The C function of a kernel in its place: its parameters, and the constants that a call passes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from eqsat.codegen import c_types
from eqsat.codegen.entry_arguments import sizes_in
from eqsat.codegen.kernel import GeneratedKernel
from eqsat.codegen.parallel import whole
from eqsat.codegen.program import ProgramTensor
from eqsat.codegen.shared_functions import CFunction
from eqsat.codegen.sharing import Share, StageShare


def kernel_function(
    operands: Sequence[tuple[ProgramTensor, str, bool]],
    in_place: bool,
    kernel: GeneratedKernel,
    shared: tuple[str, Share | StageShare] | None,
    constant: Callable[[np.ndarray], str],
) -> CFunction:
    """The function of a kernel.

    Args:
        operands: Its tensors: name of the parameter, and whether it is read only.
        in_place: Whether an input and an output may share memory.
        kernel: As its family generated it.
        shared: Its statements for a range of blocks and how threads share it, if they do.
        constant: Gives the address of a constant.
    """
    body = whole(kernel.body) if shared is None else shared[0]
    restrict = "" if in_place else "restrict "
    parameters = [
        (f"{'const ' if const else ''}{c_types.storage(tensor.dtype)} *{restrict}", name)
        for tensor, name, const in operands
    ]
    constants = []
    for k, array in enumerate(kernel.constants):
        constants.append(constant(np.asarray(array)))
        c = c_types.c_type(c_types.as_stored(np.asarray(array)))
        parameters.append((f"const {c} *restrict ", f"w{k}"))
    sizes = sizes_in(body if shared is None else f"{body} {shared[1].reads}")
    parameters += [("ptrdiff_t ", size) for size in sizes]
    if kernel.scratch:
        parameters.append(("void *restrict ", "scratch"))
    unused = [n for _, n in parameters if not re.search(rf"\b{n}\b", body)]
    return CFunction(
        tuple(parameters),
        "\n".join([*(f"(void){n};" for n in unused), body]),
        kernel.contract,
        kernel.specialised,
        kernel.helpers,
        (*constants, *sizes),
        None if shared is None else shared[1],
    )
