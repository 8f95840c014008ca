"""Operators on quantized tensors in settings that exported models may have, beside those of ``own_settings.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.operator_settings import Setting
from eqsat.model.builder import Tensor, graph, input, op

_MS = op("com.microsoft")
_RNG = np.random.default_rng(0)
_SCALE, _WEIGHTS = np.float32(0.05), np.float32(0.01)
Made = Tensor | Sequence[Tensor]


def _zero(dtype: str) -> np.ndarray:
    return np.array({"uint8": 128, "uint16": 32768}.get(dtype, 3), dtype)


def _drawn(dtype: str, *shape: int) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return _RNG.integers(bounds.min, bounds.max, shape, dtype)


def _quantized(x: Tensor, dtype: str, axis: int | None = None) -> Tensor:
    if axis is None:
        return op.QuantizeLinear(x, _SCALE, _zero(dtype))
    assert x.shape is not None
    size = int(str(x.shape[axis]))
    scales = _RNG.uniform(0.01, 0.1, size).astype(np.float32)
    return op.QuantizeLinear(x, scales, np.full(size, _zero(dtype)), axis=axis)


def _dequantized(x: Tensor, dtype: str, axis: int | None = None, block: int = 0) -> Tensor:
    if axis is None:
        return op.DequantizeLinear(x, _SCALE, _zero(dtype))
    assert x.shape is not None
    shape = [int(str(n)) for n in x.shape]
    sizes = [-(-n // block) if a == axis else n for a, n in enumerate(shape)] if block else [shape[axis]]
    scales = _RNG.uniform(0.01, 0.1, sizes).astype(np.float32)
    return op.DequantizeLinear(x, scales, np.full(sizes, _zero(dtype)), axis=axis, block_size=block)


def _conv(x: Tensor, w: np.ndarray, **attributes: Any) -> Tensor:
    zero, scales = _zero("uint8"), np.full(len(w), _WEIGHTS)
    bias = _drawn("int32", len(w)) // (1 << 20)
    zeros, out = np.zeros(len(w), np.int8), np.float32(0.5)
    return op.QLinearConv(x, _SCALE, zero, w, scales, zeros, out, zero, bias, **attributes)


def _elementwise() -> Iterator[tuple[str, Made]]:
    rows, image = (64, 1000), (1, 64, 56, 56)
    for dtype in ("uint8", "int8", "uint16", "int16"):
        for shape, axis in ((rows, None), (image, 1), (rows, 1)):
            yield f"QuantizeLinear {dtype} axis {axis}", _quantized(input("x", shape), dtype, axis)
            yield f"DequantizeLinear {dtype} axis {axis}", _dequantized(input("x", shape, dtype), dtype, axis)
    yield "DequantizeLinear int8 blocks", _dequantized(input("x", (256, 512), "int8"), "int8", 1, 32)
    yield "DequantizeLinear int32", op.DequantizeLinear(input("x", rows, "int32"), _SCALE)
    yield "QuantizeLinear of float16", op.QuantizeLinear(input("x", rows, "float16"), np.float16(0.05), _zero("uint8"))
    yield "DynamicQuantizeLinear", op.DynamicQuantizeLinear(input("x", rows))
    for dtype in ("uint8", "int8"):
        q, other = (_SCALE, _zero(dtype)), (np.float32(0.07), _zero(dtype))
        x, y, c = (input(n, s, dtype) for n, s in (("x", rows), ("y", rows), ("c", (1000,))))
        yield f"QLinearAdd {dtype}", _MS.QLinearAdd(x, *q, y, *other, *q)
        yield f"QLinearAdd {dtype} of a row", _MS.QLinearAdd(x, *q, c, *other, *q)
        yield f"QLinearMul {dtype}", _MS.QLinearMul(x, *q, y, *other, *q)
        yield f"QLinearSigmoid {dtype}", _MS.QLinearSigmoid(x, *q, *other)
        yield f"QLinearLeakyRelu {dtype}", _MS.QLinearLeakyRelu(x, *q, *other, alpha=0.1)
        yield f"Relu between {dtype}", op.QuantizeLinear(op.Relu(op.DequantizeLinear(x, *q)), *other)


def _others() -> Iterator[tuple[str, Made]]:
    rows, image = (64, 1000), (1, 64, 56, 56)
    for dtype in ("uint8", "int8"):
        q, other = (_SCALE, _zero(dtype)), (np.float32(0.07), _zero(dtype))
        x, y, pixels = (input(n, s, dtype) for n, s in (("x", rows), ("y", rows), ("p", image)))
        soft = (np.float32(1 / 256), np.array(0 if dtype == "uint8" else -128, dtype))
        for axis in (0, 1):
            yield f"QLinearSoftmax {dtype}", _MS.QLinearSoftmax(x, *q, *soft, axis=axis, opset=13)
        mean = _MS.QLinearAveragePool(pixels, *q, *other, kernel_shape=[3, 3], strides=[2, 2])
        yield f"QLinearAveragePool {dtype}", mean
        yield f"QLinearGlobalAveragePool {dtype}", _MS.QLinearGlobalAveragePool(pixels, *q, *other)
        yield f"QLinearConcat {dtype}", _MS.QLinearConcat(*q, x, *other, y, *other, axis=1)
        yield f"MaxPool {dtype}", op.MaxPool(pixels, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        yield f"Transpose {dtype}", op.Transpose(pixels, perm=[0, 2, 3, 1])
        yield f"Concat {dtype}", op.Concat(x, y, axis=1)
        yield f"Resize {dtype}", op.Resize(pixels, None, np.array([1, 1, 2, 2], np.float32), mode="nearest")


def _products() -> Iterator[tuple[str, Made]]:
    x, w = input("x", (128, 256), "uint8"), input("w", (256, 128), "int8")
    zero, q, z, v = _zero("uint8"), (_SCALE, _zero("uint8")), np.int8(0), _drawn("int8", 256, 128)
    for name, right in (("constant", v), ("computed", w)):
        yield f"QLinearMatMul {name}", op.QLinearMatMul(x, *q, right, _WEIGHTS, z, np.float32(0.5), zero)
        yield f"MatMulInteger {name}", op.MatMulInteger(x, right, zero, z)
    stack = (input(n, (12, 64, 64), "uint8") for n in "ab")
    yield "MatMulInteger of stacks", op.MatMulInteger(*stack)
    yield "MatMulInteger of a row", op.MatMulInteger(input("a", (1, 768), "uint8"), _drawn("int8", 768, 768))
    yield "DynamicQuantizeMatMul", _MS.DynamicQuantizeMatMul(input("f", (128, 256)), v, _WEIGHTS, z)
    yield "QGemm", _MS.QGemm(x, *q, v, _WEIGHTS, z, _drawn("int32", 128) // 4096, np.float32(0.5), zero)


def _convolutions() -> Iterator[tuple[str, Made]]:
    a, same = input("a", (1, 48, 28, 28), "uint8"), [1, 1, 1, 1]
    for name, shape, attributes in (
        ("3x3", (48, 48, 3, 3), {"pads": same}),
        ("3x3 stride 2", (48, 48, 3, 3), {"pads": same, "strides": [2, 2]}),
        ("1x1", (96, 48, 1, 1), {}),
        ("odd channels", (37, 48, 3, 3), {"pads": same}),
        ("depthwise", (48, 1, 3, 3), {"pads": same, "group": 48}),
        ("groups", (48, 16, 3, 3), {"pads": same, "group": 3}),
        ("dilated", (48, 48, 3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
    ):
        yield f"QLinearConv {name}", _conv(a, _drawn("int8", *shape), **attributes)
    image = input("i", (1, 3, 112, 112), "uint8")
    yield "QLinearConv stem", _conv(image, _drawn("int8", 32, 3, 3, 3), strides=[2, 2])
    yield "QLinearConv one axis", _conv(input("i", (1, 48, 300), "uint8"), _drawn("int8", 64, 48, 3), pads=[1, 1])
    yield "QLinearConv batch", _conv(input("i", (4, 33, 20, 20), "uint8"), _drawn("int8", 35, 33, 3, 3))
    yield "ConvInteger", op.ConvInteger(a, _drawn("int8", 48, 48, 3, 3), _zero("uint8"), pads=same)
    w = input("w", (48, 48, 3, 3), "uint8")
    yield "ConvInteger of computed weights", op.ConvInteger(a, w, _zero("uint8"), pads=same)


def quantized() -> list[Setting]:
    """All settings."""
    parts = (_elementwise, _others, _products, _convolutions)
    return [Setting(name, ir.to_proto(graph(made))) for part in parts for name, made in part()]
