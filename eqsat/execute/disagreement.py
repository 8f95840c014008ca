"""Arrays whose sizes do not fit each other: says which sizes of the inputs have to agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from eqsat.errors import EqsatError, ExecutionError
from eqsat.model.inference.requirements import requirements
from eqsat.model.read.dims import sizes_of
from eqsat.model.read.related_sizes import disagreement, said
from eqsat.model.symbols import symbols
from eqsat.schema.free_sizes import FreeSize


def explained(model: ir.Model, inputs: Mapping[str, Any], error: ExecutionError) -> ExecutionError:
    """The error, or a clearer one that names the sizes that made an operator fail.

    Args:
        model: The model.
        inputs: Arrays by name.
        error: The original error.
    """
    try:
        free = {name: FreeSize(1, None, 0) for name in symbols(model)}
        sizes = sizes_of(model, inputs)
        wrong = disagreement(requirements(model), sizes, free) if free else None
    except EqsatError:
        return error
    if wrong is None:
        return error
    least = wrong.fit == "least"
    names = [v.name for v in model.graph.inputs if v.shape is not None and v.shape.free_symbols() & sizes.keys()]
    return ExecutionError(
        f"sizes of the inputs that {'suffice' if least else 'agree'} are required",
        place=wrong.place,
        actual=said(wrong, sizes, free),
        hint=f"check the shapes of {', '.join(map(repr, names))}"
        + ("" if least else "; a size may be given by others, as in --dim T=P+S"),
    )
