"""Predicted against actual error: of the whole, of each tensor alone, and of parts."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.errors import QuantizationError
from eqsat.model.load import load
from eqsat.quantization.calibrate import CalibrationProgress, calibrate
from eqsat.quantization.insert import apply_scheme
from eqsat.quantization.noise import decibel, error_power, measure_noise, measure_sqnr
from eqsat.quantization.options import Options
from eqsat.quantization.ranges import ranges
from eqsat.quantization.scheme import make_scheme
from tests.quantization import runtime
from tests.quantization.networks import NETWORKS, convolution, residual, samples


def measured(name: str, count: int = 16, **options):
    model = NETWORKS[name]()
    data = samples(model, count)
    scheme = make_scheme(model, ranges(calibrate(model, data), Options(**options)), Options(**options))
    return model, data, scheme, measure_noise(model, scheme, data, limit=None)


@pytest.mark.parametrize("method", ["minmax", "mse"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_sum_predicts_the_whole(name: str, method):
    model, data, scheme, noise = measured(name, method=method)
    actual = measure_sqnr(model, apply_scheme(model, scheme), data)
    assert list(actual) == list(noise.predict())
    for output, predicted in noise.predict().items():
        assert abs(predicted - actual[output]) < 1.5


@pytest.mark.parametrize("name", NETWORKS)
def test_parts_of_a_scheme(name: str):
    model, data, scheme, noise = measured(name)
    rng = np.random.default_rng(0)
    for _ in range(4):
        kept = frozenset(i for i in range(len(scheme.tensors)) if rng.random() < 0.5)
        # Followers are free only together with what they follow.
        names = {scheme.tensors[i].name for i in kept}
        kept = frozenset(i for i in kept if scheme.tensors[i].follows in (None, *names))
        actual = measure_sqnr(model, apply_scheme(model, scheme.only(kept)), data)
        for output, predicted in noise.predict(kept).items():
            assert predicted == actual[output] or abs(predicted - actual[output]) < 1.5


@pytest.mark.parametrize("name", NETWORKS)
def test_one_tensor_alone_is_exact(name: str):
    model, data, scheme, noise = measured(name, 4)
    for i, tensor in enumerate(scheme.tensors):
        if tensor.follows is None:
            alone = measure_sqnr(model, apply_scheme(model, scheme.only(frozenset([i]))), data)
            for j, output in enumerate(noise.outputs):
                np.testing.assert_allclose(decibel(noise.weights[i, j]), alone[output], atol=0.01)


def test_followers_add_nothing():
    model, data, scheme, _ = measured("residual")
    kept = frozenset(i for i, t in enumerate(scheme.tensors) if t.follows is None)
    assert len(kept) < len(scheme.tensors)
    with_them, without = (measure_sqnr(model, apply_scheme(model, s), data) for s in (scheme, scheme.only(kept)))
    assert with_them == without


def test_several_outputs_and_other_types():
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[8] x) => (float[8] y, int64[1] k, float[8] z) {
      a = Sigmoid(x)  y = Mul(a, x)  k = ArgMax<axis=0>(y)  z = Log(a) }"""
    model = load(text)
    data = samples(model, 8)
    scheme = make_scheme(model, ranges(calibrate(model, data)))
    noise = measure_noise(model, scheme, data)
    assert noise.outputs == ("y", "z") and noise.samples == 4
    weights = {t.name: noise.weights[i] for i, t in enumerate(scheme.tensors)}
    assert weights["y"][1] == 0 and weights["y"][0] > 0, "z does not depend on y"
    assert weights["a"].all()
    assert set(measure_sqnr(model, apply_scheme(model, scheme), data)) == {"y", "z"}


def test_an_output_that_is_always_zero():
    model = load('<ir_version: 10, opset_import: ["": 21]> g (float[8] x) => (float[8] y) { y = Sub(x, x) }')
    data = samples(model, 4)
    scheme = make_scheme(model, ranges(calibrate(model, data)))
    noise = measure_noise(model, scheme, data)
    assert not noise.weights.any() and noise.predict() == {"y": np.inf}


def test_sqnr_is_that_of_the_outputs():
    model = residual()
    data = samples(model, 8)
    scheme = make_scheme(model, ranges(calibrate(model, data)))
    result = apply_scheme(model, scheme)
    (ours,) = measure_sqnr(model, result, data).values()
    theirs = runtime.sqnr(runtime.run(model, data), runtime.run(result, data))
    assert abs(ours - theirs) < 0.01
    assert measure_sqnr(model, model, data) == {model.graph.outputs[0].name: np.inf}


def test_what_breaks_is_infinitely_bad():
    exact = np.array([1, 2, np.inf], np.float32)
    assert error_power(np.array([1, 2.5, np.inf], np.float32), exact) == 0.25
    assert error_power(np.array([1, np.nan, 0], np.float32), exact) == np.inf
    assert decibel(np.inf) == -np.inf and decibel(0) == np.inf and decibel(1e-3) == pytest.approx(30)


def test_progress_and_limits():
    model = convolution()
    data = samples(model, 8)
    scheme = make_scheme(model, ranges(calibrate(model, data)))
    reports: list[CalibrationProgress] = []
    noise = measure_noise(model, scheme, data, limit=2, progress=reports.append)
    assert [r.done for r in reports] == list(range(1, 9)) and reports[-1] == CalibrationProgress("measure", 8, 8)
    assert noise.samples == 2
    again = measure_noise(model, scheme, data, limit=2)
    np.testing.assert_array_equal(noise.weights, again.weights)
    with pytest.raises(QuantizationError, match="a limit of at least one sample is required; got 0"):
        measure_noise(model, scheme, data, limit=0)
    with pytest.raises(QuantizationError, match="a limit of at least one sample is required; got -1"):
        measure_sqnr(model, model, data, limit=-1)


def test_models_that_do_not_belong_together():
    model = residual()
    other = load('<ir_version: 10, opset_import: ["": 21]> g (float[8] x) => (float[8] y) { y = Neg(x) }')
    with pytest.raises(QuantizationError, match=r"outputs .* are required; got y"):
        measure_sqnr(model, other, samples(model, 1))
