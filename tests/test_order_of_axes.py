"""The same layers with channels last, in one dimension by way of two, or with heads split off early: one cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op

RNG = np.random.default_rng(0)
CHANNELS = 16


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


KERNEL, BIAS = weights(CHANNELS, CHANNELS, 5), weights(CHANNELS)
DENSE = weights(CHANNELS, 24)
SQUEEZE, EXCITE = weights(4, CHANNELS, 1, 1), weights(CHANNELS, 4, 1, 1)
IMAGE = weights(CHANNELS, CHANNELS, 3, 3)
HEADS, SLOPES = weights(24), weights(CHANNELS)


def plain_1d(x: Any) -> Any:
    return op.Relu(op.Conv(x, KERNEL, BIAS, pads=[4, 0]))


def by_two_dimensions(x: Any) -> Any:
    image = op.Unsqueeze(op.Pad(x, np.array([0, 0, 4, 0, 0, 0])), np.array([2]))
    return op.Relu(op.Squeeze(op.Conv(image, KERNEL[:, :, None]), np.array([2])) + BIAS[:, None])


def reshaped_to_two_dimensions(x: Any) -> Any:
    image = op.Reshape(op.Pad(x, np.array([0, 0, 4, 0, 0, 0])), np.array([-1, CHANNELS, 1, 24]))
    return op.Relu(op.Reshape(op.Conv(image, KERNEL[:, :, None]), np.array([-1, CHANNELS, 20])) + BIAS[:, None])


def heads_last(x: Any) -> Any:
    return op.Transpose(op.Reshape(op.MatMul(x, DENSE) + HEADS, np.array([0, -1, 4, 6])), perm=[0, 2, 1, 3])


def heads_first(x: Any) -> Any:
    heads = op.Reshape(op.MatMul(x, DENSE), np.array([0, -1, 4, 6]))
    return op.Transpose(heads + HEADS.reshape(4, 6), perm=[0, 2, 1, 3])


def gate(mean: Any) -> Any:
    return op.Sigmoid(op.Conv(op.Relu(op.Conv(mean, SQUEEZE)), EXCITE))


def channels_first(x: Any) -> Any:
    y = op.Relu(op.Conv(x, IMAGE, pads=[1, 1, 1, 1]))
    return op.Conv(y * gate(op.GlobalAveragePool(y)), IMAGE)


def channels_last(x: Any) -> Any:
    y = op.Transpose(op.Conv(x, IMAGE, pads=[1, 1, 1, 1]), perm=[0, 2, 3, 1])
    y = op.Relu(y)
    mean = op.Transpose(op.ReduceMean(y, np.array([1, 2]), keepdims=1), perm=[0, 3, 1, 2])
    y = y * op.Transpose(gate(mean), perm=[0, 2, 3, 1])
    return op.Conv(op.Transpose(y, perm=[0, 3, 1, 2]), IMAGE)


def channels_last_without_dims(x: Any) -> Any:
    y = op.Relu(op.Transpose(op.Conv(x, IMAGE, pads=[1, 1, 1, 1]), perm=[0, 2, 3, 1]))
    mean = op.Reshape(op.ReduceMean(y, np.array([1, 2]), keepdims=0), np.array([-1, CHANNELS, 1, 1]))
    y = y * op.Reshape(gate(mean), np.array([-1, 1, 1, CHANNELS]))
    return op.Conv(op.Transpose(y, perm=[0, 3, 1, 2]), IMAGE)


def biased(x: Any) -> Any:
    return op.Relu(op.Conv(x, IMAGE, BIAS))


def biased_with_channels_last(x: Any) -> Any:
    y = op.Transpose(op.Conv(x, IMAGE), perm=[0, 2, 3, 1])
    return op.Transpose(op.Relu((y * np.float32(0.5) + BIAS * np.float32(0.5)) * np.float32(2)), perm=[0, 3, 1, 2])


def sloped(x: Any) -> Any:
    return op.PRelu(op.Conv(x, IMAGE, BIAS), SLOPES.reshape(1, -1, 1, 1))


def sloped_without_batch(x: Any) -> Any:
    return op.PRelu(op.Conv(x, IMAGE, BIAS), SLOPES.reshape(-1, 1, 1))


Layer = Callable[[Any], Any]
PAIRS: dict[str, tuple[tuple[int, ...], Layer, Layer, int]] = {
    "causal convolution by two dimensions": ((CHANNELS, 20), plain_1d, by_two_dimensions, 2),
    "causal convolution by reshapes": ((CHANNELS, 20), plain_1d, reshaped_to_two_dimensions, 2),
    "bias of heads": ((10, CHANNELS), heads_last, heads_first, 0),
    "squeeze and excitation": ((CHANNELS, 9, 9), channels_first, channels_last, 0),
    "squeeze and excitation by reshapes": ((CHANNELS, 9, 9), channels_first, channels_last_without_dims, 0),
    "bias and scale": ((CHANNELS, 9, 9), biased, biased_with_channels_last, 0),
    "slopes": ((CHANNELS, 9, 9), sloped, sloped_without_batch, 0),
}
"""The shape without the batch, the layer, its other spelling, and the views that it needs more."""


def run(model: bytes, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["dnnl", ""])
@pytest.mark.parametrize("batch", [2, "N"])
@pytest.mark.parametrize("name", PAIRS)
def test_one_cost(name: str, batch: int | str, target: str) -> None:
    shape, layer, other, views = PAIRS[name]
    targets = [target] if target else []
    wanted, found = (
        eqsat.optimize(eqsat.graph(write(eqsat.input("x", (batch, *shape)))), targets=targets)
        for write in (layer, other)
    )
    kinds = [sorted(kind for row in r.summary.kernels for kind in row.operators) for r in (wanted, found)]
    further = [kind for kind in kinds[1] if kind in ("Reshape", "Squeeze", "Unsqueeze")][:views]
    assert sorted(kinds[0] + further) == kinds[1]
    assert found.cost <= wanted.cost * 1.001 + 8e-6 * views
    x = RNG.standard_normal((2, *shape)).astype(np.float32)
    given = eqsat.graph(other(eqsat.input("x", (batch, *shape))))
    expected = eqsat.run(given, {"x": x})["output"]
    np.testing.assert_allclose(run(ir.to_proto(found.model).SerializeToString(), x), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.run({"x": x})["output"], expected, rtol=1e-4, atol=1e-4)
