"""Symbolic dimensions: names unnamed ones, and binds sizes that the caller gives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.schema.opset import did_you_mean


def name_dims(model: ir.Model) -> None:
    """Names the unnamed dimensions of the inputs after them: ``x_0`` is the first of ``x``.

    Symbols that are not names (``batch size``, ``0``) become names (``batch_size``). A symbol without a letter or digit
    (``?``) means a dimension without a name, which need not equal others that are written so.
    """
    for value in _values(model):
        if value.shape is not None and not all(isinstance(d, int) and d >= 0 for d in value.shape):
            value.shape = ir.Shape([_readable(d) for d in value.shape])
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


def _readable(d: int | ir.SymbolicDim) -> int | str | None:
    """The dimension if onnx_ir can compute with it, otherwise under another name; negative numbers mean unknown."""
    if isinstance(d, int):
        return d if d >= 0 else None
    if d.value is None or not re.search(r"\w", d.value):
        return None
    try:
        is_symbolic = bool(d.free_symbols())
    except ValueError:
        is_symbolic = False
    return d.value if is_symbolic else _identifier(d.value)


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name[0].isalpha() else f"dim_{name}"


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
    dims = {name if name in known else _identifier(name or "?"): size for name, size in dims.items()}
    for name, size in dims.items():
        if name not in known:
            hint = (
                did_you_mean(name, known) or f"its symbols: {', '.join(known) or 'none, all inputs are of fixed shape'}"
            )
            raise ModelError(
                "a symbolic dimension of the inputs is required", place=place, actual=f"`{name}`", hint=hint
            )
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
