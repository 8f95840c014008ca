"""Elementwise operators of several operands."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, run_reference, values

PAIRS = [((), ()), ((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1)), ((1,), (5, 0, 2)), ((4, 1), ())]
NUMBERS = [np.float32, np.float64, np.float16, np.int32, np.int64, np.int8, np.uint8]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic(name: str, dtype: type):
    rng = np.random.default_rng(0)
    for a, b in PAIRS:
        x, y = values(rng, a, dtype, -100, 100), values(rng, b, dtype, -100, 100)
        if name == "Div":
            y = np.asarray(np.where(np.abs(y.astype(np.float64)) < 1, dtype(3), y)).astype(dtype)
        check(name, [x, y])


def test_integer_division_truncates():
    a, b = np.meshgrid(np.arange(-9, 10), [-4, -3, -1, 1, 2, 5])
    check("Div", [a.astype(np.int32), b.astype(np.int32)])
    check("Div", [a.astype(np.int64), b.astype(np.int64)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_equal(dtype: type):
    rng = np.random.default_rng(1)
    for a, b in PAIRS:
        check("Equal", [values(rng, a, dtype, -2, 2), values(rng, b, dtype, -2, 2)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("name", ["Greater", "Less", "GreaterOrEqual", "LessOrEqual"])
def test_comparison(name: str, dtype: type):
    rng = np.random.default_rng(2)
    for a, b in PAIRS:
        check(name, [values(rng, a, dtype, -2, 2), values(rng, b, dtype, -2, 2)])
    if np.dtype(dtype).kind == "f":
        special = np.array([np.nan, np.inf, -np.inf, 0, -0.0], dtype)
        check(name, [special[:, None], special])


@pytest.mark.parametrize("name", ["And", "Or", "Xor"])
def test_logic(name: str):
    rng = np.random.default_rng(3)
    for a, b in PAIRS:
        check(name, [values(rng, a, bool), values(rng, b, bool)])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64])
@pytest.mark.parametrize("name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bits(name: str, dtype: type):
    rng = np.random.default_rng(4)
    for a, b in PAIRS:
        check(name, [values(rng, a, dtype, -128, 255), values(rng, b, dtype, -128, 255)])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shift(direction: str, dtype: type):
    rng = np.random.default_rng(5)
    check("BitShift", [values(rng, (40,), dtype, 0, 255), values(rng, (40,), dtype, 0, 7)], {"direction": direction})


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
@pytest.mark.parametrize("fmod", [0, 1])
def test_integer_mod(fmod: int, dtype: type):
    rng = np.random.default_rng(6)
    divisor = values(rng, (60,), dtype, 1, 9)
    if np.dtype(dtype).kind == "i":
        divisor[::2] *= -1
    check("Mod", [values(rng, (60,), dtype, -50, 50), divisor], {"fmod": fmod})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_float_mod(dtype: type):
    rng = np.random.default_rng(7)
    check("Mod", [values(rng, (60,), dtype, -50, 50), values(rng, (60,), dtype, 1, 9)], {"fmod": 1})


@pytest.mark.parametrize("exponent", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("base", [np.float32, np.float64, np.int32, np.int64])
def test_pow(base: type, exponent: type):
    rng = np.random.default_rng(8)
    x = values(rng, (30,), base, 1, 6)
    check("Pow", [x, values(rng, (30,), exponent, 0, 3)], rtol=1e-6 if base is np.float32 else 1e-14)
    for constant in (0.5, 1, 2, 3):
        if float(exponent(constant)) == constant:
            check("Pow", [x, np.array(constant, exponent)], rtol=2e-7)


@pytest.mark.parametrize("exponent", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("base", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (3, 8)])
def test_half_powers_are_no_roots(shape: tuple[int, ...], base: type, exponent: type):
    x = np.array([-0.0, 0.0, -np.inf, np.inf, np.nan, -1.0, 4.0, 2.0] * 3, base).reshape(3, 8)
    half = np.full(shape, 0.5, exponent)
    expected = np.array([0.0, 0.0, np.inf, np.inf, np.nan, np.nan, 2.0, np.sqrt(base(2))] * 3, base).reshape(3, 8)
    node = onnx.helper.make_node("Pow", ["x", "e"], ["y"])
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in (base, exponent)]
    infos = [
        onnx.helper.make_tensor_value_info(n, k, s) for n, k, s in (("x", kinds[0], (3, 8)), ("y", kinds[0], (3, 8)))
    ]
    held = [onnx.numpy_helper.from_array(half, "e")]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:], held)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found in (
        session.run(None, {"x": x})[0],
        eqsat.run(model, {"x": x})["y"],
        eqsat.optimize(model, numerics="exact", host="c").run({"x": x}, backend="c")["y"],
    ):
        np.testing.assert_allclose(found, expected, rtol=np.finfo(base).eps)
        assert not np.signbit(found[:, :2]).any()


def test_pow_with_negative_exponents_of_integers():
    check("Pow", [np.array([1, 2, -1, 5], np.int64), np.array([-1, -2, -3, 2], np.int64)], judge=run_truncated)


def run_truncated(*_: object) -> list[np.ndarray]:
    return [np.array([1, 0, -1, 25], np.int64)]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("name", ["Max", "Min", "Sum", "Mean"])
def test_variadic(name: str, count: int):
    rng = np.random.default_rng(9)
    shapes = [(2, 3), (3,), (1, 1), (2, 1), ()]
    for dtype in (np.float32, np.float64) if name in ("Sum", "Mean") else (np.float32, np.float64, np.int32, np.uint8):
        xs = [values(rng, s, dtype, -9, 9) for s in shapes[:count]]
        check(name, xs, rtol=2e-7)


def test_extremum_of_nan():
    x = np.array([np.nan, 1, np.nan, -np.inf], np.float32)
    y = np.array([1, np.nan, np.nan, np.inf], np.float32)
    for name in ("Max", "Min"):
        check(name, [x, y], judge=run_reference)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
def test_where(dtype: type):
    rng = np.random.default_rng(10)
    for a, b in PAIRS:
        check("Where", [values(rng, a, bool), values(rng, b, dtype), values(rng, a, dtype)])


def test_where_of_strings():
    words = np.array(["a", "bc", ""], object)
    (chosen,) = run_ours(OpKey("", "Where"), {}, [np.array([True, False, False]), words, words[::-1]])
    assert chosen.tolist() == ["a", "bc", "a"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64])
def test_clip(dtype: type):
    x = values(np.random.default_rng(11), (50,), dtype, -100, 100)
    low, high = np.array(10, dtype), np.array(30, dtype)
    for limits in ([], [low], [None, high], [low, high], [high, low]):
        check("Clip", [x, *limits])
