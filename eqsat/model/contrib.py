"""Type rules of the ``com.microsoft`` operators: those of the ``onnx-shape-inference`` package, and what it lacks.

They are registered with that package, so that the inference of whole graphs knows them too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import onnx_shape_inference as osi

from eqsat.errors import ModelError
from eqsat.model import opset
from eqsat.model.attributes import from_attrs
from eqsat.model.types import Attrs, Dim, OpKey, TensorType


def infer(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: int,
    place: str,
) -> tuple[TensorType | None, ...]:
    """Types of the outputs of a ``com.microsoft`` node, as :func:`eqsat.model.infer.infer_types`."""
    osi.registry.collect()
    rule = osi.registry.get(op.domain, op.name, opset.opset_version(op.domain))
    if rule is None:
        return (None,) * outputs
    operands: list[ir.Value | None] = []
    for i, known in enumerate(inputs):
        if known is None:
            operands.append(None)
            continue
        value = ir.Value(name=f"%{i}", type=ir.TensorType(known.dtype))
        value.shape = None if known.shape is None else ir.Shape(known.shape)
        if i < len(values) and (array := values[i]) is not None:
            value.const_value = ir.tensor(array, dtype=known.dtype)
        operands.append(value)
    node = ir.Node(op.domain, op.name, operands, from_attrs(attrs, op), num_outputs=outputs)
    context = osi.ShapeInferenceContext({op.domain: opset.opset_version(op.domain), "": opset.PINNED_OPSET})
    try:
        for operand in operands:
            if operand is not None:
                context.name_anonymous_dims(operand)
        rule(context, node)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise _contradiction(place, inputs, str(error)) from error
    if context.errors:
        raise _contradiction(place, inputs, context.errors[0].message)
    generated = context.generated_dim_names
    return tuple(_known(value, generated) for value in node.outputs)


def _known(value: ir.Value, generated: frozenset[str]) -> TensorType | None:
    if not isinstance(value.type, ir.TensorType):
        return None
    if value.shape is None:
        return TensorType(value.type.dtype, None)
    dims: list[Dim] = []
    for d in value.shape:
        symbol = d if isinstance(d, int) else d.value
        dims.append(None if symbol in generated else symbol)
    return TensorType(value.type.dtype, tuple(dims))


def _contradiction(place: str, inputs: Sequence[TensorType | None], why: str) -> ModelError:
    actual = ", ".join("absent" if t is None else str(t) for t in inputs)
    return ModelError("inputs and attributes that fit together are required", place=place, actual=actual, hint=why)
