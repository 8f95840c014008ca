"""Binds symbolic dimensions to the sizes that the caller gives, and says what is known of those that stay free."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError, OptimizationError
from eqsat.model.symbols import by_known_names, shaped_values, symbols
from eqsat.schema.free_sizes import TYPICAL, FreeSize
from eqsat.schema.opset import did_you_mean
from eqsat.schema.types import tensor_type


def bind(model: ir.Model, dims: Mapping[str, int], place: str = "") -> bool:
    """Replaces symbols by sizes, in the graph, its subgraphs and its functions.

    Args:
        model: The model, changed in place.
        dims: Size by symbol.
        place: The file, for messages.

    Returns:
        Whether anything was bound; then shapes must be inferred again.

    Raises:
        ModelError: No input has the symbol, or the size is invalid.
    """
    if not dims:
        return False
    known = symbols(model)
    dims = by_known_names(dims, model)
    for name, size in dims.items():
        _require_known(name, known, place)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ModelError(f"a size for the dimension `{name}` is required", place=place, actual=repr(size))
    inputs = set(model.graph.inputs)
    for value in shaped_values(model):
        if value.shape is None or all(isinstance(d, int) for d in value.shape):
            continue
        bound = value.shape.evaluate(dims)
        # Declared shapes of computed values are inferred again, and better.
        unknown = value not in inputs and any(not isinstance(d, int) for d in bound)
        value.shape = None if unknown and value.producer() is not None and not value.is_graph_output() else bound
    return True


Size = int | tuple[int, int | None] | tuple[int, int | None, int] | list[int] | FreeSize
"""What the caller says of a symbolic dimension: its size; its range, ``(least, most)`` with a typical size or not; or
``[16, 128, 512]``, the sizes at which costs are taken."""


def split(dims: Mapping[str, Size] | None, place: str = "") -> tuple[dict[str, int], dict[str, FreeSize]]:
    """Sizes to bind and ranges of sizes that stay free; one without a typical size has 0 there.

    Raises:
        ModelError: One of them is neither.
    """
    bound: dict[str, int] = {}
    ranges: dict[str, FreeSize] = {}
    for name, size in (dims or {}).items():
        if isinstance(size, tuple | list | FreeSize):
            free = _free(name, size, place)
            if free.least == free.most:
                bound[name] = free.least
            else:
                ranges[name] = free
        else:
            bound[name] = size
    return bound, ranges


def _free(name: str, size: Sequence[int | None] | FreeSize, place: str) -> FreeSize:
    found = _read(size)
    if found is None:
        raise ModelError(
            f"a size for the dimension `{name}` is required, a range (least, most) or (least, most, typical), or a "
            "list of sizes",
            place=place,
            actual=f"{size.least}..{size.most}" if isinstance(size, FreeSize) else repr(size),
            hint=f'such as dims={{"{name}": (1, 512, 128)}}, on the command line --dim {name}=1..512@128; '
            f'dims={{"{name}": [16, 128, 512]}}, --dim {name}=16,128,512',
        )
    for typical in found.costed or ((found.typical,) if found.typical else ()):
        if found.nearest(typical) != typical:
            raise ModelError(
                f"a typical size within the range of `{name}` is required", place=place, actual=f"{typical} in {size!r}"
            )
    return found


def _read(size: Sequence[int | None] | FreeSize) -> FreeSize | None:
    """A range as the caller writes it, None where it is none."""
    if isinstance(size, list):
        sizes = sorted({n for n in size if _is_size(n)})
        is_list = bool(sizes) and all(map(_is_size, size))
        return FreeSize(sizes[0], sizes[-1], _median(sizes), tuple(sizes)) if is_list else None
    if not isinstance(size, FreeSize):
        if len(size) not in (2, 3):
            return None
        least, most, typical = (*size, 0) if len(size) == 2 else size
        costed: Sequence[int] = ()
    else:
        least, most, typical, costed = size.least, size.most, size.typical, sorted(set(size.costed))
    if not _is_size(least) or not (most is None or (_is_size(most) and least <= most)):
        return None
    if not _is_whole(typical) or not all(map(_is_size, costed)):
        return None
    return FreeSize(least, most, _median(costed) if costed else typical, tuple(costed))


def _median(sizes: Sequence[int]) -> int:
    return sizes[(len(sizes) - 1) // 2]


def _is_whole(size: object) -> TypeGuard[int]:
    return isinstance(size, int) and not isinstance(size, bool)


def _is_size(size: object) -> TypeGuard[int]:
    return _is_whole(size) and size >= 1


def free_sizes(model: ir.Model, ranges: Mapping[str, FreeSize], place: str = "") -> dict[str, FreeSize]:
    """The sizes of a model's inputs that stay free, in order of first use.

    Args:
        model: As loaded; what was bound is not a symbol any more.
        ranges: What the caller says of them.
        place: The file, for messages.

    Raises:
        ModelError: A range is given for what is not a symbol of the inputs.
    """
    known = symbols(model)
    ranges = by_known_names(ranges, model)
    for name in ranges:
        _require_known(name, known, place)
    found: dict[str, FreeSize] = {}
    for name in known:
        size = ranges.get(name, FreeSize(1, None, 0))
        if not size.typical:
            size = replace(size, typical=size.nearest(1 if _is_batch(model, name) else TYPICAL))
        found[name] = size
    return found


def sizes_of(model: ir.Model, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of a model's symbolic dimensions that follow from the shapes of arrays."""
    found: dict[str, int] = {}
    for value in model.graph.inputs:
        array = inputs.get(value.name or "")
        if value.shape is None or array is None or np.ndim(array) != len(value.shape):
            continue
        for dim, size in zip(value.shape, np.shape(array), strict=True):
            if not isinstance(dim, int) and dim.value is not None:
                found.setdefault(str(dim.value), size)
    return found


def require_ranks(inputs: Sequence[ir.Value]) -> None:
    """Costs need ranks.

    Raises:
        OptimizationError: A graph input has an unknown rank, or is not a tensor.
    """
    for value in inputs:
        if isinstance(value.type, ir.SequenceType | ir.OptionalType):
            what = "a sequence" if isinstance(value.type, ir.SequenceType) else "an optional"
            raise OptimizationError(
                "tensors are required as inputs",
                place=f"input {value.name!r}",
                actual=what,
                hint="`eqsat run` executes such models as they are",
            )
        if value.shape is None or value.dtype is None:
            raise OptimizationError(
                "inputs of known rank are required",
                place=f"input {value.name!r}",
                actual="no shape",
                hint="declare a shape in the model; its dimensions may be symbols",
            )


def require_bound(inputs: Sequence[ir.Value], sizes: Mapping[str, FreeSize]) -> None:
    """Some compositions need every size.

    Raises:
        OptimizationError: A dimension of an input is not a number; all symbols are named at once.
    """
    for value in inputs:
        if value.shape is not None and not value.shape.is_static():
            raise OptimizationError(
                "every dimension of the inputs must be a number",
                place=f"input {value.name!r}",
                actual=str(tensor_type(value)),
                hint=binding_hint(sizes),
            )


def binding_hint(sizes: Mapping[str, FreeSize], settings: Sequence[str] = ()) -> str:
    """How all free sizes are bound, ready to copy.

    Args:
        sizes: The sizes that have no number.
        settings: Inputs that may decide a shape or a branch, to be bound to a value on the same line.
    """
    dims = ", ".join(f'"{name}": {size.typical}' for name, size in sizes.items())
    values = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: 1" for name in settings)
    options = [f"--dim {shlex.quote(f'{name}={size.typical}')}" for name, size in sizes.items()]
    options += [f"--set {shlex.quote(f'{name}=1')}" for name in settings]
    given = f"dims={{{dims}}}" + (f", values={{{values}}}" if values else "")
    return f"bind {'it' if len(options) == 1 else 'them'} with {given}, on the command line {' '.join(options)}"


def _is_batch(model: ir.Model, name: str) -> bool:
    """Whether a dimension is called a batch, or is the first one of an image, a sequence or the like."""
    if "batch" in name.lower() or name.lower() == "n":
        return True
    firsts = [v.shape[0] for v in model.graph.inputs if v.shape is not None and len(v.shape) > 1]
    return any(isinstance(d, ir.SymbolicDim) and d.value == name for d in firsts)


def _require_known(name: str, known: Sequence[str], place: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known) or f"its symbols: {', '.join(known) or 'none, all inputs are of fixed shape'}"
        raise ModelError("a symbolic dimension of the inputs is required", place=place, actual=f"`{name}`", hint=hint)
