"""Small networks of float32 that have every family of kernels in several sizes.

Kernels are measured within networks: after other kernels, whose results are still in the caches. Some networks exceed
the caches, so that bandwidths can be told apart. The results of a network are small, because writing to memory for the
first time takes the time of the operating system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from eqsat.model.builder import Tensor, graph, input, op

Draw = Callable[..., np.ndarray]


def draw(seed: int) -> Draw:
    """Weights of a given shape, small enough that sums stay small."""
    rng = np.random.default_rng(seed)
    return lambda *shape: (rng.standard_normal(shape) / max(np.prod(shape[1:]), 1) ** 0.5).astype(np.float32)


def channels_of(x: Tensor) -> int:
    """Extent of axis 1."""
    assert x.shape is not None
    found = x.shape[1]
    assert isinstance(found, int)
    return found


def _conv(
    x: Tensor, channels: int, w: Draw, size: int = 1, *, stride: int = 1, group: int = 1, bias: bool = True
) -> Tensor:
    inputs = channels_of(x) // group
    operands = [x, w(channels, inputs, size, size), *([w(channels)] if bias else [])]
    return op.Conv(*operands, pads=[size // 2] * 4, strides=[stride] * 2, group=group)


def convolutions() -> ir.Model:
    """Stems, bottlenecks with and without residual, groups, pools, normalisation; 3 to 512 channels."""
    w = draw(1)
    image = input("image", (1, 3, 112, 112))
    outputs = [op.GlobalAveragePool(op.Relu(_conv(image, 8, w, 3, stride=2)))]
    y = op.Relu(_conv(image, 64, w, 7, stride=2))
    y = op.MaxPool(y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for channels, inner, stride in ((64, 24, 1), (128, 40, 2), (256, 128, 2), (512, 160, 2)):
        if stride == 2:
            y = op.Relu(_conv(y, channels, w, 1, stride=2))
        z = op.Relu(_conv(y, inner, w))
        z = op.Relu(_conv(z, inner, w, 3))
        y = op.Relu(_conv(z, channels, w) + y)
        y = op.Relu(_conv(y, channels, w, group=4))
        ends = [
            op.MaxPool(y, kernel_shape=[2, 2], strides=[2, 2]),
            op.MaxPool(y, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
            op.MaxPool(y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            op.AveragePool(y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            op.LRN(y, size=5),
            y * w(channels, 1, 1) + w(channels, 1, 1),
        ]
        outputs += [op.GlobalAveragePool(z) for z in ends]
    y = op.Flatten(op.GlobalAveragePool(y))
    return graph([op.Softmax(op.Gemm(y, w(512, 1000), w(1000))), *outputs])


def separable() -> ir.Model:
    """Depthwise convolutions between pointwise ones, and some of larger windows."""
    w = draw(2)
    y = op.Relu(_conv(input("image", (1, 3, 112, 112)), 32, w, 3, stride=2))
    wide = [op.GlobalAveragePool(op.Relu(_conv(y, 32, w, size, group=32))) for size in (7, 13)]
    for channels, stride, pointwise in (
        (32, 1, 96),
        (96, 2, 144),
        (144, 1, 192),
        (192, 2, 256),
        (256, 1, 576),
        (576, 2, 960),
    ):
        y = op.Clip(_conv(y, channels, w, 3, stride=stride, group=channels), np.float32(0), np.float32(6))
        y = op.Clip(_conv(y, pointwise, w), np.float32(0), np.float32(6))
    y = op.Relu(_conv(y, 960, w, 3, group=960))
    return graph([op.GlobalAveragePool(y), *wide])


def transposed() -> ir.Model:
    """Decoders that double an image, by windows of 2 to 4, down to one channel."""
    w = draw(10)
    outputs = []
    for channels, size, window in ((128, 14, 2), (64, 28, 4), (64, 28, 3), (32, 56, 2), (16, 112, 4)):
        y = op.Relu(_conv(input(f"x{channels}_{size}_{window}", (1, 8, size, size)), channels, w))
        for narrow in (channels // 2, channels // 4):
            outputs.append(op.Relu(_transposed(y, narrow, w, window)))
    for channels, size in ((16, 56), (32, 28), (64, 14)):
        y = op.Relu(input(f"y{channels}_{size}", (1, channels, size, size)))
        few = [op.Conv(y, w(m, channels, k, k), pads=[k // 2] * 4) for m, k in ((3, 3), (1, 3), (2, 5))]
        outputs += [*few, *(_transposed(y, m, w, k) for m, k in ((1, 2), (3, 4)))]
    return graph([op.GlobalAveragePool(y) for y in outputs])


def _transposed(x: Tensor, channels: int, w: Draw, size: int) -> Tensor:
    weights = w(channels_of(x), channels, size, size)
    return op.ConvTranspose(x, weights, w(channels), strides=[2, 2], pads=[(size - 1) // 2] * 4)


def small_convolutions() -> ir.Model:
    """Layers of networks for micro-controllers, which stay in the first caches."""
    w = draw(3)
    y = op.Relu(_conv(input("sound", (1, 1, 40, 10)), 64, w, 3, stride=2))
    for _ in range(2):
        y = op.Relu(_conv(y, 64, w, 3, group=64))
        y = op.Relu(_conv(y, 64, w))
    z = input("picture", (1, 3, 32, 32))
    for channels, stride in ((16, 1), (16, 1), (32, 2), (64, 2)):
        z = op.Relu(_conv(z, channels, w, 3, stride=stride))
    tiny = input("tiny", (1, 8, 24, 24))
    for channels in (8, 16, 32, 64):
        tiny = op.Relu(_conv(tiny, channels, w, 3, group=channels))
        tiny = op.Relu(_conv(tiny, 2 * channels, w, 1, stride=2))
    ends = [op.AveragePool(z, kernel_shape=[8, 8], strides=[8, 8]), op.MaxPool(z, kernel_shape=[2, 2], strides=[2, 2])]
    return graph([op.GlobalAveragePool(v) for v in (y, tiny, *ends)])


def tall_convolutions() -> ir.Model:
    """3 by 3 convolutions at stride 1, which Winograd's algorithm can compute."""
    w = draw(4)
    outputs = []
    for channels, size in ((32, 56), (64, 28), (128, 28), (128, 14), (256, 14), (512, 7)):
        y = op.Relu(input(f"x{channels}_{size}", (1, channels, size, size)))
        for _ in range(2):
            y = op.Relu(_conv(y, channels, w, 3))
        outputs.append(op.GlobalAveragePool(y))
    return graph(outputs)


def transformer() -> ir.Model:
    """Blocks of attention and feed-forward of 32 to 128 tokens."""
    w = draw(5)
    return graph([_block(tokens, width, w) for tokens, width in ((32, 128), (128, 256), (64, 384))])


def _block(tokens: int, width: int, w: Draw) -> Tensor:
    heads, each = 4, width // 4
    x = input(f"x{tokens}", (1, tokens, width))

    def split(y: Tensor, perm: Sequence[int]) -> Tensor:
        return op.Transpose(op.Reshape(y, np.array([1, tokens, heads, each])), perm=list(perm))

    q, k, v = (op.MatMul(x, w(width, width)) + w(width) for _ in range(3))
    scores = op.MatMul(split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1))) / np.float32(each**0.5)
    mixed = op.MatMul(op.Softmax(scores, axis=-1), split(v, (0, 2, 1, 3)))
    y = op.Reshape(op.Transpose(mixed, perm=[0, 2, 1, 3]), np.array([1, tokens, width]))
    y = op.LayerNormalization(op.MatMul(y, w(width, width)) + x, w(width) + 1, w(width), axis=-1)
    z = op.Gelu(op.MatMul(y, w(width, 4 * width)) + w(4 * width))
    return op.LayerNormalization(op.MatMul(z, w(4 * width, width)) + y, w(width) + 1, w(width), axis=-1)


def small_products() -> ir.Model:
    """Fully connected layers of one row whose weights stay in the caches."""
    return _layers(((128, 128, 128, 8, 128, 640), (640, 128), (256, 2), (64, 10), (64, 12)), 6)


def products() -> ir.Model:
    """Fully connected layers of one row, whose weights together are larger than any cache."""
    return _layers(((544, 1000), (1024, 1000), (2048, 1000), (3072, 4096, 1000)), 7)


def _layers(networks: Sequence[Sequence[int]], seed: int) -> ir.Model:
    w = draw(seed)
    outputs = []
    for number, widths in enumerate(networks):
        y = input(f"x{number}", (1, widths[0]))
        for inputs, outer in pairwise(widths):
            y = op.Relu(op.Gemm(y, w(outer, inputs), w(outer), transB=1))
        outputs.append(op.Softmax(y))
    return graph(outputs)


def recurrent() -> ir.Model:
    """LSTM, GRU and RNN of one sample and of several; their weights take 50 KB to 5 MB."""
    w = draw(11)
    outputs = []
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, features, n in (
            (30, 1, 32, 64), (50, 1, 64, 128), (20, 1, 256, 256), (10, 8, 128, 256), (1, 1, 128, 128), (8, 1, 512, 512),
        ):  # fmt: skip
            x = op.Relu(input(f"{operator}{steps}_{batch}_{n}", (steps, batch, features)))
            weights = w(1, gates * n, features), w(1, gates * n, n), w(1, 2 * gates * n)
            _, state, *_ = getattr(op, operator)(x, *weights, hidden_size=n)
            outputs.append(op.ReduceMean(state, np.array([0, 1, 2]), keepdims=0))
    return graph(outputs)


def decoders() -> ir.Model:
    """Attention of many queries and of one, and products with weights of 4 and 8 bits: 20 KB to 4 MB."""
    rng = np.random.default_rng(12)
    outputs = []
    for heads, shared, rows, keys, size in (
        (8, 8, 128, 128, 64), (12, 12, 64, 64, 32), (4, 4, 197, 197, 64), (8, 2, 1, 512, 64), (32, 8, 1, 1000, 128),
    ):  # fmt: skip
        name = f"{heads}_{rows}_{size}"
        q = op.Relu(input(f"q{name}", (1, heads, rows, size)))
        k, v = (op.Relu(input(f"{x}{name}", (1, shared, keys, size))) for x in "kv")
        outputs.append(op.ReduceMean(op.Attention(q, k, v), np.array([1, 2, 3]), keepdims=0))
    for bits, rows, depth, columns in ((4, 1, 256, 160), (4, 1, 2048, 2048), (8, 1, 1024, 4096), (4, 32, 512, 512)):
        blocks = depth // 32
        weights = rng.integers(0, 256, (columns, blocks, 4 * bits)).astype(np.uint8)
        scales = rng.random(columns * blocks).astype(np.float32)
        x = op.Relu(input(f"x{bits}_{rows}_{depth}", (rows, depth)))
        y = op("com.microsoft").MatMulNBits(x, weights, scales, K=depth, N=columns, bits=bits, block_size=32)
        outputs.append(op.ReduceMean(y, np.array([1]), keepdims=0))
    return graph(outputs)


def small_elementwise() -> ir.Model:
    """Chains on vectors that stay in the caches: 4 to 200 KB."""
    return _chains(((64, 4), (64, 14), (256, 7), (256, 14)), (32, 96), 8)


def elementwise() -> ir.Model:
    """Chains on vectors that do not: 400 KB to 13 MB."""
    return _chains(((512, 14), (128, 56), (256, 112)), (224,), 9)


def _chains(sizes: Sequence[tuple[int, int]], pictures: Sequence[int], seed: int) -> ir.Model:
    """Chains, elementary functions, and copies that change the order of axes."""
    w = draw(seed)
    outputs = []
    for channels, size in sizes:
        x = input(f"x{channels}_{size}", (1, channels, size, size))
        ends = [
            op.Relu(x * w(channels, 1, 1) + w(channels, 1, 1)),
            op.Relu(x + input(f"r{channels}_{size}", (1, channels, size, size))),
        ]
        if size <= 56:
            ends += [op.Sigmoid(x), op.Tanh(x * np.float32(2)), op.Erf(x) + np.float32(1), op.Exp(-x)]
        if size <= 14:
            outputs.append(op.Transpose(x, perm=[0, 2, 3, 1]))
        outputs += [op.ReduceMean(y, np.array([1, 2, 3]), keepdims=0) for y in ends]
    for size in pictures:
        picture = input(f"picture{size}", (1, 3, size, size))
        outputs.append(op.GlobalAveragePool(_conv(picture, 16, w, 3, stride=4)))
    return graph(outputs)
