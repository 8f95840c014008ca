"""A newest opset bounds the search: the file costs what the report says, and a note names what newer ones have."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.errors import ModelError
from tests.model.running import random_inputs, run_ort

_LAYER = """
  m = ReduceMean<axes=[-1]>(x)
  d = Sub(x, m)
  p = Pow(d, two)
  v = ReduceMean<axes=[-1]>(p)
  ve = Add(v, eps)
  sd = Sqrt(ve)
  n = Div(d, sd)
  ns = Mul(n, s)
  y = Add(ns, s)
  h = MatMul(y, w)
  e0 = Div(h, r)
  e1 = Erf(e0)
  e2 = Add(e1, one)
  e3 = Mul(h, e2)
  z = Mul(e3, half)
"""
_SCALARS = "float two = {2.0}, float eps = {1e-5}, float one = {1.0}, float half = {0.5}, float r = {1.4142135}"
MODELS = {
    "transformer": (
        13,
        f"g (float[2,8,16] x) => (float[2,8,16] z) <float[16] s, float[16,16] w, {_SCALARS}> {{ {_LAYER} }}",
    ),
    "swish": (
        11,
        "g (float[1,3,8,8] x) => (float[1,4,8,8] z) <float[4,3,3,3] w> {"
        "c = Conv<pads=[1,1,1,1]>(x, w) s = Sigmoid(c) z = Mul(c, s) }",
    ),
    "attention": (
        12,
        "g (float[1,2,8,4] q, float[1,2,8,4] k, float[1,2,8,4] v) => (float[1,2,8,4] z) <float half = {0.5}> {"
        "kt = Transpose<perm=[0,1,3,2]>(k) l = MatMul(q, kt) m = Mul(l, half) p = Softmax<axis=3>(m) "
        "z = MatMul(p, v) }",
    ),
    "axes": (
        11,
        "g (float[4,6] x) => (float[4] z) { a = Abs(x) s = ReduceSum<axes=[1], keepdims=0>(a) z = Sqrt(s) }",
    ),
    "quantized": (
        13,
        "g (float[4,16] x) => (float[4,16] z) <float sx = {0.05}, uint8 zx = {128}, int8[16,16] w, float[16] sw, "
        "int8[16] zw, float sy = {0.5}, uint8 zy = {100}> { q = QuantizeLinear(x, sx, zx) "
        "d = DequantizeLinear(q, sx, zx) e = DequantizeLinear<axis=1>(w, sw, zw) y = MatMul(d, e) "
        "f = QuantizeLinear(y, sy, zy) z = DequantizeLinear(f, sy, zy) }",
    ),
    "new": (20, "g (float[4,16] x) => (float[4,16] z) { a = Gelu(x) z = Mish(a) }"),
    "normalised": (
        17,
        "g (float[4,16] x) => (float[4,16] z) <float[16] s, float[16] b> {"
        "a = LayerNormalization<axis=-1>(x, s, b) z = HardSwish(a) }",
    ),
    "layers": (
        13,
        "g (float[32,128] x) => (float[32,128] z) <float[128,128] w, float[128,128] v> {"
        "a = MatMul(x, w) b = Relu(a) z = MatMul(b, v) }",
    ),
    "branches": (
        16,
        "g (bool c, float[4,16] x) => (float[4,16] z) { z = If<"
        "then_branch = t () => (float[4,16] a) { s = Sigmoid(x) a = Mul(x, s) }, "
        "else_branch = e () => (float[4,16] b) { b = HardSwish(x) } >(c) }",
    ),
}
TARGET = """
target my
    peak float32 = 1e15
    bandwidth = 1e15, launch = 1e-15, dispatch = 1e-15
    link bandwidth = 1e15, latency = 1e-15
    composite linear : exact
        QuantizeLinear(Mul(DequantizeLinear(x, sx, zx), c), sy, zy)
        where const(c)
"""
OPSETS = (11, 13, 17, 21)


def _model(name: str) -> onnx.ModelProto:
    version, text = MODELS[name]
    model = onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["": {version}]> {text}')
    rng = np.random.default_rng(0)
    for value in model.graph.value_info:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(-9, 9, shape)
        drawn = np.abs(drawn) * 0.1 + 0.01 if value.name == "sw" else drawn * (value.name != "zw")
        model.graph.initializer.append(onnx.numpy_helper.from_array(drawn.astype(dtype), value.name))
    del model.graph.value_info[:]
    return model


def _version(path: Path) -> int:
    return next(e.version for e in onnx.load(path).opset_import if not e.domain)


def _cost(path: Path, targets: tuple[str, ...]) -> float:
    """What the file costs on the targets, nothing being rewritten."""
    return eqsat.optimize(path, targets, default_rules=False, verify=False).cost


@pytest.mark.parametrize(
    "targets",
    [(), pytest.param(("dnnl",), marks=pytest.mark.slow), pytest.param(("ethos_n", "dnnl"), marks=pytest.mark.slow)],
    ids=["cpu", "dnnl", "ethos_n"],
)
@pytest.mark.parametrize("name", list(MODELS))
def test_the_file_costs_what_the_report_says(name: str, targets: tuple[str, ...], tmp_path: Path) -> None:
    model = _model(name)
    feed = random_inputs(model)
    wanted = run_ort(model, feed)
    path = tmp_path / "out.onnx"
    for version in OPSETS:
        result = eqsat.optimize(model, targets, opset=version)
        result.save(path)
        assert _version(path) <= version
        onnx.checker.check_model(onnx.load(path), full_check=True)
        assert _cost(path, targets) == pytest.approx(result.cost, rel=1e-6)
        for a, b in zip(wanted, run_ort(onnx.load(path), feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_note_says_what_newer_operators_would_have_saved() -> None:
    model = _model("transformer")
    found = eqsat.optimize(model, opset=13)
    note = next(n for n in found.summary.notes if "newer than opset 13" in n)
    assert "LayerNormalization (opset 17)" in note and "Gelu (opset 20)" in note
    less = float(re.findall(r"([0-9.]+)% less", note)[0]) / 100
    newer = eqsat.optimize(model, opset=max(int(v) for v in re.findall(r"\(opset ([0-9]+)\)", note)))
    assert newer.cost == pytest.approx(found.cost * (1 - less), rel=0.01)
    assert not any("newer than" in n for n in newer.summary.notes)


def test_what_the_input_has_is_replaced_before_the_search() -> None:
    result = eqsat.optimize(_model("new"), opset=17)
    assert any(
        "Gelu (opset 20), Mish (opset 18)" in n or "Mish (opset 18), Gelu (opset 20)" in n for n in result.summary.notes
    )
    assert not {"Gelu", "Mish"} & {node.op_type for node in result.model.graph}
    assert result.cost > result.baseline_cost


def test_a_saved_result_keeps_its_bound_and_an_input_without_definition_is_named(tmp_path: Path) -> None:
    signature = "g (float[1,1,4,4,4] x, float[1,2,2,2,3] at) => (float[1,1,2,2,2] y)"
    text = f'<ir_version: 9, opset_import: ["": 20]> {signature} {{ y = GridSample(x, at) }}'
    result = eqsat.optimize(text, opset=16, verify=False)
    with pytest.raises(ModelError, match="GridSample"):
        result.save(tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())
    result.save(tmp_path / "out.onnx", opset=20)
    assert _version(tmp_path / "out.onnx") == 20


@pytest.mark.parametrize("opset", [3, 99])
def test_an_opset_that_is_not_written_is_refused(opset: int) -> None:
    with pytest.raises(ModelError, match="an opset from 7 to 26 is required"):
        eqsat.optimize(_model("axes"), opset=opset)


def test_attributes_of_composites_do_not_make_the_file_newer(tmp_path: Path) -> None:
    """A composite's function declares the attributes of its operators, also those that came later."""
    (tmp_path / "my.target").write_text(TARGET)
    text = """<ir_version: 7, opset_import: ["": 13]> g (uint8[4,16] x) => (uint8[4,16] y)
      <float s = {0.05}, uint8 z = {128}, float half = {0.5}> {
      d = DequantizeLinear(x, s, z) m = Mul(d, half) y = QuantizeLinear(m, s, z) }"""
    result = eqsat.optimize(text, str(tmp_path / "my.target"))
    path = tmp_path / "out.onnx"
    result.save(path)
    assert len(result.regions) == 1 and _version(path) == 13
    model = onnx.parser.parse_model(text)
    feed = {"x": np.arange(64, dtype=np.uint8).reshape(4, 16) * 4}
    np.testing.assert_array_equal(run_ort(model, feed)[0], run_ort(onnx.load(path), feed)[0])


def test_quantization_heeds_the_opset(tmp_path: Path) -> None:
    model, path = _model("layers"), tmp_path / "q.onnx"
    samples = [random_inputs(model, seed) for seed in range(4)]
    result = eqsat.quantize(model, samples, opset=11)
    result.save(path)
    assert _version(path) == 11 and result.share.integer > 0
    assert _cost(path, ()) == pytest.approx(result.cost, rel=1e-6)
    run_ort(onnx.load(path), samples[0])
