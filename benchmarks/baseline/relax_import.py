"""ONNX operators as TVM's Relax importer spells them, and its folding of batch normalisation.

``tvm.relax.frontend.onnx`` (0.27) gives some operators another form, and the form decides which patterns match and what
is left over: a ``Sum`` becomes two broadcasts, a stack and a reduction, which no pattern for a residual addition
recognises; a bias becomes an addition; a normalisation over channels becomes eight operators. Operators not treated
here are imported one to one.

The result is ONNX again, which can be run and costed: Relax's ``stack``, for which ONNX has no operator, is a
model-local function.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from benchmarks.baseline.channels import absorb_biases
from benchmarks.baseline.edit import Editor, array_of, dims, fold_constants, is_constant, is_plain
from eqsat.errors import OptimizationError

RELAX = "relax"
"""Domain of what Relax has and ONNX has not."""


def as_relax(model: ir.Model, *, split_biases: bool = True) -> None:
    """Rewrites a model into the operators that Relax sees when fusion starts: imported, folded, normalisation folded.

    Args:
        model: With shapes; changed in place.
        split_biases: Convolutions without bias and ``MatMul`` followed by additions, as Relax has them; else ``Conv``
            with bias and ``Gemm``, which mean the same to a target file.
    """
    fold_constants(model)
    edit = Editor(model)
    for node in edit.nodes():
        spell = _SPELLINGS.get(node.op_type) if is_plain(node, node.op_type) else None
        if not split_biases and is_plain(node, "Conv", "Gemm"):
            continue
        if spell is not None:
            result = spell(edit, node, model)
            if result is not None:
                edit.replace(node, result)
    fold_constants(model)
    fold_batchnorm(model)
    if not split_biases:
        absorb_biases(model, into_biases=False)
    fold_constants(model)


def fold_batchnorm(model: ir.Model) -> None:
    """FoldBatchnormToConv2D: a 2-D convolution without bias, then a normalisation, all constant but the image."""
    edit = Editor(model)
    for node in edit.nodes():
        if not is_plain(node, "BatchNormalization") or not all(is_constant(v) for v in node.inputs[1:]):
            continue
        conv = node.inputs[0].producer() if node.inputs[0] is not None else None
        if conv is None or not is_plain(conv, "Conv") or _operand(conv, 2) is not None:
            continue
        kernel = conv.inputs[1]
        if kernel is None or not is_constant(kernel) or array_of(kernel).ndim != 4:
            continue
        gamma, beta, mean, variance = (array_of(v) for v in node.inputs[1:5] if v is not None)
        scale = gamma / np.sqrt(variance + np.asarray(node.attributes.get_float("epsilon", 1e-5), variance.dtype))
        weights = edit.constant(array_of(kernel) * scale.reshape(-1, 1, 1, 1), kernel.name or "kernel")
        shift = edit.constant((beta - mean * scale).reshape(1, -1, 1, 1), "shift")
        result = edit.emit(node, "Conv", [conv.inputs[0], weights], node.outputs[0])
        _copy_attributes(conv, result)
        edit.replace(node, edit.emit(node, "Add", [result, shift], node.outputs[0]))
    edit.drop_dead()


# ---- one operator each ---------------------------------------------------------------------------


def _conv(edit: Editor, node: ir.Node, model: ir.Model) -> ir.Value | None:
    bias = _operand(node, 2)
    if bias is None:
        return None
    rank = _rank(node.outputs[0])
    result = edit.emit(node, node.op_type, node.inputs[:2], node.outputs[0])
    _copy_attributes(node, result)
    shape = [1, -1] + [1] * (rank - 2)
    if is_constant(bias):
        shift = edit.reshaped(bias, shape)
    else:
        shift = edit.emit(node, "Reshape", [bias, edit.constant(np.array(shape, np.int64), "shape")], bias)
        shift.shape = ir.Shape(1 if d == 1 else (dims(bias) or (None,))[0] for d in shape)
    return edit.emit(node, "Add", [result, shift], node.outputs[0])


def _gemm(edit: Editor, node: ir.Node, model: ir.Model) -> ir.Value | None:
    a, b, c = (_operand(node, i) for i in range(3))
    assert a is not None and b is not None
    attrs = node.attributes
    if attrs.get_float("alpha", 1.0) != 1.0:
        a = edit.emit(node, "Mul", [a, _scalar(edit, attrs.get_float("alpha", 1.0), a)], a)
    if attrs.get_int("transA", 0):
        a = _transposed(edit, node, a)
    if attrs.get_int("transB", 0):
        b = _transposed(edit, node, b)
    result = edit.emit(node, "MatMul", [a, b], node.outputs[0])
    if c is None:
        return result
    if attrs.get_float("beta", 1.0) != 1.0:
        c = edit.emit(node, "Mul", [c, _scalar(edit, attrs.get_float("beta", 1.0), c)], c)
    return edit.emit(node, "Add", [result, c], node.outputs[0])


def _stacked(reduction: str) -> Callable[[Editor, ir.Node, ir.Model], ir.Value | None]:
    def spell(edit: Editor, node: ir.Node, model: ir.Model) -> ir.Value | None:
        shape = _static(node.outputs[0])
        wanted = edit.constant(np.array(shape, np.int64), "shape")
        parts = [edit.emit(node, "Expand", [v, wanted], node.outputs[0]) for v in node.inputs]
        stack = edit.emit(node, f"{RELAX}.stack{len(parts)}", parts, node.outputs[0])
        stack.shape = ir.Shape((len(parts), *shape))
        _define_stack(model, len(parts))
        axes = edit.constant(np.array([0], np.int64), "axes")
        return edit.emit(node, reduction, [stack, axes], node.outputs[0], keepdims=0)

    return spell


def _global_pool(reduction: str) -> Callable[[Editor, ir.Node, ir.Model], ir.Value | None]:
    def spell(edit: Editor, node: ir.Node, model: ir.Model) -> ir.Value | None:
        axes = edit.constant(np.arange(2, _rank(node.inputs[0]), dtype=np.int64), "axes")
        return edit.emit(node, reduction, [node.inputs[0], axes], node.outputs[0], keepdims=1)

    return spell


def _flatten(edit: Editor, node: ir.Node, model: ir.Model) -> ir.Value | None:
    shape = edit.constant(np.array(_static(node.outputs[0]), np.int64), "shape")
    return edit.emit(node, "Reshape", [node.inputs[0], shape], node.outputs[0])


def _clip(edit: Editor, node: ir.Node, model: ir.Model) -> ir.Value | None:
    result = node.inputs[0]
    for index, op in ((1, "Max"), (2, "Min")):
        bound = _operand(node, index)
        if bound is not None:
            result = edit.emit(node, op, [result, bound], node.outputs[0])
    return result


def _lrn(edit: Editor, node: ir.Node, model: ir.Model) -> ir.Value | None:
    x = node.inputs[0]
    assert x is not None
    shape = _static(x)
    attrs = node.attributes
    size = attrs["size"].as_int()
    square = edit.emit(node, "Mul", [x, x], x)
    first = edit.constant(np.array([1], np.int64), "axes")
    deep = edit.emit(node, "Unsqueeze", [square, first], x)
    deep.shape = ir.Shape((shape[0], 1, *shape[1:]))
    spatial = len(shape) - 2
    before = [(size - 1) // 2] + [0] * spatial
    after = [size - 1 - before[0]] + [0] * spatial
    mean = edit.emit(
        node,
        "AveragePool",
        [deep],
        deep,
        kernel_shape=[size] + [1] * spatial,
        pads=before + after,
        strides=[1] * (spatial + 1),
        count_include_pad=1,
    )
    flat = edit.emit(node, "Squeeze", [mean, first], x)
    scaled = edit.emit(node, "Mul", [flat, _scalar(edit, attrs.get_float("alpha", 1e-4), x)], x)
    raised = edit.emit(node, "Add", [scaled, _scalar(edit, attrs.get_float("bias", 1.0), x)], x)
    power = edit.emit(node, "Pow", [raised, _scalar(edit, attrs.get_float("beta", 0.75), x)], x)
    return edit.emit(node, "Div", [x, power], x)


_SPELLINGS: dict[str, Callable[[Editor, ir.Node, ir.Model], ir.Value | None]] = {
    "Clip": _clip,
    "Conv": _conv,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_pool("ReduceMean"),
    "GlobalMaxPool": _global_pool("ReduceMax"),
    "LRN": _lrn,
    "Max": _stacked("ReduceMax"),
    "Mean": _stacked("ReduceMean"),
    "Min": _stacked("ReduceMin"),
    "Sum": _stacked("ReduceSum"),
}


# ---- help ----------------------------------------------------------------------------------------


def _operand(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _static(value: ir.Value | None) -> tuple[int, ...]:
    shape = dims(value)
    if shape is None:
        name = value.name if value is not None else ""
        raise OptimizationError("shapes must be known", place=f"tensor {name!r}", hint="bind symbolic dimensions")
    return shape


def _rank(value: ir.Value | None) -> int:
    if value is None or value.shape is None:
        raise OptimizationError("ranks must be known", place=f"tensor {value.name if value is not None else ''!r}")
    return value.shape.rank()


def _scalar(edit: Editor, number: float, like: ir.Value) -> ir.Value:
    assert like.dtype is not None
    return edit.constant(np.array(number, like.dtype.numpy()), "scalar")


def _transposed(edit: Editor, node: ir.Node, value: ir.Value) -> ir.Value:
    result = edit.emit(node, "Transpose", [value], value, perm=[1, 0])
    result.shape = None if value.shape is None else ir.Shape(tuple(value.shape)[::-1])
    return result


def _copy_attributes(source: ir.Node, result: ir.Value) -> None:
    node = result.producer()
    assert node is not None
    for attribute in source.attributes.values():
        node.attributes[attribute.name] = attribute


def _define_stack(model: ir.Model, parts: int) -> None:
    """``stack``: a new first dimension for each operand, then concatenation along it."""
    name = f"stack{parts}"
    key = (RELAX, name, "")
    if key in model.functions:
        return
    opset = model.graph.opset_imports.get("", 26)
    inputs = [ir.Value(name=f"x{i}") for i in range(parts)]
    axes = ir.node("Constant", [], {"value_ints": [0]})
    deep = [ir.node("Unsqueeze", [v, axes.outputs[0]]) for v in inputs]
    concat = ir.node("Concat", [n.outputs[0] for n in deep], {"axis": 0})
    graph = ir.Graph(inputs, concat.outputs, nodes=[axes, *deep, concat], opset_imports={"": opset}, name=name)
    model.functions[key] = ir.Function(RELAX, name, "", graph=graph, attributes=[])
    model.graph.opset_imports.setdefault(RELAX, 1)
