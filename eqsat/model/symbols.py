"""Names of symbolic dimensions: in memory they are identifiers, in files the names that the model's author chose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.schema.opset import did_you_mean

_T = TypeVar("_T")

WRITTEN_SYMBOLS = "eqsat.symbols"
"""Metadata of a model in memory: as JSON, by symbol the name in the file, for those that have another one there."""
_IN_EXPRESSIONS = re.compile(r"[A-Za-z_][\w.]*")
"""Names that can be part of an expression, so that it can be read again."""
_HYPHENATED = re.compile(r"[A-Za-z_]\w*(-[A-Za-z_]\w*)+")
"""A difference of symbols, or a single name such as ``batch-size``."""


def name_dims(model: ir.Model) -> None:
    """Names the unnamed dimensions of the inputs after them: ``x_0`` is the first of ``x``.

    Symbols that are not names (``batch size``, ``0``, ``D.0``) become names (``batch_size``); different symbols stay
    different. ``batch-size`` is such a symbol too, unless ``batch`` or ``size`` occurs elsewhere. A symbol without a
    letter or digit (``?``) means an unnamed dimension; two of these need not be equal.
    """
    whole = _hyphenated_names(model)
    written = {name for value in shaped_values(model) for d in value.shape or () for name in _written_names(d, whole)}
    names = {name: name for name in written if name.isidentifier()}
    for name in sorted(written - set(names)):
        new = identifier(name)
        while new in names.values():
            new += "_"
        names[name] = new
    renamed = {names[name]: name for name in written if names[name] != name}
    if renamed:
        kept = {**written_symbols(model), **renamed}
        model.metadata_props[WRITTEN_SYMBOLS] = json.dumps(kept, sort_keys=True)
    for value in shaped_values(model):
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
            name = identifier(f"{value.name or 'input'}_{axis}")
            while name in taken:
                name += "_"
            taken.add(name)
            dims.append(name)
        value.shape = ir.Shape(dims)


def _hyphenated_names(model: ir.Model) -> set[str]:
    """Dimensions with hyphens that are not differences."""
    texts = {d.value for v in shaped_values(model) for d in v.shape or () if not isinstance(d, int) and d.value}
    whole = {text for text in texts if _HYPHENATED.fullmatch(text)}
    others = {name for text in texts - whole for name in _written_names(ir.SymbolicDim(text))}
    return {text for text in whole if others.isdisjoint(text.split("-"))}


def _written_names(d: int | ir.SymbolicDim, whole: Collection[str] = ()) -> Collection[str]:
    """The symbols of a dimension in the file's spelling: those of an expression, otherwise its whole text.

    Args:
        whole: Texts that are not expressions.
    """
    if isinstance(d, int) or d.value is None or not re.search(r"\w", d.value):
        return ()
    if d.value in whole:
        return (d.value,)
    try:
        return d.free_symbols() or (d.value,)
    except ValueError:
        return (d.value,)


def _readable(d: int | ir.SymbolicDim, names: Mapping[str, str]) -> int | str | None:
    """The dimension, its symbols under other names where they are not names; negative numbers mean unknown."""
    if isinstance(d, int):
        return d if d >= 0 else None
    text = d.value
    found = _written_names(d, names)
    for name in sorted(found, key=len, reverse=True):
        if text is not None and names[name] != name:
            text = names[text] if text in names else re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", names[name], text)
    return text if found else None


def identifier(text: str) -> str:
    """A name that an expression may contain."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name[0].isalpha() else f"dim_{name}"


def by_known_names(given: Mapping[str, _T], model: ir.Model) -> dict[str, _T]:
    """A mapping by symbols, which may be spelled as in the file, with the names that loading gave the symbols."""
    known = set(symbols(model))
    read = {written: name for name, written in written_symbols(model).items()}
    read = {name: read.get(name) or identifier(name) for name in given if name and name not in known}
    return {read[name] if read.get(name) in known else name: value for name, value in given.items()}


def written_symbols(model: ir.Model) -> dict[str, str]:
    """By symbol its name in the file, for those that have another one there."""
    try:
        found = json.loads(model.metadata_props.get(WRITTEN_SYMBOLS, "{}"))
    except ValueError:
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {k: v for k, v in pairs if k.isidentifier() and isinstance(v, str) and not v.isidentifier()}


def write_symbols(model: ir.Model) -> None:
    """Gives the symbols the names that they had in the file.

    Some of these names, such as one with a space, cannot be part of an expression; a dimension with such an expression
    becomes unnamed.

    Args:
        model: Changed in place.
    """
    names = written_symbols(model)
    model.metadata_props.pop(WRITTEN_SYMBOLS, None)

    def renamed(d: int | ir.SymbolicDim) -> int | str | None:
        if isinstance(d, int) or d.value is None or d.value in names:
            return d if isinstance(d, int) else names.get(d.value or "")
        inside = {name: names[name] for name in _written_names(d) if name in names}
        fits = all(_IN_EXPRESSIONS.fullmatch(written) for written in inside.values())
        return _substituted(d.value, inside) if fits else None

    if names:
        _rename(model, renamed)


def symbols(model: ir.Model) -> tuple[str, ...]:
    """The symbols in the shapes of the model's inputs, in order of first use."""
    found: dict[str, None] = {}
    for value in model.graph.inputs:
        for d in value.shape or ():
            if not isinstance(d, int) and d.value is not None:
                found.update(dict.fromkeys(sorted(d.free_symbols())))
    return tuple(found)


def require_known(name: str, known: Sequence[str], place: str) -> None:
    """Raises an error unless a name is one of the symbols of a model's inputs.

    Raises:
        ModelError: It is not.
    """
    if name not in known:
        hint = did_you_mean(name, known) or f"its symbols: {', '.join(known) or 'none, all inputs are of fixed shape'}"
        raise ModelError("a symbolic dimension of the inputs is required", place=place, actual=f"`{name}`", hint=hint)


def require_symbols(dims: Mapping[str, object], model: ir.Model, place: str) -> None:
    """Raises an error unless each size is given for one of the symbols of a model's inputs.

    Args:
        dims: Sizes by symbol. Expressions are skipped, because a model that was loaded with them no longer has their
            symbols.
        model: The model.
        place: The file, for messages.

    Raises:
        ModelError: No input has the symbol.
    """
    for name, size in by_known_names(dims, model).items():
        if not isinstance(size, str):
            require_known(name, symbols(model), place)


def _is_unnamed(d: int | ir.SymbolicDim) -> bool:
    return not isinstance(d, int) and d.value is None


def shaped_values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the model that may have a declared shape."""
    yield from model.graph.inputs
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.ref_attr_name:
                yield from attribute.as_graph().inputs
    for function in model.functions.values():
        yield from function.inputs
        for node in function:
            yield from node.outputs


def put_in_place(model: ir.Model, sizes: Mapping[str, str]) -> None:
    """Puts other sizes in the place of symbols, in the graph, its subgraphs and its functions.

    Args:
        model: As loaded, changed in place.
        sizes: By symbol a name, which may be swapped with another one, or an expression or a number.
    """
    texts = {name: size if size.isidentifier() else f"({size})" for name, size in sizes.items()}

    def replaced(d: int | ir.SymbolicDim) -> int | str | None:
        if isinstance(d, int) or d.value is None:
            return d if isinstance(d, int) else None
        text = _substituted(d.value, texts)
        return text if text == d.value or text.isidentifier() else canonical(text)

    if sizes:
        _rename(model, replaced)


def canonical(expression: str) -> int | str:
    """The unique spelling of an expression, by which types compare sizes; a number if it has no symbols."""
    made = ir.SymbolicDim(expression)
    if not made.free_symbols():
        number = made.evaluate({})
        assert isinstance(number, int)
        return number
    simplified = made + 0
    assert isinstance(simplified, ir.SymbolicDim) and simplified.value is not None
    return simplified.value


def _substituted(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    return pattern.sub(lambda match: names[match[0]], text)


def _rename(model: ir.Model, renamed: Callable[[int | ir.SymbolicDim], int | str | None]) -> None:
    for value in shaped_values(model):
        if value.shape is not None and not value.shape.is_static():
            value.shape = ir.Shape([renamed(d) for d in value.shape])
