"""The pipeline on one screen: a model becomes the text of a C program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from eqsat.codegen.bytes import simplify_bytes
from eqsat.codegen.emit import emit
from eqsat.codegen.emitted import Emitted
from eqsat.codegen.fold import fold_scales
from eqsat.codegen.fuse import fuse
from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.layout import plan_layout
from eqsat.codegen.lower import lower
from eqsat.codegen.names import check_prefix
from eqsat.codegen.winograd import ask_for_winograd


def generate(
    model: ir.Model,
    *,
    name: str = "model",
    dims: Mapping[str, int] | None = None,
    isas: Sequence[Isa] = ALL,
    embedded: bool = True,
    winograd: bool = False,
) -> Emitted:
    """Writes a model as C.

    Args:
        model: As loaded, partitioned or not; it is left as it is.
        name: Prefix of all names that the program defines.
        dims: Sizes of symbolic dimensions.
        isas: Instruction sets to write kernels for.
        embedded: Whether the weights are part of the program, or loaded by it.
        winograd: Whether convolutions may be computed by Winograd's algorithm where that is faster: up to three times,
            with ten times the rounding error and four times the weights.

    Raises:
        CodegenError: The model has operators, types or sizes that C code cannot be made of; all are listed.
    """
    check_prefix(name)
    program = lower(model, dims=dims)
    simplify_bytes(program)
    if winograd:
        ask_for_winograd(program)
    fuse(program)
    fold_scales(program)
    layout = plan_layout(program)
    return emit(program, layout, name, tuple(isas), embedded=embedded)
