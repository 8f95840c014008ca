"""Mean and power of the operands of weights, gathered during calibration.

An output channel of a convolution or a matrix product adds up K products. An error e_k of its k-th weight moves the
channel's mean by ``e_k E[x_k]`` and its variance by ``e_k² var(x_k)``, where x_k is the operand of the weight: the
input at one position of the window, over all windows, padding included. These two numbers are kept for each k.

For convolutions no window is gathered: the rows and columns that a position of the window meets form a matrix of zeros
and ones for each axis, and sums over windows are products with these matrices. Each of the three operators whose
operands are gathered has a function here that knows which of them meet a weight; nothing else asks for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops.windows import Windows, windows
from eqsat.schema.attributes import op_key, to_attrs
from eqsat.schema.types import Attributes


@dataclass
class Moments:
    """Sums over all values seen.

    Attributes:
        total: float64[groups, K], of the values.
        squares: float64[groups, K], of their squares.
        count: Number of values in each sum.
    """

    total: np.ndarray
    squares: np.ndarray
    count: int

    @property
    def mean(self) -> np.ndarray:
        """float64[groups, K]."""
        return self.total / max(self.count, 1)

    @property
    def variance(self) -> np.ndarray:
        """float64[groups, K], of the values about their mean."""
        return np.maximum(self.squares / max(self.count, 1) - self.mean**2, 0.0)


class Gatherer:
    """Gathers the moments of a model's operators with constant weights.

    Args:
        model: The model that is run.
        constants: Its constants by name.
    """

    def __init__(self, model: ir.Model, constants: Mapping[str, np.ndarray]) -> None:
        self.found: dict[int, Moments] = {}
        self._readers: dict[str, list[tuple[int, ir.Node, tuple[int, ...]]]] = {}
        for position, node in enumerate(model.graph):
            source, shape = _operands(node, constants)
            if source:
                self._readers.setdefault(source, []).append((position, node, shape))

    def see(self, name: str, value: Any) -> None:
        """Take the values of one tensor into account."""
        for position, node, shape in self._readers.get(name, ()):
            x = value.astype(np.float64)
            sums = [_sums(node, y, shape) for y in (x, x * x)]
            (total, count), (squares, _) = sums
            if position not in self.found:
                self.found[position] = Moments(np.zeros_like(total), np.zeros_like(squares), 0)
            own = self.found[position]
            own.total += total
            own.squares += squares
            own.count += count


def by_channel(node: ir.Node, weight: np.ndarray, groups: int) -> np.ndarray:
    """A weight as [groups, output channels of a group, K], a view if it can be; K is in the order of :class:`Moments`.

    Args:
        node: The node that reads it.
        weight: The weight of a convolution or a matrix product.
        groups: As many as the moments have.
    """
    if node.op_type == "Conv":
        return weight.reshape(groups, weight.shape[0] // groups, -1)
    transposed = node.op_type == "Gemm" and node.attributes.get_int("transB", 0)
    return (weight if transposed else weight.T)[None]


def _operands(node: ir.Node, constants: Mapping[str, np.ndarray]) -> tuple[str, tuple[int, ...]]:
    """Name of the operand of a constant weight, and the weight's shape; an empty name without such a weight."""
    if op_key(node).domain or node.op_type not in ("Conv", "Gemm", "MatMul"):
        return "", ()
    x, w = node.inputs[0], node.inputs[1]
    if x is None or w is None or x.name in constants or w.name not in constants:
        return "", ()
    weight = constants[w.name or ""]
    if weight.size == 0 or (weight.ndim < 3 if node.op_type == "Conv" else weight.ndim != 2):
        return "", ()
    return x.name or "", weight.shape


def _sums(node: ir.Node, x: np.ndarray, weight: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """The sum of the operands of each weight (float64[groups, K]) and the number of values in it."""
    if node.op_type != "Conv":
        if node.op_type == "Gemm" and node.attributes.get_int("transA", 0):
            x = x.T
        rows = x.reshape(-1, x.shape[-1])
        return rows.sum(axis=0)[None], len(rows)
    attributes: Attributes = dict(to_attrs(node))
    at = windows(attributes, x.shape[2:], weight[2:])
    total = x.sum(axis=0)
    for axis, size in enumerate(x.shape[2:]):
        # The first axis is summed and becomes the window's own axis after all others.
        total = np.tensordot(total, _meets(at, axis, size), axes=(1, 1))
    return total.reshape(x.shape[1] // weight[1], -1), x.shape[0] * int(np.prod(at.out))


def _meets(at: Windows, axis: int, size: int) -> np.ndarray:
    """For each position of the window (rows) and index of the axis (columns) how often they meet, 0 or 1."""
    found = np.zeros((at.kernel[axis], size))
    starts = np.arange(at.out[axis]) * at.strides[axis] - at.begin[axis]
    for k in range(at.kernel[axis]):
        index = starts + k * at.dilations[axis]
        found[k, index[(index >= 0) & (index < size)]] = 1.0
    return found
