"""Type rules for operators without a rule in ONNX: those of ``com.microsoft`` and of ``ai.onnx.ml``.

The operators that ONNX Runtime's quantizer and fusions write are variants of standard operators, and so are their
types: the standard operator's rule (with all its checks) is applied to the operands that carry the data. Some have a
definition by standard operators, or a rule of their own. For the others the ``onnx-shape-inference`` package has rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.validate.checks import check_types, contradiction
from eqsat.ops.families.maps import ML
from eqsat.ops.operators import declared, operator
from eqsat.ops.typed_like import Like
from eqsat.schema import opset
from eqsat.schema.attributes import attr, default_attrs, make_attrs
from eqsat.schema.types import Attrs, OpKey, TensorType, tensor_type

if TYPE_CHECKING:
    import onnx_shape_inference as osi

Infer = Callable[..., tuple[TensorType | None, ...]]
InferBody = Callable[..., Sequence[TensorType | None]]
_FLOAT = ir.DataType.FLOAT


def infer(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: int,
    place: str,
    standard: Infer,
    of_body: InferBody,
    symbolic: Callable[[], Infer],
) -> tuple[TensorType | None, ...]:
    """Types of the outputs of a node.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its inputs, None for an absent one.
        values: Their values where known.
        outputs: Number of its outputs.
        place: For messages.
        standard: :func:`eqsat.model.inference.infer.infer_types`, for the standard operators.
        of_body: :func:`eqsat.model.inference.infer.infer_body`, for definitions.
        symbolic: Returns :func:`eqsat.model.inference.symbolic.infer` when all rules are registered; called only if
            needed.

    Raises:
        ModelError: The inputs and attributes contradict each other.
    """
    _check_dtypes(op, inputs, place)
    known = operator(op)
    complete = {**dict(default_attrs(op)), **dict(attrs)}
    check_types(op, tuple(complete.items()), inputs, values, (), place)
    if known.types is not None:
        found = known.types(complete, inputs)
        return tuple([*found, *[None] * outputs][:outputs])
    if known.definition is not None and all(t is None or t.shape is not None for t in inputs):
        body = known.definition(complete, inputs)
        if body is not None:
            try:
                types = of_body(body, inputs, values)
            except ModelError as error:
                raise contradiction(place, inputs, error.hint or str(error)) from error
            return tuple([*(types[i] for i in body.results), *[None] * outputs][:outputs])
    like = known.typed_like
    if like is None:
        by_symbols = symbolic()  # Before the next line: it fills the set.
        if op in _OWN:
            return (None,) * outputs
        return by_symbols(op, attrs, inputs, values, outputs, place)
    positions = list(like.operands)
    if like.group > 1:
        positions = [*positions[:-1], *range(positions[-2] + like.group, len(inputs), like.group)]
    operands: list[TensorType | None] = []
    operand_values: list[np.ndarray | None] = []
    for i in positions:
        known = inputs[i] if i < len(inputs) else None
        value = values[i] if i < len(values) else None
        if i in like.integers and known is not None and known.dtype.is_integer():
            # The standard operator's are int64.
            operands.append(TensorType(ir.DataType.INT64, known.shape))
            operand_values.append(None if value is None else value.astype(np.int64))
        else:
            operands.append(known if known is None or i in like.integers else TensorType(_FLOAT, known.shape))
            operand_values.append(value if i in like.integers else None)
    last = like.channels_last or bool(attr(attrs, "channels_last", 0))
    if last:
        operands[0] = _permuted(operands[0], first=True)
    while operands and operands[-1] is None:
        operands.pop()
        operand_values.pop()
    key = OpKey("", like.standard)
    shared = {n: v for n, v in attrs if n in opset.attribute_types(key)}
    found = standard(key, make_attrs(key, shared), operands, operand_values, place=place)[0]
    if found is None:
        return (None,) * outputs
    dtype = _result_dtype(like, inputs)
    result = _permuted(TensorType(dtype, found.shape), first=False) if last else TensorType(dtype, found.shape)
    return (result, *[None] * (outputs - 1))


def _result_dtype(like: Like, inputs: Sequence[TensorType | None]) -> ir.DataType:
    if isinstance(like.result, ir.DataType):
        return like.result
    known = inputs[like.result] if like.result < len(inputs) else None
    return like.absent if known is None else known.dtype


def _permuted(known: TensorType | None, *, first: bool) -> TensorType | None:
    """The type with the channels moved to axis 1 (``first``) or to the end."""
    if known is None or known.shape is None or len(known.shape) < 3:
        return known
    n, *rest = known.shape
    return TensorType(known.dtype, (n, rest[-1], *rest[:-1]) if first else (n, *rest[1:], rest[0]))


def _check_dtypes(op: OpKey, inputs: Sequence[TensorType | None], place: str) -> None:
    """Refuses element types that the schema does not allow, and operands of one type parameter that differ."""
    formal = opset.schema(op).inputs
    least, most = opset.input_arity(op)
    if not least <= len(inputs) <= most:
        raise ModelError(f"{least} to {most} inputs of {op} are required", place=place, actual=f"{len(inputs)}")
    bound: dict[str, TensorType] = {}
    for i, known in enumerate(inputs):
        if known is None:
            continue
        parameter = formal[min(i, len(formal) - 1)]
        allowed = opset.input_dtypes(op, i)
        if allowed and known.dtype not in allowed:
            names = ", ".join(sorted(d.name.lower() for d in allowed))
            raise ModelError(f"{parameter.name} of {op} must be one of {names}", place=place, actual=str(known))
        if parameter.is_homogeneous and not parameter.type_str.startswith("tensor("):
            other = bound.setdefault(parameter.type_str, known)
            if other.dtype != known.dtype:
                actual = f"{other} and {known}"
                raise ModelError(f"inputs of {op} of one element type are required", place=place, actual=actual)


_OWN: set[OpKey] = set()
"""Operators whose rule in the package is the one here."""


def register_symbolic(standard: Infer, of_body: InferBody, symbolic: Callable[[], Infer]) -> None:
    """Registers rules that the package lacks or has wrong, so that the inference of whole graphs has them."""
    import onnx_shape_inference as osi

    osi.registry.collect()
    for found in declared():
        op = found.op
        typed = found.typed_like or found.definition
        # If a version has two rules, the later one counts. For trained models the package covers only the simplest
        # cases.
        is_new = op.domain == ML or not osi.registry.has(op.domain, op.name)
        if found.types is not None or (typed is not None and is_new):
            osi.registry.register(op.domain, op.name)(_rule(standard, of_body, symbolic))
            _OWN.add(op)


def _rule(
    standard: Infer, of_body: InferBody, symbolic: Callable[[], Infer]
) -> Callable[[osi.ShapeInferenceContext, ir.Node], None]:
    def rule(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        from eqsat.schema.attributes import op_key, to_attrs

        inputs = [None if v is None else tensor_type(v) for v in node.inputs]
        if any(v is not None and t is None for v, t in zip(node.inputs, inputs, strict=True)):
            return
        constants = [None if v is None else ir.convenience.get_const_tensor(v) for v in node.inputs]
        values = [None if c is None else c.numpy() for c in constants]
        try:
            place = str(node.name)
            attrs, outputs = to_attrs(node), len(node.outputs)
            found = infer(op_key(node), attrs, inputs, values, outputs, place, standard, of_body, symbolic)
        except ModelError as error:
            context.record_error(node, error.hint or str(error))
            return
        for value, known in zip(node.outputs, found, strict=True):
            if known is not None:
                shape = None if known.shape is None else context.name_anonymous_dims_in_shape(ir.Shape(known.shape))
                context.set_shape_and_dtype(value, shape, known.dtype)

    return rule
