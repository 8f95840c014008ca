"""Small networks of bytes, of computed weights and of kernels in plain loops (other element types, reductions)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.codegen.calibration.float_probes import channels_of
from eqsat.model.builder import Tensor, graph, input, op

_SCALE, _ZERO = np.float32(0.05), np.uint8(128)
_WEIGHTS = np.float32(0.01)
PRODUCTS = ("float64", "float16", "bfloat16", "int32", "int64")
"""Element types besides float32 and bytes. Half precision is computed in float32, the others by loops."""
contrib = op("com.microsoft")


class _Network:
    """Layers of uint8 with weights of int8."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def weights(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-127, 128, shape, dtype=np.int8)

    def conv(self, x: Tensor, channels: int, size: int = 1, *, stride: int = 1, group: int = 1) -> Tensor:
        w = self.weights(channels, channels_of(x) // group, size, size)
        b = self.rng.integers(-1000, 1000, channels, dtype=np.int32)
        scales = np.full(channels, _WEIGHTS)
        return op.QLinearConv(
            x, _SCALE, _ZERO, w, scales, np.zeros(channels, np.int8), _SCALE, _ZERO, b,
            pads=[size // 2] * 4, strides=[stride] * 2, group=group,
        )  # fmt: skip

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return contrib.QLinearAdd(a, _SCALE, _ZERO, b, _SCALE, _ZERO, _SCALE, _ZERO)

    def mean(self, x: Tensor) -> Tensor:
        return contrib.QLinearGlobalAveragePool(x, _SCALE, _ZERO, _SCALE, _ZERO)

    def dense(self, x: Tensor, outputs: int) -> Tensor:
        w = self.weights(channels_of(x), outputs)
        b = self.rng.integers(-1000, 1000, outputs, dtype=np.int32)
        return contrib.QGemm(x, _SCALE, _ZERO, w, _WEIGHTS, np.int8(0), b, _SCALE, _ZERO)


def quantized() -> ir.Model:
    """Convolutions, depthwise and not, residuals, pools, fully connected layers."""
    net = _Network(7)
    image = op.QuantizeLinear(input("image", (1, 3, 112, 112)), _SCALE, _ZERO)
    outputs = [net.mean(net.conv(image, 8, 3, stride=2))]
    y = net.conv(image, 32, 3, stride=2)
    stages = ((32, 1, 16), (96, 2, 24), (144, 1, 24), (144, 2, 32), (192, 2, 64), (384, 1, 96), (576, 2, 160))
    for channels, stride, narrow in stages:
        y = net.conv(y, channels)
        y = net.conv(y, channels, 3, stride=stride, group=channels)
        y = net.conv(y, narrow)
        outputs.append(net.mean(op.MaxPool(y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])))
        outputs.append(net.mean(contrib.QLinearSigmoid(y, _SCALE, _ZERO, _SCALE, _ZERO)))
    y = net.add(net.conv(y, 160, 3), y)
    y = net.conv(y, 1280)
    y = net.mean(y)
    return graph([op.DequantizeLinear(net.dense(op.Flatten(y), 1000), _SCALE, _ZERO), *outputs])


def small_quantized() -> ir.Model:
    """Layers that take less than a microsecond, and products of several rows."""
    net = _Network(8)
    y = op.QuantizeLinear(input("sound", (1, 640)), _SCALE, _ZERO)
    for width in (128, 128, 8, 128, 640):
        y = net.dense(y, width)
    x = op.QuantizeLinear(input("image", (1, 3, 32, 32)), _SCALE, _ZERO)
    z = net.conv(x, 16, 3)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        z = net.conv(z, channels, 3, stride=stride)
        z = net.conv(net.conv(z, channels, 3, group=channels), channels)
    mean = contrib.QLinearAveragePool(z, _SCALE, _ZERO, _SCALE, _ZERO, kernel_shape=[8, 8])
    scores = net.dense(op.Flatten(mean), 10)
    soft = contrib.QLinearSoftmax(scores, _SCALE, _ZERO, np.float32(1 / 256), np.uint8(0), opset=13, axis=1)
    rows = op.QuantizeLinear(input("rows", (128, 256)), _SCALE, _ZERO)
    many = net.dense(net.dense(rows, 1024), 256)
    return graph(
        [op.DequantizeLinear(y, _SCALE, _ZERO), op.DequantizeLinear(soft, np.float32(1 / 256), np.uint8(0)), many]
    )


def loops() -> ir.Model:
    """Operators without vector kernels, and kernels of vectors that no other probe has."""
    rng = np.random.default_rng(9)
    outputs = []
    for channels, size in ((16, 16), (64, 28), (128, 56)):
        x = input(f"x{size}", (1, channels, size, size))
        wide = op.Cast(x, to=ir.DataType.DOUBLE.value)
        ends = [
            op.ReduceMean(x, np.array([2, 3])), op.ReduceMax(x, np.array([1])), op.ArgMax(x, axis=1),
            op.Slice(x, [1], [size - 1], [3], [2]), op.Gather(x, rng.integers(0, channels, 2 * channels), axis=1),
            op.CumSum(x, np.int64(3)), op.Resize(x, None, np.array([1, 1, 2, 2], np.float32), mode="linear"),
            op.OneHot(op.ArgMax(x, axis=1), np.int64(channels), np.array([0, 1], np.float32)),
            op.DepthToSpace(x, blocksize=2), wide * wide + 1.0, op.Exp(wide),
            op.InstanceNormalization(x, np.ones(channels, np.float32), np.ones(channels, np.float32)),
            op.TopK(x, np.array([4]), axis=3, outputs=2)[0], op.TopK(x, np.array([size // 2]), axis=3, outputs=2)[0],
            op.Conv(wide, rng.standard_normal((channels, 1, 3, 3)), pads=[1, 1, 1, 1], group=channels),
            op.Conv(wide, rng.standard_normal((8, channels // 2, 1, 1)), group=2),
            op.MaxPool(wide, kernel_shape=[3, 3], strides=[2, 2]), op.MaxPool(wide, kernel_shape=[5, 5], pads=[2] * 4),
            op.LpPool(x, kernel_shape=[3, 3], strides=[2, 2]), op.LpPool(x, kernel_shape=[5, 5], pads=[2] * 4),
        ]  # fmt: skip
        outputs += [op.ReduceSum(y, keepdims=0) for y in ends]
        outputs.append(op.DynamicQuantizeLinear(x)[1])
    return graph(outputs)


def integers_and_places() -> ir.Model:
    """Steps and conversions of integers, gathered elements, and results of as many elements as data says."""
    rng = np.random.default_rng(11)
    outputs: list[Tensor] = []
    for rows in (8, 100):
        shape = (rows, 500)
        for dtype in ("int8", "int32", "int64"):
            x, y = (input(f"{name}_{dtype}_{rows}", shape, dtype) for name in "xy")
            outputs += [op.Add(x, y), op.Neg(x), op.Less(x, y)]
        x = input(f"x_{rows}", shape)
        outputs += [op.Cast(x, to=ir.DataType.INT64.value), op.Less(x, 0.5)]
        outputs.append(op.GatherElements(x, rng.integers(0, 500, (rows, 200)), axis=1))
        # Kernels that read what was found have no sizes that are known beforehand.
        outputs += [op.Shape(y) for y in (op.NonZero(x), *(op.Unique(x, sorted=k, outputs=4)[0] for k in (0, 1)))]
    return graph(outputs)


def first_layers() -> ir.Model:
    """Convolutions of one to four channels a group whose readers have ONNX's layout, of sounds, images and volumes."""
    rng = np.random.default_rng(10)
    outputs = []
    for number, (shape, channels, window, stride, group) in enumerate(
        (
            ((1, 1, 16000), 256, (10,), 5, 1), ((1, 2, 4000), 64, (16,), 8, 1), ((1, 1, 28, 28), 32, (5, 5), 1, 1),
            ((1, 1, 64, 64), 64, (3, 3), 1, 1), ((1, 3, 96, 96), 32, (3, 3), 2, 1),
            ((1, 4, 12, 24, 24), 16, (3, 3, 3), 1, 1), ((1, 96, 300), 96, (31,), 1, 96),
            ((1, 64, 1000), 64, (31,), 1, 64),
        )
    ):  # fmt: skip
        x = input(f"x{number}", shape)
        w = rng.standard_normal((channels, shape[1] // group, *window)).astype(np.float32)
        outputs.append(op.Conv(x, w, strides=[stride] * len(window), group=group))
    return graph(outputs)


def computed_weights() -> ir.Model:
    """Convolutions whose weights or places are inputs, in windows and groups of several sizes, of floats and bytes."""
    outputs = []
    for channels, size, window, group in ((16, 56, 5, 1), (32, 28, 3, 1), (64, 28, 3, 8), (64, 14, 3, 1), (8, 9, 3, 1)):
        name = f"{channels}_{size}_{window}_{group}"
        x = op.Relu(input(f"x{name}", (1, channels, size, size)))
        w = input(f"w{name}", (channels, channels // group, window, window))
        y = op.Relu(op.Conv(x, w, pads=[window // 2] * 4, group=group))
        outputs.append(op.GlobalAveragePool(y))
    for channels, size, window, group in ((16, 28, 2, 1), (32, 14, 4, 1), (64, 14, 4, 4)):
        x = op.Relu(input(f"x{channels}_{size}_up", (1, channels, size, size)))
        w = input(f"w{channels}_{size}_up", (channels, channels // group, window, window))
        outputs.append(op.GlobalAveragePool(op.Relu(op.ConvTranspose(x, w, strides=[2, 2], group=group))))
    for channels, size, parts, group in ((16, 40, 1, 1), (64, 28, 1, 1), (128, 14, 4, 1), (64, 14, 2, 4)):
        x = op.Relu(input(f"x{channels}_{size}_{parts}_moved", (1, channels, size, size)))
        offset = input(f"offset{channels}_{size}_{parts}", (1, 18 * parts, size, size))
        w = np.random.default_rng(channels).standard_normal((channels, channels // group, 3, 3)).astype(np.float32)
        y = op.DeformConv(x, w, offset, pads=[1] * 4, group=group, offset_group=parts)
        outputs.append(op.GlobalAveragePool(op.Relu(y)))
    for channels, size, window in ((48, 28, 3), (64, 28, 1), (16, 40, 5)):
        name = f"{channels}_{size}_{window}_bytes"
        x = input(f"x{name}", (1, channels, size, size), "uint8")
        w = input(f"w{name}", (channels, channels, window, window), "uint8")
        y = op.ConvInteger(x, w, np.uint8(7), pads=[window // 2] * 4)
        outputs.append(op.ReduceMax(y, keepdims=0))
    return graph(outputs)


def other_products() -> ir.Model:
    """A product in each element type that has no kernel of its own in vectors."""
    outputs = []
    for dtype in PRODUCTS:
        a, b = (input(f"{name}_{dtype}", (64, 64), dtype) for name in "ab")
        outputs.append(op.MatMul(a, b))
    return graph(outputs)
