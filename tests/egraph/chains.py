"""Deep networks of equal layers with different weights, as torch exports them: saturation must not grow in them.

Each chain takes the number of its layers. The tensors are small; what counts is how layers follow one another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

import eqsat
from eqsat import op
from eqsat.model.builder import Tensor

WIDTH, TOKENS, HEADS, CHANNELS = 8, 4, 2, 4

Norm = Callable[[Tensor, "Weights"], Tensor]


class Weights:
    """Seeded random weights, different ones each time."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(7)

    def __call__(self, *shape: int) -> np.ndarray:
        return self.generator.normal(0, 0.5, shape).astype(np.float32)

    def positive(self, *shape: int) -> np.ndarray:
        return self.generator.uniform(0.5, 1.5, shape).astype(np.float32)


def layer_norm(x: Tensor, weights: Weights) -> Tensor:
    """As one operator (opset 17 and later)."""
    return op.LayerNormalization(x, weights.positive(WIDTH), weights(WIDTH), axis=-1, epsilon=1e-5)


def spelled_layer_norm(x: Tensor, weights: Weights) -> Tensor:
    """As the older exporters spell it."""
    centred = x - op.ReduceMean(x, [-1], keepdims=1)
    variance = op.ReduceMean(op.Pow(centred, np.float32(2)), [-1], keepdims=1)
    return centred / op.Sqrt(variance + np.float32(1e-5)) * weights.positive(WIDTH) + weights(WIDTH)


def linear(x: Tensor, weights: Weights, inputs: int, outputs: int) -> Tensor:
    """``nn.Linear`` on tokens: the bias is the first operand of the sum."""
    return weights(outputs) + op.MatMul(x, weights(inputs, outputs))


def attention(x: Tensor, weights: Weights, mask: Tensor | None = None) -> Tensor:
    def heads(y: Tensor, perm: list[int]) -> Tensor:
        return op.Transpose(op.Reshape(y, [0, TOKENS, HEADS, WIDTH // HEADS]), perm=perm)

    q = heads(linear(x, weights, WIDTH, WIDTH), [0, 2, 1, 3])
    k = heads(linear(x, weights, WIDTH, WIDTH), [0, 2, 3, 1])
    v = heads(linear(x, weights, WIDTH, WIDTH), [0, 2, 1, 3])
    scores = op.MatMul(q, k) / np.float32((WIDTH // HEADS) ** 0.5)
    if mask is not None:
        scores = scores + mask
    mixed = op.Transpose(op.MatMul(op.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    return linear(op.Reshape(mixed, [0, TOKENS, WIDTH]), weights, WIDTH, WIDTH)


def gelu(x: Tensor) -> Tensor:
    return x * (op.Erf(x / np.float32(2**0.5)) + np.float32(1)) * np.float32(0.5)


def mlp(x: Tensor, weights: Weights) -> Tensor:
    return linear(gelu(linear(x, weights, WIDTH, 2 * WIDTH)), weights, 2 * WIDTH, WIDTH)


def pre_norm(layers: int, norm: Norm = layer_norm) -> ir.Model:
    """GPT and ViT: every branch adds to a residual stream that nothing interrupts."""
    weights = Weights()
    x = eqsat.input("x", (1, TOKENS, WIDTH))
    y = x + weights(1, TOKENS, WIDTH)
    for _ in range(layers):
        y = y + attention(norm(y, weights), weights)
        y = y + mlp(norm(y, weights), weights)
    return eqsat.graph(norm(y, weights))


def post_norm(layers: int, norm: Norm = layer_norm) -> ir.Model:
    """BERT, with a mask as it is exported."""
    weights = Weights()
    x = eqsat.input("x", (1, TOKENS, WIDTH))
    mask = (
        np.float32(1)
        - op.Cast(op.Unsqueeze(eqsat.input("mask", (1, TOKENS), "int64"), [1, 2]), to=ir.DataType.FLOAT.value)
    ) * (np.float32(-10000))
    y = x
    for _ in range(layers):
        y = norm(attention(y, weights, mask) + y, weights)
        y = norm(mlp(y, weights) + y, weights)
    return eqsat.graph(y)


def masked_attention(layers: int) -> ir.Model:
    """Attention with a mask only: residual connections, nothing between them."""
    weights = Weights()
    x = eqsat.input("x", (1, TOKENS, WIDTH))
    mask = eqsat.input("mask", (1, 1, TOKENS, TOKENS))
    y = x
    for _ in range(layers):
        y = y + attention(y, weights, mask)
    return eqsat.graph(y)


def residual_convolutions(layers: int) -> ir.Model:
    """ResNet's basic blocks, with batch normalisations that are not folded."""
    weights = Weights()

    def conv(y: Tensor) -> Tensor:
        y = op.Conv(y, weights(CHANNELS, CHANNELS, 3, 3), pads=[1, 1, 1, 1])
        scale, shift, mean, variance = (weights.positive(CHANNELS) for _ in range(4))
        return op.BatchNormalization(y, scale, shift, mean, variance, epsilon=1e-5)

    y = eqsat.input("x", (1, CHANNELS, 6, 6))
    for _ in range(layers):
        y = op.Relu(y + conv(op.Relu(conv(y))))
    return eqsat.graph(y)


def plain_residuals(layers: int) -> ir.Model:
    """Pre-activation blocks: convolutions with biases on a residual stream, scaled as in ConvNeXt."""
    weights = Weights()
    y = eqsat.input("x", (1, CHANNELS, 6, 6))
    for _ in range(layers):
        z = op.Conv(op.Relu(y), weights(CHANNELS, CHANNELS, 3, 3), weights(CHANNELS), pads=[1, 1, 1, 1])
        y = y + z * weights(CHANNELS, 1, 1)
    return eqsat.graph(y)


def branches(count: int) -> ir.Model:
    """One sum of many products with biases, as of experts."""
    weights = Weights()
    x = eqsat.input("x", (1, TOKENS, WIDTH))
    y = mlp(x, weights)
    for _ in range(count):
        y = y + mlp(x, weights)
    return eqsat.graph(op.Relu(y))


def alternating_sum(count: int) -> ir.Model:
    """A sum of constants and others in turn."""
    weights = Weights()
    x = eqsat.input("x", (1, TOKENS, WIDTH))
    y = x
    for _ in range(count):
        y = (y + op.Relu(op.MatMul(x, weights(WIDTH, WIDTH)))) + weights(WIDTH)
    return eqsat.graph(op.Relu(y))


def alternating_product(count: int) -> ir.Model:
    weights = Weights()
    x = eqsat.input("x", (1, TOKENS, WIDTH))
    y = x
    for _ in range(count):
        y = (y * weights.positive(WIDTH)) * op.Sigmoid(op.MatMul(x, weights(WIDTH, WIDTH)))
    return eqsat.graph(op.Relu(y))


def affine_maps(count: int) -> ir.Model:
    """Scales and shifts, which are one scale and one shift together."""
    weights = Weights()
    y = eqsat.input("x", (1, TOKENS, WIDTH))
    for _ in range(count):
        y = y * weights.positive(WIDTH) + weights(WIDTH)
    return eqsat.graph(op.Relu(y))


def scaled_stream(layers: int) -> ir.Model:
    """A residual stream that each layer scales."""
    weights = Weights()
    y = eqsat.input("x", (1, TOKENS, WIDTH))
    for _ in range(layers):
        branch = linear(layer_norm(y, weights), weights, WIDTH, WIDTH)
        y = y * np.float32(0.5) + branch * np.float32(0.7)
    return eqsat.graph(op.Relu(y))


def windows(layers: int) -> ir.Model:
    """Attention within windows of an image and then across them, as in MaxViT: a view follows the other.

    The weights are too large to be literals.
    """
    weights = Weights()
    width, side = 64, 7

    def attended(y: Tensor, apart: list[int], sizes: list[int], back: list[int]) -> Tensor:
        y = op.Transpose(op.Reshape(y, [1, width, *sizes]), perm=apart)
        y = op.Reshape(y, [1, 4, side * side, width])
        z = op.LayerNormalization(y, weights.positive(width), weights(width), axis=-1)
        z = op.MatMul(z, weights(width, 3 * width)) + weights(3 * width)
        q, k, v = (
            op.Transpose(
                op.Reshape(
                    op.Slice(z, [i * width], [(i + 1) * width], [3]), [1, 4, side * side, HEADS, width // HEADS]
                ),
                perm=[0, 1, 3, 2, 4],
            )
            for i in range(3)
        )
        scores = op.Einsum(q, k * np.float32(0.5), equation="BGHID,BGHJD->BGHIJ")
        scores = op.Softmax(scores + weights(1, HEADS, side * side, side * side), axis=-1)
        mixed = op.Transpose(op.Einsum(scores, v, equation="BGHIJ,BGHJD->BGHID"), perm=[0, 1, 3, 2, 4])
        mixed = op.Reshape(mixed, [1, 4, side * side, width])
        y = y + (op.MatMul(mixed, weights(width, width)) + weights(width))
        y = y + (
            op.MatMul(op.LayerNormalization(y, weights.positive(width), weights(width), axis=-1), weights(width, width))
            + weights(width)
        )
        y = op.Reshape(y, [1, *(sizes[i - 2] for i in apart[1:-1]), width])
        return op.Reshape(op.Transpose(y, perm=back), [1, width, 2 * side, 2 * side])

    y = eqsat.input("x", (1, width, 2 * side, 2 * side))
    for _ in range(layers):
        y = attended(y, [0, 2, 4, 3, 5, 1], [2, side, 2, side], [0, 5, 1, 3, 2, 4])
        y = attended(y, [0, 3, 5, 2, 4, 1], [side, 2, side, 2], [0, 5, 3, 1, 4, 2])
    return eqsat.graph(y)


CHAINS: dict[str, Callable[[int], ir.Model]] = {
    "pre_norm": pre_norm,
    "pre_norm_spelled": lambda layers: pre_norm(layers, spelled_layer_norm),
    "post_norm": post_norm,
    "post_norm_spelled": lambda layers: post_norm(layers, spelled_layer_norm),
    "masked_attention": masked_attention,
    "residual_convolutions": residual_convolutions,
    "plain_residuals": plain_residuals,
    "branches": branches,
    "alternating_sum": alternating_sum,
    "alternating_product": alternating_product,
    "affine_maps": affine_maps,
    "scaled_stream": scaled_stream,
}
