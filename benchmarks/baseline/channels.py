"""Constants per channel, and their place in the bias of a convolution."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from benchmarks.baseline.edit import Editor, array_of, dims, is_constant, is_plain


def absorb_biases(model: ir.Model, *, into_biases: bool = True) -> None:
    """An addition of one constant per channel to a convolution that nothing else reads becomes its bias.

    Args:
        model: Is changed in place.
        into_biases: Whether to add to biases that are there already.
    """
    edit = Editor(model)
    for node in edit.nodes():
        if not is_plain(node, "Add"):
            continue
        x, shift = split_constant(node)
        conv = folding_convolution(x)
        channels = None if shift is None or conv is None else per_channel(shift, node.outputs[0])
        if x is None or conv is None or channels is None:
            continue
        if not into_biases and len(conv.inputs) > 2 and conv.inputs[2] is not None:
            continue
        _set_bias(edit, conv, _bias(conv, channels) + channels)
        edit.replace(node, x)
    edit.drop_dead()


def split_constant(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    """The operand of a binary operator that is not a constant, and the one that is; None, None otherwise."""
    a, b = node.inputs
    if is_constant(b) and not is_constant(a):
        return a, b
    if is_constant(a) and not is_constant(b):
        return b, a
    return None, None


def folding_convolution(value: ir.Value | None) -> ir.Node | None:
    """The convolution that computes a value for one reader, where its weights are constant."""
    node = value.producer() if value is not None else None
    if value is None or node is None or not is_plain(node, "Conv") or len(value.uses()) != 1 or value.is_graph_output():
        return None
    return node if all(is_constant(v) for v in node.inputs[1:] if v is not None) else None


def per_channel(constant: ir.Value, like: ir.Value) -> np.ndarray | None:
    """A constant that varies along dimension 1 of ``like`` at most, as a vector; None if it is another."""
    shape, array, whole = dims(constant), array_of(constant), dims(like)
    if shape is None or whole is None or len(whole) < 3 or len(shape) not in (len(whole) - 1, len(whole)):
        return None
    shape = (1,) * (len(whole) - len(shape)) + shape
    if any(d != 1 for i, d in enumerate(shape) if i != 1) or shape[1] != whole[1]:
        return None
    return array.reshape(-1)


def along(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A vector as a tensor that varies along one dimension."""
    return vector.reshape([-1 if i == axis else 1 for i in range(rank)])


def is_depthwise(node: ir.Node) -> bool:
    """Whether each channel of a convolution has a kernel of its own."""
    kernel = dims(node.inputs[1])
    groups = node.attributes.get_int("group", 1)
    return kernel is not None and groups > 1 and kernel[0] == groups and kernel[1] == 1


def _bias(conv: ir.Node, like: np.ndarray) -> np.ndarray:
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    return np.zeros_like(like) if bias is None else array_of(bias)


def _set_bias(edit: Editor, conv: ir.Node, bias: np.ndarray) -> None:
    if len(conv.inputs) < 3:
        conv.resize_inputs(3)
    conv.replace_input_with(2, edit.constant(bias, "bias"))
