"""The pipeline on one screen: a model becomes the text of a C program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

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
from eqsat.codegen.onednn import assign as onednn
from eqsat.codegen.onednn.marks import mark_kernels
from eqsat.codegen.select import select_kernels
from eqsat.codegen.vendor import mark_groups
from eqsat.execute.settle import settled
from eqsat.rules.ast import Target
from eqsat.targets.registry import load_host

VENDORS = (onednn.TARGET,)
"""Targets whose library is called by what is known of it here."""


def generate(
    model: ir.Model,
    *,
    name: str = "model",
    dims: Mapping[str, int] | None = None,
    isas: Sequence[Isa] = ALL,
    embedded: bool = True,
    winograd: bool = False,
    host: str | Path | Target | None = None,
    select: bool = True,
    vendors: Collection[str] = (),
    refused: Collection[str] = (),
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
        host: Whose ``kernel`` entries say what families of kernels cost; the shipped ``cpu`` by default.
        select: Whether an extraction chooses families and layouts. Otherwise, as where it leaves something open, the
            most special family is taken and conversions are inserted where one wants another layout.
        vendors: Targets whose regions get calls of a library that wants more than a call a kernel: ``dnnl``.
        refused: Names of kernels that the library is known not to have.

    Raises:
        CodegenError: The model has operators, types or sizes that C code cannot be made of; all are listed.
        TargetError: There is no such host.
    """
    check_prefix(name)
    marked, groups = mark_groups(settled(model))
    if onednn.TARGET in vendors:
        marked, kernels = mark_kernels(marked, onednn.TARGET)
    else:
        kernels = []
    chosen = select_kernels(marked, load_host(host), dims=dims, winograd=winograd) if select else None
    program = lower(marked, dims=dims, groups=groups) if chosen is None else lower(chosen[0], groups=groups)
    coverage = {onednn.TARGET: onednn.assign(program, kernels, refused)} if kernels else {}
    simplify_bytes(program)
    fuse(program)
    fold_scales(program)
    layout = plan_layout(program)
    emitted = emit(program, layout, name, tuple(isas), embedded=embedded)
    emitted.coverage = coverage
    emitted.selection = None if chosen is None else chosen[1]
    return emitted
