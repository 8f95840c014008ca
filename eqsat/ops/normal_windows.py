"""The normal form of convolutions and pools: every window has explicit kernel, strides, dilations and pads.

``auto_pad`` is resolved by the formulas in the ONNX specification of Conv, ConvTranspose and the pools.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.ops.normal import NormalForm
from eqsat.schema import opset
from eqsat.schema.attributes import attr
from eqsat.schema.types import Attrs, AttrValue, OpKey, TensorType

AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
"""The words that ``auto_pad`` may have; a node with another one is not changed, so that the checks refuse it."""


def window(weight: int | None = None, *, transposed: bool = False) -> NormalForm:
    """The normal form of a convolution by the position of its weight, or of a pool."""
    return lambda given: _complete(given.op, given.attrs, given.inputs, weight, transposed)


def _complete(
    op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None], position: int | None, transposed: bool
) -> dict[str, AttrValue | None]:
    if attr(attrs, "channels_last", 0):
        return {}
    shape = inputs[0].shape if inputs and inputs[0] is not None else None
    weight = inputs[position] if position is not None and position < len(inputs) else None
    kernel = attr(attrs, "kernel_shape")
    if kernel is None and weight is not None and weight.shape is not None:
        dims = weight.shape[2:]
        kernel = tuple(d for d in dims if isinstance(d, int)) if all(isinstance(d, int) for d in dims) else None
    rank = len(kernel) if kernel is not None else len(shape) - 2 if shape is not None else None
    if rank is None or rank < 1 or attr(attrs, "auto_pad", "NOTSET") not in AUTO_PAD:
        return {}
    known = opset.attribute_types(op)
    changes: dict[str, AttrValue | None] = {}
    if kernel is not None:
        changes["kernel_shape"] = kernel
    strides = attr(attrs, "strides") or (1,) * rank
    dilations = attr(attrs, "dilations") or (1,) * rank
    changes["strides"] = strides
    if "dilations" in known:
        changes["dilations"] = dilations
    padding = attr(attrs, "output_padding") or (0,) * rank
    if transposed:
        changes["output_padding"] = padding
    fits = all(len(v) == rank for v in (strides, dilations, padding)) and min(*strides, *dilations) > 0
    if not fits or len(attr(attrs, "output_shape") or strides) < rank:
        return {}
    size = None if shape is None or len(shape) != rank + 2 else shape[2:]
    if transposed and (attr(attrs, "output_shape") or attr(attrs, "auto_pad", "NOTSET").startswith("SAME")):
        return changes | _transposed(attrs, size, kernel, strides, dilations)
    pads = _explicit_pads(attrs, size, kernel, strides, dilations)
    if pads is not None:
        changes["pads"] = pads
        if "auto_pad" in known:
            changes["auto_pad"] = "NOTSET"
        if attr(attrs, "auto_pad", "NOTSET") != "NOTSET" and "ceil_mode" in known:
            changes["ceil_mode"] = 0
    return changes


def _explicit_pads(
    attrs: Attrs,
    size: Sequence[int | str | None] | None,
    kernel: tuple[int, ...] | None,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...] | None:
    """``pads`` equivalent to the attributes, None if they depend on unknown values."""
    rank = len(strides)
    mode = attr(attrs, "auto_pad", "NOTSET")
    if mode == "NOTSET":
        return attr(attrs, "pads") or (0,) * (2 * rank)
    if mode == "VALID":
        # With ceil_mode the specification rounds differently than it does for explicit pads.
        return None if attr(attrs, "ceil_mode", 0) else (0,) * (2 * rank)
    if kernel is None:
        return None
    begins, ends = [], []
    for i in range(rank):
        extent = (kernel[i] - 1) * dilations[i] + 1
        length = size[i] if size is not None else None
        if isinstance(length, int):
            windows = -(-length // strides[i])
            total = max((windows - 1) * strides[i] + extent - length, 0)
        elif strides[i] == 1:
            total = extent - 1
        else:
            return None
        begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
        begins.append(begin)
        ends.append(total - begin)
    return (*begins, *ends)


def _transposed(
    attrs: Attrs,
    size: Sequence[int | str | None] | None,
    kernel: tuple[int, ...] | None,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> dict[str, AttrValue | None]:
    """The required output size as pads, or as output padding where it is larger than the windows reach."""
    if kernel is None:
        return {}
    rank = len(strides)
    wanted = attr(attrs, "output_shape")
    extra: list[int] = list(attr(attrs, "output_padding") or (0,) * rank)
    begins, ends = [], []
    for i in range(rank):
        total = (kernel[i] - 1) * dilations[i] + 1 + extra[i] - strides[i]
        if wanted is not None:
            length = size[i] if size is not None else None
            if not isinstance(length, int):
                return {}
            total += strides[i] * length - wanted[-rank:][i]
        if total < 0:
            # If windows end before the size that ``auto_pad`` requires, the result ends with the last window.
            extra[i] -= total if wanted is not None else 0
            total = 0
            if extra[i] >= max(strides[i], dilations[i]):
                return {}
        begin = total // 2 if attr(attrs, "auto_pad", "NOTSET") == "SAME_UPPER" else total - total // 2
        begins.append(begin)
        ends.append(total - begin)
    return {
        "auto_pad": "NOTSET",
        "output_padding": tuple(extra),
        "output_shape": None,
        "pads": (*begins, *ends),
    }
