"""A newest opset bounds the search: the file costs what the report says, and a note names what newer ones have."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import search
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


@pytest.mark.slow
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


def test_a_saved_result_keeps_its_bound(tmp_path: Path) -> None:
    result = eqsat.optimize(_model("new"), opset=17)
    result.save(tmp_path / "out.onnx")
    assert _version(tmp_path / "out.onnx") <= 17
    newer = eqsat.optimize(_model("new"))
    newer.save(tmp_path / "out.onnx", opset=18)
    assert _version(tmp_path / "out.onnx") <= 18


WITHOUT_DEFINITION = {
    "one": (
        "(uint8[4] x) => (uint8[4] y) { a = BitwiseNot(x) y = Add(a, x) }",
        ("a: ", "`BitwiseNot`, which needs opset 18", "--opset 18"),
    ),
    "all": (
        "(uint8[4] x, float[1,1,2,2,2] v, float[1,1,1,1,3] at) => (uint8[4] y, float[1,1,1,1,1] z) {"
        "a = BitwiseNot(x) b = BitwiseNot(a) y = BitwiseAnd(b, x) z = GridSample(v, at) }",
        (
            "4 that need a newer one",
            "`BitwiseAnd` (opset 18; y)",
            "`BitwiseNot` (opset 18; a and 1 more)",
            "--opset 20",
        ),
    ),
    "body": (
        "(bool c, uint8[4] x) => (uint8[4] y) { y = If<then_branch = t () => (uint8[4] a) { a = BitwiseNot(x) },"
        "else_branch = e () => (uint8[4] b) { d = BitwiseXor(x, x) e = BitwiseNot(d) b = Add(e, x) }>(c) }",
        ("3 that need a newer one", "`BitwiseXor` (opset 18; d)"),
    ),
    "function": ("(uint8[4] x) => (uint8[4] y) { y = my.F(x) }", ("BitwiseNot", "18")),
}
_FUNCTION = '<domain: "my", opset_import: ["": 20]> F (a) => (b) { b = BitwiseNot(a) }'


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("name", list(WITHOUT_DEFINITION))
def test_what_is_too_new_and_has_no_definition_is_named_before_it_is_saved(
    name: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it at once, also where the model is too large to be searched."""
    if limit is not None:
        monkeypatch.setattr(search, "MOST_PLACED", limit)
    graph, wanted = WITHOUT_DEFINITION[name]
    text = f'<ir_version: 9, opset_import: ["": 20, "my": 1]> g {graph} {_FUNCTION if name == "function" else ""}'
    with pytest.raises(ModelError, match="operators of opset 17 or older are required") as caught:
        eqsat.optimize(text, opset=17)
    for part in wanted:
        assert part in str(caught.value)
    assert eqsat.optimize(text, opset=20).cost > 0


def test_what_is_constant_is_not_too_new(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 20]> g (uint8[4] x) => (uint8[4] y) <uint8[4] w = {1,2,3,4}> {
      a = BitwiseNot(w) y = Add(a, x) }"""
    eqsat.optimize(text, opset=17).save(tmp_path / "out.onnx")
    assert _version(tmp_path / "out.onnx") <= 17
    feed = {"x": np.arange(4, dtype=np.uint8)}
    wanted = run_ort(onnx.parser.parse_model(text), feed)
    np.testing.assert_array_equal(run_ort(onnx.load(tmp_path / "out.onnx"), feed)[0], wanted[0])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["main", "body"])
def test_rules_may_have_another_form_of_what_is_too_new(place: str, tmp_path: Path) -> None:
    """A form that costs more than the operator, which is never chosen."""
    rules = tmp_path / "my.rules"
    rules.write_text("rule complement : exact\n    BitwiseNot(x)  =>  255 - x\n    where x.dtype == uint8\n", "utf-8")
    node = "a = BitwiseNot(x) y = Add(a, x)"
    if place == "body":
        node = """y = If<then_branch = t () => (uint8[4] p) { a = BitwiseNot(x) p = Add(a, x) },
          else_branch = e () => (uint8[4] q) { q = Mul(x, x) }>(c)"""
    text = f'<ir_version: 9, opset_import: ["": 20]> g (bool c, uint8[4] x) => (uint8[4] y) {{ {node} }}'
    result = eqsat.optimize(text, opset=17, rules=[rules])
    result.save(tmp_path / "out.onnx")
    assert _version(tmp_path / "out.onnx") <= 17
    assert np.isfinite(result.baseline_cost) and "BitwiseNot" not in onnx.printer.to_text(
        onnx.load(tmp_path / "out.onnx")
    )
    for c in (True, False):
        feed = {"c": np.array(c), "x": np.arange(250, 254, dtype=np.uint8)}
        wanted = run_ort(onnx.parser.parse_model(text), feed)[0]
        np.testing.assert_array_equal(run_ort(onnx.load(tmp_path / "out.onnx"), feed)[0], wanted)


@pytest.mark.parametrize("name", ["new", "branches"])
def test_a_model_that_is_left_unchanged_is_priced_as_it_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = eqsat.optimize(_model(name), opset=13, default_rules=False, verify=False)
    monkeypatch.setattr(search, "MOST_PLACED", 0)
    result = eqsat.optimize(_model(name), opset=13)
    assert result.baseline_cost == pytest.approx(searched.baseline_cost)
    assert result.cost == pytest.approx(searched.cost) and result.cost >= result.baseline_cost
    assert any("replaced by definitions of opset 13" in note for note in result.summary.notes)
    path = tmp_path / "out.onnx"
    result.save(path)
    assert _version(path) <= 13
    assert eqsat.optimize(path, default_rules=False).cost == pytest.approx(result.cost)
    feed = random_inputs(_model(name))
    for a, b in zip(run_ort(_model(name), feed), run_ort(onnx.load(path), feed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [3, 99])
def test_an_opset_that_is_not_written_is_refused(opset: int) -> None:
    with pytest.raises(ModelError, match="an opset from 7 to 26 is required"):
        eqsat.optimize(_model("axes"), opset=opset)


def test_attributes_of_composites_do_not_make_the_file_newer(tmp_path: Path) -> None:
    """A composite's function declares the attributes of its operators, also those that came later."""
    (tmp_path / "my.target").write_text(TARGET, "utf-8")
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
