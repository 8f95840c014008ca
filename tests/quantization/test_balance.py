"""Rounding of weights whose errors cancel in the mean: its statistics, each choice, and what it gains."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.quantization.balance import balanced, balanced_integers
from eqsat.quantization.calibrate import calibrate
from eqsat.quantization.insert import apply_scheme, quantize_dequantize
from eqsat.quantization.moments import Moments
from eqsat.quantization.noise import measure_sqnr
from eqsat.quantization.options import Options
from eqsat.quantization.quantizer import weight_quantizer
from eqsat.quantization.ranges import ranges
from eqsat.quantization.scheme import make_scheme
from tests.quantization.networks import built, he, normal, samples

CONVOLUTIONS = {
    "plain": ((2, 4, 7, 9), (6, 4, 3, 3), {}),
    "padded": ((2, 4, 7, 9), (6, 4, 3, 3), {"pads": [1, 0, 2, 1]}),
    "strided": ((2, 4, 8, 9), (6, 4, 3, 2), {"pads": [1, 1, 1, 1], "strides": [2, 3]}),
    "dilated": ((1, 4, 9, 9), (6, 4, 3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    "grouped": ((1, 6, 5, 5), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4}),
    "same": ((1, 3, 6, 7), (4, 3, 3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "line": ((2, 3, 11), (4, 3, 5), {"pads": [2, 2]}),
    "volume": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"pads": [0, 1, 0, 1, 1, 1]}),
}
MATRICES = {
    "gemm": lambda x: op.Gemm(x, normal(5, 4, seed=1)),
    "gemm_transposed": lambda x: op.Gemm(x, normal(4, 5, seed=1), transB=1),
    "gemm_of_transposed": lambda x: op.Gemm(x, normal(6, 4, seed=1), transA=1),
    "matmul": lambda x: op.MatMul(x, normal(5, 4, seed=1)),
}


def only(found):
    (moments,) = found.values()
    return moments


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_moments_of_a_convolution(name: str):
    """A weight of one at k and zero elsewhere makes an output of x_k."""
    shape, weight, attributes = CONVOLUTIONS[name]
    data = samples(load(eqsat.graph(op.Relu(eqsat.input("x", shape)))), 3)
    model = built(op.Conv(eqsat.input("x", shape), normal(*weight, seed=1), **attributes))
    moments = only(calibrate(model, data).moments)
    groups = attributes.get("group", 1)
    channels = weight[0] // groups
    assert moments.total.shape == moments.squares.shape == (groups, np.prod(weight[1:]))
    for k, index in enumerate(product(*map(range, weight[1:]))):
        one = np.zeros(weight, np.float32)
        one[(slice(None), *index)] = 1
        probe = Executor(built(op.Conv(eqsat.input("x", shape), one, **attributes)))
        seen = np.stack([next(iter(probe.run({"x": x}).values())) for x in data["x"]])
        of_group = np.moveaxis(seen, 2, 0)[::channels].reshape(groups, -1).astype(np.float64)
        assert moments.count == of_group.shape[1]
        np.testing.assert_allclose(moments.mean[:, k], of_group.mean(axis=1), atol=1e-12)
        np.testing.assert_allclose(moments.variance[:, k], of_group.var(axis=1), atol=1e-12)


@pytest.mark.parametrize("name", MATRICES)
def test_moments_of_a_matrix_product(name: str):
    model = built(MATRICES[name](eqsat.input("x", (6, 5))))
    data = samples(model, 3)
    moments = only(calibrate(model, data).moments)
    rows = np.concatenate([x.T if "of_transposed" in name else x for x in data["x"]]).astype(np.float64)
    assert moments.count == len(rows)
    np.testing.assert_allclose(moments.mean[0], rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.variance[0], rows.var(axis=0), atol=1e-12)


def test_moments_of_a_stack_of_matrices():
    model = built(op.MatMul(eqsat.input("x", (2, 3, 4, 5)), normal(5, 4, seed=1)))
    data = samples(model, 2)
    rows = data["x"].reshape(-1, 5).astype(np.float64)
    np.testing.assert_allclose(only(calibrate(model, data).moments).mean[0], rows.mean(axis=0), atol=1e-12)


def test_what_has_no_moments():
    x = eqsat.input("x", (2, 4, 4))
    assert not calibrate(built(op.MatMul(x, x)), {"x": normal(1, 2, 4, 4, seed=0)}).moments
    assert not calibrate(built(op.MatMul(x, normal(2, 4, 3, seed=0))), {"x": normal(1, 2, 4, 4, seed=0)}).moments
    constant = op.MatMul(normal(4, 3, seed=0), normal(3, 4, seed=1))
    assert len(calibrate(built(op.MatMul(x, constant)), {"x": normal(1, 2, 4, 4, seed=0)}).moments) == 1


def gemm(inputs: int, outputs: int) -> ir.Node:
    return next(iter(built(op.Gemm(eqsat.input("x", (1, inputs)), normal(inputs, outputs, seed=0))).graph))


def expected_error(weight: np.ndarray, integers: np.ndarray, scale: np.ndarray, moments: Moments) -> np.ndarray:
    """Of each output channel of a Gemm, from the definition."""
    error = (integers.astype(np.float64) * scale - weight).T
    return error**2 @ moments.variance[0] + (error @ moments.mean[0]) ** 2


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_never_worse_than_nearest_and_close_to_the_best(seed: int, per_channel: bool):
    """For up to eight weights a channel, against all choices between an integer and its neighbour."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 9))
    weight = rng.standard_normal((k, 5)).astype(np.float32)
    mean, variance = rng.normal(1, 1, (1, k)), rng.uniform(0, 1, (1, k))
    moments = Moments(mean, variance + mean**2, 1)
    quantizer = weight_quantizer(weight, 1 if per_channel else None)
    nearest = quantizer.quantize(weight)
    chosen = balanced_integers(gemm(k, 5), weight, quantizer, moments)
    assert chosen.dtype == np.int8 and np.abs(chosen.astype(int)).max() <= 127
    scaled = weight.astype(np.float64) / quantizer.scale
    assert (np.abs(chosen - scaled) < 1 + 1e-6).all()
    own, plain = (expected_error(weight, q, quantizer.scale, moments) for q in (chosen, nearest))
    assert (own <= plain * (1 + 1e-9) + 1e-15).all()
    down = np.floor(scaled)
    choices = (np.clip(down + np.array(up)[:, None], -127, 127) for up in product((0, 1), repeat=k))
    best = np.min([expected_error(weight, q, quantizer.scale, moments) for q in choices], axis=0)
    assert (own >= best - 1e-15).all()
    # Greedy leaves at most a part of what there was to gain.
    assert (plain - own).sum() >= 0.4 * (plain - best).sum()


def test_without_a_mean_nothing_moves():
    weight = normal(32, 8, seed=0)
    quantizer = weight_quantizer(weight, 1)
    moments = Moments(np.zeros((1, 32)), np.ones((1, 32)), 1)
    chosen = balanced_integers(gemm(32, 8), weight, quantizer, moments)
    np.testing.assert_array_equal(chosen, quantizer.quantize(weight))


def test_what_is_certain_cancels():
    """A constant input has no variance; 32 errors can be combined to nearly nothing."""
    weight = normal(32, 8, seed=0)
    quantizer = weight_quantizer(weight, 1)
    mean = np.random.default_rng(1).uniform(0.5, 1.5, (1, 32))
    moments = Moments(mean, mean**2, 1)
    chosen = balanced_integers(gemm(32, 8), weight, quantizer, moments)
    own, plain = (
        expected_error(weight, q, quantizer.scale, moments).sum() for q in (chosen, quantizer.quantize(weight))
    )
    assert own < plain / 10


def test_a_weight_at_the_end_of_its_range_stays_inside():
    weight = np.array([[127.0], [0.4], [-127.0], [-0.4]], np.float32)
    quantizer = weight_quantizer(weight, 1)
    moments = Moments(np.array([[5.0, 1.0, -5.0, -1.0]]), np.array([[25.0, 1.0, 25.0, 1.0]]), 1)
    chosen = balanced_integers(gemm(4, 1), weight, quantizer, moments)
    assert chosen[[0, 2], 0].tolist() == [127, -127]
    assert expected_error(weight, chosen, quantizer.scale, moments) <= 0.04 + 1e-9


def deep(width: int = 16) -> ir.Model:
    """Convolutions with Relu between, whose means are far from zero."""
    y = eqsat.input("x", (1, 3, 12, 12))
    for i, c in enumerate((3, width, width, width)):
        y = op.Relu(op.Conv(y, he(width, c, 3, 3, seed=i), normal(width, seed=9 + i, std=0.1), pads=[1, 1, 1, 1]))
    return built(op.Gemm(op.Flatten(op.GlobalAveragePool(y)), normal(10, width, seed=5), transB=1))


def test_gains_decibels_on_other_samples_than_those_it_was_made_from():
    model = deep()
    calibration = calibrate(model, samples(model, 8))
    found = ranges(calibration)
    fresh = samples(model, 16, seed=7)
    gains = []
    for per_channel in (True, False):
        options = Options(per_channel=per_channel)
        with_it = quantize_dequantize(model, found, options, calibration=calibration)
        without = quantize_dequantize(model, found, options)
        (a,), (b,) = (measure_sqnr(model, q, fresh).values() for q in (with_it, without))
        gains.append(a - b)
    assert min(gains) > 3


def test_can_be_turned_off():
    model = deep()
    calibration = calibrate(model, samples(model, 2))
    found = ranges(calibration)
    plain = ir.to_proto(quantize_dequantize(model, found)).SerializeToString()
    off = quantize_dequantize(model, found, Options(balance=False), calibration=calibration)
    assert ir.to_proto(off).SerializeToString() == plain
    on = quantize_dequantize(model, found, calibration=calibration)
    assert ir.to_proto(on).SerializeToString() != plain


def test_weights_that_several_operators_read_stay_nearest():
    x = eqsat.input("x", (4, 8))
    weight = normal(8, 8, seed=1)
    y = op.MatMul(x, weight)
    model = built(op.MatMul(op.Relu(y), weight))
    calibration = calibrate(model, samples(model, 4))
    scheme = make_scheme(model, ranges(calibration))
    shared = {t.name for t in scheme.tensors if t.kind == "weight" and len(t.readers or ()) > 1}
    done = balanced(model, scheme, calibration)
    for tensor in done.tensors:
        assert (tensor.integers is None) == (tensor.kind != "weight" or tensor.name in shared)
    assert apply_scheme(model, done)


def test_in_the_whole_pipeline():
    model = deep()
    data, fresh = samples(model, 8), samples(model, 16, seed=7)
    results = {on: eqsat.quantize(model, data, balance=on) for on in (True, False)}
    assert results[True].cost == results[False].cost
    (a,), (b,) = (measure_sqnr(model, results[on].model, fresh).values() for on in (True, False))
    assert a > b + 3
    for result in results.values():
        for name, predicted in result.predicted.items():
            assert abs(predicted - result.actual[name]) < 3
