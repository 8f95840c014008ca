"""One program whatever the spelling: normalizations whose statistics became a scale and a shift of each channel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from tests.model.running import run_ort

RNG = np.random.default_rng(0)
CHANNELS = 8
GROUPS = 2

STATISTICS = {
    "means": "m = ReduceMean<axes = [2, 3]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes = [2, 3]>(s)",
    "sums": """t = ReduceSum(x, axes) m = Div(t, pixels) d = Sub(x, m) s = Mul(d, d) u = ReduceSum(s, axes)
        v = Div(u, pixels)""",
}
INSTANCES = {
    "a scale and a shift": "k = Div(w, r) y0 = Mul(x, k) n = Mul(m, k) c = Sub(b, n) y = Add(y0, c)",
    "by the reciprocal": "i = Reciprocal(r) k = Mul(i, w) y0 = Mul(x, k) n = Mul(k, m) c = Sub(b, n) y = Add(c, y0)",
    "the centred scaled": "i = Reciprocal(r) k = Mul(w, i) y0 = Mul(d, k) y = Add(y0, b)",
    "the centred divided": "y1 = Div(d, r) y0 = Mul(y1, w) y = Add(y0, b)",
}
REPEATED = """ri = Expand(i, repeats) i2 = Reshape(ri, flat) rm = Expand(m, repeats) m2 = Reshape(rm, flat)"""
GROUPED = {
    "a scale and a shift": f"""{REPEATED} k = Mul(i2, w) n = Mul(m2, k) c = Sub(b, n) k4 = Unsqueeze(k, axes)
        c4 = Unsqueeze(c, axes) y0 = Mul(x, k4) y = Add(y0, c4)""",
    "the centred scaled": f"""{REPEATED} k = Mul(i2, w) k4 = Unsqueeze(k, axes) m4 = Unsqueeze(m2, axes) d4 = Sub(x, m4)
        y0 = Mul(d4, k4) b4 = Reshape(b, channels) y = Add(y0, b4)""",
    "groups scaled": """dg = Mul(d, i) x4 = Reshape(dg, whole) w4 = Reshape(w, channels) b4 = Reshape(b, channels)
        y0 = Mul(x4, w4) y = Add(y0, b4)""",
}


def _check(
    text: str, batch: str, folder: Path, shape: list[int], **constants: np.ndarray
) -> tuple[Counter[str], float]:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{batch}, {CHANNELS}, 4, 6] x) => (float[{batch}, {CHANNELS}, 4, 6] y) {{ {text} }}""")
    constants |= {
        "axes": np.array([2, 3]),
        "w": RNG.standard_normal(shape).astype(np.float32),
        "b": RNG.standard_normal(shape).astype(np.float32),
        "pixels": np.array(24, np.float32),
        "e": np.array(1e-5, np.float32),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items())
    result = eqsat.optimize(model, dims=None if batch == "2" else {"B": (1, 8, 2)})
    result.save(folder / "out.onnx")
    for count in (2,) if batch == "2" else (1, 2, 5):
        for scale, shift in ((1.0, 0.0), (100.0, 10.0), (1e-3, 0.0), (0.0, 3.0)):
            x = (RNG.standard_normal((count, CHANNELS, 4, 6)) * scale + shift).astype(np.float32)
            wanted = run_ort(model, {"x": x})
            for found in (run_ort(onnx.load(folder / "out.onnx"), {"x": x}), list(result.run({"x": x}).values())):
                for a, b in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-4)
    return Counter(node.op_type for node in result.model.graph if node.op_type != "Constant"), result.cost


@pytest.mark.parametrize("batch", ["2", "B"])
@pytest.mark.parametrize("written", INSTANCES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_instances(statistics: str, written: str, batch: str, tmp_path: Path) -> None:
    text = f"{STATISTICS[statistics]} ve = Add(v, e) r = Sqrt(ve) {INSTANCES[written]}"
    kinds, _ = _check(text, batch, tmp_path, [CHANNELS, 1, 1])
    assert kinds == {"InstanceNormalization": 1}


@pytest.mark.parametrize("batch", ["2", "B"])
def test_groups(batch: str, tmp_path: Path) -> None:
    """Statistics of a view of the groups, repeated for each channel of a group."""
    count = 2 if batch == "2" else 0
    constants = {
        "view": np.array([count, GROUPS, -1]),
        "last": np.array([2]),
        "repeats": np.array([1, 1, CHANNELS // GROUPS]),
        "flat": np.array([count, -1]),
        "whole": np.array([count, CHANNELS, 4, 6]),
        "channels": np.array([CHANNELS, 1, 1]),
    }
    found = {}
    for name, written in GROUPED.items():
        text = f"""g = Reshape(x, view) m = ReduceMean<axes = [2]>(g) d = Sub(g, m) s = Mul(d, d)
            v = ReduceMean<axes = [2]>(s) ve = Add(v, e) r = Sqrt(ve) i = Reciprocal(r) {written}"""
        found[name] = _check(text, batch, tmp_path, [CHANNELS], **constants)
    assert len({tuple(sorted(kinds.items())) for kinds, _ in found.values()}) == 1, found
    costs = [cost for _, cost in found.values()]
    assert max(costs) <= 1.0001 * min(costs)


def test_a_mean_over_all_axes_is_no_mean_over_none(tmp_path: Path) -> None:
    """Without axes, all elements are summed up: a factor of one makes no mean of the sum."""
    text = "t = ReduceSum<noop_with_empty_axes = 1>(x, none) u = ReduceSum(x, none) p = Mul(u, one) y = Add(t, p)"
    kinds, _ = _check(text, "2", tmp_path, [1], none=np.zeros(0, np.int64), one=np.ones((1, 1, 1, 1), np.float32))
    assert not kinds["ReduceMean"]
