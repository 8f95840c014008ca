"""The normal form of a node's attributes and inputs, so that equal meanings are spelled equally.

Against the schema's defaults (see :mod:`eqsat.schema.attributes`) these depend on the inputs: axes are counted from the
front, ``auto_pad`` and ``output_shape`` become ``pads``, windows say their strides, dilations and kernel, and
attributes without effect have their default. What is not known (a symbolic dimension) stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.model.windows import complete_window
from eqsat.schema import opset
from eqsat.schema.attributes import attr, default_attrs
from eqsat.schema.types import Attrs, AttrValue, OpKey, TensorType

# Operators whose attribute `axis` counts the axes of their first input.
_AXIS = frozenset(
    (
        *("ArgMax", "ArgMin", "Compress", "Concat", "Gather", "GatherElements", "Hardmax", "LayerNormalization"),
        *("LogSoftmax", "LpNormalization", "RMSNormalization", "ScatterElements", "Softmax", "Split"),
        *("SplitToSequence", "TopK", "Unique"),
    )
)
_FLOAT8 = frozenset(d for d in ir.DataType if d.name.startswith("FLOAT8"))


def complete(op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None], outputs: int = 1) -> Attrs:
    """A bundle with everything filled in that follows from the inputs' types.

    Args:
        op: The operator.
        attrs: Its attributes, the schema's defaults filled in.
        inputs: Types of its inputs, None for an absent or unknown one.
        outputs: How many of its outputs are in use.

    Returns:
        The normal form; applying this again changes nothing.
    """
    if op.domain not in ("", opset.MICROSOFT):
        return attrs
    shape = inputs[0].shape if inputs and inputs[0] is not None else None
    rank = None if shape is None else len(shape)
    window = complete_window(op, attrs, inputs)
    changes: dict[str, AttrValue | None] = dict(window)
    name = op.name
    if not op.domain:
        if rank is not None and name in _AXIS:
            _count_axis(attrs, "axis", rank, changes)
        elif rank is not None and name == "Flatten" and -rank <= attr(attrs, "axis", 1) < 0:
            changes["axis"] = attr(attrs, "axis") + rank
        elif rank is not None and name == "OneHot":
            _count_axis(attrs, "axis", rank + 1, changes)
        elif name in ("QuantizeLinear", "DequantizeLinear"):
            _quantization_axis(attrs, inputs, changes)
        elif rank is not None and name == "Transpose" and attr(attrs, "perm") is None:
            changes["perm"] = tuple(reversed(range(rank)))
        elif rank is not None and name == "Shape":
            _shape_range(attrs, rank, changes)
        elif rank is not None and name in ("CenterCropPad", "Resize", "MeanVarianceNormalization"):
            axes = attr(attrs, "axes")
            if axes is not None:
                changes["axes"] = tuple(a + rank if -rank <= a < 0 else a for a in axes)
        elif name in ("GRU", "LSTM", "RNN") and attr(attrs, "hidden_size") is None:
            recurrent = inputs[2].shape if len(inputs) > 2 and inputs[2] is not None else None
            size = recurrent[-1] if recurrent else None
            changes["hidden_size"] = size if isinstance(size, int) else None
        elif name == "Dropout":
            changes["seed"] = None if len(inputs) < 3 else attr(attrs, "seed")
        elif name == "BatchNormalization" and not attr(attrs, "training_mode", 0):
            changes["momentum"] = _default(op, "momentum")
        elif name in ("Cast", "CastLike"):
            like = inputs[1] if len(inputs) > 1 else None
            target = attr(attrs, "to") if name == "Cast" else None if like is None else like.dtype
            if target is not None and target not in _FLOAT8:
                changes["saturate"] = _default(op, "saturate")
        elif name == "MaxPool" and outputs == 1:
            changes["storage_order"] = 0
        if name == "Split" and len(inputs) < 2 and attr(attrs, "num_outputs") is None:
            changes["num_outputs"] = outputs
    elif name == "QLinearConcat" and len(inputs) > 2 and inputs[2] is not None and inputs[2].shape is not None:
        _count_axis(attrs, "axis", len(inputs[2].shape), changes)
    if not changes:
        return attrs
    merged: dict[str, AttrValue | None] = dict(attrs) | changes
    return tuple(sorted((key, value) for key, value in merged.items() if value is not None))


def constant_axes(op: OpKey, inputs: Sequence[TensorType | None]) -> int | None:
    """Position of the input that lists axes, for operators that take axes as a tensor."""
    if op.domain:
        return None
    position = _AXES_INPUT.get(op.name)
    return position if position is not None and position < len(inputs) else None


def normal_axes(op: OpKey, inputs: Sequence[TensorType | None], axes: np.ndarray) -> np.ndarray:
    """Axes counted from the front, ascending where their order means nothing.

    Args:
        op: An operator with :func:`constant_axes`.
        inputs: Types of its inputs.
        axes: Their present value.
    """
    first = inputs[0]
    if first is None or first.shape is None:
        return axes
    rank = len(first.shape) + (axes.size if op.name == "Unsqueeze" else 0)
    counted = np.where((axes < 0) & (axes >= -rank), axes + rank, axes).astype(axes.dtype)
    if op.name in _ORDERED:
        return counted
    return np.sort(counted.reshape(-1))


_REDUCE = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_AXES_INPUT = {f"Reduce{kind}": 1 for kind in _REDUCE} | {
    "CumProd": 1,
    "CumSum": 1,
    "Pad": 3,
    "Slice": 3,
    "Squeeze": 1,
    "Unsqueeze": 1,
}
# These take one axis, or one entry of another input for each axis.
_ORDERED = frozenset(("CumProd", "CumSum", "Pad", "Slice"))


def _count_axis(attrs: Attrs, name: str, rank: int, changes: dict[str, AttrValue | None]) -> None:
    axis = attr(attrs, name)
    # What lies beyond the rank is left as it is, for the checks to refuse.
    if isinstance(axis, int) and -rank <= axis < 0:
        changes[name] = axis + rank


def _quantization_axis(attrs: Attrs, inputs: Sequence[TensorType | None], changes: dict[str, AttrValue | None]) -> None:
    """The axis means nothing where there is one scale."""
    scale = inputs[1] if len(inputs) > 1 else None
    if scale is None or scale.shape is None:
        return
    if scale.elements == 1 and len(scale.shape) < 2:
        changes["axis"] = 1
    elif inputs[0] is not None and inputs[0].shape is not None:
        _count_axis(attrs, "axis", len(inputs[0].shape), changes)


def _shape_range(attrs: Attrs, rank: int, changes: dict[str, AttrValue | None]) -> None:
    start, end, _ = slice(attr(attrs, "start", 0), attr(attrs, "end")).indices(rank)
    changes["start"] = start
    changes["end"] = None if end == rank else end


def _default(op: OpKey, name: str) -> AttrValue | None:
    return attr(default_attrs(op), name)
