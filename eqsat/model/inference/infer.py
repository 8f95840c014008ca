"""Type inference of one node, and of a body: which tensor types an operator produces from which.

ONNX's own rules (``onnx.shape_inference``) at the pinned opset do the work. :mod:`eqsat.model.validate.checks` refuses
contradictions that they miss, :mod:`eqsat.model.inference.contrib` has the rules of ``com.microsoft``, and the rule of
a function is its body.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import Protocol, cast

import numpy as np
import onnx
import onnx_ir as ir
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from eqsat.errors import EqsatError, ModelError, reason
from eqsat.model.inference import contrib
from eqsat.model.inference.shape_values import propagate
from eqsat.model.inference.sized_shapes import as_types, sized_shapes
from eqsat.model.validate.checks import check_types, contradiction
from eqsat.model.validate.declared import check_operands
from eqsat.model.validate.fatal import require_least_of
from eqsat.ops.evaluate import constant_value
from eqsat.ops.operators import has, operator
from eqsat.ops.traits import Trait
from eqsat.schema import opset
from eqsat.schema.attributes import attr, to_protos
from eqsat.schema.body import Body
from eqsat.schema.declared_operators import Reference, declared_here, find_declared
from eqsat.schema.dimension import dimension
from eqsat.schema.size_questions import as_dim
from eqsat.schema.types import Attrs, Dim, GraphAttr, OpKey, TensorAttr, TensorType

MAX_VALUE = 4096
"""Elements up to which a known value is passed to inference, which only reads shapes, axes and similar values."""

_OPSETS = dict(opset.OPSETS)
_SPLIT = OpKey("", "Split")
_RESIZE = OpKey("", "Resize")
_Types = Sequence[TensorType | None]
_Values = Sequence[np.ndarray | None]


_THROWN = (InferenceError, ValidationError, ValueError, IndexError, OverflowError, RuntimeError)
"""Types of Python exceptions for exceptions of C++: a number that is not an element type, for one, is a ValueError."""


class _Schema(Protocol):
    """``onnx.defs.OpSchema`` without its stub, which lacks the last two parameters."""

    def _infer_node_outputs(
        self,
        node: bytes,
        types: Mapping[str, bytes],
        data: Mapping[str, bytes],
        sparse: Mapping[str, bytes],
        opsets: Mapping[str, int],
        ir_version: int,
        /,
    ) -> Mapping[str, bytes]: ...


def infer_types(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None] = (),
    outputs: int = 1,
    *,
    place: str = "",
) -> tuple[TensorType | None, ...]:
    """Types of a node's outputs.

    Args:
        op: The operator, of ONNX, ``com.microsoft``, or a registered function.
        attrs: Its attributes.
        inputs: Types of its inputs, None for an absent optional one; then the types of the values that its subgraphs
            capture, in the order of ``GraphAttr.captured`` and each once.
        values: Their values where known; shapes, axes, pads and the like are needed, everything else is ignored.
            Elements may be free sizes (:mod:`eqsat.model.inference.shape_values`).
        outputs: Number of the node's outputs.
        place: Where the node is, for messages; the operator's name by default.

    Returns:
        One type per output, None if it is unknown or the output is not a tensor. Dimensions that are not
        known are symbols or None.

    Raises:
        ModelError: The inputs and attributes contradict each other.
    """
    place = place or str(op)
    if op.name == "Constant" and not op.domain:
        return (constant_type(attrs),)
    declared = find_declared(op)
    if declared is not None:
        check_operands(declared, inputs, place)
        if isinstance(declared, Reference):
            return _stated_types(declared, inputs, attrs, outputs, place)
        body = declared.body(dict(declared.complete(attrs)))
        return _infer_function(op, body, inputs, values, place)[:outputs]
    known = operator(op)
    if op.domain == opset.MICROSOFT or (op.domain and (known.types is not None or known.definition is not None)):
        values = _without_sizes(values)
        return contrib.infer(op, attrs, inputs, values, outputs, place, infer_types, infer_body, _by_symbols)
    if opset.canonical_domain(op.domain) not in _OPSETS:
        return (None,) * outputs
    return _infer_standard(op, attrs, inputs, values, outputs, place)


def _infer_standard(
    op: OpKey, attrs: Attrs, inputs: _Types, values: _Values, outputs: int, place: str
) -> tuple[TensorType | None, ...]:
    """The types of an operator of ONNX: by its own rule, completed and checked."""
    schema = cast(_Schema, opset.schema(op))
    _require_outputs(op, attrs, outputs, place)
    require_least_of(op, attrs, place)
    captured = tuple(dict.fromkeys(name for _, a in attrs if isinstance(a, GraphAttr) for name in a.captured))
    own = inputs[: len(inputs) - len(captured)]
    sizes, values = values, _without_sizes(values)
    try:
        found = _by_onnx(schema, op, attrs, own, values, outputs, dict(zip(captured, inputs[len(own) :], strict=True)))
    except _THROWN as error:
        wrong = contradiction(place, inputs, _plain_message(str(error)))
        if not any(map(_is_vague_parameter, own[1:])):
            raise wrong from error
        # Some rules (Resize) treat a parameter of unknown length as empty.
        try:
            found = symbolic().infer(op, attrs, inputs, sizes, outputs, place)
        except ModelError:
            raise wrong from error
        shapes = sized_shapes(op, attrs, inputs, sizes, outputs)
        return _canonical(found if shapes is None else _refined(as_types(shapes, found), found))
    if any(t is not None and not t.is_static for t in own):
        found = _without_false_zeros(own, found)
    if op == _RESIZE and (shapes := sized_shapes(op, attrs, own, sizes, outputs)) is not None:
        # ONNX's rule multiplies in float64, its reference and ONNX Runtime in float32: 12 times 7/12 is 6 or 7.
        found = _refined(as_types(shapes, found), found)
    check_types(op, attrs, own, values, found, place)
    if not captured and any(t is None or not t.is_static for t in found):
        found = _with_sizes(op, attrs, own, sizes, found, place)
    return found


def _by_onnx(
    schema: _Schema,
    op: OpKey,
    attrs: Attrs,
    inputs: _Types,
    values: _Values,
    outputs: int,
    captured: Mapping[str, TensorType | None],
) -> tuple[TensorType | None, ...]:
    """The types by ONNX's rule, which raises one of ``_THROWN``."""
    named = [(f"%{i}", known) for i, known in enumerate(inputs)]
    types = {name: _type_bytes(known) for name, known in (*named, *captured.items()) if known is not None}
    data = {
        name: _tensor_bytes(value, known)
        for (name, known), value in zip(named, values, strict=False)
        if value is not None and known is not None and is_parameter(op, value.dtype, value.size)
    }
    has_graphs = any(isinstance(a, GraphAttr) for _, a in attrs)
    make = _node_bytes if has_graphs else _cached_node_bytes
    node = make(op, attrs, tuple(known is not None for known in inputs), outputs)
    # Subgraphs may hold declared operators.
    opsets = _OPSETS | {declared.op.domain: 1 for declared in declared_here()} if has_graphs else _OPSETS
    # The public function would serialize again what is cached here.
    inferred = schema._infer_node_outputs(node, types, data, {}, opsets, opset.IR_VERSION)
    return tuple(_from_proto(inferred.get(f"%out{i}")) for i in range(outputs))


def infer_body(
    body: Body, inputs: Sequence[TensorType | None], values: Sequence[np.ndarray | None] = ()
) -> list[TensorType | None]:
    """Types of all numbered values of a body: its inputs first, then the outputs of its nodes in order.

    Args:
        body: The program.
        inputs: Types of its inputs.
        values: Values of its inputs where known. Constants and values that follow from shapes are known anyway.

    Raises:
        ModelError: Two operators of the body do not fit together.
    """
    types = list(inputs)
    known: list[np.ndarray | None] = [*values, *[None] * (body.inputs - len(values))]
    for node in body.nodes:
        node_types = [None if i is None else types[i] for i in node.inputs]
        node_values = [None if i is None else known[i] for i in node.inputs]
        if any(i is not None and types[i] is None for i in node.inputs):
            types += [None] * node.outputs
            known += [None] * node.outputs
            continue
        found = infer_types(node.op, node.attrs, node_types, node_values, node.outputs)
        types += found
        known += propagate(node.op, node.attrs, node_types, node_values, found)
    return types


def constant_type(attrs: Attrs) -> TensorType | None:
    """Type of a ``Constant`` node."""
    for _, value in attrs:
        if isinstance(value, TensorAttr):
            return TensorType(value.dtype, tuple(value.array.shape))
    array = constant_value(attrs)
    if array is None:
        return None
    return TensorType(ir.DataType.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype), array.shape)


def is_parameter(op: OpKey, dtype: np.dtype, size: int) -> bool:
    """Whether inference might look at the contents of an input: shapes, axes, pads, scales of a Resize."""
    if size > MAX_VALUE:
        return False
    if has(op, Trait.DIVIDES):
        return dtype.kind in "iu"
    return (dtype.kind in "iu" and dtype.itemsize >= 4) or (dtype.kind == "f" and op.name in _READS_FLOATS)


# ---- details -------------------------------------------------------------------------------------

_READS_FLOATS = frozenset(("Range", "Resize", "Upsample"))


def _require_outputs(op: OpKey, attrs: Attrs, outputs: int, place: str) -> None:
    """Split has an attribute for its number of outputs; onnx's own inference writes past the end if they differ."""
    wanted = attr(attrs, "num_outputs") if op == _SPLIT else None
    if wanted is not None and wanted != outputs:
        raise ModelError(
            "the number of outputs must equal `num_outputs`", place=place, actual=f"{outputs}, not {wanted}"
        )


def _infer_function(
    op: OpKey, body: Body, inputs: Sequence[TensorType | None], values: Sequence[np.ndarray | None], place: str
) -> tuple[TensorType | None, ...]:
    if len(inputs) > body.inputs:
        raise ModelError(f"at most {body.inputs} inputs of {op} are required", place=place, actual=f"{len(inputs)}")
    padded = [*inputs, *[None] * (body.inputs - len(inputs))]
    types = infer_body(body, padded, values)
    return tuple(types[i] for i in body.results)


def _stated_types(
    reference: Reference, inputs: Sequence[TensorType | None], attrs: Attrs, outputs: int, place: str
) -> tuple[TensorType, ...]:
    """The types that a Python function states."""
    try:
        found = reference.infer(inputs, attrs)
    except EqsatError:
        raise
    except Exception as error:  # the function is the user's, and may raise anything
        requirement = f"operands that the types of {reference.op} are defined for are required"
        raise ModelError(requirement, place=place, actual=_shown(inputs), hint=reason(error)) from error
    if len(found) != reference.results or not all(isinstance(t, TensorType) for t in found):
        requirement = f"{reference.results} of eqsat.TensorType are required as the types of {reference.op}"
        raise ModelError(requirement, place=place, actual=repr(found)[:200])
    return found[:outputs]


def _shown(inputs: Sequence[TensorType | None]) -> str:
    return ", ".join("absent" if t is None else str(t) for t in inputs) or "no operands"


def _is_vague_parameter(known: TensorType | None) -> bool:
    return known is not None and not known.is_static and known.dtype in (ir.DataType.INT64, ir.DataType.INT32)


def _without_false_zeros(
    inputs: Sequence[TensorType | None], found: tuple[TensorType | None, ...]
) -> tuple[TensorType | None, ...]:
    """Some of ONNX's rules (Attention) treat an unknown dimension as 0 and multiply with it."""
    if any(t is not None and t.shape is not None and 0 in t.shape for t in inputs):
        return found
    return tuple(
        t if t is None or t.shape is None else TensorType(t.dtype, tuple(None if d == 0 else d for d in t.shape))
        for t in found
    )


def _with_sizes(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    found: tuple[TensorType | None, ...],
    place: str,
) -> tuple[TensorType | None, ...]:
    """The types with the dimensions that ONNX's rules leave open, as far as they follow from free sizes."""
    if op == _SPLIT and len(inputs) > 1 and inputs[1] is not None and not _is_known(values, 1):
        found = tuple(_open_along(t, int(attr(attrs, "axis", 0))) for t in found)
    shapes = sized_shapes(op, attrs, inputs, values, len(found))
    if shapes is not None:
        return _refined(found, as_types(shapes, found))
    # The package refuses more than ONNX does; then the dimensions stay open.
    with contextlib.suppress(ModelError):
        found = _refined(found, symbolic().infer(op, attrs, inputs, values, len(found), place))
    return _canonical(found)


def _without_sizes(values: _Values) -> list[np.ndarray | None]:
    """The values without those that have free sizes."""
    return [v if v is None or v.dtype != object else None for v in values]


def _is_known(values: Sequence[np.ndarray | None], position: int) -> bool:
    value = values[position] if position < len(values) else None
    return value is not None and value.dtype != object


def _canonical(found: tuple[TensorType | None, ...]) -> tuple[TensorType | None, ...]:
    """The types with expressions of sizes in the one form in which equal ones are equal texts."""

    def written(dim: Dim) -> Dim:
        size = dimension(dim) if isinstance(dim, str) and not dim.isidentifier() else None
        return dim if size is None else as_dim(size)

    return tuple(
        t if t is None or t.shape is None else TensorType(t.dtype, tuple(map(written, t.shape))) for t in found
    )


def _open_along(known: TensorType | None, axis: int) -> TensorType | None:
    """ONNX's rule for Split takes parts for equal whose sizes are data."""
    if known is None or not known.shape:
        return known
    axis %= len(known.shape)
    return TensorType(known.dtype, (*known.shape[:axis], None, *known.shape[axis + 1 :]))


def _refined(
    found: tuple[TensorType | None, ...], other: tuple[TensorType | None, ...]
) -> tuple[TensorType | None, ...]:
    """The first type, completed from the second: ONNX's rules do not compute with symbols."""

    def refine(a: TensorType | None, b: TensorType | None) -> TensorType | None:
        if a is None or a.shape is None or b is None or b.shape is None:
            return b if a is None or (b is not None and b.shape is not None) else a
        if len(a.shape) != len(b.shape):
            return a
        return TensorType(a.dtype, tuple(e if d is None else d for d, e in zip(a.shape, b.shape, strict=True)))

    return tuple(map(refine, found, other))


def _plain_message(message: str) -> str:
    return re.sub(r"^\[\w+\] ?|\(op_type:.*?\): ?", "", message.strip()).strip()


@lru_cache(maxsize=16384)
def _type_bytes(known: TensorType) -> bytes:
    return onnx.helper.make_tensor_type_proto(int(known.dtype), known.shape).SerializeToString()


def _tensor_bytes(value: np.ndarray, known: TensorType) -> bytes:
    if value.dtype.byteorder == ">":
        value = value.astype(value.dtype.newbyteorder("<"))
    return onnx.TensorProto(data_type=int(known.dtype), dims=value.shape, raw_data=value.tobytes()).SerializeToString()


def _node_bytes(op: OpKey, attrs: Attrs, present: tuple[bool, ...], outputs: int) -> bytes:
    node = onnx.NodeProto(
        op_type=op.name,
        domain=op.domain,
        input=[f"%{i}" if there else "" for i, there in enumerate(present)],
        output=[f"%out{i}" for i in range(outputs)],
        attribute=to_protos(attrs, op),
    )
    return node.SerializeToString()


# Not for subgraphs: they are equal only to themselves, and the cache would keep them alive.
@cache
def symbolic() -> ModuleType:
    """:mod:`eqsat.model.inference.symbolic` with the rules that are added here; it imports sympy, which most models do
    not need.
    """
    from eqsat.model.inference import symbolic as rules

    contrib.register_symbolic(infer_types, infer_body, _by_symbols)
    return rules


def _by_symbols() -> Callable[..., tuple[TensorType | None, ...]]:
    return symbolic().infer


_cached_node_bytes = lru_cache(maxsize=4096)(_node_bytes)


def _from_proto(data: bytes | None) -> TensorType | None:
    if data is None:
        return None
    return _parse_type(data)


@lru_cache(maxsize=16384)
def _parse_type(data: bytes) -> TensorType | None:
    proto = onnx.TypeProto.FromString(data)
    if not proto.HasField("tensor_type") or not proto.tensor_type.elem_type:
        return None
    dtype = ir.DataType(proto.tensor_type.elem_type)
    if not proto.tensor_type.HasField("shape"):
        return TensorType(dtype, None)
    dims = proto.tensor_type.shape.dim
    return TensorType(dtype, tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims))
