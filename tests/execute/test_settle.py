"""Control flow that constants settle is gone from results and generated C; all else stays as it is."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.codegen.generate import generate
from eqsat.execute.settle import PASSES, settled
from eqsat.model.load import load

_HEAD = '<ir_version: 10, opset_import: ["": 21]> '

IF = (
    _HEAD
    + """g (float[4] x) => (float[4] y) <bool c = {%s}, float[4] w = {1,2,3,4}> {
    i = If(c)<then_branch = t () => (float[4] p) { q = Add(x, w) p = Mul(q, x) },
              else_branch = e () => (float[4] p) <float[4] w2 = {5,6,7,8}> { q = Mul(x, w2) p = Sub(q, w) }>
    y = Relu(i) }"""
)
CAPTURED = (
    _HEAD
    + """g (float[4] x, float[4] z) => (float[4] y, float[4] a, float[4] b) <bool c = {1}> {
    y, a, b = If(c)<then_branch = t () => (float[4] p, float[4] p2, float[4] r) {
                        r = Neg(x) p = Identity(z) p2 = Identity(r) },
                    else_branch = e () => (float[4] p, float[4] p2, float[4] r) {
                        r = Abs(x) p = Neg(x) p2 = Neg(x) }> }"""
)
NESTED = (
    _HEAD
    + """g (float[4] x) => (float[4] y) <bool c = {1}, int64 n = {2}, int64 one = {1}> {
    d = Not(c) y = If(d)<then_branch = t () => (float[4] p) { p = Neg(x) }, else_branch = e () => (float[4] p) {
        less = Less(one, n) p = If(less)<then_branch = t2 () => (float[4] s) { s = Exp(x) },
                                         else_branch = e2 () => (float[4] s) { s = Abs(x) }> }> }"""
)
LOOP = (
    _HEAD
    + """g (float[4] x) => (float[4] y, float[n] rows)
    <int64 three = {%s}, bool c = {1}, float[4] w = {1,2,3,4}> {
    trips = Add(three, three)
    f, rows = Loop(trips, c, w)<body = b (int64 i, bool go, float[4] s) => (bool go2, float[4] s2, float last) {
        go2 = Identity(go) s2 = Add(s, w) last = ReduceSum<keepdims=0>(s2) }>
    y = Add(x, f) }"""
)
SCAN = (
    _HEAD
    + """g (float[2] x) => (float[2] y, float[3,2] all) <float[2] zero = {0,0}, float[3,2] w = {1,2,3,4,5,6}> {
    f, all = Scan<num_scan_inputs=1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) {
        t = Add(s, e) u = Identity(t) }>(zero, w)
    y = Add(x, f) }"""
)
SETTLED = {
    "then": IF % "1",
    "else": IF % "0",
    "captured": CAPTURED,
    "nested": NESTED,
    "loop": LOOP % "3",
    "scan": SCAN,
}
OPEN = {
    "condition of the input": _HEAD
    + """g (float[4] x, bool c) => (float[4] y) {
        y = If(c)<then_branch = t () => (float[4] p) { p = Neg(x) },
                  else_branch = e () => (float[4] p) { p = Abs(x) }> }""",
    "too many rounds": LOOP % "500000000000",
    "random": _HEAD
    + """g (float[4] x) => (float[4] y) <int64 n = {2}, bool c = {1}, float[4] w = {1,2,3,4}> {
        f = Loop(n, c, w)<body = b (int64 i, bool go, float[4] s) => (bool go2, float[4] s2) {
            go2 = Identity(go) r = RandomNormal<shape=[4]>() s2 = Add(s, r) }>
        y = Add(x, f) }""",
}


def _feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    given = {t.name for t in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in given]
    shapes = [tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in inputs]
    return {v.name: rng.normal(size=s).astype(np.float32) for v, s in zip(inputs, shapes, strict=True)}


def _in_ort(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("name", SETTLED)
def test_settled_models_compute_the_same(name: str) -> None:
    proto = onnx.parser.parse_model(SETTLED[name])
    feeds = _feeds(proto)
    wanted = _in_ort(proto, feeds)
    result = eqsat.optimize(proto)
    control = {"If", "Loop", "Scan"}
    assert control.isdisjoint(n.op_type for n in result.model.graph)
    assert [v.name for v in result.model.graph.outputs] == [v.name for v in proto.graph.output]
    for got, expected in zip(result.run(feeds).values(), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert generate(load(proto)).header  # which refuses control flow


@pytest.mark.parametrize("name", OPEN)
def test_what_is_open_or_dear_stays(name: str) -> None:
    model = load(OPEN[name])
    assert settled(model) is model


def test_a_dear_loop_leaves_the_budget_of_the_others() -> None:
    text = LOOP % "500000000000"
    text = text.replace(
        "y = Add(x, f)",
        """g = If(c)<then_branch = t () => (float[4] p) { p = Neg(x) },
        else_branch = e () => (float[4] p) { p = Abs(x) }>
        v = Loop(three2, c, w)<body = b2 (int64 j, bool ho, float[4] ss) => (bool ho2, float[4] ss2) {
            ho2 = Identity(ho) ss2 = Add(ss, w) }>
        h = Add(g, v) y = Add(h, f)""",
    ).replace("bool c = {1}", "bool c = {1}, int64 three2 = {3}")
    assert [n.op_type for n in settled(load(text)).graph if n.op_type in ("If", "Loop")] == ["Loop"]


def test_the_input_model_is_not_changed() -> None:
    model = load(IF % "1")
    assert settled(model) is not model
    assert "If" in [n.op_type for n in model.graph]


def _squeezed(rows: str, second: str) -> str:
    """TorchScript's ``squeeze`` of one axis, twice: the second one asks for the size that the first one leaves."""
    return f"""{_HEAD} g (float[{rows}, 1, {second}, 6] x) => (float y)
    <int64 i = {{1}}, int64 one = {{1}}, int64[1] at = {{1}}> {{
    r = Relu(x) s = Shape(r) n = Gather(s, i) c = Equal(n, one)
    v = If(c)<then_branch = t () => (float[] p) {{ p = Squeeze(r, at) }},
              else_branch = e () => (float[] p) {{ p = Identity(r) }}>
    s2 = Shape(v) n2 = Gather(s2, i) c2 = Equal(n2, one)
    z = If(c2)<then_branch = t2 () => (float[] p) {{ p = Squeeze(v, at) }},
               else_branch = e2 () => (float[] p) {{ p = Identity(v) }}>
    y = ReduceSum<keepdims = 0>(z) }}"""


@pytest.mark.parametrize(
    "rows, second, left", [("2", "1", 0), ("2", "3", 0), ("N", "1", 0), ("N", "3", 0), ("2", "M", 1)]
)
def test_sizes_settle_what_asks_for_them(rows: str, second: str, left: int) -> None:
    """An If stays only where its condition depends on a free size."""
    model = load(onnx.parser.parse_model(_squeezed(rows, second)))
    found = settled(model)
    assert [node.op_type for node in found.graph].count("If") == left
    sizes = {"N": 2, "M": 1}
    shape = [int(sizes.get(d, d)) for d in (rows, "1", second, "6")]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result = eqsat.optimize(onnx.parser.parse_model(_squeezed(rows, second)), verify=False)
    np.testing.assert_allclose(result.run({"x": x})["y"], np.maximum(x, 0).sum(), rtol=1e-5)


def test_a_long_chain_of_conditions_ends_after_some_passes() -> None:
    """The condition of each If depends on what the one before leaves; what is not settled is computed in each run."""
    lines = ["x0 = Relu(x)"]
    for i in range(PASSES + 3):
        lines.append(f"s{i} = Shape(x{i}) n{i} = Gather(s{i}, i) c{i} = Equal(n{i}, four)")
        lines.append(
            f"x{i + 1} = If(c{i})<then_branch = t{i} () => (float[p] a{i}) {{ a{i} = Neg(x{i}) }}, "
            f"else_branch = e{i} () => (float[p, q] b{i}) {{ b{i} = Unsqueeze(x{i}, at) }}>"
        )
    text = f"""{_HEAD} g (float[4] x) => (float y) <int64 i = {{0}}, int64 four = {{4}}, int64[1] at = {{0}}> {{
        {chr(10).join(lines)} y = ReduceSum<keepdims = 0>(x{PASSES + 3}) }}"""
    found = settled(load(onnx.parser.parse_model(text)))
    assert [node.op_type for node in found.graph].count("If") == 3
    x = np.arange(4, dtype=np.float32)
    result = eqsat.optimize(onnx.parser.parse_model(text), verify=False)
    np.testing.assert_allclose(result.run({"x": x})["y"], -x.sum())
