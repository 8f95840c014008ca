"""ONNX Runtime's operators on quantized tensors and its fused operators, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.ops.evaluate import evaluate
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey
from tests.ops.families.test_quantization import EIGHT, full, scale, zero
from tests.ops.oracle import check, values
from tests.quantization.runtime import needs_exact_products

MS = "com.microsoft"


def every_pair(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    every = np.arange(256, dtype=np.uint8).view(dtype)
    a, b = np.meshgrid(every, every)
    return a.ravel(), b.ravel()


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("seed", range(12))
def test_every_pair_of_operands(name: str, dtype: type, seed: int):
    rng = np.random.default_rng(seed)
    a, b = every_pair(dtype)
    c_scale = scale(rng) if name == "QLinearAdd" else np.asarray(scale(rng) * 30, np.float32)
    inputs = [a, scale(rng), zero(rng, dtype), b, scale(rng), zero(rng, dtype), c_scale, zero(rng, dtype)]
    check(name, inputs, domain=MS)


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    "shapes", [((3, 4), (4,)), ((4,), (2, 3, 4)), ((3, 1), (1, 5)), ((), (7,)), ((7,), ()), ((), ())]
)
def test_broadcasting(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]):
    rng = np.random.default_rng(1)
    for dtype in EIGHT:
        a, b = (full(rng, s, dtype) for s in shapes)
        check(
            name,
            [a, scale(rng), zero(rng, dtype), b, scale(rng), zero(rng, dtype), scale(rng), zero(rng, dtype)],
            domain=MS,
        )


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("seed", range(6))
def test_functions_of_one_operand(dtype: type, seed: int):
    rng = np.random.default_rng([seed, 2])
    x = np.arange(256, dtype=np.uint8).view(dtype)
    for name, attrs in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1}), ("QLinearLeakyRelu", {})):
        check(name, [x, scale(rng), zero(rng, dtype), scale(rng), zero(rng, dtype)], attrs, domain=MS)


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("seed", range(6))
def test_softmax(dtype: type, seed: int):
    rng = np.random.default_rng([seed, 3])
    for shape, axis, opset in (((5, 40), -1, 13), ((2, 3, 4), 1, 13), ((2, 3, 4), 1, 12), ((2, 700), -1, 13)):
        inputs = [
            full(rng, shape, dtype),
            scale(rng),
            zero(rng, dtype),
            np.array(1 / 256, np.float32),
            zero(rng, dtype),
        ]
        check("QLinearSoftmax", inputs, {"axis": axis, "opset": opset}, domain=MS)


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("steps", [1 / 3000, 1 / 700, 1 / 300, 1 / 255, 1 / 256, 0.01, 0.3])
@pytest.mark.parametrize("top", [0, 20, 100, 127])
def test_softmax_without_room_for_one(dtype: type, steps: float, top: int):
    rng = np.random.default_rng(int(1 / steps) + top)
    inputs = [
        full(rng, (40, 6), dtype),
        np.array(0.03, np.float32),
        zero(rng, dtype),
        np.array(steps, np.float32),
        np.array(top, dtype),
    ]
    check("QLinearSoftmax", inputs, {"axis": -1, "opset": 13}, domain=MS)


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("seed", range(6))
def test_pooling(dtype: type, seed: int):
    rng = np.random.default_rng([seed, 4])
    x = full(rng, (2, 3, 7, 9), dtype)
    rest = [scale(rng), zero(rng, dtype), scale(rng), zero(rng, dtype)]
    attrs: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    attrs |= {"count_include_pad": int(rng.integers(0, 2)), "ceil_mode": int(rng.integers(0, 2))}
    check("QLinearAveragePool", [x, *rest], attrs, domain=MS)
    check("QLinearAveragePool", [x, *rest], attrs | {"channels_last": 1, "pads": [1, 0, 0, 1]}, domain=MS)
    for last in (0, 1):
        check("QLinearGlobalAveragePool", [x, *rest], {"channels_last": last}, domain=MS)


@pytest.mark.parametrize("dtype", EIGHT)
def test_concat_and_where(dtype: type):
    rng = np.random.default_rng(5)
    for _ in range(5):
        parts = [v for n in (2, 3, 1) for v in (full(rng, (n, 4), dtype), scale(rng), zero(rng, dtype))]
        same = [full(rng, (2, 4), dtype), scale(rng), zero(rng, dtype)]
        check("QLinearConcat", [same[1], same[2], *parts, *same], {"axis": 0}, domain=MS)
        inputs = [full(rng, (3, 4), dtype), scale(rng), zero(rng, dtype)]
        inputs += [full(rng, (4,), dtype), scale(rng), zero(rng, dtype), scale(rng), zero(rng, dtype)]
        check("QLinearWhere", [rng.random((3, 4)) < 0.5, *inputs], domain=MS)


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("seed", range(4))
def test_qgemm(dtype: type, seed: int):
    rng = np.random.default_rng([seed, 6])
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            a, b = full(rng, (4, 3) if trans_a else (3, 4), dtype), full(rng, (5, 4) if trans_b else (4, 5), dtype)
            c = rng.integers(-3000, 3000, 5).astype(np.int32) if rng.random() < 0.5 else None
            columns = (5,) if rng.random() < 0.5 else ()
            inputs = [a, scale(rng), zero(rng, dtype), b, scale(rng, columns), zero(rng, dtype, columns), c]
            attrs = {"transA": trans_a, "transB": trans_b, "alpha": 0.5}
            tail = [np.asarray(scale(rng) * 30, np.float32), zero(rng, dtype)]
            check("QGemm", [*inputs, *tail], attrs, domain=MS)
            check("QGemm", inputs, attrs, domain=MS, rtol=1e-6)


@needs_exact_products
def test_channels_last_convolution():
    rng = np.random.default_rng(7)
    x, w = full(rng, (2, 6, 7, 3), np.uint8), full(rng, (4, 3, 3, 3), np.int8)
    tail = [w, scale(rng), zero(rng, np.int8), np.array(3, np.float32), zero(rng, np.uint8)]
    attrs = {"channels_last": 1, "pads": [1, 1, 1, 1]}
    check("QLinearConv", [x, scale(rng), zero(rng, np.uint8), *tail], attrs, domain=MS)


def test_quantize_linear_of_the_other_domain():
    rng = np.random.default_rng(8)
    x, s, z = values(rng, (3, 4), np.float32), scale(rng, (4,)), zero(rng, np.int8, (4,))
    q = check("QuantizeLinear", [x, s, z], {"axis": 1}, domain=MS)[0]
    check("DequantizeLinear", [q, s, z], {"axis": 1}, domain=MS)


# ---- fused floating-point operators --------------------------------------------------------------


def test_gelus():
    rng = np.random.default_rng(9)
    x, b = values(rng, (3, 40), np.float32, -6, 6), values(rng, (40,), np.float32)
    check("Gelu", [x], domain=MS, rtol=1e-5, atol=1e-6)
    check("BiasGelu", [x, b], domain=MS, rtol=1e-5, atol=1e-6)
    check("FastGelu", [x], domain=MS, rtol=1e-5, atol=1e-6)
    check("FastGelu", [x, b], domain=MS, rtol=1e-5, atol=1e-6)
    check("QuickGelu", [x], {"alpha": 1.3}, domain=MS, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("", ()),
        ("Relu", ()),
        ("Tanh", ()),
        ("Sigmoid", ()),
        ("LeakyRelu", (0.2,)),
        ("Clip", (-0.5, 0.7)),
        ("HardSigmoid", (0.3, 0.4)),
    ],
)
def test_fused_conv_and_gemm(activation: str, parameters: tuple[float, ...]):
    rng = np.random.default_rng(10)
    x, w, b = (values(rng, s, np.float32, -1, 1) for s in ((1, 4, 6, 6), (3, 4, 3, 3), (3,)))
    attrs: dict[str, Any] = {"activation": activation} if activation else {}
    named = dict(zip(("activation_alpha", "activation_beta"), parameters, strict=False))
    residual = values(rng, (1, 3, 4, 4), np.float32)
    for z in ([], [residual]):
        check(
            "FusedConv",
            [x, w, b, *z],
            attrs | ({"activation_params": parameters} if parameters else {}),
            domain=MS,
            rtol=1e-5,
            atol=1e-5,
        )
    if activation not in ("", "Clip"):
        a = [values(rng, s, np.float32) for s in ((3, 4), (4, 5), (5,))]
        check("FusedGemm", a, attrs | named | {"alpha": 0.5}, domain=MS, rtol=1e-5, atol=1e-5)


def test_fused_matmul():
    rng = np.random.default_rng(11)
    a, b = values(rng, (2, 3, 4), np.float32), values(rng, (2, 5, 4), np.float32)
    check("FusedMatMul", [a, b], {"transB": 1, "alpha": 0.3}, domain=MS, rtol=1e-5, atol=1e-5)
    check("FusedMatMul", [a, values(rng, (2, 3, 5), np.float32)], {"transA": 1}, domain=MS, rtol=1e-5, atol=1e-5)
    # One batch axis after the rows: (3, 2, 4) is two matrices of 3 by 4.
    moved = values(rng, (3, 2, 4), np.float32)
    check("FusedMatMul", [moved, b], {"transBatchA": 1, "transB": 1}, domain=MS, rtol=1e-5, atol=1e-5)


def test_skip_normalizations():
    rng = np.random.default_rng(12)
    x, skip = (values(rng, (2, 3, 8), np.float32) for _ in range(2))
    gamma, beta, bias = (values(rng, (8,), np.float32) for _ in range(3))
    for inputs in ([x, skip, gamma], [x, skip, gamma, beta], [x, skip, gamma, beta, bias]):
        check("SkipLayerNormalization", inputs, {"epsilon": 1e-5}, domain=MS, rtol=1e-4, atol=1e-5)
    for inputs in ([x, skip, gamma], [x, skip, gamma, bias]):
        check("SkipSimplifiedLayerNormalization", inputs, {"epsilon": 1e-5}, domain=MS, rtol=1e-4, atol=1e-5)


@needs_exact_products
def test_integer_products_as_floats():
    rng = np.random.default_rng(13)
    a, b = full(rng, (3, 4), np.uint8), full(rng, (4, 5), np.int8)
    bias = values(rng, (5,), np.float32)
    for columns in ((), (5,)):
        inputs = [a, b, scale(rng), scale(rng, columns), zero(rng, np.uint8), zero(rng, np.int8, columns), bias]
        check("MatMulIntegerToFloat", inputs, domain=MS, rtol=1e-5, atol=1e-5)
        x = values(rng, (3, 4), np.float32)
        check("DynamicQuantizeMatMul", [x, b, *inputs[3:4], inputs[5], bias], domain=MS, rtol=1e-5, atol=1e-5)


def test_relatives_of_standard_operators():
    rng = np.random.default_rng(14)
    x = values(rng, (3, 4), np.float32)
    check("ExpandDims", [x, np.array(-1, np.int32)], domain=MS)
    check("Trilu", [x, np.array(1)], {"upper": 0}, domain=MS)
    check("Pad", [x, np.array([1, 0, 0, 2]), np.array([5.0], np.float32)], domain=MS)
    check("TransposeMatMul", [x, x], {"transB": 1}, domain=MS, rtol=1e-6)


def test_bias_add():
    rng = np.random.default_rng(15)
    x, bias, skip = (values(rng, s, np.float32) for s in ((1, 4, 320), (320,), (1, 4, 320)))
    check("BiasAdd", [x, bias, skip], domain=MS, judge=lambda *_: [x + bias + skip])


@pytest.mark.parametrize(
    "name", ["QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearLeakyRelu", "QLinearAveragePool"]
)
@pytest.mark.parametrize("kind", [np.float64, np.longdouble])
def test_scales_of_wide_types_are_not_rounded(name: str, kind: type):
    """Verification computes over the reals; here with scales that float32 makes zero."""
    rng = np.random.default_rng(5)
    a, b = full(rng, (1, 2, 3, 5), np.uint8), full(rng, (1, 2, 3, 5), np.uint8)

    def results(unit: float) -> np.ndarray:
        sizes = (0.5 * unit, 0.125 * unit, 0.25 * unit)
        (sa, sb, sy), za, zb = (np.array(s, kind) for s in sizes), np.uint8(3), np.uint8(120)
        both = [a, sa, za, b, sb, zb]
        operands = {
            "QLinearConcat": [sy, za, *both],
            "QLinearAdd": [*both, sy, za],
            "QLinearMul": [*both, unit * sy / 4, za],  # by the square of the unit, as the product is
        }
        given = [np.asarray(x) for x in operands.get(name, [a, sb, za, sy, za])]
        attrs = {"QLinearConcat": {"axis": 0}, "QLinearAveragePool": {"kernel_shape": [2, 2]}}.get(name, {})
        op = OpKey(MS, name)
        (found,) = evaluate(op, make_attrs(op, attrs), given, 1)
        assert found is not None and len(np.unique(found)) > 2
        return found

    np.testing.assert_array_equal(results(2.0**-200), results(1.0))
