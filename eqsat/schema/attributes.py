"""Attribute bundles: the canonical form of a node's attributes, and its conversion to and from onnx_ir and protobuf.

In a bundle the schema's defaults are filled in, floats are what float32 can hold (ONNX stores no more), lists
are tuples and the pairs are sorted by name, so that equal meanings are equal bundles. Defaults that depend on the
inputs' rank (``strides`` and the like) are filled in by :mod:`eqsat.model.normalize`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.schema import opset
from eqsat.schema.declared_operators import Declared, find_declared
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.types import Attrs, AttrValue, GraphAttr, OpaqueAttr, OpKey, TensorAttr

_Kind = ir.AttributeType

PARAMETERS = (
    ir.AttributeType.INT,
    ir.AttributeType.INTS,
    ir.AttributeType.FLOAT,
    ir.AttributeType.FLOATS,
    ir.AttributeType.STRING,
    ir.AttributeType.STRINGS,
)
"""Kinds of attributes that are numbers and texts."""


def op_key(node: ir.Node) -> OpKey:
    """The operator of a node; overloads of functions differ by name (``name:overload``)."""
    name = f"{node.op_type}:{node.overload}" if node.overload else node.op_type
    return OpKey(opset.canonical_domain(node.domain), name)


def to_attrs(node: ir.Node) -> Attrs:
    """The canonical bundle of a node, with the defaults of its schema filled in.

    Raises:
        ModelError: An attribute refers to one of an enclosing function, which must be inlined or bound first.
    """
    op = op_key(node)
    values = dict(default_attrs(op))
    for name, attr in node.attributes.items():
        if attr.ref_attr_name:
            raise ModelError(
                "an attribute with a value of its own is required",
                place=f"attribute {name!r} of node {node.name!r} ({op})",
                actual=f"a reference to the function's attribute {attr.ref_attr_name!r}",
            )
        values[name] = plain_value(attr)
    return tuple(sorted(values.items(), key=lambda pair: pair[0]))


_ELEMENT_TYPES = frozenset(
    {"to", "dtype", "output_dtype", "output_datatype", "precision", "stash_type", "softmax_precision"}
)
"""Attributes of ONNX's and eqsat's operators that hold an element type; they accept any of its names."""


def make_attrs(op: OpKey, values: Mapping[str, Any], *, place: str = "") -> Attrs:
    """The canonical bundle of attributes given as Python values, checked against the operator's schema.

    Args:
        op: The operator.
        values: Numbers, strings, sequences of them, numpy arrays, ``ir.DataType`` and graphs; for element types also
            their names and numpy's types. None means not given.
        place: For messages; the operator's name by default.

    Raises:
        ModelError: Unknown, missing or wrongly typed attributes.
    """
    place = place or str(op)
    found = opset.find_schema(op)
    result: dict[str, AttrValue] = dict(default_attrs(op))
    function = find_declared(op) if found is None else None
    kinds = opset.attribute_types(op) if found is not None else declared_kinds(function)
    known = None if found is None and function is None else kinds if function is None else dict(function.attributes)
    for name, value in values.items():
        if value is None:
            continue
        if known is not None and name not in known:
            raise ModelError(
                f"an attribute of {op} is required",
                place=place,
                actual=f"`{name}`",
                hint=opset.did_you_mean(name, known) or f"its attributes: {', '.join(known) or 'none'}",
            )
        named = name in _ELEMENT_TYPES if found is not None else function is not None and name == "dtype"
        if named and not isinstance(value, int | np.integer):
            value = to_dtype(value, place=f"{place}, attribute `{name}`")
        try:
            result[name] = _coerce(value, kinds.get(name))
        except (TypeError, ValueError) as error:
            kind = kinds[name].name if name in kinds else "number, string, tensor or list"
            message = f"a value of type {kind} is required for attribute `{name}`"
            raise ModelError(message, place=place, actual=repr(value)) from error
    missing = [n for n in opset.required_attributes(op) if n not in result] if found is not None else []
    if missing:
        raise ModelError("every required attribute must be given", place=place, actual=f"no `{missing[0]}`")
    return tuple(sorted(result.items(), key=lambda pair: pair[0]))


def from_attrs(attrs: Attrs, op: OpKey | None = None) -> list[ir.Attr]:
    """Attributes of an onnx_ir node.

    Args:
        attrs: The bundle.
        op: The operator they belong to; its schema tells the type of an empty list and of numbers.
    """
    kinds = opset.attribute_types(op) if op is not None and opset.find_schema(op) is not None else {}
    return [_to_ir(name, value, kinds.get(name)) for name, value in attrs]


def to_protos(attrs: Attrs, op: OpKey | None = None) -> list[onnx.AttributeProto]:
    """Attributes of an ``onnx.NodeProto``."""
    return [ir.to_proto(attr) for attr in from_attrs(attrs, op)]


def attr(attrs: Attrs, name: str, default: Any = None) -> Any:
    """Value of an attribute in a bundle."""
    for key, value in attrs:
        if key == name:
            return value
    return default


def plain(attrs: Attrs) -> dict[str, Any]:
    """Attributes as Python values and arrays."""
    return {name: value.array if isinstance(value, TensorAttr) else value for name, value in attrs}


def tensor_of(array: np.ndarray, dtype: ir.DataType, name: str | None = None) -> ir.TensorProtocol:
    """A tensor of the given element type around an array, strings included."""
    if dtype == ir.DataType.STRING:
        strings = [s.encode() if isinstance(s, str) else bytes(s) for s in array.ravel().tolist()]
        content = np.empty(len(strings), object)
        content[:] = strings
        return ir.StringTensor(content.reshape(array.shape), shape=ir.Shape(array.shape), name=name)
    return ir.Tensor(array, dtype=dtype, name=name)


def array_of(tensor: ir.TensorProtocol) -> np.ndarray:
    """The contents of a tensor as kernels take them: strings are Python strings, in an array of objects."""
    array = tensor.numpy()
    if tensor.dtype != ir.DataType.STRING:
        return array
    decoded = np.empty(array.size, object)
    decoded[:] = [s.decode() if isinstance(s, bytes) else str(s) for s in array.reshape(-1).tolist()]
    return decoded.reshape(array.shape)


def captured_values(graph: ir.Graph) -> tuple[ir.Value, ...]:
    """Outer values that a subgraph and the subgraphs in it read, in order of first use."""
    found: dict[ir.Value, None] = {}

    def visit(inner: ir.Graph, outer: frozenset[ir.Value]) -> None:
        known = set(outer) | set(inner.inputs) | set(inner.initializers.values())
        for node in inner:
            for value in node.inputs:
                if value is not None and value not in known:
                    found.setdefault(value)
            known.update(node.outputs)
            for body in subgraphs(node):
                visit(body, frozenset(known))
        for value in inner.outputs:
            if value not in known:
                found.setdefault(value)

    visit(graph, frozenset())
    return tuple(found)


def read_values(node: ir.Node) -> list[ir.Value]:
    """The values that a node reads, those that its subgraphs capture included."""
    own = [v for v in node.inputs if v is not None and v.name != ""]
    return [*own, *(v for graph in subgraphs(node) for v in captured_values(graph))]


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs among a node's attributes, in order of the attributes' names."""
    for name in sorted(node.attributes):
        value = node.attributes[name]
        if value.type == _Kind.GRAPH and not value.ref_attr_name:
            yield value.as_graph()
        elif value.type == _Kind.GRAPHS and not value.ref_attr_name:
            yield from value.as_graphs()


# ---- single values -------------------------------------------------------------------------------


def declared_kinds(operator: Declared | None) -> dict[str, ir.AttributeType]:
    """Types of the attributes of a declared operator: those of their defaults. An empty list may become any."""
    attributes = () if operator is None else operator.attributes
    return {name: _list_kind(v) if isinstance(v, tuple) else _guess(v) for name, v in attributes if v != ()}


def default_attrs(op: OpKey) -> Attrs:
    """The bundle of an operator without given attributes."""
    if opset.find_schema(op) is None:
        function = find_declared(op)
        return () if function is None else function.attributes
    return _schema_defaults(op)


@cache
def _schema_defaults(op: OpKey) -> Attrs:
    return tuple((name, plain_value(ir.from_proto(proto))) for name, proto in opset.default_attributes(op).items())


@lru_cache(maxsize=4096)
def _float32(value: float) -> float:
    return float(np.float32(value))


def plain_value(attr: ir.Attr) -> AttrValue:
    """Value of an attribute as bundles hold it."""
    match attr.type:
        case _Kind.INT | _Kind.STRING:
            return attr.value
        case _Kind.FLOAT:
            return _float32(attr.value)
        case _Kind.INTS:
            return tuple(attr.value)
        case _Kind.FLOATS:
            return tuple(_float32(v) for v in attr.value)
        case _Kind.STRINGS:
            return tuple(attr.value)
        case _Kind.TENSOR:
            tensor = attr.value  # as_tensor() checks the protocol at run time, which takes longer than all the rest
            return TensorAttr(array_of(tensor), tensor.dtype)
        case _Kind.GRAPH:
            graph = attr.as_graph()
            return GraphAttr(graph, tuple(v.name or "" for v in captured_values(graph)))
        case _:
            return OpaqueAttr(attr)


def _to_ir(name: str, value: AttrValue, kind: _Kind | None) -> ir.Attr:
    match value:
        case TensorAttr():
            return ir.AttrTensor(name, tensor_of(value.array, value.dtype))
        case GraphAttr():
            return ir.AttrGraph(name, value.graph)
        case OpaqueAttr():
            return value.attr if value.attr.name == name else ir.Attr(name, value.attr.type, value.attr.value)
        case tuple():
            return ir.Attr(name, kind or _list_kind(value), value)
        case _:
            return ir.Attr(name, kind or _scalar_kind(value), value)


def _scalar_kind(value: int | float | str) -> _Kind:
    return _Kind.STRING if isinstance(value, str) else _Kind.FLOAT if isinstance(value, float) else _Kind.INT


def _list_kind(value: Sequence[Any]) -> _Kind:
    kinds = {_scalar_kind(v) for v in value}
    if _Kind.STRING in kinds:
        return _Kind.STRINGS
    return _Kind.FLOATS if _Kind.FLOAT in kinds else _Kind.INTS


def _integer(value: Any) -> int:
    if isinstance(value, str) or int(value) != value:
        raise ValueError
    return int(value)


def _string(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError
    return value


def _items(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes)):
        raise TypeError
    return list(value)


def _coerce(value: Any, kind: _Kind | None) -> AttrValue:
    if isinstance(value, (TensorAttr, GraphAttr, OpaqueAttr)):
        return value
    if kind is None:
        kind = _guess(value)
    match kind:
        case _Kind.INT:
            return _integer(value)
        case _Kind.FLOAT:
            return _float32(float(value)) if not isinstance(value, str) else _string(None)
        case _Kind.STRING:
            return _string(value)
        case _Kind.INTS:
            return tuple(_integer(v) for v in _items(value))
        case _Kind.FLOATS:
            return tuple(_float32(float(v)) for v in _items(value))
        case _Kind.STRINGS:
            return tuple(_string(v) for v in _items(value))
        case _Kind.TENSOR:
            if isinstance(value, onnx.TensorProto):
                value = ir.from_proto(value)
            if not isinstance(value, ir.TensorProtocol):
                value = ir.tensor(np.asarray(value))
            return TensorAttr(array_of(value), value.dtype)
        case _Kind.GRAPH:
            graph = value.graph if isinstance(value, ir.Model) else value
            if not isinstance(graph, ir.Graph):
                raise TypeError
            return GraphAttr(graph, tuple(v.name or "" for v in captured_values(graph)))
        case _:
            if not isinstance(value, ir.Attr):
                raise TypeError
            return OpaqueAttr(value)


def _guess(value: Any) -> _Kind:
    if isinstance(value, (str, bytes)):
        return _Kind.STRING
    if isinstance(value, (np.ndarray, onnx.TensorProto, ir.TensorProtocol)):
        return _Kind.TENSOR
    if isinstance(value, (ir.Graph, ir.Model)):
        return _Kind.GRAPH
    if isinstance(value, (int, np.integer)):
        return _Kind.INT
    if isinstance(value, (float, np.floating)):
        return _Kind.FLOAT
    return _list_kind([v.item() if isinstance(v, np.generic) else v for v in _items(value)])
