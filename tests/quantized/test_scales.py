"""Scales on which rules about quantization cannot rely: negative, zero, not known, or at the ends of float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from eqsat.search import Search
from tests.fuzz.check import ort_outputs

NETWORKS = {
    "relu": "a = Relu(x) y = QuantizeLinear(a, s, z)",
    "clip": "a = Clip(x, low, high) y = QuantizeLinear(a, s, z)",
    "max": "a = Max(x, w) y = QuantizeLinear(a, s, z)",
    "pool": "a = MaxPool<kernel_shape=[2]>(x) y = QuantizeLinear(a, s, z)",
    "pool after": "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MaxPool<kernel_shape=[2]>(d)",
    "reduction": "a = ReduceMax<keepdims=1>(x, axes) y = QuantizeLinear(a, s, z)",
    "means": """q = QuantizeLinear(x, t, z) d = DequantizeLinear(q, t, z)
                a = GlobalAveragePool(d) y = QuantizeLinear(a, s, z)""",
    "twice": "q = QuantizeLinear(x, t, z) d = DequantizeLinear(q, s, z) y = QuantizeLinear(d, s, z)",
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("scale", [-0.5, 0.0, 1e-38, 3e38, None])
def test_rules_do_not_rely_on_it(network: str, scale: float | None) -> None:
    given = "" if scale is None else f"float s = {{{scale}}}, "
    asked = ", float s" if scale is None else ""
    outputs = "float" if network == "pool after" else "uint8"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[1,2,6] x, float[1,2,6] w{asked}) => ({outputs}[a,b,c] y)
        <{given}float t = {{0.25}}, uint8 z = {{7}}, float low = {{-0.5}}, float high = {{1}}, int64[1] axes = {{2}}>
        {{ {NETWORKS[network]} }}"""
    )
    rng = np.random.default_rng(0)
    feed = {
        "x": rng.standard_normal((1, 2, 6)).astype(np.float32),
        "w": rng.standard_normal((1, 2, 6)).astype(np.float32),
    }
    if scale is None:
        feed["s"] = np.float32(-0.5)
    right = ort_outputs(model.SerializeToString(), {n: np.asarray(a) for n, a in feed.items()})["y"]
    search = Search.of(model)
    for objective in ("best", "worst", "random"):
        found = search.extract(objective).run({n: np.asarray(a) for n, a in feed.items()})["y"]
        if np.isfinite(right.astype(np.float64)).all() and scale != 0.0:
            np.testing.assert_array_equal(found, right, objective)
