"""Symbolic dimensions: names unnamed ones, and binds sizes that the caller gives."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError, OptimizationError
from eqsat.schema.free_sizes import TYPICAL, FreeSize
from eqsat.schema.opset import did_you_mean
from eqsat.schema.types import tensor_type

_T = TypeVar("_T")


def name_dims(model: ir.Model) -> None:
    """Names the unnamed dimensions of the inputs after them: ``x_0`` is the first of ``x``.

    Symbols that are not names (``batch size``, ``0``, ``D.0``) become names (``batch_size``); different symbols stay
    different. A symbol without a letter or digit (``?``) means a dimension without a name, which need not equal others
    that are written so.
    """
    written = {name for value in _values(model) for d in value.shape or () for name in _written_names(d)}
    names = {name: name for name in written if name.isidentifier()}
    for name in sorted(written - set(names)):
        new = _identifier(name)
        while new in names.values():
            new += "_"
        names[name] = new
    for value in _values(model):
        if value.shape is not None and not all(isinstance(d, int) and d >= 0 for d in value.shape):
            value.shape = ir.Shape([_readable(d, names) for d in value.shape])
    taken = set(symbols(model))
    for value in model.graph.inputs:
        if value.shape is None or not any(_is_unnamed(d) for d in value.shape):
            continue
        dims: list[int | str | None] = []
        for axis, d in enumerate(value.shape):
            if isinstance(d, int) or d.value is not None:
                dims.append(d if isinstance(d, int) else d.value)
                continue
            name = _identifier(f"{value.name or 'input'}_{axis}")
            while name in taken:
                name += "_"
            taken.add(name)
            dims.append(name)
        value.shape = ir.Shape(dims)


def _written_names(d: int | ir.SymbolicDim) -> Collection[str]:
    """The symbols of a dimension as the file writes them: those of an expression, otherwise its whole text."""
    if isinstance(d, int) or d.value is None or not re.search(r"\w", d.value):
        return ()
    try:
        return d.free_symbols() or (d.value,)
    except ValueError:
        return (d.value,)


def _readable(d: int | ir.SymbolicDim, names: Mapping[str, str]) -> int | str | None:
    """The dimension, its symbols under other names where they are no names; negative numbers mean unknown."""
    if isinstance(d, int):
        return d if d >= 0 else None
    text = d.value
    for name in sorted(_written_names(d), key=len, reverse=True):
        if text is not None and names[name] != name:
            text = names[text] if text in names else re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", names[name], text)
    return text if _written_names(d) else None


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name[0].isalpha() else f"dim_{name}"


def by_known_names(given: Mapping[str, _T], known: Collection[str]) -> dict[str, _T]:
    """What is given by symbols, which may be written as in the file, by the names that loading gave them."""
    read = {name: _identifier(name) for name in given if name and name not in known}
    return {read[name] if read.get(name) in known else name: value for name, value in given.items()}


def symbols(model: ir.Model) -> tuple[str, ...]:
    """The symbols in the shapes of the model's inputs, in order of first use."""
    found: dict[str, None] = {}
    for value in model.graph.inputs:
        for d in value.shape or ():
            if not isinstance(d, int) and d.value is not None:
                found.update(dict.fromkeys(sorted(d.free_symbols())))
    return tuple(found)


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
    dims = by_known_names(dims, known)
    for name, size in dims.items():
        _require_known(name, known, place)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ModelError(f"a size for the dimension `{name}` is required", place=place, actual=repr(size))
    inputs = set(model.graph.inputs)
    for value in _values(model):
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
        model: As loaded; what was bound is no symbol any more.
        ranges: What the caller says of them.
        place: The file, for messages.

    Raises:
        ModelError: A range is given for what is no symbol of the inputs.
    """
    known = symbols(model)
    ranges = by_known_names(ranges, known)
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
        OptimizationError: A dimension of an input is no number; all symbols are named at once.
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


def _is_unnamed(d: int | ir.SymbolicDim) -> bool:
    return not isinstance(d, int) and d.value is None


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the model that may have a declared shape."""
    yield from model.graph.inputs
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.ref_attr_name:
                yield from attribute.as_graph().inputs
    for function in model.functions.values():
        for node in function:
            yield from node.outputs


def rename_symbols(model: ir.Model, names: Mapping[str, str]) -> None:
    """Gives symbols other names, in the graph, its subgraphs and its functions.

    Args:
        model: As loaded, changed in place.
        names: By symbol its new name; they may be swapped.
    """
    if not names:
        return
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")

    def renamed(d: int | ir.SymbolicDim) -> int | str | None:
        if isinstance(d, int):
            return d
        return None if d.value is None else pattern.sub(lambda match: names[match[0]], d.value)

    for value in _values(model):
        if value.shape is not None and not value.shape.is_static():
            value.shape = ir.Shape([renamed(d) for d in value.shape])
