"""Resize and Upsample against ONNX Runtime and, where that has no antialiasing of the specification, the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import eqsat
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ort, run_ours, run_reference, values

TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]


def scales(*v: float) -> list[np.ndarray | None]:
    return [None, np.array(v, np.float32)]


def sizes(*v: int) -> list[np.ndarray | None]:
    return [None, None, np.array(v, np.int64)]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(transform: str, rounding: str):
    x = values(np.random.default_rng(0), (1, 2, 4, 6), np.float32)
    attrs = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
    for target in (scales(1, 1, 2, 3), scales(1, 1, 0.5, 0.5), sizes(1, 2, 8, 3), sizes(1, 2, 4, 12)):
        check("Resize", [x, *target], attrs)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation(transform: str, mode: str):
    x = values(np.random.default_rng(1), (1, 2, 5, 7), np.float32)
    attrs = {"mode": mode, "coordinate_transformation_mode": transform}
    for target in (
        scales(1, 1, 2, 3),
        scales(1, 1, 0.6, 0.6),
        scales(1, 1, 1.3, 2.7),
        sizes(1, 2, 9, 3),
        sizes(1, 2, 5, 14),
    ):
        check("Resize", [x, *target], attrs, judge=run_reference, rtol=1e-5, atol=1e-5)
    for target in (scales(1, 1, 2, 3), sizes(1, 2, 10, 14)):
        check("Resize", [x, *target], attrs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("a", [-0.5, -0.75])
@pytest.mark.parametrize("exclude", [0, 1])
def test_cubic_variants(a: float, exclude: int):
    x = values(np.random.default_rng(2), (1, 1, 6, 5), np.float32)
    attrs = {"mode": "cubic", "cubic_coeff_a": a, "exclude_outside": exclude}
    for target in (scales(1, 1, 0.8, 0.8), scales(1, 1, 2, 2), sizes(1, 1, 9, 10)):
        check("Resize", [x, *target], attrs, judge=run_reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialiasing(mode: str, exclude: int):
    x = values(np.random.default_rng(3), (1, 2, 12, 15), np.float32)
    attrs = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
    for target in (scales(1, 1, 0.3, 0.45), sizes(1, 2, 5, 4), sizes(1, 2, 24, 3)):
        check("Resize", [x, *target], attrs, judge=run_reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode: str):
    x = values(np.random.default_rng(4), (1, 1, 6, 6), np.float32)
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    for roi in ([0, 0, 0.2, 0.1, 1, 1, 0.9, 0.7], [0, 0, 0.4, -0.3, 1, 1, 1.3, 0.8]):
        inputs = [x, np.array(roi, np.float32), None, np.array([1, 1, 4, 3])]
        check("Resize", inputs, attrs, judge=run_reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_axes_and_aspect_ratio(policy: str):
    x = values(np.random.default_rng(5), (2, 4, 6, 3), np.float32)
    for axes in ([1, 2], [0, 3], [1, 3]):  # which onnx.reference wants in order
        attrs: dict[str, Any] = {"mode": "linear", "axes": axes, "keep_aspect_ratio_policy": policy}
        check("Resize", [x, None, None, np.array([7, 5])], attrs, judge=run_reference, rtol=1e-5, atol=1e-6)
        attrs["mode"] = "nearest"
        check("Resize", [x, None, None, np.array([7, 5])], attrs, judge=run_reference)
    check("Resize", [x, None, np.array([2.0, 0.5], np.float32)], {"axes": [1, 3]}, judge=run_reference)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64])
def test_other_types(dtype: type):
    x = values(np.random.default_rng(6), (1, 2, 4, 4), dtype, 0, 100)
    check("Resize", [x, *scales(1, 1, 2, 2)], {"mode": "nearest"}, judge=run_reference)
    if dtype is np.float64:
        check("Resize", [x, *scales(1, 1, 2, 2)], {"mode": "linear"}, judge=run_reference, rtol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_ranks(rank: int):
    rng = np.random.default_rng(rank)
    x = values(rng, (3,) * rank, np.float32)
    for mode in ("nearest", "linear"):
        check("Resize", [x, *scales(*[2.0] * rank)], {"mode": mode}, judge=run_reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_first_versions(mode: str):
    x = values(np.random.default_rng(7), (1, 2, 3, 4), np.float32)
    for factor in ((1, 1, 2, 3), (1, 1, 1.5, 2)):
        array = np.array(factor, np.float32)
        check("Resize", [x, array], {"mode": mode}, version=10, rtol=1e-6, atol=1e-6)
        check("Upsample", [x, array], {"mode": mode}, version=9, rtol=1e-6, atol=1e-6)
        check("Upsample", [x], {"mode": mode, "scales": list(map(float, factor))}, version=7, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_nearest_breaks_ties_as_onnx_runtime_does(seed: int):
    rng = np.random.default_rng([seed, 8])
    differing = 0
    for _ in range(60):
        x = np.arange(rng.integers(1, 30), dtype=np.float32).reshape(1, 1, -1, 1)
        attrs = {
            "mode": "nearest",
            "coordinate_transformation_mode": str(rng.choice(["half_pixel", "asymmetric", "pytorch_half_pixel"])),
            "nearest_mode": str(rng.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])),
        }
        if rng.random() < 0.5:
            target = sizes(1, 1, int(rng.integers(1, 60)), 1)
        else:
            target = scales(1, 1, float(rng.choice([0.5, 0.7, 1.2, 1.5, 1.6, 2.3, 3.3])), 1)
        if target[1] is not None and np.floor(target[1][2] * x.shape[2]) < 1:
            continue
        ours = run_ours(OpKey("", "Resize"), attrs, [x, *target])[0]
        theirs = run_ort(OpKey("", "Resize"), attrs, [x, *target])[0]
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 1
        differing += not np.array_equal(ours, theirs)
    # A quotient that is a tie only after rounding may round otherwise in another order of operations.
    assert differing <= 2


@pytest.mark.parametrize("opset", [11, 13, 19])
@pytest.mark.parametrize("rounding", ["floor", "round_prefer_floor", "ceil"])
def test_nearest_pixels_of_tensorflow(opset: int, rounding: str):
    """Where the result is `floor`, the most frequent spelling takes its place, which accelerators know."""
    name = "tf_half_pixel_for_nn"
    for factor in ((2.0, 3.0), (0.5, 1.0), (1.7, 0.4)):
        model = onnx.parser.parse_model(
            f"""<ir_version: 7, opset_import: ["" : {opset}]> g (float[1,2,9,7] x) => (float[1,2,a,b] y)
            <float[0] roi = {{}}, float[4] scales = {{1,1,{factor[0]},{factor[1]}}}> {{
                y = Resize<mode="nearest", coordinate_transformation_mode="{name}", nearest_mode="{rounding}">
                    (x, roi, scales)
            }}"""
        )
        feeds = {"x": values(np.random.default_rng(0), (1, 2, 9, 7), np.float32)}
        wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
        loaded = eqsat.load(model)
        np.testing.assert_array_equal(eqsat.run(loaded, feeds)["y"], wanted)
        node = next(n for n in loaded.graph if n.op_type == "Resize")
        assert (node.attributes.get_string("coordinate_transformation_mode") == name) == (rounding != "floor")


def test_to_nothing():
    x = np.ones((1, 1, 3, 3), np.float32)
    check("Resize", [x, *sizes(1, 1, 0, 3)], {"mode": "linear"}, judge=lambda *_: [np.zeros((1, 1, 0, 3), np.float32)])
