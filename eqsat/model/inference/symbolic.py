"""Inference by ``onnx-shape-inference``, which computes with symbols and knows ``com.microsoft``.

It infers one node at a time, as :mod:`eqsat.model.inference.infer` does, and whole graphs, in which symbols pass
through values: the result of ``Shape`` becomes the operand of ``Reshape``. It is imported only for models in which a
size stays open (:func:`eqsat.model.inference.infer.symbolic`), because the package imports sympy.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnx_shape_inference as osi

from eqsat.model.inference import map_tensors
from eqsat.model.inference.corrections import make_sound
from eqsat.model.validate.checks import contradiction
from eqsat.schema import opset
from eqsat.schema.attributes import from_attrs, tensor_of
from eqsat.schema.size import Size
from eqsat.schema.types import Attrs, Dim, OpKey, TensorType

make_sound()
map_tensors.register()


def infer(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: int,
    place: str,
) -> tuple[TensorType | None, ...]:
    """Types of a node's outputs, all None for an operator that the package does not know.

    Arguments and errors as :func:`eqsat.model.inference.infer.infer_types`.
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
        if i < len(values) and (array := values[i]) is not None and array.dtype != object:
            value.const_value = tensor_of(array, known.dtype)
        operands.append(value)
    node = ir.Node(op.domain, op.name, operands, from_attrs(attrs, op), num_outputs=outputs)
    for i, value in enumerate(node.outputs):
        value.name = f"%out{i}"
    context = osi.ShapeInferenceContext({op.domain: opset.opset_version(op.domain), "": opset.PINNED_OPSET})
    context.reserve_symbol_names(
        {d for t in inputs if t is not None and t.shape is not None for d in t.shape if isinstance(d, str)}
    )
    try:
        for operand, array in zip(operands, [*values, *[None] * len(operands)], strict=False):
            if operand is None:
                continue
            context.name_anonymous_dims(operand)
            if array is not None and array.dtype == object and array.ndim < 2:
                context.set_symbolic_value(operand, [_symbolic(context, x) for x in array.reshape(-1).tolist()])
        rule(context, node)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
        raise contradiction(place, inputs, str(error)) from error
    if context.errors:
        raise contradiction(place, inputs, context.errors[0].message)
    generated = context.generated_dim_names
    return tuple(_known(value, generated) for value in node.outputs)


def _symbolic(context: osi.ShapeInferenceContext, element: object) -> int | ir.SymbolicDim:
    """The element of a shape as the package has it."""
    if isinstance(element, Size):
        return ir.SymbolicDim(f"{element:model}")
    return element if isinstance(element, int) else context.new_symbolic_dim()


def refine(model: ir.Model, declared: Mapping[ir.Value, TensorType]) -> None:
    """Follows symbols through a whole graph; known types stay.

    Args:
        model: The model, changed in place.
        declared: The declared types of the model's values. Their symbols name unknown sizes (the number of boxes that a
            detector finds), where a size is unknown, their numbers are trusted.
    """
    graph = model.graph
    inputs = {name for value in graph.inputs for name in (value.shape.free_symbols() if value.shape else ())}
    constants = set(graph.initializers.values())
    in_loops = {value: value.shape for value in _in_loops(graph)}
    # The package refuses more than ONNX does; then the dimensions stay open.
    with contextlib.suppress(Exception):
        osi.infer_symbolic_shapes(model, warn_on_missing=False, adopt_declared_symbols=False)
    for value, shape in in_loops.items():
        # It writes the shapes of the first round.
        value.shape = shape
    values = [*graph.inputs, *constants]
    for node in ir.traversal.RecursiveGraphIterator(graph):
        values += node.outputs
        for value in node.outputs:
            # It leaves its results as constants without an initializer.
            if value not in constants and node.op_type != "Constant":
                value.const_value = None
    for value in values:
        value.metadata_props.pop(osi.SYM_DATA_KEY, None)
    names: dict[str, int | str] = {}
    for node in graph:
        for value in node.outputs:
            said = declared.get(value)
            if value.shape is None:
                if said is not None and said.shape is not None:
                    value.shape = ir.Shape(said.shape)
                continue
            if said is not None and said.shape is not None and len(said.shape) == len(value.shape):
                for d, wanted in zip(value.shape, said.shape, strict=True):
                    if (
                        not isinstance(d, int)
                        and d.value not in inputs
                        and _is_generated(d.value)
                        and wanted is not None
                    ):
                        names.setdefault(str(d.value), wanted)
    for node in graph:
        for value in node.outputs:
            if value.shape is not None and not value.shape.is_static():
                said = declared.get(value)
                numbers = said.shape if said is not None and said.shape is not None else ()
                if len(numbers) != len(value.shape):
                    numbers = (None,) * len(value.shape)
                value.shape = ir.Shape(
                    [_settled(d, names, number) for d, number in zip(value.shape, numbers, strict=True)]
                )


def _in_loops(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values in the bodies of all loops."""
    for node in ir.traversal.RecursiveGraphIterator(graph):
        if node.op_type in ("Loop", "Scan") and not node.domain:
            body = node.attributes["body"].as_graph()
            yield from body.inputs
            for inner in ir.traversal.RecursiveGraphIterator(body):
                yield from inner.outputs


def _is_generated(name: str | None) -> bool:
    return name is not None and re.fullmatch(r"_d\d+", name) is not None


def _settled(d: int | ir.SymbolicDim, names: Mapping[str, int | str], declared: int | str | None) -> int | str | None:
    """The number that an expression is; otherwise the declared name of a generated symbol, or the declared number of
    rows of a loop if it is unknown.
    """
    if isinstance(d, int):
        return d
    if d.value is None:
        return declared if isinstance(declared, int) else None
    if d.value in names:
        return names[d.value]
    number = None if d.free_symbols() else d.evaluate({})
    return number if isinstance(number, int) else _without_ceiling(d.value)


def _without_ceiling(expression: str | None) -> str | None:
    """``ceiling(x)`` as ``-floor(-(x))``: the package writes it, onnx_ir does not read it."""
    name = "ceiling("
    while expression is not None and (start := expression.find(name)) >= 0:
        depth, end = 1, start + len(name)
        while depth:
            depth += {"(": 1, ")": -1}.get(expression[end], 0)
            end += 1
        inner = expression[start + len(name) : end - 1]
        expression = f"{expression[:start]}(-floor(-({inner}))){expression[end:]}"
    return expression


def _known(value: ir.Value, generated: frozenset[str]) -> TensorType | None:
    if not isinstance(value.type, ir.TensorType):
        return None
    if value.shape is None:
        return TensorType(value.type.dtype, None)
    dims: list[Dim] = []
    for d in value.shape:
        symbol = d if isinstance(d, int) else d.value
        # An expression over a generated symbol gives no more information than the symbol itself.
        made_up = isinstance(d, ir.SymbolicDim) and any(name in generated for name in d.free_symbols())
        dims.append(None if made_up else symbol if isinstance(symbol, int) else _without_ceiling(symbol))
    return TensorType(value.type.dtype, tuple(dims))
