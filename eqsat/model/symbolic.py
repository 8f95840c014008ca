"""Inference of one node by ``onnx-shape-inference``, which reckons with symbols and knows ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import onnx_shape_inference as osi

from eqsat.model import opset
from eqsat.model.attributes import from_attrs
from eqsat.model.checks import contradiction
from eqsat.model.types import Attrs, Dim, OpKey, TensorType


def infer(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: int,
    place: str,
) -> tuple[TensorType | None, ...]:
    """Types of a node's outputs, all None for an operator that the package does not know.

    Arguments and errors as :func:`eqsat.model.infer.infer_types`.
    """
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
            value.const_value = ir.Tensor(array, dtype=known.dtype)
        operands.append(value)
    node = ir.Node(op.domain, op.name, operands, from_attrs(attrs, op), num_outputs=outputs)
    for i, value in enumerate(node.outputs):
        value.name = f"%out{i}"
    context = osi.ShapeInferenceContext({op.domain: opset.opset_version(op.domain), "": opset.PINNED_OPSET})
    context.reserve_symbol_names(
        {d for t in inputs if t is not None and t.shape is not None for d in t.shape if isinstance(d, str)}
    )
    try:
        for operand in operands:
            if operand is not None:
                context.name_anonymous_dims(operand)
        rule(context, node)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise contradiction(place, inputs, str(error)) from error
    if context.errors:
        raise contradiction(place, inputs, context.errors[0].message)
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
        # An expression over a symbol that was made up says no more than the symbol itself.
        made_up = isinstance(d, ir.SymbolicDim) and any(name in generated for name in d.free_symbols())
        dims.append(None if made_up else symbol)
    return TensorType(value.type.dtype, tuple(dims))


# ---- broadcasting --------------------------------------------------------------------------------

_BROADCASTING = (
    *("Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual"),
    *("Less", "LessOrEqual", "MatMul", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor"),
)
_Rule = Callable[[osi.ShapeInferenceContext, ir.Node], None]


def _keep_broadcasts_sound() -> None:
    """Wraps the package's rules of operators that broadcast.

    They call ``[N] + [M]`` an ``[N]``. It is an ``[M]`` where N is 1; so it is neither, and a rewrite that swaps the
    operands must not change the type.
    """
    osi.registry.collect()
    for name in _BROADCASTING:
        for since in osi.registry.version_boundaries("", name):
            rule = osi.registry.get("", name, since)
            assert rule is not None
            # Of two rules registered for one version the later one counts.
            osi.registry.register("", name, since)(_sound(rule, 2 if name == "MatMul" else 0))


def _sound(rule: _Rule, inner: int) -> _Rule:
    """The rule with open dimensions where distinct symbols meet; the last ``inner`` dimensions do not broadcast."""

    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        output = node.outputs[0]
        before = output.shape
        rule(context, node)
        shapes = [v.shape for v in node.inputs if v is not None]
        shape = output.shape
        if shape is None or any(s is None for s in shapes):
            return
        dims = list(shape)
        for i in range(inner + 1, len(dims) + 1):
            met = {s[-i] for s in shapes if s is not None and len(s) >= max(i, inner)} - {1}
            declared = before is not None and len(before) == len(dims) and before[-i] == dims[-i]
            if len(met) > 1 and not any(isinstance(d, int) for d in met) and not declared:
                dims[-i] = context.new_symbolic_dim()
        if dims != list(shape):
            output.shape = ir.Shape(dims)

    return sound


_REDUCE = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_RANK_BY_AXES = ("Squeeze", "Unsqueeze", *(f"Reduce{kind}" for kind in _REDUCE))


def _keep_ranks_sound() -> None:
    """Wraps the package's rules of operators whose rank depends on axes: unknown axes are to it no axes."""
    for name in _RANK_BY_AXES:
        for since in osi.registry.version_boundaries("", name):
            rule = osi.registry.get("", name, since)
            assert rule is not None
            osi.registry.register("", name, since)(_with_known_axes(rule))


def _with_known_axes(rule: _Rule) -> _Rule:
    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        axes = node.inputs[1] if len(node.inputs) > 1 else None
        data = node.inputs[0]
        if axes is None or data is None or context.get_symbolic_value(axes) is not None:
            rule(context, node)
        elif data.dtype is not None:
            context.set_shape_and_dtype(node.outputs[0], None, data.dtype)

    return sound


_keep_broadcasts_sound()
_keep_ranks_sound()
