"""Plain loops against the numpy executor at the edges: special values, all casts, all types of integers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from eqsat.codegen.kernels.loops.reductions import REDUCED
from eqsat.ops.schemas import defaults
from eqsat.schema.types import OpKey
from tests.codegen.kernels.loops import harness
from tests.codegen.kernels.loops.judge import UNITS, numpy_result, same
from tests.ops.oracle import canonical

FLOATS = [np.float32, np.float64, np.float16]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 127.5, 300.0, -300.0, 7e4, np.inf, -np.inf, np.nan]


def edges(dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.array(EDGES).astype(dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 7, 31]
    return np.array([*values, *([-1, -2, -7] if limits.min else [])], dtype)


def pairs(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(edges(dtype), edges(dtype))
    return a.ravel().copy(), b.ravel().copy()


def check(
    draws: list[tuple[str, dict[str, Any], list[np.ndarray]]],
    units: float = UNITS,
    signs: bool = False,
    constant: Sequence[int] = (),
) -> None:
    cases, wanted = [], []
    for number, (name, attributes, inputs) in enumerate(draws):
        op = OpKey("", name)
        full = {**defaults(op), **canonical(attributes)}
        (result,) = numpy_result(op, full, inputs)
        made = harness.case(f"case{number}", op, full, inputs, [(result.shape, result.dtype)], constant=constant)
        assert made is not None, (name, attributes)
        cases.append(made)
        wanted.append(result)
    for (name, attributes, inputs), (found,), result in zip(draws, harness.run(cases), wanted, strict=True):
        assert found is not None
        same(found, result, f"{name} {attributes} of {inputs[0].dtype}", units, signs)


def test_integers_wrap_and_divide_as_the_executors():
    draws: list[tuple[str, dict[str, Any], list[np.ndarray]]] = []
    for dtype in INTEGERS:
        a, b = pairs(dtype)
        draws += [(name, {}, [a, b]) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "BitwiseXor")]
        draws += [(name, {}, [a, b]) for name in ("Equal", "Less", "GreaterOrEqual", "BitwiseAnd", "BitwiseOr")]
        draws += [("Mod", {"fmod": 1}, [a, b]), ("Clip", {}, [a, *(np.array(v, dtype) for v in (2, 7))])]
        draws += [(name, {}, [edges(dtype)]) for name in ("Abs", "Sign", "BitwiseNot", "Relu")]
        draws.append(("Pow", {}, [a, np.abs(b) % dtype(9)]))
        if np.dtype(dtype).kind == "i":
            draws.append(("Neg", {}, [edges(dtype)]))
        else:
            shifts = b % dtype(80)
            draws += [("BitShift", {"direction": d}, [a, shifts]) for d in ("LEFT", "RIGHT")]
    check(draws)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32])
def test_quotients_of_near_multiples(dtype: type):
    rng, limits = np.random.default_rng(9), np.iinfo(dtype)
    size, most = 1 << 14, int(limits.max)
    b = (rng.integers(1, most, size, endpoint=True) >> rng.integers(0, limits.bits - 1, size)).clip(1)
    b = b * rng.choice([-1, 1], size) if limits.min < 0 else b
    times: Any = most // abs(b)
    multiple = b * rng.integers(-times if limits.min < 0 else 0, times, endpoint=True)
    draws: list[tuple[str, dict[str, Any], list[np.ndarray]]] = []
    for a in (multiple - 1, multiple, multiple + 1):
        given = [a.clip(limits.min, most).astype(dtype), b.astype(dtype)]
        draws += [("Div", {}, given), ("Mod", {}, given), ("Mod", {"fmod": 1}, given)]
    check(draws)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quotients_of_all_bytes(dtype: type):
    every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    given = [x.ravel() for x in np.meshgrid(every, every, indexing="ij")]
    check([("Div", {}, given), ("Mod", {}, given), ("Mod", {"fmod": 1}, given)])


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_functions_of_edge_values(dtype: type):
    a, b = pairs(dtype)
    x = edges(dtype)
    draws: list[tuple[str, dict[str, Any], list[np.ndarray]]] = []
    draws += [(name, {}, [a, b]) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Sum")]
    draws += [(name, {}, [x]) for name in ("Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Sqrt", "IsNaN", "IsInf")]
    draws += [("Mod", {"fmod": 1}, [a, b]), ("Where", {}, [a > 0, a, b])]
    draws.append(("IsInf", {"detect_negative": 0}, [x]))
    # Of two zeros numpy's largest half is another than its largest float.
    check(draws, units=0, signs=dtype is not np.float16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_of_near_multiples(dtype: type):
    rng = np.random.default_rng(8)
    b = rng.standard_normal(1 << 14).astype(dtype) * dtype(2.0) ** rng.integers(-130, 30, 1 << 14)
    b[:64] = np.finfo(dtype).smallest_subnormal
    multiple = (b * np.exp2(rng.uniform(0, 34, len(b))).round()).astype(dtype)
    draws: list[tuple[str, dict[str, Any], list[np.ndarray]]] = [("Mod", {"fmod": 1}, [multiple, b])]
    draws += [("Mod", {"fmod": 1}, [np.nextafter(multiple, dtype(to)), b]) for to in (np.inf, -np.inf)]
    check(draws, units=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_edge_values(dtype: type):
    x = edges(dtype)
    names = (
        "Exp", "Log", "Sin", "Cos", "Tanh", "Erf", "Sigmoid", "Softplus", "Softsign", "Elu", "Selu", "HardSigmoid",
        "HardSwish", "LeakyRelu", "Mish", "Gelu", "Reciprocal", "ThresholdedRelu", "Shrink", "Celu", "Swish", "Relu",
    )  # fmt: skip
    draws: list[tuple[str, dict[str, Any], list[np.ndarray]]] = [(name, {}, [x]) for name in names]
    draws.append(("Gelu", {"approximate": "tanh"}, [x]))
    draws += [("Pow", {}, [np.abs(x), np.array(e, dtype)]) for e in (0.5, 2.0, 3.0, -1.5)]
    check(draws)


NARROW = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
SMALL_FLOATS = [
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
]  # fmt: skip


def test_casts_between_all_types():
    kinds = [*FLOATS, *INTEGERS, np.bool_, *SMALL_FLOATS, *NARROW]
    cases, wanted = [], []
    for number, (source, target) in enumerate(itertools.product(kinds, kinds)):
        if {source, target} <= set(NARROW) and source is not target:
            continue  # ml_dtypes has no such conversion
        with np.errstate(all="ignore"):
            x = np.concatenate([edges(d).astype(np.float64) for d in (np.float32, np.int8, np.uint8)]).astype(source)
        if source in SMALL_FLOATS or source in FLOATS:
            # What no integer type holds is numpy's own affair where it differs between its loops.
            finite = np.isfinite(x.astype(np.float64)) & (np.abs(x.astype(np.float64)) < 2**31)
            negative = target in (np.uint32, np.uint64)
            x = (
                x
                if target in FLOATS or target in SMALL_FLOATS
                else x[finite & ~(negative & (x.astype(np.float64) < 0))]
            )
        attributes = {"to": int(ir.DataType.from_numpy(np.dtype(target))), "saturate": 1}
        (result,) = numpy_result(OpKey("", "Cast"), attributes, [x])
        made = harness.case(f"case{number}", OpKey("", "Cast"), attributes, [x], [(x.shape, np.dtype(target))])
        assert made is not None
        cases.append(made)
        wanted.append((source, target, x, result))
    for (source, target, x, result), (found,) in zip(wanted, harness.run(cases), strict=True):
        assert found is not None
        a, b = found.astype(np.float64), np.asarray(result).astype(np.float64)
        np.testing.assert_array_equal(a, b, f"{np.dtype(source)} -> {np.dtype(target)} of {x.astype(np.float64)}")


@pytest.mark.parametrize("target", [np.float32, np.float64])
def test_casts_of_long_integers_are_rounded_once(target: type):
    """Those of 64 bits, among many that fit into 32."""
    rng = np.random.default_rng(0)
    large = rng.integers(-(2**63), 2**63 - 1, 200) >> rng.integers(0, 63, 200)
    limits = np.array([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63)])
    draws = [np.arange(-70, 69), large, np.append(np.arange(100), limits), np.repeat(limits, 16), np.arange(15)]
    draws.append(np.where(np.arange(333) % 50 == 49, 2**40 + 1, np.arange(333)))
    attributes = {"to": int(ir.DataType.from_numpy(np.dtype(target))), "saturate": 1}
    cases = [
        harness.case(f"case{k}", OpKey("", "Cast"), attributes, [x], [(x.shape, np.dtype(target))])
        for k, x in enumerate(draws)
    ]
    for x, (found,) in zip(draws, harness.run([c for c in cases if c is not None]), strict=True):
        np.testing.assert_array_equal(found, x.astype(target))


def test_every_integer_type_elsewhere():
    """Reductions, scans, products and scattering in types that the executor's own tests leave out."""
    rng = np.random.default_rng(0)
    draws: list[tuple[str, dict[str, Any], list[Any], Sequence[int], int]] = []
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max, (3, 4, 5), dtype=dtype, endpoint=True)
        axes, index = np.array([1]), rng.integers(-3, 3, (3, 4, 5))
        reductions = ("Sum", "Prod", "Max", "Min", "L1", "SumSquare")
        draws += [(f"Reduce{name}", {"keepdims": 1}, [x, axes], [1], 1) for name in reductions]
        draws += [(name, {"axis": 1}, [x], (), 1) for name in ("ArgMax", "ArgMin")]
        draws += [(name, {}, [x, np.array(2)], [1], 1) for name in ("CumSum", "CumProd")]
        draws += [("TopK", {"axis": 2, "largest": v}, [x, np.array([3])], [1], 2) for v in (0, 1)]
        draws += [("MatMul", {}, [x, x.transpose(0, 2, 1).copy()], (), 1), ("Trilu", {"upper": 0}, [x], (), 1)]
        draws.append(("Gemm", {"transB": 1}, [x[0], x[1], x[2, :, :4].copy()], (), 1))
        draws.append(("Einsum", {"equation": "abc,abd->cd"}, [x, x], (), 1))
        for reduction in ("add", "mul", "max", "min", "none"):
            updates = np.broadcast_to(x[:1], x.shape).copy()
            draws.append(("ScatterElements", {"reduction": reduction, "axis": 0}, [x, index[:1], updates[:1]], (), 1))
    cases, wanted = [], []
    for number, (name, attributes, inputs, constant, outputs) in enumerate(draws):
        op = OpKey("", name)
        full = {**defaults(op), **canonical(attributes)}
        results = numpy_result(op, full, inputs, outputs)
        specs = [(y.shape, y.dtype) for y in results]
        made = harness.case(f"case{number}", op, full, inputs, specs, constant=constant, rng=rng)
        assert made is not None
        cases.append(made)
        wanted.append((name, results))
    for (name, results), found in zip(wanted, harness.run(cases), strict=True):
        for a, b in zip(found, results, strict=True):
            np.testing.assert_array_equal(a, b, f"{name} of {b.dtype}")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions_of_long_rows(dtype: type):
    rng = np.random.default_rng(10)
    draws: list[tuple[str, dict[str, Any], list[np.ndarray]]] = []
    for shape, axes in (((3, 200), (1,)), ((2, 5, 131), (0, 2)), ((4, 64), (0, 1)), ((5, 95), (1,))):
        x = rng.uniform(0.5, 1.5, shape).astype(dtype)
        special = np.where(rng.random(shape) < 0.01, rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), x)
        for name in REDUCED:
            draws.append((name, {}, [x, np.array(axes)]))
            if name in ("ReduceMax", "ReduceMin", "ReduceSum"):
                draws.append((name, {}, [special.astype(dtype), np.array(axes)]))
    check(draws, units=40, constant=[1])
