"""Operands whose sizes do not belong together are refused when a model is loaded, those that do are accepted.

ONNX Runtime refuses each of them when it is executed, so that the checks refuse no more than it does.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from eqsat.errors import ModelError
from eqsat.model.load import load

_FIT = {
    "Pad": ("int64[4] p|float[2,3] x", "Pad(x, p)"),
    "Pad of some axes": ("int64[2] p|int64[1] a|float[2,3] x|float v", "Pad(x, p, v, a)"),
    "Tile": ("int64[2] r|float[2,3] x", "Tile(x, r)"),
    "Resize by scales": ("float[4] s|float[1,1,4,4] x", "Resize(x, , s)"),
    "Resize to sizes": ("int64[2] s|float[1,1,4,4] x", "Resize<axes=[2,3]>(x, , , s)"),
    "CenterCropPad": ("int64[1] s|float[4,4] x", "CenterCropPad<axes=[1]>(x, s)"),
    "Split": ("int64[1] s|float[4,4] x", "Split(x, s)"),
    "TopK": ("int64[1] k|float[4] x", "TopK(x, k)"),
    "MaxUnpool": (
        "float[1,1,2,2] x|int64[1,1,2,2] i|int64[4] s",
        "MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(x, i, s)",
    ),
    "AffineGrid": ("float[1,2,3] t|int64[4] s", "AffineGrid(t, s)"),
    "Col2Im": ("float[1,5,5] x|int64[2] i|int64[2] b", "Col2Im(x, i, b)"),
    "DeformConv": ("float[1,1,3,3] x|float[1,1,2,2] w|float[1,8,2,2] o", "DeformConv(x, w, o)"),
    "NonMaxSuppression": ("float[1,6,4] b|float[1,1,6] s|int64[1] n", "NonMaxSuppression(b, s, n)"),
    "NegativeLogLikelihoodLoss": ("float[3,5,2] x|int64[3,2] t|float[5] w", "NegativeLogLikelihoodLoss(x, t, w)"),
    "RotaryEmbedding": ("float[2,4,3,8] x|float[50,4] c|float[50,4] s|int64[2,3] p", "RotaryEmbedding(x, c, s, p)"),
}
_VALUES = {
    "p": 0, "r": 1, "k": 1, "a": 1, "AffineGrid s": [1, 1, 4, 5], "Col2Im i": [5, 5], "Col2Im b": [1, 5], "v": 0,
    "MaxUnpool s": [1, 1, 4, 4], "Resize to sizes s": 8, "Resize by scales s": 1, "CenterCropPad s": 3, "Split s": 4,
}  # fmt: skip
"""Contents of what is no data: a number for each element, or all of them."""
_STRICTER = {("NegativeLogLikelihoodLoss", "x", 1), ("NegativeLogLikelihoodLoss", "w", 0)}
"""What ONNX refuses: ONNX Runtime reads only the weights of classes that are labels."""
_KIND = {"float": np.float32, "int64": np.int64}


def _operands(name: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    found = {}
    for text in _FIT[name][0].split("|"):
        kind, operand = text.split()
        element, _, dims = kind.rstrip("]").partition("[")
        found[operand] = (element, tuple(int(d) for d in dims.split(",")) if dims else ())
    return found


def _feeds(name: str, changed: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    feeds = {}
    for operand, (element, shape) in _operands(name).items():
        value = _VALUES.get(f"{name} {operand}", _VALUES.get(operand, 0))
        feeds[operand] = np.resize(np.asarray(value, _KIND[element]), changed.get(operand, shape))
    return feeds


def _model(name: str, changed: dict[str, tuple[int, ...]], *, constant: bool) -> onnx.ModelProto:
    """A model whose parameters are inputs or constants."""
    feeds = _feeds(name, changed)
    node = onnx.parser.parse_node(f"y{', z' if name == 'TopK' else ''} = {_FIT[name][1]}")
    held = {n: x for n, x in feeds.items() if constant and x.dtype == np.int64}
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in feeds.items()
            if n not in held
        ],
        [helper.make_value_info("y", onnx.TypeProto())],
        [numpy_helper.from_array(x, n) for n, x in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def _run(name: str, changed: dict[str, tuple[int, ...]]) -> None:
    session = onnxruntime.InferenceSession(_model(name, changed, constant=False).SerializeToString())
    session.run(None, _feeds(name, changed))


def _longer() -> list[tuple[str, str, int]]:
    return [
        (name, operand, axis)
        for name in _FIT
        for operand, (_, shape) in _operands(name).items()
        for axis in range(len(shape))
    ]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", _FIT)
def test_what_fits_is_accepted_and_runs(name: str, constant: bool) -> None:
    load(_model(name, {}, constant=constant))
    _run(name, {})


@pytest.mark.parametrize(("name", "operand", "axis"), _longer())
def test_one_element_more_is_refused_as_in_onnx_runtime(name: str, operand: str, axis: int) -> None:
    shape = _operands(name)[operand][1]
    changed = {operand: (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])}
    try:
        _run(name, changed)
        is_refused = (name, operand, axis) in _STRICTER
    except Exception:  # whatever ONNX Runtime raises; its exceptions have no common base
        is_refused = True
    if is_refused:
        with pytest.raises(ModelError, match="are required"):
            load(_model(name, changed, constant=True))
    else:
        load(_model(name, changed, constant=True))


@pytest.mark.parametrize(("name", "operand", "axis"), [(n, o, 0) for n, o, a in _longer() if not a and o in "prskt"])
def test_lengths_are_checked_where_values_are_not_known(name: str, operand: str, axis: int) -> None:
    """So are those of inputs, except where only their values contradict something."""
    if (name, operand) in (("AffineGrid", "t"), ("RotaryEmbedding", "s"), ("NonMaxSuppression", "s")):
        return
    first, *rest = _operands(name)[operand][1]
    with pytest.raises(ModelError, match="are required"):
        load(_model(name, {operand: (first + 1, *rest)}, constant=False))
