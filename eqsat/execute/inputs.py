"""Inputs for a model: the given ones, completed by random ones."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import ExecutionError
from eqsat.model.map_types import is_map
from eqsat.model.read.dims import binding_hint, free_sizes
from eqsat.model.read.given_sizes import Bound
from eqsat.model.symbols import by_known_names
from eqsat.ops.operators import has, operator
from eqsat.ops.quantization_role import Role
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import op_key
from eqsat.schema.chosen_sizes import completed
from eqsat.schema.types import OpKey

_ELEMENTS = 2
"""Length of a random sequence."""
_WORDS = np.array(["", "a", "b", "word", "Two words", "é"], object)
_NUMERALS = np.array(["0", "1", "-2", "3", "25", "100"], object)
MOST_ROUNDS = 3
"""How often a Loop runs if its trip count is drawn."""


def input_names(model: ir.Model) -> list[str]:
    """Names of the inputs that must be given; initialisers among the inputs have a value already."""
    return [value.name or "" for value in _inputs(model)]


def complete_inputs(
    model: ir.Model,
    given: Mapping[str, Any] | None = None,
    *,
    dims: Mapping[str, Bound] | None = None,
    seed: int = 0,
    unknown: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """The given inputs, and random ones for the rest.

    Floats are drawn from N(0, 1) and 8-bit integers from their whole range. Wider integers are drawn from the range of
    the axis that they index if a Gather shows it, which may be a free size, otherwise from {0, 1}; strings from a few
    words, or numerals if a Cast turns them into numbers. A Loop makes one to three rounds if an input decides that.
    Each input has its own random stream, by name.

    Args:
        model: The model.
        given: Values by input name; the executor checks them.
        dims: Sizes of symbolic dimensions that no given array determines. Expressions are those of a model that was
            loaded with them.
        seed: Seed of the random inputs.
        unknown: The shape of tensors of unknown rank; None if they have to be given.

    Raises:
        ExecutionError: An input that is not given is of a kind that cannot be drawn, or of an unknown size.
    """
    if seed < 0:
        raise ExecutionError("a seed of 0 or more is required", place="seed", actual=repr(seed))
    complete = dict(given or {})
    sizes = {name: size for name, size in by_known_names(dims or {}, model).items() if isinstance(size, int)}
    for value in _inputs(model):
        array = complete.get(value.name or "")
        if isinstance(array, np.ndarray) and value.shape is not None and len(value.shape) == array.ndim:
            for dim, size in zip(value.shape, array.shape, strict=True):
                if (symbol := _symbol(dim)) is not None:
                    sizes.setdefault(symbol, size)
    drawn = [value for value in _inputs(model) if value.name not in complete]
    sizes = _completed(model, drawn, sizes)
    _require_sizes(model, drawn, sizes)
    for value in _inputs(model):
        if value.name not in complete:
            complete[value.name or ""] = _random(model, value, sizes, seed, unknown)
    return complete


def _inputs(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.inputs if value.name not in model.graph.initializers]


def _completed(model: ir.Model, drawn: Sequence[ir.Value], sizes: dict[str, int]) -> dict[str, int]:
    """The sizes, and those that follow from them and are needed."""
    needed = {name for value in drawn for d in value.shape or () for name in _names(d)}
    return sizes if needed <= sizes.keys() else completed(free_sizes(model, {}), sizes)


def _require_sizes(model: ir.Model, drawn: Sequence[ir.Value], sizes: Mapping[str, int]) -> None:
    """Names all symbols without a size at once, with options to copy."""
    symbols = {name for value in drawn for d in value.shape or () for name in _names(d)}
    if symbols <= sizes.keys():
        return
    missing = {name: size for name, size in free_sizes(model, {}).items() if name in symbols and name not in sizes}
    if missing:
        raise ExecutionError(
            "sizes of the inputs are required to draw random ones",
            place=", ".join(
                f"input {v.name!r}" for v in drawn if any(missing.keys() & _names(d) for d in v.shape or ())
            ),
            actual=f"{', '.join(f'`{name}`' for name in missing)} without a number",
            hint=f"{binding_hint(missing, _settings(model, drawn))}, or provide the inputs",
        )


def _settings(model: ir.Model, drawn: Sequence[ir.Value]) -> list[str]:
    """Whole numbers and truth values that index nothing; models use them as rates, counts, choices of a branch."""
    return [
        value.name or ""
        for value in drawn
        if isinstance(value.type, ir.TensorType)
        and value.shape is not None
        and len(value.shape) == 0
        and value.dtype is not None
        and (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL)
        and not any(at == 1 and has(op_key(node), Trait.LOOKS_UP) for node, at in _readers(model, value))
    ]


def _names(dim: int | ir.SymbolicDim) -> frozenset[str]:
    """The symbols of a dimension, which may be an expression."""
    return frozenset() if isinstance(dim, int) or dim.value is None else dim.free_symbols()


def _symbol(dim: int | ir.SymbolicDim) -> str | None:
    return None if isinstance(dim, int) or dim.value is None else str(dim.value)


def _random(
    model: ir.Model, value: ir.Value, sizes: Mapping[str, int], seed: int, unknown: tuple[int, ...] | None
) -> Any:
    """A tensor, a map, a sequence of a few, or an optional that is there."""
    if is_map(value):
        maps = [_map(model, value, seed, f"{value.name}[{i}]") for i in range(_ELEMENTS)]
        return maps if isinstance(value.type, ir.SequenceType) else maps[0]
    if isinstance(value.type, ir.SequenceType) and isinstance(value.type.elem_type, ir.TensorType):
        return [_tensor(model, value, value.shape, sizes, seed, f"{value.name}[{i}]") for i in range(_ELEMENTS)]
    shape = value.shape if value.shape is not None or unknown is None else ir.Shape(unknown)
    return _tensor(model, value, shape, sizes, seed, value.name or "")


def _map(model: ir.Model, value: ir.Value, seed: int, name: str) -> dict[Any, Any]:
    """A map of some of the keys that its readers know; of a few small numbers if they know none."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    known = [
        key
        for node, _ in _readers(model, value)
        for attribute in (node.attributes.get("string_vocabulary"), node.attributes.get("int64_vocabulary"))
        if attribute is not None and not attribute.ref_attr_name
        for key in attribute.value
    ]
    keys = [key for key in dict.fromkeys(known or range(_ELEMENTS)) if rng.random() < 0.75]
    if value.dtype == ir.DataType.STRING:
        return {key: str(word) for key, word in zip(keys, rng.choice(_NUMERALS, len(keys)), strict=True)}
    numbers = np.round(100 * rng.standard_normal(len(keys))) / 4
    return dict(zip(keys, numbers if value.dtype is None else numbers.astype(value.dtype.numpy()), strict=True))


def _tensor(
    model: ir.Model, value: ir.Value, given: ir.Shape | None, sizes: Mapping[str, int], seed: int, name: str
) -> np.ndarray:
    place = f"input {value.name!r}"
    hint = "provide it with --input or as an array"
    inner = value.type.elem_type if isinstance(value.type, ir.SequenceType | ir.OptionalType) else value.type
    if value.dtype is None or not isinstance(inner, ir.TensorType):
        raise ExecutionError(
            "a tensor is required to draw a random input", place=place, actual=str(value.type), hint=hint
        )
    if given is None:
        raise ExecutionError("a known rank is required to draw a random input", place=place, hint=hint)
    bound = [d if isinstance(d, int) else d.evaluate(sizes) for d in given]
    shape = tuple(max(0, d) if isinstance(d, int) else 1 for d in bound)
    dtype = value.dtype.numpy()
    # Numbers are drawn in a wider type.
    bounds.current().admit(math.prod(shape) * 8, 0, place, "a random input")
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if value.dtype.is_floating_point():
        return rng.standard_normal(shape).astype(dtype)
    if value.dtype == ir.DataType.BOOL:
        goes_on = any(node.op_type == "Loop" and index == 1 for node, index in _readers(model, value))
        return np.ones(shape, dtype) if goes_on else rng.integers(0, 2, shape).astype(dtype)
    if value.dtype.is_integer():
        low, high = _integer_range(model, value, sizes)
        return rng.integers(low, high, shape).astype(dtype)
    if value.dtype == ir.DataType.STRING:
        words = _NUMERALS if _is_cast(model, value) else _WORDS
        return np.array(words[rng.integers(0, len(words), shape)], object)
    raise ExecutionError("numbers are required to draw a random input", place=place, actual=value.dtype.name, hint=hint)


def _is_cast(model: ir.Model, value: ir.Value) -> bool:
    """Whether strings become numbers."""
    return any(node.op_type == "Cast" for node, _ in _readers(model, value))


def _readers(model: ir.Model, value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """The nodes that read elements of a value, each with its input position, also in other places and in functions."""
    for node, index in value.uses():
        function = model.functions.get(node.op_identifier())
        if function is not None:
            yield from _readers(model, function.inputs[index])
            continue
        yield node, index
        if index == 0 and _keeps_elements(op_key(node)):
            for output in node.outputs:
                yield from _readers(model, output)


def _keeps_elements(op: OpKey) -> bool:
    """Whether the results of an operator are elements of its first operand."""
    role = operator(op).quantization
    return has(op, Trait.REARRANGES) or (isinstance(role, Role) and role.moves)


def _integer_range(model: ir.Model, value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, int]:
    assert value.dtype is not None
    width = value.dtype.bitwidth
    if width <= 8:
        return (-(1 << width - 1), 1 << width - 1) if value.dtype.is_signed() else (0, 1 << width)
    if any(node.op_type == "Loop" and index == 0 for node, index in _readers(model, value)):
        return 1, MOST_ROUNDS + 1
    indexed = _indexed_sizes(model, value, sizes)
    return 0, max(1, min(indexed)) if indexed else 2


def _indexed_sizes(model: ir.Model, value: ir.Value, sizes: Mapping[str, int]) -> list[int]:
    """Lengths of the axes that a value indexes."""
    found: list[int] = []
    for node, index in _readers(model, value):
        if index == 1 and has(op_key(node), Trait.LOOKS_UP):
            data = node.inputs[0]
            axis = node.attributes.get("axis")
            if data is None or data.shape is None or (axis is not None and axis.ref_attr_name):
                continue
            size = data.shape[axis.as_int() if axis is not None else 0]
            size = size.evaluate(sizes) if isinstance(size, ir.SymbolicDim) else size
            if isinstance(size, int):
                found.append(size)
    return found
