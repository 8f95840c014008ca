"""Halos whose value the program computes, the zero point of a convolution: where it comes from, and who reads what.

Programs are executed beside ONNX Runtime, several times, with other zero points each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.codegen.isa import PORTABLE, SCALAR
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load

CONV = "ConvInteger<pads=[1,1,1,1], kernel_shape=[3,3]>"
IMAGE = "[1,8,6,6]"
SOURCES = {
    "an_input": ("uint8[1] zs", ""),
    "a_step": ("uint8[1] m", "zs = BitwiseNot(m)"),
    "a_range": ("float[5] f", "q, s, z0 = DynamicQuantizeLinear(f) zs = Unsqueeze(z0, zero)"),
}
PIECES = {
    "itself": "z = Identity(zs)",
    "squeeze": "z = Squeeze(zs)",
    "reshape": "z = Reshape(zs, one)",
    "slice": "z = Slice(zs, zero, one)",
    "split": "two = Concat<axis=0>(zs, zs) z, rest = Split<axis=0>(two, ones)",
    "concat": "z = Concat<axis=0>(zs)",
}
_SIZES = (
    "zero = Constant<value = int64[1] {0}>() one = Constant<value = int64[1] {1}>() "
    "ones = Constant<value = int64[2] {1, 1}>() "
)
MODELS = {
    "two_zero_points": f"""(float{IMAGE} a, float{IMAGE} b, int8[8,8,3,3] w)
        => (int32{IMAGE} y, int32{IMAGE} y1, int32{IMAGE} y2) {{
        q, s, z = DynamicQuantizeLinear(a)
        q1, s1, z1 = DynamicQuantizeLinear(b)
        y = {CONV}(q, w, z)
        y1 = {CONV}(q, w, z1)
        y2 = {CONV}(q1, w, z)
    }}""",
    "a_later_zero_point": f"""(float[1,4,6,6] a, float[1,4,6,6] b, float[9] c, int8[8,8,3,3] w)
        => (int32{IMAGE} y, uint8{IMAGE} p) {{
        q, s, z = DynamicQuantizeLinear(a)
        q1, s1, z1 = DynamicQuantizeLinear(b)
        x = Concat<axis=1>(q, q1)
        q2, s2, z2 = DynamicQuantizeLinear(c)
        y = {CONV}(x, w, z2)
        p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)
    }}""",
    "scan": f"""(float[5,1,8,6,6] xs, float{IMAGE} a, int8[8,8,3,3] w) => (float{IMAGE} y, float[5,1,8,6,6] ys) {{
        y, ys = Scan<num_scan_inputs=1, body = b (float{IMAGE} s, float{IMAGE} x) => (float{IMAGE} t, float{IMAGE} o) {{
            q, qs, z = DynamicQuantizeLinear(x)
            k = {CONV}(q, w, z)
            f = Cast<to=1>(k)
            t = Add(s, f)
            q1, s1, z1 = DynamicQuantizeLinear(t)
            k1 = {CONV}(q1, w, z1)
            o = Cast<to=1>(k1)
        }}>(a, xs)
    }}""",
    "carried": f"""(uint8{IMAGE} x, float[9] c, int64 n, int8[8,8,3,3] w) => (float[K,1,8,6,6] ys) {{
        true = Constant<value = bool {{1}}>()
        more = Constant<value = uint8 {{1}}>()
        q, qs, z = DynamicQuantizeLinear(c)
        last, lz, ys = Loop(n, true, x, z) <body = b (int64 i, bool on, uint8{IMAGE} s, uint8 sz)
            => (bool still, uint8{IMAGE} t, uint8 tz, float{IMAGE} o) {{
            still = Identity(on)
            t = BitwiseXor(s, more)
            tz = Add(sz, more)
            k = {CONV}(t, w, sz)
            o = Cast<to=1>(k)
        }}>
    }}""",
    "branches": f"""(float{IMAGE} a, bool c, int8[8,8,3,3] w) => (int32{IMAGE} y) {{
        q, s, z = DynamicQuantizeLinear(a)
        y = If(c) <then_branch = b () => (int32{IMAGE} k) {{ k = {CONV}(q, w, z) }},
            else_branch = e () => (int32{IMAGE} k1) {{
                p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(q)
                k1 = {CONV}(p, w, z)
            }}>
    }}""",
}
WAYS: dict[str, dict[str, Any]] = {
    "vectors": {},
    "threads": {"threads": 2},
    "scalar": {"isas": (PORTABLE, SCALAR), "flags": ("-DMODEL_SCALAR",)},
}


def _model(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g {text}')
    weights = np.random.default_rng(0).integers(-128, 128, (8, 8, 3, 3)).astype(np.int8)
    (given,) = (x for x in model.graph.input if x.name == "w")
    model.graph.input.remove(given)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def _feeds(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng, feeds = np.random.default_rng(seed), {}
    for x in model.graph.input:
        shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
        if dtype == np.float32:
            feeds[x.name] = rng.normal(rng.uniform(-2, 2), 2, shape).astype(dtype)
        else:
            high = {np.dtype(np.uint8): 256, np.dtype(np.int64): 4, np.dtype(bool): 2}[dtype]
            feeds[x.name] = np.asarray(rng.integers(0, high, shape)).astype(dtype)
    return feeds


def _check(model: onnx.ModelProto, **how: Any) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    compiled = CModel(load(model), dims={"ys": (1, 4)} if "n" in {x.name for x in model.graph.input} else {}, **how)
    assert "integer convolution" in {kernel.family for kernel in compiled.emitted.kernels}
    for seed in (0, 1, 2, 3, 0):
        feeds = _feeds(model, seed)
        found = compiled.run(feeds)
        for output, expected in zip(model.graph.output, session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found[output.name], expected, f"{output.name}, {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("source", SOURCES)
def test_zero_points_that_are_pieces(source: str, piece: str) -> None:
    given, made = SOURCES[source]
    steps = f"{_SIZES} {made} {PIECES[piece]} x1 = BitwiseNot(x) y = {CONV}(x1, w, z)"
    _check(_model(f"(uint8{IMAGE} x, {given}, int8[8,8,3,3] w) => (int32{IMAGE} y) {{ {steps} }}"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_values(name: str, way: str) -> None:
    _check(_model(MODELS[name]), **WAYS[way])
