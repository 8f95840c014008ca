"""Sizes of a model's inputs: binds those that the caller gives, and lists those that stay open."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError, OptimizationError
from eqsat.model.inference.annotate import annotate
from eqsat.model.inference.requirements import requirements
from eqsat.model.optimized_sizes import optimized_sizes, require_optimized
from eqsat.model.read.given_sizes import Bound
from eqsat.model.read.related_sizes import disagreement, related, said
from eqsat.model.read.size_expressions import expanded
from eqsat.model.symbols import by_known_names, put_in_place, require_known, shaped_values, symbols, written_symbols
from eqsat.schema.agreement import solved
from eqsat.schema.free_sizes import TYPICAL, FreeSize
from eqsat.schema.types import tensor_type


def bind(model: ir.Model, dims: Mapping[str, Bound], place: str = "") -> bool:
    """Replaces symbols by sizes or expressions of other symbols, in the graph, its subgraphs and its functions.

    Args:
        model: The model, changed in place.
        dims: Size or expression by symbol.
        place: The file, for messages.

    Returns:
        Whether anything was bound; then shapes must be inferred again.

    Raises:
        ModelError: No input has the symbol, or the size or the expression is invalid.
    """
    if not dims:
        return False
    known = symbols(model)
    dims = by_known_names(dims, model)
    for name, size in dims.items():
        require_known(name, known, place)
        if isinstance(size, bool) or not isinstance(size, int | str) or (isinstance(size, int) and size < 0):
            raise ModelError(f"a size for the dimension `{name}` is required", place=place, actual=repr(size))
        if isinstance(size, int):
            require_optimized(model, name, FreeSize(size, size, size), place)
    numbers = {name: size for name, size in dims.items() if isinstance(size, int)}
    texts = {name: text for name, text in dims.items() if isinstance(text, str)}
    written = {text: name for name, text in written_symbols(model).items()}
    put_in_place(model, expanded(texts, numbers, known, written, place))
    inputs = set(model.graph.inputs)
    for value in shaped_values(model):
        if value.shape is None or all(isinstance(d, int) for d in value.shape):
            continue
        bound = value.shape.evaluate(numbers) if numbers else value.shape
        # Declared shapes of computed values are inferred again, and better.
        unknown = value not in inputs and any(not isinstance(d, int) for d in bound)
        value.shape = None if unknown and value.producer() is not None and not value.is_graph_output() else bound
    for value in model.graph.inputs:
        if value.shape is not None and any(isinstance(d, int) and d < 0 for d in value.shape):
            raise ModelError(
                f"sizes of input {value.name!r} that are not negative are required",
                place=place,
                actual=str(tensor_type(value)),
            )
    return True


def require_agreement(model: ir.Model, dims: Mapping[str, Bound], place: str = "") -> None:
    """Raises an error that names the given sizes that contradict each other.

    Args:
        model: The model before its symbols are bound; its types may be inferred.
        dims: Size by symbol.
        place: The file, for messages.

    Raises:
        ModelError: Two sizes that the model requires to agree do not.
    """
    try:
        annotate(model, place)
    except ModelError:
        return  # Its sizes are not to blame.
    known = symbols(model)
    sizes = {name: size for name, size in by_known_names(dims, model).items() if isinstance(size, int)}
    free = {name: FreeSize(1, None, 0) for name in known}
    wrong = disagreement(requirements(model), sizes, free)
    if wrong is None:
        return
    sides = [f"`{side}`" if isinstance(side, str) else str(side) for side in (wrong.a, wrong.b)]
    least = wrong.fit == "least"
    options = [following_option(name, found.text) for name, found in solved([wrong], free).items()]
    raise ModelError(
        f"{sides[0]} has to be {sides[1]} or more" if least else f"{sides[0]} and {sides[1]} have to agree",
        place=f"{place}: {wrong.place}" if place else wrong.place,
        actual=said(wrong, sizes, free),
        hint=f"change one of them, or say what follows from what: {' '.join(options)}"
        if all(options) and not least
        else "",
    )


def free_sizes(model: ir.Model, ranges: Mapping[str, FreeSize], place: str = "") -> dict[str, FreeSize]:
    """The sizes of a model's inputs that stay free, in order of first use; those that follow from others are marked.

    Args:
        model: The loaded model, without the symbols that were bound.
        ranges: The ranges that the caller gives.
        place: The file, for messages.

    Raises:
        ModelError: A range is given for a name that is not a symbol of the inputs, or for a size that must have another
            value.
    """
    known = symbols(model)
    ranges = by_known_names(ranges, model)
    for name, size in ranges.items():
        require_known(name, known, place)
        require_optimized(model, name, size, place)
    held = optimized_sizes(model)
    found: dict[str, FreeSize] = {}
    for name in known:
        size = ranges.get(name) or held.get(name) or FreeSize(1, None, 0)
        if not size.typical:
            size = replace(size, typical=size.nearest(1 if _is_batch(model, name) else TYPICAL))
        found[name] = size
    return related(found, requirements(model), ranges, place)


def sizes_of(model: ir.Model, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of a model's symbolic dimensions that follow from the shapes of arrays."""
    found: dict[str, int] = {}
    for value in model.graph.inputs:
        array = inputs.get(value.name or "")
        if value.shape is None or array is None or not isinstance(value.type, ir.TensorType):
            continue
        if np.ndim(array) != len(value.shape):
            continue
        for dim, size in zip(value.shape, np.shape(array), strict=True):
            if not isinstance(dim, int) and dim.value is not None and dim.value.isidentifier():
                found.setdefault(dim.value, size)
    return found


def require_ranks(inputs: Sequence[ir.Value]) -> None:
    """Costs need ranks.

    Raises:
        OptimizationError: A tensor among the inputs has an unknown rank.
    """
    for value in inputs:
        if isinstance(value.type, ir.SequenceType | ir.OptionalType):
            continue  # Opaque, like everything that is computed from it.
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
    left = {name: size for name, size in sizes.items() if not size.follows}
    dims = ", ".join(f'"{name}": {size.typical}' for name, size in left.items())
    values = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: 1" for name in settings)
    options = [f"--dim {shlex.quote(f'{name}={size.typical}')}" for name, size in left.items()]
    options += [f"--set {shlex.quote(f'{name}=1')}" for name in settings]
    given = f"dims={{{dims}}}" + (f", values={{{values}}}" if values else "")
    hint = f"bind {'it' if len(options) == 1 else 'them'} with {given}, on the command line {' '.join(options)}"
    following = ", ".join(f"`{name}` is {size.follows}" for name, size in sizes.items() if size.follows)
    return f"{hint}; {following}" if following else hint


def following_option(name: str, expression: str) -> str:
    """The option that expresses a size by others; empty if options have no such expressions."""
    text = re.sub(r"floor\(([^()/+]*|\([^()/]*\))/(\d+)\)", r"\1//\2", expression).replace(" ", "")
    return "" if re.search(r"[A-Za-z]\w*\(|(?<!/)/(?!/)", text) else f"--dim {shlex.quote(f'{name}={text}')}"


def _is_batch(model: ir.Model, name: str) -> bool:
    """Whether a dimension is called a batch, or is the first one of an image, a sequence or the like."""
    if "batch" in name.lower() or name.lower() == "n":
        return True
    firsts = [v.shape[0] for v in model.graph.inputs if v.shape is not None and len(v.shape) > 1]
    return any(isinstance(d, ir.SymbolicDim) and d.value == name for d in firsts)
