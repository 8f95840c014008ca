"""What TVM's Relay does to a model before it partitions: import, SimplifyInference, FoldScaleAxis, SimplifyExpr.

The order is that of Relay's ``partition_for_dnnl``: CanonicalizeOps, SimplifyInference, FoldConstant, FoldScaleAxis,
SimplifyExpr, FoldConstant; then MergeComposite and the rest (:mod:`benchmarks.baseline.relay`). Written after reading
``src/relay/transforms/{simplify_inference, fold_scale_axis, simplify_expr}.cc`` of `apache/tvm`.

One thing is said differently: Relay adds a bias with an operator of its own, which its patterns contain; in ONNX, and
so in the patterns of target files, a convolution has a bias as operand. So biases stay operands here, and an addition
of one constant per channel right behind a convolution becomes one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from benchmarks.baseline.channels import (
    absorb_biases,
    along,
    folding_convolution,
    is_depthwise,
    per_channel,
    split_constant,
)
from benchmarks.baseline.edit import Editor, array_of, dims, fold_constants, is_constant, is_plain


def as_relay(model: ir.Model) -> None:
    """Rewrites a model into the operators that Relay's partitioning sees.

    Args:
        model: With shapes; changed in place.
    """
    fold_constants(model)
    simplify_inference(model)
    fold_constants(model)
    absorb_biases(model)
    fold_scale_backward(model)
    fold_scale_forward(model)
    simplify_expressions(model)
    absorb_biases(model)
    fold_constants(model)


def simplify_inference(model: ir.Model) -> None:
    """Sums and extrema of many operands as chains of two, no dropout, normalisation by constants as ``x * a + b``."""
    edit = Editor(model)
    for node in edit.nodes():
        result = None
        if is_plain(node, "Sum", "Max", "Min"):
            op = "Add" if node.op_type == "Sum" else node.op_type
            result = node.inputs[0]
            for operand in node.inputs[1:] if node.op_type == "Sum" or len(node.inputs) > 2 else ():
                result = edit.emit(node, op, [result, operand], node.outputs[0])
            if result is node.inputs[0] and len(node.inputs) == 2:
                continue
        elif is_plain(node, "Identity") or (is_plain(node, "Dropout") and _is_unused(node, 1)):
            result = node.inputs[0]
        elif is_plain(node, "BatchNormalization") and all(is_constant(v) for v in node.inputs[1:]):
            gamma, beta, mean, variance = (array_of(v) for v in node.inputs[1:5] if v is not None)
            shape = (1, -1) + (1,) * (_rank(node.outputs[0]) - 2)
            scale = gamma / np.sqrt(variance + np.asarray(node.attributes.get_float("epsilon", 1e-5), variance.dtype))
            factor = edit.constant(scale.reshape(shape), "scale")
            shift = edit.constant((beta - mean * scale).reshape(shape), "shift")
            scaled = edit.emit(node, "Mul", [node.inputs[0], factor], node.outputs[0])
            result = edit.emit(node, "Add", [scaled, shift], node.outputs[0])
        if result is not None and len(node.outputs) == 1:
            edit.replace(node, result)
        elif result is not None and not node.outputs[0].is_graph_output():
            ir.convenience.replace_all_uses_with(node.outputs[0], result)
    edit.drop_dead()


# ---- FoldScaleAxis -------------------------------------------------------------------------------


def fold_scale_backward(model: ir.Model) -> None:
    """Multiplications per channel move into the weights of the convolutions before them."""
    edit = Editor(model)
    for node in edit.nodes():
        if not is_plain(node, "Mul"):
            continue
        x, factor = split_constant(node)
        if x is None or factor is None or len(x.uses()) != 1:
            continue
        scale = per_channel(factor, node.outputs[0])
        if scale is None or not _scale(edit, x, scale, dry=True):
            continue
        _scale(edit, x, scale, dry=False)
        edit.replace(node, x)
    edit.drop_dead()


def _scale(edit: Editor, value: ir.Value, scale: np.ndarray, *, dry: bool) -> bool:
    """Scales what computes a value, which has one reader; with ``dry`` only says whether that is possible."""
    node = value.producer()
    if node is None or len(value.uses()) != 1 or value.is_graph_output():
        return False
    if folding_convolution(value) is not None:
        if not dry:
            kernel = node.inputs[1]
            assert kernel is not None
            weights = array_of(kernel)
            node.replace_input_with(1, edit.constant(weights * along(scale, 0, weights.ndim), kernel.name or "kernel"))
            if len(node.inputs) > 2 and node.inputs[2] is not None:
                node.replace_input_with(2, edit.constant(array_of(node.inputs[2]) * scale, "bias"))
        return True
    if is_plain(node, "Relu", "LeakyRelu") and bool(np.all(scale > 0)):
        return node.inputs[0] is not None and _scale(edit, node.inputs[0], scale, dry=dry)
    if is_plain(node, "Add", "Sub"):
        a, b = node.inputs
        if a is None or b is None:
            return False
        for moving, other in ((a, b), (b, a)):
            shift = per_channel(other, value) if is_constant(other) else None
            if shift is not None:
                if not _scale(edit, moving, scale, dry=dry):
                    return False
                if not dry:
                    scaled = (shift * scale).reshape(along(scale, 1, _rank(value)).shape)
                    node.replace_input_with(list(node.inputs).index(other), edit.constant(scaled, "shift"))
                return True
        if dims(a) != dims(b):
            return False
        return _scale(edit, a, scale, dry=dry) and _scale(edit, b, scale, dry=dry)
    return False


@dataclass(slots=True)
class _Demand:
    """What all readers of a value can do with a factor per channel; ``positive`` if only with a positive one."""

    positive: bool = False


def fold_scale_forward(model: ir.Model) -> None:
    """Multiplications per channel move into the weights of the convolutions behind them."""
    edit = Editor(model)
    demands: dict[ir.Value, _Demand] = {}
    for node in reversed(edit.nodes()):
        value = node.outputs[0]
        found = [_demand(user, index, demands) for user, index in value.uses()]
        if found and not value.is_graph_output() and all(d is not None for d in found):
            demands[value] = _Demand(any(d.positive for d in found if d is not None))
    for node in edit.nodes():
        demand = demands.get(node.outputs[0])
        if demand is None or not is_plain(node, "Mul"):
            continue
        x, factor = split_constant(node)
        scale = None if factor is None else per_channel(factor, node.outputs[0])
        if x is None or scale is None or (demand.positive and not np.all(scale > 0)):
            continue
        _unscale_readers(edit, node.outputs[0], scale)
        edit.replace(node, x)
    edit.drop_dead()


def _demand(node: ir.Node, index: int, demands: dict[ir.Value, _Demand]) -> _Demand | None:
    if is_plain(node, "Conv"):
        groups = node.attributes.get_int("group", 1)
        return _Demand() if index == 0 and is_constant(node.inputs[1]) and (groups == 1 or is_depthwise(node)) else None
    own = demands.get(node.outputs[0])
    if own is None:
        return None
    if is_plain(node, "Relu", "LeakyRelu"):
        return _Demand(True)
    if is_plain(node, "Add", "Sub"):
        other = node.inputs[1 - index]
        moves = other is not None and is_constant(other) and per_channel(other, node.outputs[0]) is not None
        return own if moves else None
    return None


def _unscale_readers(edit: Editor, value: ir.Value, scale: np.ndarray) -> None:
    for node, index in value.uses():
        if is_plain(node, "Conv"):
            kernel = node.inputs[1]
            assert kernel is not None
            weights = array_of(kernel)
            factor = along(scale, 0 if is_depthwise(node) else 1, weights.ndim)
            node.replace_input_with(1, edit.constant(weights * factor, kernel.name or "kernel"))
            continue
        if is_plain(node, "Add", "Sub"):
            other = node.inputs[1 - index]
            shift = per_channel(other, node.outputs[0]) if other is not None else None
            assert shift is not None
            smaller = (shift / scale).reshape(along(scale, 1, _rank(node.outputs[0])).shape)
            node.replace_input_with(1 - index, edit.constant(smaller, "shift"))
        _unscale_readers(edit, node.outputs[0], scale)


# ---- SimplifyExpr --------------------------------------------------------------------------------


def simplify_expressions(model: ir.Model) -> None:
    """Two reshapes or transpositions in a row become one; constants that are added one after the other are summed."""
    edit = Editor(model)
    for node in edit.nodes():
        if is_plain(node, "Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            _merge_reshapes(edit, node)
        elif is_plain(node, "Transpose"):
            _merge_transposes(edit, node)
        elif is_plain(node, "Add"):
            _merge_additions(edit, node)
    edit.drop_dead()


def _merge_reshapes(edit: Editor, node: ir.Node) -> None:
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    shape = dims(node.outputs[0])
    if before is None or shape is None or not is_plain(before, "Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return
    wanted = edit.constant(np.array(shape, np.int64), "shape")
    edit.replace(node, edit.emit(node, "Reshape", [before.inputs[0], wanted], node.outputs[0]))


def _merge_transposes(edit: Editor, node: ir.Node) -> None:
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    if before is None or not is_plain(before, "Transpose"):
        return
    rank = _rank(node.outputs[0])
    inner, outer = (list(n.attributes.get_ints("perm", tuple(range(rank))[::-1])) for n in (before, node))
    perm = [inner[i] for i in outer]
    if perm == list(range(rank)) and before.inputs[0] is not None:
        edit.replace(node, before.inputs[0])
    else:
        edit.replace(node, edit.emit(node, "Transpose", [before.inputs[0]], node.outputs[0], perm=perm))


def _merge_additions(edit: Editor, node: ir.Node) -> None:
    x, second = split_constant(node)
    before = x.producer() if x is not None else None
    if before is None or second is None or not is_plain(before, "Add"):
        return
    inner, first = split_constant(before)
    if inner is None or first is None or dims(inner) != dims(node.outputs[0]):
        return
    total = edit.constant(array_of(first) + array_of(second), "shift")
    edit.replace(node, edit.emit(node, "Add", [inner, total], node.outputs[0]))


def _is_unused(node: ir.Node, index: int) -> bool:
    return all(not v.uses() and not v.is_graph_output() for v in node.outputs[index:])


def _rank(value: ir.Value) -> int:
    assert value.shape is not None
    return value.shape.rank()
