"""Detectors as C: their last part, from the outputs of heads to the boxes that are kept, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load

F = np.float32
HEAD = '<ir_version: 10, opset_import: ["": 21]>'

YOLO = """g (float[1,84,CELLS] head) => (float[n,4] boxes, float[n] scores, int64[n] classes)
    <int64[2] split = {4, 80}, int64[1] each = {20}, float[1] overlap = {0.45}, float[1] least = {0.6},
     int64[1] one = {1}, int64 two = {2}, int64[1] zero = {0}, int64[1] end = {2}> {
        box, score = Split<axis=1>(head, split)
        p = Sigmoid(score)
        corner = Transpose<perm=[0,2,1]>(box)
        kept = NonMaxSuppression<center_point_box=1>(corner, p, each, overlap, least)
        cell2 = Gather<axis=1>(kept, two)
        flat = Squeeze(corner, zero)
        chosen = Gather(flat, cell2)
        scores0 = GatherND(p, kept)
        count = Shape(scores0)
        most = Constant<value_ints=[30]>()
        both = Concat<axis=0>(count, most)
        k0 = ReduceMin<keepdims=1>(both)
        scores, order = TopK(scores0, k0)
        boxes = Gather(chosen, order)
        classes0 = Slice(kept, one, end, one)
        classes1 = Squeeze(classes0, one)
        classes = Gather(classes1, order)
    }"""

REGIONS = """g (float[1,6,12,12] features, float[40] objectness, float[40,4] proposals)
    => (float[n,6] pooled, float[n,3] scores, float[n,4] refined)
    <float[24,3] w = {WEIGHTS}, float least = {0.0}, int64[1] zero = {0}, int64[2] rows = {-1, 24}, int64[1] one = {1},
     float[1] overlap = {0.6}, int64[1] each = {9}, int64[2] front = {0, 1},
     int64[2] sides = {2, 3}> {
        good = Greater(objectness, least)
        found = NonZero(good)
        index = Squeeze(found, zero)
        box = Gather(proposals, index)
        strength = Gather(objectness, index)
        boxes3 = Unsqueeze(box, zero)
        strengths = Unsqueeze(strength, front)
        kept = NonMaxSuppression(boxes3, strengths, each, overlap)
        last = Constant<value_int=2>()
        rank = Gather<axis=1>(kept, last)
        refined = Gather(box, rank)
        number = Shape(rank)
        batch = ConstantOfShape<value = int64[1] {0}>(number)
        region = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(features, refined, batch)
        flat = Reshape(region, rows)
        logits = MatMul(flat, w)
        scores = Softmax<axis=-1>(logits)
        pooled = ReduceMax<keepdims=0>(region, sides)
    }"""


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def compare(given: onnx.ModelProto, compiled: CModel, feed: dict[str, np.ndarray]) -> int:
    """Checks all results; the number of boxes."""
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feed)
    for got, want in zip(compiled.run(feed).values(), wanted, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return len(np.asarray(wanted[0]))


@pytest.mark.parametrize("cells", [5, 120])
def test_boxes_of_one_stage(cells: int) -> None:
    given = model(YOLO.replace("CELLS", str(cells)))
    compiled = CModel(load(given))
    counts = []
    for seed, shift in ((0, 0.0), (1, -3.0), (2, -100.0), (3, 2.0)):
        rng = np.random.default_rng(seed)
        head = rng.standard_normal((1, 84, cells)).astype(F) + F(shift)
        head[:, :4] = rng.random((1, 4, cells)) * 20 + 1
        counts.append(compare(given, compiled, {"head": head}))
    assert counts[2] == 0 and counts[0] == 30


def test_regions_of_two_stages() -> None:
    rng = np.random.default_rng(0)
    weights = ", ".join(f"{x:.4f}" for x in rng.standard_normal(72))
    given = model(REGIONS.replace("WEIGHTS", weights))
    compiled = CModel(load(given))
    counts = []
    for seed, shift in ((0, 0.0), (1, -9.0), (2, 9.0), (3, -1.5)):
        rng = np.random.default_rng(seed)
        corners = rng.random((40, 4)).astype(F) * 6
        corners[:, 2:] += corners[:, :2]
        feed = {
            "features": rng.standard_normal((1, 6, 12, 12)).astype(F),
            "objectness": rng.standard_normal(40).astype(F) + F(shift),
            "proposals": corners,
        }
        counts.append(compare(given, compiled, feed))
    assert counts[1] == 0 and counts[2] == 9


def test_optimized_detectors_run_as_c() -> None:
    given = model(YOLO.replace("CELLS", "50"))
    result = eqsat.optimize(given, verify=False)
    head = np.random.default_rng(4).standard_normal((1, 84, 50)).astype(F)
    head[:, :4] = np.random.default_rng(5).random((1, 4, 50)) * 20 + 1
    slow, fast = result.run({"head": head}), result.run({"head": head}, backend="c")
    for name, want in slow.items():
        assert fast[name].shape == want.shape
        np.testing.assert_allclose(fast[name], want, rtol=1e-4, atol=1e-5)
