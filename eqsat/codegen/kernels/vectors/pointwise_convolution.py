"""Convolutions of float32 whose window is one element, as products: the weights times the image where it lies.

Each image is a matrix of channels and places. So the channels need not lie side by side, and no layout is converted
before or after the convolution. Weights and bias may be computed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors import matmul
from eqsat.codegen.kernels.vectors.epilogue import is_vector_epilogue
from eqsat.ops.windows import windows
from eqsat.schema.types import OpKey

_MATMUL = OpKey("", "MatMul")


def _accepts(task: Task) -> bool:
    x, w, b = task.inputs[0], task.inputs[1], task.inputs[2] if task.has(2) else None
    if not isinstance(x, View) or w is None or not 3 <= x.rank <= 5 or set(w.shape[2:]) != {1}:
        return False
    tensors = [x, task.output, *(v for v in (w, b) if isinstance(v, View))]
    if any(v.dtype != convolution.FLOAT for v in tensors) or any(0 in v.shape for v in (x, w, task.output)):
        return False
    at = windows(task.attributes, x.shape[2:], w.shape[2:])
    is_point = set(at.strides) == {1} and not any((*at.begin, *at.end)) and w.shape[1] == x.shape[1]
    return is_point and is_vector_epilogue(task.epilogue)


def _wants(task: Task) -> Wants:
    rows = Want(order=tuple(range(task.output.rank)), strict=True)
    others = (Want(order=tuple(range(len(v.shape)))) if isinstance(v, View) else Want() for v in task.inputs[1:])
    operands = tuple((-1 - k, 0) for k, o in enumerate(task.epilogue.operands) if isinstance(o, View))
    return Wants((rows, *others), (rows,), operands)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    return matmul.generate(_as_product(task), isa, left="x1", right="x0")


def _as_product(task: Task) -> Task:
    """The same as a product of ``[O, I]`` and ``[N, I, places]``, or one of each row where the rows do not adjoin."""
    tensors = (task.view(0), task.output, *task.epilogue.operands)
    shape = _joined if all(_adjoin(t, task.output.rank) for t in tensors) else _by_rows
    rank = task.output.rank
    inputs = (_matrix(task.inputs[1]), shape(task.view(0), rank), _column(task.inputs[2] if task.has(2) else None))
    epilogue = replace(task.epilogue, operands=tuple(shape(o, rank) for o in task.epilogue.operands))
    result = shape(task.output, rank)
    assert isinstance(result, View)
    return Task(_MATMUL, {}, inputs, (result,), epilogue)


def _matrix(weights: View | np.ndarray | None) -> View | np.ndarray:
    assert weights is not None
    if isinstance(weights, View):
        return replace(weights, shape=weights.shape[:2], strides=weights.strides[:2], halo=())
    return weights.reshape(weights.shape[:2])


def _column(bias: View | np.ndarray | None) -> View | np.ndarray | None:
    if isinstance(bias, View):
        return replace(bias, shape=(*bias.shape, 1), strides=(*bias.strides, 0), halo=())
    return None if bias is None else bias.reshape(-1, 1)


def _adjoin(tensor: View | np.ndarray, rank: int) -> bool:
    """Whether the places of a channel lie at one distance from each other, or are all the same."""
    if isinstance(tensor, View):
        return len(collapse([Axis(n, {"x": s}) for n, s in zip(tensor.shape[2:], tensor.strides[2:], strict=True)])) < 2
    places = _aligned(tensor, rank).shape[2:]
    return math.prod(places) == 1 or len([n for n in places if n > 1]) == 1 == len(places)


def _aligned(array: np.ndarray, rank: int) -> np.ndarray:
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _joined(tensor: View | np.ndarray, rank: int) -> View | np.ndarray:
    """``[N, C, places]``"""
    if isinstance(tensor, View):
        moving = [s for n, s in zip(tensor.shape[2:], tensor.strides[2:], strict=True) if n != 1]
        shape = (*tensor.shape[:2], math.prod(tensor.shape[2:]))
        return replace(tensor, shape=shape, strides=(*tensor.strides[:2], moving[-1] if moving else 1), halo=())
    array = _aligned(tensor, rank)
    return array.reshape((*array.shape[:2], -1))


def _by_rows(tensor: View | np.ndarray, rank: int) -> View | np.ndarray:
    """``[N, ..., C, columns]``"""
    order = (0, *range(2, rank - 1), 1, rank - 1)
    return tensor.transpose(order) if isinstance(tensor, View) else _aligned(tensor, rank).transpose(order)


register(
    Family(
        "pointwise convolution",
        (OpKey("", "Conv"),),
        _accepts,
        _generate,
        _wants,
        rank=9,
    )
)
