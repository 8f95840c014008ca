"""Steps by which a random graph grows: single operators, and the spellings that exporters produce.

Each function adds a few nodes or raises ``RefusedError``. What rules look for occurs here in more than one
spelling, shared, with further readers, or with a detail that makes it different.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tests.fuzz.growing import Growing, RefusedError, Value

Motif = Callable[[Growing], object]

UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Abs",
    "Neg",
    "Softplus",
    "HardSwish",
    "Mish",
    "Erf",
    "Softsign",
    "Selu",
    "Exp",
    "Sin",
)
BINARY = ("Add", "Sub", "Mul")


def unary(g: Growing) -> Value:
    return g.op(g.one_of(UNARY), g.pick())


def unary_with_attribute(g: Growing) -> Value:
    x = g.pick()
    name = g.one_of(("LeakyRelu", "Elu", "HardSigmoid", "Celu", "ThresholdedRelu"))
    if name == "ThresholdedRelu" and not x.exact:
        raise RefusedError
    return g.op(name, x, alpha=float(g.one_of((0.1, 0.25, 1.0))))


def binary(g: Growing) -> Value:
    x = g.pick()
    same = [v for v in g.values if v.is_float and _broadcasts(v.shape, x.shape) and not v.constant]
    y = g.one_of(same)
    return g.op(g.one_of(BINARY), *((x, y) if g.chance(0.5) else (y, x)))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def with_constant(g: Growing) -> Value:
    x = g.pick()
    shapes = [(), (1,), x.shape[-1:], x.shape]
    if len(x.shape) >= 3:
        shapes.append((x.shape[1], *[1] * (len(x.shape) - 2)))
    c = g.weights(*g.one_of(shapes), shift=g.one_of((0.0, 1.0)))
    return g.op(g.one_of(BINARY), *((x, c) if g.chance(0.5) else (c, x)))


def with_neutral(g: Growing) -> Value:
    x = g.pick()
    name, value = g.one_of(
        (("Add", 0.0), ("Mul", 1.0), ("Sub", 0.0), ("Div", 1.0), ("Pow", 1.0), ("Mul", -1.0), ("Mul", 0.0))
    )
    # A neutral constant of higher rank changes the shape: a trap.
    shape = g.one_of(((), (1,), (1,) * len(x.shape), (1,) * (len(x.shape) + 1)))
    return g.op(name, x, g.constant(np.full(shape, value)))


def constants_twice(g: Growing) -> Value:
    x = g.pick()
    a, b = g.weights(), g.weights(*x.shape[-1:])
    first, second = g.one_of(BINARY), g.one_of(BINARY)
    return g.op(second, g.op(first, x, a), b)


def division(g: Growing) -> Value:
    x = g.pick()
    if g.chance(0.5):
        return g.op("Div", x, g.constant(g.one_of((2.0, -4.0, 0.3))))
    positive = g.op("Add", g.op("Exp", g.op("Tanh", x)), g.constant(0.5))
    return g.op("Div", g.pick(len(x.shape)), positive) if g.chance(0.5) else g.op("Reciprocal", positive)


def clipped(g: Growing) -> Value:
    x = g.pick()
    zero, six = g.constant(0.0), g.constant(6.0)
    spelling = g.size(0, 7)
    if spelling == 0:
        return g.op("Max", x, zero)
    if spelling == 1:
        return g.op("Max", zero, x)
    if spelling == 2:
        return g.op("Clip", x, zero)
    if spelling == 3:
        return g.op("Clip", x, zero, g.constant(np.inf))
    if spelling == 4:
        return g.op("Clip", x, zero, six)
    if spelling == 5:
        return g.op("Min", g.op("Max", x, zero), six)
    if spelling == 6:
        return g.op("Clip", g.op("Relu", x), g.constant(-1.0), six)
    return g.op("Clip", x, None, g.constant(0.5))


def activation_spelled_out(g: Growing) -> Value:
    x = g.pick()
    half, one = g.constant(0.5), g.constant(1.0)
    spelling = g.size(0, 6)
    if spelling == 0:
        return g.op("Mul", x, g.op("Sigmoid", x))
    if spelling == 1:
        return g.op("Reciprocal", g.op("Add", g.op("Exp", g.op("Neg", x)), one))
    if spelling == 2:
        inner = g.op("Add", g.op("Erf", g.op("Div", x, g.constant(np.sqrt(2.0)))), one)
        return g.op("Mul", g.op("Mul", x, half), inner)
    if spelling == 3:
        inner = g.op("Add", g.op("Erf", g.op("Mul", x, g.constant(np.sqrt(0.5)))), one)
        return g.op("Mul", g.op("Mul", x, inner), half)
    if spelling == 4:
        return g.op("Mul", x, g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    if spelling == 5:
        hard = g.op("Clip", g.op("Add", x, g.constant(3.0)), g.constant(0.0), g.constant(6.0))
        return g.op("Div", g.op("Mul", x, hard), g.constant(6.0))
    return g.op("Mul", x, g.op("Tanh", g.op("Softplus", x)))


def conv(g: Growing) -> Value:
    """A convolution and what exporters put after it."""
    x = g.pick(g.one_of((3, 4, 4, 4, 5)))
    channels, spatial = x.shape[1], len(x.shape) - 2
    group = channels if g.chance(0.2) else 1
    out = group if group > 1 else g.size(1, 6)
    kernel = [g.one_of((1, 3)) for _ in range(spatial)]
    weight = g.weights(out, channels // group, *kernel, scale=0.4)
    attrs = {"kernel_shape": kernel, "group": group}
    if g.chance(0.6):
        attrs["pads"] = [k // 2 for k in kernel] * 2
    if g.chance(0.3):
        attrs["strides"] = [2] * spatial
    if g.chance(0.15):
        attrs["auto_pad"] = g.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
        attrs.pop("pads", None)
    if g.chance(0.2):
        widths = [0, 0] + [1] * spatial + [0, 0] + [g.one_of((0, 1))] * spatial
        x = g.op("Pad", x, g.constant(widths, np.int64), g.constant(g.one_of((0.0, 0.0, 1.0))), mode="constant")
    bias = (g.weights(out),) if g.chance(0.5) else ()
    y = g.op("Conv", x, weight, *bias, **attrs)
    shape = (out, *[1] * spatial)
    if g.chance(0.4):
        y = batchnorm(g, y)
    if g.chance(0.3):
        y = g.op("Mul", y, g.weights(*shape, shift=1.0))
    if g.chance(0.3):
        y = g.op("Add", g.op("Unsqueeze", g.weights(out), g.constant(list(range(1, spatial + 1)), np.int64)), y)
    if g.chance(0.3):
        same = [v for v in g.values if v.shape == y.shape and v.is_float]
        y = g.op(g.one_of(("Add", "Sum")), y, g.one_of(same))
    if g.chance(0.5):
        y = g.op(g.one_of(("Relu", "Sigmoid", "HardSwish")), y)
    return y


def batchnorm(g: Growing, x: Value | None = None) -> Value:
    x = x or g.pick(least=2)
    c = x.shape[1]
    variance = g.constant(g.rng.uniform(0.5, 1.5, c))
    parameters = (g.weights(c, shift=1.0), g.weights(c), g.weights(c), variance)
    return g.op("BatchNormalization", x, *parameters, epsilon=float(g.one_of((1e-5, 1e-3))))


def conv_transpose(g: Growing) -> Value:
    x = g.pick(4)
    out = g.size(1, 4)
    y = g.op("ConvTranspose", x, g.weights(x.shape[1], out, 2, 2, scale=0.4), strides=[2, 2])
    return batchnorm(g, y) if g.chance(0.5) else g.op("Add", y, g.weights(out, 1, 1))


def matmul(g: Growing) -> Value:
    x = g.pick(least=2)
    n = g.size(1, 6)
    y = g.op("MatMul", x, g.weights(x.shape[-1], n, scale=0.5))
    bias = g.weights(n)
    if g.chance(0.3):
        y = g.op("Sub", y, g.op("Neg", bias))
    elif g.chance(0.6):
        y = g.op("Add", bias, y)
    if g.chance(0.3):
        y = g.op("Reshape", g.op("Reshape", y, g.constant([-1], np.int64)), g.constant(y.shape, np.int64))
    if g.chance(0.3):
        same = [v for v in g.values if v.shape == y.shape and v.is_float and not v.constant]
        y = g.op("Add", g.one_of(same), y)
    return g.op("Relu", y) if g.chance(0.5) else y


def gemm(g: Growing) -> Value:
    x = g.pick(2)
    n, trans_a, trans_b = g.size(1, 6), g.chance(0.2), g.chance(0.5)
    k = x.shape[0] if trans_a else x.shape[1]
    weight = g.weights(*((n, k) if trans_b else (k, n)), scale=0.5)
    bias = (g.weights(*g.one_of(((n,), (1, n), (1,)))),) if g.chance(0.7) else ()
    factors = {"alpha": 0.5, "beta": 2.0} if g.chance(0.2) else {}
    y = g.op("Gemm", x, weight, *bias, transA=int(trans_a), transB=int(trans_b), **factors)
    if g.chance(0.3):
        y = batchnorm(g, y)
    if g.chance(0.3):
        y = g.op("Mul", y, g.weights(*g.one_of(((), (n,), (1, n)))))
    return g.op("Add", y, g.weights(n)) if g.chance(0.3) else y


def attention(g: Growing) -> Value:
    x = g.pick(3)
    d = x.shape[-1]
    q, k, v = (g.op("MatMul", x, g.weights(d, 4, scale=0.4)) for _ in range(3))
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 1]))
    scores = g.op("Mul", scores, g.constant(0.5)) if g.chance(0.5) else g.op("Div", scores, g.constant(2.0))
    return g.op("MatMul", g.op("Softmax", scores, axis=g.one_of((-1, 2))), v)


def pool(g: Growing) -> Value:
    x = g.pick(4)
    if g.chance(0.3):
        return g.op(g.one_of(("GlobalAveragePool", "GlobalMaxPool")), x)
    if g.chance(0.3):
        axes = g.constant([2, 3] if g.chance(0.5) else [-2, -1], np.int64)
        return g.op("ReduceMean", x, axes, keepdims=g.size(0, 1))
    name = g.one_of(("MaxPool", "AveragePool"))
    kernel = list(x.shape[2:]) if g.chance(0.3) else [2, 2]
    extra = {"pads": [1, 1, 1, 1]} if min(kernel) >= 2 and g.chance(0.3) else {}
    if name == "AveragePool" and extra:
        extra["count_include_pad"] = g.size(0, 1)
    return g.op(name, x, kernel_shape=kernel, strides=g.one_of(([1, 1], [2, 2])), ceil_mode=g.size(0, 1), **extra)


def normalisation(g: Growing) -> Value:
    x = g.pick(least=2)
    if g.chance(0.5):
        d = x.shape[-1]
        return g.op("LayerNormalization", x, g.weights(d, shift=1.0), g.weights(d), axis=-1)
    return g.op(g.one_of(("Softmax", "LogSoftmax")), x, axis=int(g.one_of((-1, 1))))


def transposes(g: Growing) -> Value:
    x = g.pick(least=2)
    perm = [int(i) for i in g.rng.permutation(len(x.shape))]
    y = g.op("Transpose", x, perm=perm)
    if g.chance(0.5):
        y = g.op(g.one_of(("Relu", "Tanh", "LeakyRelu")), y)
    if g.chance(0.6):
        back = np.argsort(perm).tolist() if g.chance(0.6) else [int(i) for i in g.rng.permutation(len(perm))]
        y = g.op("Transpose", y, perm=back)
    return y


def views(g: Growing) -> Value:
    x = g.pick()
    size = int(np.prod(x.shape))
    spelling = g.size(0, 4)
    if spelling == 0 and len(x.shape) > 1:
        y = g.op("Flatten", x, axis=g.size(0, len(x.shape)))
    elif spelling == 1:
        y = g.op("Unsqueeze", x, g.constant([g.one_of((0, -1))], np.int64))
    elif spelling == 2 and 1 in x.shape:
        y = g.op("Squeeze", x, g.constant([x.shape.index(1)], np.int64))
    elif spelling == 3 and len(x.shape) > 1:
        y = g.op("Reshape", x, g.constant([0, -1], np.int64))
    else:
        half = 2 if size % 2 == 0 else 1
        y = g.op("Reshape", x, g.constant([half, size // half], np.int64))
    if g.chance(0.3):
        y = g.op("Relu", y)
    return g.op("Reshape", y, g.constant(x.shape, np.int64)) if g.chance(0.5) else y


def split_and_concat(g: Growing) -> Value:
    x = g.pick(least=2)
    axis = g.size(0, len(x.shape) - 1)
    if x.shape[axis] < 2:
        raise RefusedError
    first = g.size(1, x.shape[axis] - 1)
    parts = g.op("Split", x, g.constant([first, x.shape[axis] - first], np.int64), outputs=2, axis=axis)
    if g.chance(0.4):
        parts = [g.op("Relu", parts[0]), parts[1]]
    if g.chance(0.2):
        parts = parts[::-1]
    return g.op("Concat", *parts, axis=axis)


def concat(g: Growing) -> Value:
    x = g.pick(least=2)
    others = [v for v in g.values if v.is_float and v.shape == x.shape]
    parts = [g.one_of(others) for _ in range(g.size(1, 2))]
    y = g.op("Concat", x, *parts, axis=int(g.one_of((1, -1))))
    return g.op("Concat", y, x, axis=1) if g.chance(0.2) else y


def slicing(g: Growing) -> Value:
    x = g.pick(least=1)
    end = g.one_of((1, 2**31, -1))
    return g.op("Slice", x, g.constant([0], np.int64), g.constant([end], np.int64), g.constant([0], np.int64))


def nothing(g: Growing) -> Value:
    x = g.pick()
    spelling = g.size(0, 4)
    if spelling == 0:
        return g.op("Identity", x)
    if spelling == 1:
        return g.op("Dropout", x)
    if spelling == 2:
        known = g.chance(0.5)
        off = g.constant(False, np.bool_) if known else g.op("Not", g.constant(True, np.bool_))
        return g.op("Dropout", x, g.constant(0.5), off)
    if spelling == 3:
        return g.op("Cast", x, to=int(ir.DataType.from_numpy(g.floats)))
    return g.op("Sum", x)


def squares(g: Growing) -> Value:
    x = g.pick()
    same = [v for v in g.values if v.is_float and v.shape == x.shape and not v.constant]
    y = g.one_of(same)
    if g.chance(0.5):
        return g.op("Mul", g.op("Add", x, y), g.op("Sub", x, y))
    return g.op("Pow", x, g.constant(2.0)) if g.chance(0.5) else g.op("Mul", x, x)


def doubling(g: Growing) -> Value:
    x = g.pick()
    y = g.op("Add", x, x)
    return g.op("Add", y, y) if g.chance(0.5) else y


def many(g: Growing) -> Value:
    x = g.pick()
    same = [v for v in g.values if v.is_float and v.shape == x.shape and not v.constant]
    return g.op(g.one_of(("Sum", "Max", "Min", "Mean")), *(g.one_of(same) for _ in range(g.size(2, 4))))


def quantized(g: Growing) -> Value:
    """Quantize an exact value, move it, and come back."""
    x = g.pick(exact=True)
    scale, zero = g.constant(0.05), g.constant(g.one_of((0, 7)), g.one_of((np.uint8, np.int8)))
    q = g.op("QuantizeLinear", x, scale, zero)
    if g.chance(0.5) and len(x.shape) > 1:
        q = g.op("Transpose", q, perm=list(range(len(x.shape)))[::-1])
    return g.op("DequantizeLinear", q, scale, zero)


def shapes(g: Growing) -> Value:
    """Shape arithmetic as PyTorch exports it."""
    x = g.pick(least=2)
    shape = g.op("Shape", x)
    first = g.op("Gather", shape, g.constant([0], np.int64), axis=0)
    return g.op("Reshape", x, g.op("Concat", first, g.constant([-1], np.int64), axis=0))


def integers(g: Growing) -> Value:
    x = g.pick(dtype=g.one_of((np.int32, np.int64)))
    name = g.one_of(("Add", "Sub", "Mul", "Max", "Min", "Abs", "Neg"))
    if name in ("Abs", "Neg"):
        y = g.op(name, x)
    else:
        y = g.op(name, x, g.constant(g.one_of((0, 1, 3, -2)), x.array.dtype))
    if np.abs(y.array.astype(np.float64)).max() > 1e6:
        raise RefusedError
    return y


def choice(g: Growing) -> Value:
    x = g.pick(exact=True)
    positive = g.op("Greater", x, g.constant(0.0))
    return g.op("Where", positive, x, g.constant(0.0))


MOTIFS: tuple[tuple[Motif, float], ...] = (
    (unary, 3), (unary_with_attribute, 1), (binary, 4), (with_constant, 3), (with_neutral, 2), (constants_twice, 2),
    (division, 1), (clipped, 2), (activation_spelled_out, 2), (conv, 5), (batchnorm, 2), (conv_transpose, 1),
    (matmul, 3), (gemm, 3), (attention, 1), (pool, 2), (normalisation, 1), (transposes, 3), (views, 3),
    (split_and_concat, 2), (concat, 2), (slicing, 1), (nothing, 2), (squares, 2), (doubling, 1), (many, 2),
    (quantized, 2), (shapes, 1), (integers, 1), (choice, 1),
)  # fmt: skip
