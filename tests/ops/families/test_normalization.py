"""Normalisations and the softmax family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from eqsat.ops.evaluate import evaluate
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, run_reference, same, values

SHAPES = [(2, 3), (2, 3, 5), (1, 4, 6, 7), (2, 2, 3, 4, 3)]


def parameters(rng: np.random.Generator, channels: int, dtype: Any) -> list[np.ndarray]:
    return [*(values(rng, (channels,), dtype) for _ in range(3)), values(rng, (channels,), dtype, 0.1, 2)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_normalization(shape: tuple[int, ...], dtype: type):
    rng = np.random.default_rng(0)
    inputs = [values(rng, shape, dtype), *parameters(rng, shape[1], dtype)]
    for attrs in ({}, {"epsilon": 0.1}):
        check("BatchNormalization", inputs, attrs, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("version", [9, 14, 15])
def test_batch_normalization_in_training(version: int):
    rng = np.random.default_rng(1)
    inputs = [values(rng, (4, 3, 5), np.float32), *parameters(rng, 3, np.float32)]
    attrs = {"momentum": 0.7} | ({"training_mode": 1} if version >= 14 else {})
    if version >= 14:
        check("BatchNormalization", inputs, attrs, outputs=3, version=version, rtol=1e-5, atol=1e-5)
        check(
            "BatchNormalization", inputs, attrs, outputs=3, version=version, judge=run_reference, rtol=1e-5, atol=1e-5
        )
        return
    ours = run_ours(OpKey("", "BatchNormalization"), attrs, inputs, 5, version)
    x, scale, bias, mean, var = inputs
    now, spread = x.mean((0, 2)), x.var((0, 2))
    wanted = (x - now[:, None]) / np.sqrt(spread[:, None] + 1e-5) * scale[:, None] + bias[:, None]
    for a, b in zip(ours, [wanted, mean * 0.7 + now * 0.3, var * 0.7 + spread * 0.3, now, spread], strict=True):
        same(a, b.astype(np.float32), 1e-5, 1e-5)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_instance_normalization(shape: tuple[int, ...]):
    rng = np.random.default_rng(2)
    scale, bias = values(rng, (shape[1],), np.float32), values(rng, (shape[1],), np.float32)
    check(
        "InstanceNormalization", [values(rng, shape, np.float32), scale, bias], {"epsilon": 1e-3}, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_normalization(groups: int):
    rng = np.random.default_rng(3)
    x = values(rng, (2, 4, 3, 5), np.float32)
    scale, bias = values(rng, (4,), np.float32), values(rng, (4,), np.float32)
    check("GroupNormalization", [x, scale, bias], {"num_groups": groups}, rtol=1e-4, atol=1e-5)
    old = [x, values(rng, (groups,), np.float32), values(rng, (groups,), np.float32)]
    check("GroupNormalization", old, {"num_groups": groups}, version=18, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1, 2, -3, 0])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalization(axis: int, bias: bool):
    rng = np.random.default_rng(4)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-5), (np.float16, 4e-3)):
        x = values(rng, (2, 3, 4, 5), dtype)
        tail = x.shape[axis:]
        inputs = [x, values(rng, tail, dtype), values(rng, tail, dtype) if bias else None]
        attrs = {"axis": axis, "epsilon": 1e-4}
        check("LayerNormalization", inputs, attrs, rtol=tolerance, atol=tolerance)
    single = [v if v is None else v.astype(np.float32) for v in inputs]
    check("LayerNormalization", single, attrs, outputs=3, judge=run_reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1, -2])
def test_rms_normalization(axis: int):
    rng = np.random.default_rng(5)
    x = values(rng, (2, 3, 4), np.float32)
    check("RMSNormalization", [x, values(rng, x.shape[axis:], np.float32)], {"axis": axis}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_lrn(size: int):
    rng = np.random.default_rng(6)
    x = values(rng, (2, 7, 4, 3), np.float32)
    for attrs in ({}, {"alpha": 0.3, "beta": 0.75, "bias": 2.0}, {"alpha": 0.2, "beta": 0.6}):
        # ONNX Runtime takes odd sizes only, and the reference sees only as many channels as there are samples.
        judge = {} if size % 2 else {"judge": lrn_by_definition}
        check("LRN", [x], attrs | {"size": size}, rtol=1e-5, atol=1e-6, **judge)


def lrn_by_definition(op: OpKey, attrs: dict[str, Any], inputs: list[np.ndarray], *rest: object) -> list[np.ndarray]:
    (x,) = inputs
    size, alpha, beta = attrs["size"], attrs.get("alpha", 1e-4), attrs.get("beta", 0.75)
    y = np.empty_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(0, c - (size - 1) // 2) : c + math.ceil((size - 1) / 2) + 1]
        y[:, c] = x[:, c] / (attrs.get("bias", 1.0) + alpha / size * (near**2).sum(1)) ** beta
    return [y]


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(axis: int, p: int):
    x = values(np.random.default_rng(7), (3, 4, 5), np.float32)
    x[0, 1] = 0
    check("LpNormalization", [x], {"axis": axis, "p": p}, rtol=1e-5, atol=1e-7)


def test_mean_variance_normalization():
    x = values(np.random.default_rng(8), (2, 3, 4, 5), np.float32)
    check("MeanVarianceNormalization", [x], rtol=1e-4, atol=1e-5)
    check("MeanVarianceNormalization", [x], {"axes": [1, 3]}, rtol=1e-4, atol=1e-5, judge=run_reference)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("version", [1, 11, 13, None])
def test_softmax(name: str, version: int | None):
    rng = np.random.default_rng(9)
    for shape in ((4,), (3, 5), (2, 3, 4), (2, 3, 2, 4)):
        x = values(rng, shape, np.float32, -20, 20)
        for axis in range(-len(shape), len(shape)):
            if version == 1 and axis < 0:
                continue
            check(name, [x], {"axis": axis}, version=version, rtol=1e-5, atol=1e-6)
        check(name, [x], {}, version=version, rtol=1e-5, atol=1e-6) if len(shape) > 1 else None


def test_softmax_of_large_values_and_halves():
    x = np.array([[1000.0, 1001.0], [-1000.0, -1001.0]], np.float32)
    for name in ("Softmax", "LogSoftmax"):
        check(name, [x], rtol=1e-6)
        check(name, [x.astype(np.float16)], rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_statistics_of_a_layer_have_the_type_of_the_first_stage(dtype: type) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(dtype)
    key = OpKey("", "LayerNormalization")
    y, mean, inverse = evaluate(key, make_attrs(key, {"axis": -1}), [x, np.ones(4, dtype)], 3)
    assert y is not None and mean is not None and inverse is not None
    assert (y.dtype, mean.dtype, inverse.dtype) == (dtype, np.float32, np.float32)
    np.testing.assert_allclose(mean[:, 0], x.astype(np.float64).mean(1), rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("error")
def test_nothing_is_normalized_without_a_warning():
    x, ones = np.zeros((2, 3, 0), np.float32), np.ones(3, np.float32)
    check("InstanceNormalization", [x, ones, ones])
    check("MeanVarianceNormalization", [x], {"axes": (2,)})
    check("LayerNormalization", [x[:, 0], ones[:0], ones[:0]], judge=lambda *_: [x[:, 0]])
    check("RMSNormalization", [x[:, 0], ones[:0]], judge=lambda *_: [x[:, 0]])
    y, mean, variance = run_ours(OpKey("", "BatchNormalization"), {"training_mode": 1}, [x, *[ones] * 4], 3)
    assert y.shape == x.shape and np.isfinite(mean).all() and np.isfinite(variance).all()
