"""Types of values that one round of a loop hands to the next, and of the rows that rounds make.

ONNX's inference gives such a value no shape, since a round may change it. By induction it keeps its initial shape if
the body maps that shape to itself; a row then has the shape that the body infers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.schema.attributes import attr
from eqsat.schema.dimension import dimension
from eqsat.schema.size import closer_bounds
from eqsat.schema.size_choices import largest
from eqsat.schema.size_questions import as_dim
from eqsat.schema.types import Attrs, Dim, GraphAttr, OpKey, TensorType, TensorTypes

IF = OpKey("", "If")
_LOOP, _SCAN = OpKey("", "Loop"), OpKey("", "Scan")
CARRIED = frozenset({_LOOP, _SCAN})
"""Operators whose rounds hand on values."""
CARRIED_SHAPE = "eqsat.carried_shape"
"""In the ``meta`` of a loop's result: its shape was found here, by induction over the rounds."""


def carried_types(
    op: OpKey,
    attrs: Attrs,
    inputs: TensorTypes,
    limits: Sequence[np.ndarray | None],
    found: TensorTypes,
    infer: Callable[[ir.Graph, TensorTypes], TensorTypes],
) -> TensorTypes:
    """The types of a loop's results.

    Args:
        op: One of ``CARRIED``.
        attrs: Attributes of the node.
        inputs: Types of its own inputs.
        limits: The values of its first two inputs if they are known.
        found: Types of its outputs as ONNX infers them.
        infer: Infers the types of a body's outputs from those of its inputs.
    """
    if all(known is not None and known.is_static for known in found):
        return found
    body = attr(attrs, "body")
    assert isinstance(body, GraphAttr)
    if op == _LOOP:
        head = [TensorType(ir.DataType.INT64, ()), TensorType(ir.DataType.BOOL, ())]
        states, slices = list(inputs[2:]), []
        count, axes = _rounds(body.graph, inputs, limits), ()
    else:
        scanned = int(attr(attrs, "num_scan_inputs"))
        head, states = [], list(inputs[: len(inputs) - scanned])
        slices, count = _slices(inputs[len(states) :], attr(attrs, "scan_input_axes", ()))
        axes = attr(attrs, "scan_output_axes", ())
    while True:
        ends = infer(body.graph, [*head, *states, *slices])[1 if op == _LOOP else 0 :]
        broken = [k for k, first in enumerate(states) if _is_shaped(first) and ends[k] != first]
        if not broken:
            break
        states = [replace(s, shape=None) if s is not None and k in broken else s for k, s in enumerate(states)]
    result = [first if _is_shaped(first) else old for first, old in zip(states, found, strict=False)]
    for k, (row, old) in enumerate(zip(ends[len(states) :], found[len(states) :], strict=False)):
        # The number of rounds may be 0; then rows have the shape that the body declares. Only numbers have no other.
        runs = count is not None and closer_bounds(count)[0] > 0
        if row is not None and row.shape is not None and (runs or not row.shape):
            place = (axes[k] if k < len(axes) else 0) % (len(row.shape) + 1)
            rows = None if count is None else as_dim(count)
            old = replace(row, shape=(*row.shape[:place], rows, *row.shape[place:]))
        result.append(old)
    return result


def types_of_branches(attrs: Attrs, found: TensorTypes, infer: Callable[[ir.Graph], TensorTypes]) -> TensorTypes:
    """The types of an If's results: a dimension that ONNX's inference leaves open is that on which its branches agree.

    Args:
        attrs: Of the node.
        found: Types of its outputs as ONNX infers them.
        infer: Infers the types of a branch's outputs.
    """
    if all(known is not None and known.is_static for known in found):
        return found
    branches = [
        infer(a.graph) for name in ("then_branch", "else_branch") if isinstance(a := attr(attrs, name), GraphAttr)
    ]
    return [_agreed(known, one, other) for known, one, other in zip(found, *branches, strict=True)]


def _agreed(known: TensorType | None, one: TensorType | None, other: TensorType | None) -> TensorType | None:
    if one is None or other is None or one.shape is None or other.shape is None:
        return known
    if one.dtype != other.dtype or len(one.shape) != len(other.shape):
        return known
    dims = tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))
    if known is not None and known.shape is not None and len(known.shape) == len(dims):
        dims = tuple(d if a is None else a for a, d in zip(known.shape, dims, strict=True))
    return TensorType(one.dtype, dims)


def _is_shaped(known: TensorType | None) -> bool:
    return known is not None and known.shape is not None


def _rounds(graph: ir.Graph, inputs: TensorTypes, limits: Sequence[np.ndarray | None]) -> int | None:
    """The number of rounds of a Loop if no condition ends it, possibly a free size; None if it depends on data."""
    limit, first = limits[:2]
    if limit is None or limit.size != 1 or (inputs[1] is not None and (first is None or not first.all())):
        return None
    count = limit.reshape(-1).tolist()[0]
    return largest(count, 0) if count is not None and keeps_condition(graph) else None


def keeps_condition(graph: ir.Graph) -> bool:
    """Whether no round of a Loop ends it before its limit: the body hands its condition on, or says true."""
    again = graph.outputs[0]
    while (node := again.producer()) is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        again = node.inputs[0]
    return again is graph.inputs[1] or is_true(again)


def is_true(value: ir.Value) -> bool:
    """Whether a condition is a constant that is true."""
    known = ir.convenience.get_const_tensor(value)
    return known is not None and bool(known.numpy().all())


def _slices(scanned: TensorTypes, axes: Sequence[int]) -> tuple[list[TensorType | None], int | None]:
    """Types of the slices of a Scan's operands, and how many there are."""
    slices: list[TensorType | None] = []
    count: Dim = None
    for k, known in enumerate(scanned):
        if known is None or known.shape is None:
            slices.append(known)
            continue
        place = (axes[k] if k < len(axes) else 0) % len(known.shape)
        count = known.shape[place] if count is None or isinstance(known.shape[place], int) else count
        slices.append(replace(known, shape=(*known.shape[:place], *known.shape[place + 1 :])))
    return slices, count if isinstance(count, int) else dimension(count)
