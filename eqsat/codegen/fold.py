"""Scales and shifts of channels go into the weights and the bias of the product before them.

``(w * x + b) * s + t`` is ``(w * s) * x + (b * s + t)``: what a normalization behind a convolution becomes costs
nothing then. The products of constants are made in a wider type and rounded once, and only where the result is in the
range of its type (:mod:`eqsat.ops.wide`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import Node, Program
from eqsat.ops.wide import evaluate_wide, misfit, widen
from eqsat.schema.types import OpKey, TensorType

_CONV = OpKey("", "Conv")
_GEMM = OpKey("", "Gemm")
_REAL = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def fold_scales(program: Program) -> None:
    """Shorten the epilogues of convolutions and products; nodes are changed in place."""
    for node in program.nodes:
        if node.group is None and node.dtype in _REAL and node.operator in (_CONV, _GEMM):
            while node.steps and _fold_first(node):
                pass


def _fold_first(node: Node) -> bool:
    """Fold the first step of an epilogue; False if it is none that can be."""
    step = node.steps[0]
    if any(0 in other.inputs for other in node.steps[1:]) or step.dtype != node.dtype or step.operator.domain:
        return False
    a, b = (*step.inputs, None, None)[:2]
    if len(step.inputs) != 2 or a == b:
        return False
    name = step.operator.name
    at = b if a == 0 else a if b == 0 and name in ("Add", "Mul") else None
    if at is None or not 1 <= at <= len(node.operands) or name not in ("Add", "Mul", "Sub", "Div"):
        return False
    constant = node.operands[at - 1]
    if not isinstance(constant, np.ndarray):
        return False
    vector = _per_channel(node, constant)
    if vector is None or not np.isfinite(vector).all() or (name == "Div" and not vector.all()):
        return False
    if not _apply(node, name, vector):
        return False
    _drop_first(node)
    return True


def _per_channel(node: Node, constant: np.ndarray) -> np.ndarray | None:
    """One number an output channel; None if it says more."""
    shape = node.output.shape
    axis = 1
    full = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    if any(n != 1 for i, n in enumerate(full.shape) if i != axis):
        return None
    return np.broadcast_to(full.ravel(), (shape[axis],))


def _apply(node: Node, name: str, vector: np.ndarray) -> bool:
    """Change weights and bias."""
    weights = node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not isinstance(weights, np.ndarray) or not (bias is None or isinstance(bias, np.ndarray)):
        return False
    if node.operator == _GEMM and (node.attributes["beta"] != 1 or node.attributes["alpha"] != 1):
        return False
    old = np.zeros(len(vector), weights.dtype) if bias is None else bias
    if node.operator == _GEMM and old.ndim == 2 and old.shape[0] != 1:
        return False
    shift = np.broadcast_to(old.ravel() if old.size == 1 or old.ndim < 2 else old[0], vector.shape)
    if name in ("Mul", "Div"):
        rows = node.operator == _CONV or bool(node.attributes["transB"])
        shape = (-1, *[1] * (weights.ndim - 1)) if rows else (1, -1)
        scaled = _computed(name, weights, vector.reshape(shape), contracted=True)
        moved = None if bias is None else _computed(name, shift, vector)
        if scaled is None or (bias is not None and moved is None):
            return False
        node.inputs[1] = scaled
    else:
        moved = _computed(name, shift, vector)
        if moved is None:
            return False
    if moved is not None:
        node.inputs[2:] = [moved]
    return True


def _computed(name: str, left: np.ndarray, right: np.ndarray, *, contracted: bool = False) -> np.ndarray | None:
    """Arithmetic of constants; None where their type cannot hold the result."""
    dtype = ir.DataType.from_numpy(left.dtype)
    kind = TensorType(dtype, np.broadcast_shapes(left.shape, right.shape))
    (found,) = evaluate_wide(OpKey("", name), (), [widen(left, dtype), widen(right, dtype)], [kind])
    return None if found is None or misfit(found, contracted=contracted) else found.rounded()


def _drop_first(node: Node) -> None:
    """Remove the first step, whose result becomes value 0, and operands that nobody reads any more."""
    result = 1 + len(node.operands)
    rest = node.steps[1:]
    used = sorted({i for s in rest for i in s.inputs if i is not None and 1 <= i < result})
    numbers = {old: 1 + new for new, old in enumerate(used)} | {result: 0}
    numbers |= {result + 1 + k: 1 + len(used) + k for k in range(len(rest))}
    node.operands = [node.operands[i - 1] for i in used]
    node.steps = [replace(s, inputs=tuple(None if i is None else numbers[i] for i in s.inputs)) for s in rest]
