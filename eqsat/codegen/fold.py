"""Scales and shifts of channels go into the weights and the bias of the product before them.

``(w * x + b) * s + t`` is ``(w * s) * x + (b * s + t)``: what a normalization behind a convolution becomes costs
nothing then. The products of constants are made in float64 and rounded once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import Node, Program
from eqsat.model.types import OpKey

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
    """One number an output channel, in float64; None if it says more."""
    shape = node.output.shape
    axis = 1
    full = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    if any(n != 1 for i, n in enumerate(full.shape) if i != axis):
        return None
    return np.broadcast_to(full.ravel().astype(np.float64), (shape[axis],))


def _apply(node: Node, name: str, vector: np.ndarray) -> bool:
    """Change weights and bias."""
    weights = node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not isinstance(weights, np.ndarray) or not (bias is None or isinstance(bias, np.ndarray)):
        return False
    if node.operator == _GEMM and (node.attributes["beta"] != 1 or node.attributes["alpha"] != 1):
        return False
    old = np.zeros(len(vector)) if bias is None else bias.astype(np.float64)
    if node.operator == _GEMM and old.ndim == 2 and old.shape[0] != 1:
        return False
    shift = np.broadcast_to(old.ravel() if old.size == 1 or old.ndim < 2 else old[0], vector.shape)
    if name in ("Mul", "Div"):
        factor = vector if name == "Mul" else 1 / vector
        rows = node.operator == _CONV or bool(node.attributes["transB"])
        shape = (-1, *[1] * (weights.ndim - 1)) if rows else (1, -1)
        node.inputs[1] = (weights.astype(np.float64) * factor.reshape(shape)).astype(weights.dtype)
        if bias is None:
            return True
        shift = shift * factor
    else:
        shift = shift + (vector if name == "Add" else -vector)
    node.inputs[2:] = [shift.astype(weights.dtype)]
    return True


def _drop_first(node: Node) -> None:
    """Remove the first step, whose result becomes value 0, and operands that nobody reads any more."""
    result = 1 + len(node.operands)
    rest = node.steps[1:]
    used = sorted({i for s in rest for i in s.inputs if i is not None and 1 <= i < result})
    numbers = {old: 1 + new for new, old in enumerate(used)} | {result: 0}
    numbers |= {result + 1 + k: 1 + len(used) + k for k in range(len(rest))}
    node.operands = [node.operands[i - 1] for i in used]
    node.steps = [replace(s, inputs=tuple(None if i is None else numbers[i] for i in s.inputs)) for s in rest]
