"""Elementwise functions of one operand and activations."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from eqsat.ops.numpy_kernel import BLOCK
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, expected, run_ours, run_reference, values

FLOATS = [np.float32, np.float64, np.float16]
INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.int64]
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-13, np.float16: 1e-3}
SHAPES = [(), (7,), (2, 3, 5), (0, 4)]

FUNCTIONS = [
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log"),
    *("Neg", "Reciprocal", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh", "Softplus", "Softsign"),
    *("Relu", "HardSwish", "Mish"),
]

SINGLE_ELSEWHERE = {("Erf", np.float64), ("Shrink", np.float64), ("Gelu", np.float64)}
"""What ONNX Runtime computes in float32 although it is asked for float64, and onnx.reference partly so."""


def exact(op: OpKey, attrs: dict[str, Any], inputs: list[np.ndarray], *rest: object) -> list[np.ndarray]:
    """Element by element in Python."""

    def function(x: float) -> float:
        if op.name == "Erf":
            return math.erf(x)
        if op.name == "Shrink":
            bias, limit = attrs["bias"], attrs["lambd"]
            return x + bias if x < -limit else x - bias if x > limit else 0.0
        if attrs:
            return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))

    return [np.array([function(x) for x in inputs[0].ravel().tolist()]).reshape(inputs[0].shape)]


RANGES = {
    "Acos": (-1, 1),
    "Acosh": (1, 9),
    "Asin": (-1, 1),
    "Atanh": (-0.99, 0.99),
    "Log": (1e-3, 100),
    "Sqrt": (0, 100),
    "Reciprocal": (0.1, 9),
    "Tan": (-1.4, 1.4),
    "Exp": (-20, 10),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name",
    FUNCTIONS,
)
def test_function(name: str, dtype: type):
    rng = np.random.default_rng(len(name))
    judge = exact if (name, dtype) in SINGLE_ELSEWHERE else expected
    tolerance = TOLERANCE[dtype]
    for shape in SHAPES[1:] if name == "Softsign" else SHAPES:  # which the reference cannot do on scalars
        x = values(rng, shape, dtype, *RANGES.get(name, (-6, 6)))
        check(name, [x], rtol=tolerance, atol=tolerance * 1e-1, judge=judge)


@pytest.mark.parametrize("name", ["Abs", "Neg", "Sign", "Relu"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_function_of_integers(name: str, dtype: type):
    if np.dtype(dtype).kind == "u" and name in ("Neg", "Relu"):
        pytest.skip("not defined for unsigned integers")
    x = values(np.random.default_rng(1), (3, 17), dtype, -128, 127)
    check(name, [x])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("LeakyRelu", {"alpha": 0.3}),
        ("LeakyRelu", {}),
        ("Elu", {"alpha": 1.7}),
        ("Celu", {"alpha": 0.6}),
        ("Selu", {}),
        ("Selu", {"alpha": 0.9, "gamma": 1.3}),
        ("HardSigmoid", {}),
        ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}),
        ("ThresholdedRelu", {"alpha": 0.7}),
        ("Shrink", {"lambd": 1.5, "bias": 0.5}),
        ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("Swish", {"alpha": 1.3}),
    ],
)
def test_activation(name: str, attrs: dict[str, object], dtype: type):
    if name == "Celu" and dtype is not np.float32:
        pytest.skip("Celu is defined for float32 only at this opset")
    rng = np.random.default_rng(3)
    for shape in SHAPES:
        # The rounding of a half-precision attribute is not the reference's: compare in wide steps there.
        tolerance = 4e-3 if dtype is np.float16 else TOLERANCE[dtype] * 4
        judge = exact if (name, dtype) in SINGLE_ELSEWHERE else expected
        check(name, [values(rng, shape, dtype)], attrs, rtol=tolerance, atol=tolerance, judge=judge)


def test_the_tail_of_gelu_by_tanh_is_not_cancelled():
    x = np.linspace(-9, -3, 50, dtype=np.float32)
    inner = math.sqrt(8 / math.pi) * (x.astype(np.float64) + 0.044715 * x.astype(np.float64) ** 3)
    (y,) = run_ours(OpKey("", "Gelu"), {"approximate": "tanh"}, [x])
    np.testing.assert_allclose(y, x * np.exp(inner) / (1 + np.exp(inner)), rtol=2e-5)


def test_special_values():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -3e38], np.float32)
    for name in ("Abs", "Neg", "Floor", "Ceil", "Round", "Sqrt", "IsNaN", "Sign", "Exp", "Tanh", "Sigmoid"):
        check(name, [x], rtol=1e-6, atol=1e-42)
    for negative in (0, 1):
        for positive in (0, 1):
            check("IsInf", [x], {"detect_negative": negative, "detect_positive": positive})


def test_round_is_half_to_even():
    x = np.arange(-4, 4.5, 0.5, dtype=np.float32)
    check("Round", [x])


def test_bfloat16_rounds_once():
    x = values(np.random.default_rng(5), (200,), np.float32).astype(ml_dtypes.bfloat16)
    for name, function in (("Exp", np.exp), ("Tanh", np.tanh), ("Sin", np.sin)):
        wanted = function(x.astype(np.float64)).astype(np.float32).astype(ml_dtypes.bfloat16)
        check(name, [x], judge=lambda *_, wanted=wanted: [wanted])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_as_exact_as_its_type(dtype: type):
    x = np.concatenate([np.linspace(-6, 6, 4001), [0.0, -0.0, 1e-30, np.inf, -np.inf]]).astype(dtype)
    wanted = np.array([math.erf(v) for v in x.tolist()])
    ours = check("Erf", [x], judge=lambda *_: [wanted.astype(dtype)], rtol=8e-7 if dtype is np.float32 else 1e-15)
    assert np.all(np.abs(ours[0]) <= 1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise_not(dtype: type):
    check("BitwiseNot", [values(np.random.default_rng(2), (50,), dtype, -128, 255)])


def test_not():
    check("Not", [np.array([[True, False], [False, True]])])


def test_prelu_slopes():
    rng = np.random.default_rng(4)
    x = values(rng, (2, 3, 4, 5), np.float32)
    for shape in ((), (1,), (5,), (3, 1, 1), (1, 3, 4, 5), (2, 3, 4, 5)):
        check("PRelu", [x, values(rng, shape, np.float32)], rtol=1e-6)
    check("PRelu", [x, values(rng, (3, 1, 1), np.float32)], judge=run_reference)


ACTIVATIONS = ["Elu", "Celu", "Selu", "LeakyRelu", "HardSigmoid", "Swish", "ThresholdedRelu", "Shrink", "Gelu"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", [*FUNCTIONS, *ACTIVATIONS, "IsNaN", "IsInf"])
def test_large_arrays_are_computed_in_blocks(name: str, dtype: type) -> None:
    """Every element is what it is in a small array, to the bit; the last block is not full, and strides may be any."""
    op = OpKey("", name)
    x = np.random.default_rng(3).uniform(*RANGES.get(name, (-6, 6)), (3, BLOCK - 7)).astype(dtype).T
    (whole,) = run_ours(op, {}, [x])
    rows = [run_ours(op, {}, [x[start : start + 5000]])[0] for start in range(0, len(x), 5000)]
    np.testing.assert_array_equal(whole, np.concatenate(rows), strict=True)
