"""Reduces operators that are the same to a kernel to one spelling.

Every operator that keeps the order of elements becomes a ``Reshape``. A normalization with known statistics becomes a
product and a sum. Quantization parameters of an axis are reshaped so that they broadcast. Elementwise operators become
steps after an ``Identity``, to which fusion appends further steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.expressions import is_elementwise
from eqsat.codegen.kernel import Step
from eqsat.codegen.kernels.shared.registry import families
from eqsat.codegen.loops import is_scalar_epilogue
from eqsat.codegen.program import IDENTITY, RESHAPE, Node, Operand, Tensor
from eqsat.model.definition import has_definition
from eqsat.schema import opset
from eqsat.schema.types import OpKey

Made = tuple[list[Node], list[Operand | None]]
"""New nodes, and what the old node's outputs are now."""

_ORDER_KEPT = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def canonical(node: Node) -> Made:
    """The nodes that stand for one node of the model."""
    results: list[Operand | None] = [*node.outputs]
    if not node.operator.domain:
        name = node.operator.name
        if name in _ORDER_KEPT:
            return _reshape(node, node.inputs[0], node.output), results
        if name == "Identity" or (name == "Dropout" and not any(node.outputs[1:]) and not _trains(node)):
            return [], [node.inputs[0], *results[1:]]
    rewrite = _REWRITES.get(node.operator)
    if rewrite is not None:
        made = rewrite(node)
        return (made if made is not None else [node]), results
    chain = as_chain(node)
    return ([chain] if chain is not None else [node]), results


def is_known(operator: OpKey) -> bool:
    """Whether there is any way to write an operator in C, for some types and shapes."""
    if is_elementwise(operator) or families(operator):
        return True
    simple = not operator.domain and operator.name in (*_ORDER_KEPT, *_REWRITES, "Identity", "Dropout", "Shape", "Size")
    return simple or has_definition(operator)


def as_chain(node: Node) -> Node | None:
    """An elementwise operator as a chain of one step; None for other operators and unsupported types."""
    if not is_elementwise(node.operator) or any(node.outputs[1:]) or not node.outputs or node.outputs[0] is None:
        return None
    present = [i for i, x in enumerate(node.inputs) if x is not None]
    if not present:
        return None
    shapes = [x.shape for x in node.inputs if x is not None]
    out = node.output
    try:
        if np.broadcast_shapes(*shapes) != out.shape:
            return None
    except ValueError:
        return None
    # The anchor reads an operand of full size that is not constant, if there is one.
    tensors = [i for i in present if isinstance(node.inputs[i], Tensor)]
    full = [i for i in tensors if _shape(node.inputs[i]) == out.shape]
    first = (full or tensors or present)[0]
    anchor = node.inputs[first]
    others = [i for i in present if i != first]
    numbers: list[int | None] = [None] * len(node.inputs)
    numbers[first] = 0
    for k, i in enumerate(others):
        numbers[i] = 1 + k
    step = Step(node.operator, node.attributes, tuple(numbers), out.dtype)
    operands = [x for i in others if (x := node.inputs[i]) is not None]
    chain = Node(node.name, IDENTITY, {}, [anchor], [out], _dtype(anchor), operands, [step])
    return chain if is_scalar_epilogue(chain.provisional_task().epilogue) else None


def _reshape(node: Node, x: Operand | None, out: Tensor) -> list[Node]:
    return [Node(node.name, RESHAPE, {}, [x], [out], out.dtype)]


def _shape(x: Operand | None) -> tuple[int, ...]:
    return () if x is None else x.shape


def _dtype(x: Operand | None) -> ir.DataType:
    assert x is not None
    return x.dtype if isinstance(x, Tensor) else ir.DataType.from_numpy(x.dtype)


# ---- rewrites: None where the node should stay as it is ---------------------------------------------


def _batch_normalization(node: Node) -> list[Node] | None:
    """With known statistics ``x * k + (bias - mean * k)``, as inference runs it."""
    x, *parameters = node.inputs
    if node.attributes.get("training_mode") or any(node.outputs[1:]) or not isinstance(x, Tensor):
        return None
    if not all(isinstance(p, np.ndarray) for p in parameters) or x.dtype not in _REAL:
        return None
    scale, bias, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    k = scale / np.sqrt(variance + node.attributes["epsilon"])
    per_channel = (-1, *[1] * (len(x.shape) - 2))
    dtype = x.dtype.numpy()
    factor = k.astype(dtype).reshape(per_channel)
    offset = (bias - mean * k).astype(dtype).reshape(per_channel)
    steps = [
        Step(OpKey("", "Mul"), {}, (0, 1), x.dtype),
        Step(OpKey("", "Add"), {}, (3, 2), x.dtype),
    ]
    return [Node(node.name, IDENTITY, {}, [x], [node.output], x.dtype, [factor, offset], steps)]


_REAL = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def _trains(node: Node) -> bool:
    """Whether a dropout may drop something."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    return mode is not None and not (isinstance(mode, np.ndarray) and not mode.any())


def _quantization(node: Node) -> list[Node] | None:
    """Scale and zero point of one axis are shaped as operands that broadcast."""
    x, scale, *rest = node.inputs
    if x is None or scale is None or node.attributes.get("block_size"):
        return None
    made: list[Node] = []
    rank = len(x.shape)
    operands: list[Operand | None] = [scale, *rest]
    if len(scale.shape) == 1 and rank > 0:
        axis = node.attributes["axis"] % rank
        for k, v in enumerate(operands):
            if v is not None and len(v.shape) == 1:
                shape = tuple(v.shape[0] if a == axis else 1 for a in range(rank))
                operands[k] = _shaped(node.name, v, shape, made)
    chain = as_chain(Node(node.name, node.operator, node.attributes, [x, *operands], list(node.outputs), node.dtype))
    return [*made, chain] if chain is not None else None


def _shaped(name: str, x: Operand, shape: tuple[int, ...], made: list[Node]) -> Operand:
    if isinstance(x, np.ndarray):
        return x.reshape(shape)
    out = Tensor(f"{x.name}_shaped", x.dtype, shape)
    made.append(Node(name, RESHAPE, {}, [x], [out], x.dtype))
    return out


def _cast_like(node: Node) -> list[Node] | None:
    x = node.inputs[0]
    attributes: dict[str, Any] = {"to": int(node.output.dtype), "saturate": node.attributes.get("saturate", 1)}
    if node.attributes.get("round_mode") is not None:
        attributes["round_mode"] = node.attributes["round_mode"]
    cast = Node(node.name, OpKey("", "Cast"), attributes, [x], list(node.outputs), node.dtype)
    chain = as_chain(cast)
    return [chain] if chain is not None else [cast]


_REWRITES: dict[OpKey, Callable[[Node], list[Node] | None]] = {
    OpKey("", "BatchNormalization"): _batch_normalization,
    OpKey("", "CastLike"): _cast_like,
    OpKey("", "DequantizeLinear"): _quantization,
    OpKey("", "QuantizeLinear"): _quantization,
    OpKey(opset.EQSAT, "Requantize"): _quantization,
    OpKey(opset.MICROSOFT, "DequantizeLinear"): _quantization,
    OpKey(opset.MICROSOFT, "QuantizeLinear"): _quantization,
}
