"""One program whatever the spelling: norms, activations and attention as exporters write them, and as others might."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.model.load import load
from tests.model.running import random_inputs, run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
NEWER = '<ir_version: 8, opset_import: ["": 18]>\n'

# ---- over the last axes: gamma and beta have 8 elements ------------------------------------------------------------

CONSTANTS = """<float[8] g = {1.5, 0.5, 2, 1, -1, 0.25, 1, 3}, float[8] b = {0.5, 0, 1, -1, 2, 0.125, 0, 4},
    float two = {2}, float half = {0.5}, float minus_half = {-0.5}, float one = {1}, float eighth = {0.125},
    float eight = {8}, float e = {0.001}, int64[1] axes = {-1}, int64[1] last = {2}>"""
CENTRED = "m = ReduceMean <axes = [-1]> (x) d = Sub(x, m)"
SUFFIX = "z = Mul(n, g) y = Add(z, b)"
LAYER_NORMS = {
    "power": f"{CENTRED} q = Pow(d, two) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) n = Div(d, s)",
    "square": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [2]> (q) w = Add(v, e) s = Sqrt(w) n = Div(d, s)",
    "twice": "m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) d2 = Sub(x, m) q = Pow(d2, two) "
    "v = ReduceMean <axes = [-1]> (q) w = Add(e, v) s = Sqrt(w) n = Div(d, s)",
    "root by power": f"{CENTRED} q = Pow(d, two) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Pow(w, half) "
    "n = Div(d, s)",
    "reciprocal root": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) "
    "r = Reciprocal(s) n = Mul(d, r)",
    "one by root": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) "
    "r = Div(one, s) n = Mul(r, d)",
    "negative power": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) "
    "r = Pow(w, minus_half) n = Mul(d, r)",
    "sums": "t = ReduceSum <keepdims = 1> (x, axes) m = Mul(t, eighth) d = Sub(x, m) q = Mul(d, d) "
    "u = ReduceSum <keepdims = 1> (q, axes) v = Div(u, eight) w = Add(v, e) s = Sqrt(w) n = Div(d, s)",
    "sum of squares": f"{CENTRED} u = ReduceSumSquare <axes = [-1]> (d) v = Div(u, eight) w = Add(v, e) s = Sqrt(w) "
    "n = Div(d, s)",
    "moments": "m = ReduceMean <axes = [-1]> (x) q = Mul(x, x) f = ReduceMean <axes = [-1]> (q) k = Mul(m, m) "
    "v = Sub(f, k) d = Sub(x, m) w = Add(v, e) s = Sqrt(w) n = Div(d, s)",
    "dropped dims": "m0 = ReduceMean <axes = [-1], keepdims = 0> (x) m = Unsqueeze(m0, last) d = Sub(x, m) "
    "q = Mul(d, d) v0 = ReduceMean <axes = [-1], keepdims = 0> (q) v = Unsqueeze(v0, last) w = Add(v, e) s = Sqrt(w) "
    "n = Div(d, s)",
    "quotients": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) "
    "n1 = Div(x, s) n2 = Div(m, s) n = Sub(n1, n2)",
    "no epsilon": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) s = Sqrt(v) n = Div(d, s)",
}
WHOLE_LAYER_NORMS = {
    "as TensorFlow writes it": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) "
    "r = Reciprocal(s) k = Mul(r, g) xk = Mul(x, k) mk = Mul(m, k) c = Sub(b, mk) y = Add(xk, c)",
    "as tf2onnx writes Keras": "m = GlobalAveragePool(x) mn = Neg(m) d = Sub(x, m) q = Mul(d, d) "
    "v = GlobalAveragePool(q) w = Add(v, e) s = Sqrt(w) r = Reciprocal(s) k = Mul(r, g) xk = Mul(x, k) "
    "mk = Mul(mn, k) c = Add(mk, b) y = Add(xk, c)",
    "scale before": f"{CENTRED} q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) "
    "gd = Mul(g, d) z = Div(gd, s) y = Add(b, z)",
    "operator without affine": "n0 = LayerNormalization <axis = -1, epsilon = 0.001> (x, ones) z = Mul(n0, g) "
    "y = Add(z, b)",
}


def _kinds(model: str, **options: object) -> Counter[str]:
    """The operators of the optimized model, which is compared with ONNX Runtime on the input."""
    result = eqsat.optimize(model, **options)
    loaded = load(model)
    feed = random_inputs(loaded, seed=1)
    for found, wanted in zip(result.run(feed).values(), run_ort(loaded, feed), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(np.abs(wanted).max()))
    scopes = [result.model.graph, *result.model.functions.values()]
    return Counter(node.op_type for scope in scopes for node in scope if not node.domain and node.op_type != "Constant")


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYER_NORMS)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_normalization(name: str, affine: bool) -> None:
    body = LAYER_NORMS[name] + (SUFFIX if affine else " y = Identity(n)")
    model = f"{HEAD} g (float[2, 3, 8] x) => (float[2, 3, 8] y) {CONSTANTS} {{ {body} }}"
    assert _kinds(model) == {"LayerNormalization": 1}


@pytest.mark.parametrize("name", WHOLE_LAYER_NORMS)
def test_layer_normalization_with_its_affine_map(name: str) -> None:
    constants = CONSTANTS.replace("<", "<float[8] ones = {1, 1, 1, 1, 1, 1, 1, 1}, ", 1)
    model = f"{HEAD} g (float[2, 3, 8] x) => (float[2, 3, 8] y) {constants} {{ {WHOLE_LAYER_NORMS[name]} }}"
    assert _kinds(model) == {"LayerNormalization": 1}


@pytest.mark.slow
@pytest.mark.parametrize("targets", [["dnnl"], []])
def test_two_spellings_have_one_cost_and_one_partition(targets: list[str]) -> None:
    outcomes = set()
    for name in ("power", "reciprocal root", "sums", "quotients"):
        body = LAYER_NORMS[name] + SUFFIX
        model = f"{HEAD} g (float[64, 32, 8] x) => (float[64, 32, 8] y) {CONSTANTS} {{ {body} }}"
        result = eqsat.optimize(model, targets=targets, verify=False)
        regions = tuple((r.target, r.nodes) for r in result.regions)
        outcomes.add((f"{result.cost:.6g}", regions))
    assert len(outcomes) == 1


@pytest.mark.parametrize(
    "body",
    [
        "q = Pow(x, two) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) r = Reciprocal(s) n = Mul(x, r)",
        "q = Mul(x, x) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) s = Sqrt(w) n = Div(x, s)",
        "q = Mul(x, x) v = ReduceMean <axes = [-1]> (q) w = Add(v, e) r = Pow(w, minus_half) n = Mul(r, x)",
        "u = ReduceSumSquare <axes = [-1]> (x) v = Mul(u, eighth) w = Add(v, e) s = Sqrt(w) n = Div(x, s)",
    ],
)
def test_root_mean_square_normalization(body: str) -> None:
    model = f"{HEAD} g (float[2, 3, 8] x) => (float[2, 3, 8] y) {CONSTANTS} {{ {body} y = Mul(g, n) }}"
    assert _kinds(model) == {"RMSNormalization": 1}


# ---- over channels and images --------------------------------------------------------------------------------------

CHANNELS = """<float[4, 1, 1] g = {1.5, 0.5, 2, 1}, float[4, 1, 1] b = {0.5, 0, 1, -1}, float[2] ones = {1, 1},
    float[2] zeros = {0, 0}, int64[3] groups = {0, 2, -1}, int64[4] image = {2, 4, 30, 50}, float e = {0.001},
    float two = {2}>"""


@pytest.mark.parametrize(
    ("body", "operator"),
    [
        (
            "r = Reshape(x, groups) i = InstanceNormalization <epsilon = 0.001> (r, ones, zeros) n = Reshape(i, image)",
            "GroupNormalization",
        ),
        (
            "r = Reshape(x, groups) m = ReduceMean <axes = [2]> (r) d = Sub(r, m) q = Mul(d, d) "
            "v = ReduceMean <axes = [2]> (q) w = Add(v, e) s = Sqrt(w) i = Div(d, s) n = Reshape(i, image)",
            "GroupNormalization",
        ),
        (
            "m = ReduceMean <axes = [2, 3]> (x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean <axes = [2, 3]> (q) "
            "w = Add(v, e) s = Sqrt(w) n = Div(d, s)",
            "InstanceNormalization",
        ),
    ],
)
def test_normalization_of_images(body: str, operator: str) -> None:
    model = f"""{HEAD} g (float[2, 4, 30, 50] x) => (float[2, 4, 30, 50] y) {CHANNELS}
    {{ {body} z = Mul(n, g) y = Add(z, b) }}"""
    assert _kinds(model, targets=["dnnl"]) == {operator: 1}


def test_normalization_of_channels_that_come_first() -> None:
    model = f"""{HEAD} g (float[2, 4, 30, 50] x) => (float[2, 4, 30, 50] y) {CHANNELS} {{
        m = ReduceMean <axes = [1]> (x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean <axes = [1]> (q)
        w = Add(v, e) s = Sqrt(w) n = Div(d, s) z = Mul(n, g) y = Add(z, b) }}"""
    found = _kinds(model)
    assert found["LayerNormalization"] == 1
    assert not found["ReduceMean"]


# ---- activations ---------------------------------------------------------------------------------------------------

NUMBERS = """<float r = {0.70710678118}, float root = {1.41421356237}, float half = {0.5}, float one = {1},
    float three = {3}, float a = {0.044715}, float c = {0.7978845608}, float ac = {0.0356774081363},
    float q = {1.702}, float two = {2}, float c2 = {1.5957691216}, float minus = {-1}, float minus_q = {-1.702},
    float minus_r = {-0.70710678118}>"""


@pytest.mark.parametrize(
    "body",
    [
        "t = Div(x, root) u = Erf(t) v = Add(u, one) w = Mul(x, v) y = Mul(w, half)",
        "t = Mul(x, r) u = Erf(t) v = Add(one, u) w = Mul(v, half) y = Mul(w, x)",
        "h = Mul(half, x) t = Mul(x, r) u = Erf(t) v = Add(u, one) y = Mul(h, v)",
        "t = Mul(x, r) u = Erf(t) v = Mul(u, half) w = Add(v, half) y = Mul(x, w)",
        "p = Pow(x, three) t = Mul(p, a) s = Add(x, t) u = Mul(s, c) v = Tanh(u) w = Add(v, one) h = Mul(x, half) "
        "y = Mul(h, w)",
        "p1 = Mul(x, x) p = Mul(p1, x) t = Mul(a, p) s = Add(t, x) u = Mul(c, s) v = Tanh(u) w = Add(one, v) "
        "h = Mul(half, w) y = Mul(x, h)",
        "p = Mul(x, x) t = Mul(p, a) s = Add(t, one) i = Mul(x, s) u = Mul(i, c) v = Tanh(u) w = Add(v, one) "
        "h = Mul(x, w) y = Mul(h, half)",
        "p = Mul(x, x) t = Mul(p, a) s = Add(t, one) cx = Mul(x, c) u = Mul(cx, s) v = Tanh(u) w = Add(v, one) "
        "h = Mul(x, w) y = Mul(h, half)",
        "p = Pow(x, three) t = Mul(p, ac) cx = Mul(x, c) u = Add(cx, t) v = Tanh(u) w = Add(v, one) h = Mul(x, w) "
        "y = Mul(h, half)",
        "n = Neg(x) t = Mul(n, r) u = Erf(t) v = Sub(one, u) h = Mul(x, half) y = Mul(h, v)",
        "n = Neg(x) t = Div(n, root) u = Erf(t) v = Sub(one, u) h = Mul(x, half) y = Mul(h, v)",
        "t = Mul(x, minus_r) u = Erf(t) v = Sub(one, u) h = Mul(x, half) y = Mul(h, v)",
        "p1 = Mul(x, x) p = Mul(p1, x) t = Mul(p, a) s = Add(x, t) u = Mul(s, c2) g = Sigmoid(u) y = Mul(x, g)",
        "p = Pow(x, three) t = Mul(p, a) s = Add(x, t) u = Mul(s, c) w = Mul(u, two) g = Sigmoid(w) y = Mul(x, g)",
    ],
)
def test_gelu(body: str) -> None:
    assert _kinds(f"{HEAD} g (float[5, 7] x) => (float[5, 7] y) {NUMBERS} {{ {body} }}") == {"Gelu": 1}


SWISHES = {
    "silu": "s = Sigmoid(x) y = Mul(x, s)",
    "quick_gelu": "t = Mul(x, q) s = Sigmoid(t) y = Mul(s, x)",
    "quotient": "t = Neg(x) e = Exp(t) d = Add(e, one) y = Div(x, d)",
    "product with a reciprocal": "t = Mul(x, minus) e = Exp(t) d = Add(one, e) r1 = Reciprocal(d) y = Mul(x, r1)",
    "quick_gelu as quotient": "t = Mul(x, minus_q) e = Exp(t) d = Add(e, one) y = Div(x, d)",
    "hyperbolic tangent": "t = Mul(x, half) u = Tanh(t) v = Add(u, one) h = Mul(x, half) y = Mul(h, v)",
    "hyperbolic tangent of a quotient": "t = Div(x, two) u = Tanh(t) v = Mul(u, half) w = Add(v, half) y = Mul(x, w)",
}


@pytest.mark.parametrize("body", SWISHES.values(), ids=SWISHES)
def test_swish(body: str) -> None:
    text = f"{HEAD} g (float[500, 700] x) => (float[500, 700] y) {NUMBERS} {{ {body} }}"
    assert _kinds(text, targets=["dnnl"]) == {"Swish": 1}


@pytest.mark.parametrize(
    "body",
    [
        "t = Mul(x, minus) e = Exp(t) d = Add(e, one) y = Div(one, d)",
        "t = Mul(x, half) u = Tanh(t) v = Mul(u, half) y = Add(v, half)",
        "t = Div(x, two) u = Tanh(t) v = Add(u, one) y = Div(v, two)",
    ],
)
def test_sigmoid(body: str) -> None:
    assert _kinds(f"{HEAD} g (float[5, 7] x) => (float[5, 7] y) {NUMBERS} {{ {body} }}") == {"Sigmoid": 1}


# ---- attention: 2 batches, 4 heads, 6 queries of 8 features, 10 keys -----------------------------------------------

ATTENTION = """<float scale = {0.35355338}, float part = {0.59460354}, float over = {2.828427}, float zero = {0},
    float low = {-1e9}, int64[3] three = {8, 10, 8}, int64[4] back = {2, 4, 8, 10}>"""
QUERY = "q1 = Identity(q)"
SCALED = {
    "none": "{k} s = MatMul(q, kt)",
    "on scores": "{k} s0 = MatMul(q, kt) s = Mul(s0, scale)",
    "by division": "{k} s0 = MatMul(q, kt) s = Div(s0, over)",
    "on queries": "qs = Mul(q, scale) {k} s = MatMul(qs, kt)",
    "on keys": "ks = Mul(k, scale) {ks} s = MatMul(q, kt)",
    "on both": "qs = Mul(q, part) ks = Mul(k, part) {ks} s = MatMul(qs, kt)",
    "on transposed keys": "{k0} kt = Mul(kt0, scale) s = MatMul(q, kt)",
}
KEYS = {
    "at once": "{out} = Transpose <perm = [0, 1, 3, 2]> ({source})",
    "by three dimensions": "r_{out} = Reshape({source}, three) t_{out} = Transpose <perm = [0, 2, 1]> (r_{out}) "
    "{out} = Reshape(t_{out}, back)",
}
MASKS = {
    "none": "m = Identity(s)",
    "for each query": "mask = Where(seen, zero, low) m = Add(s, mask)",
    "causal": "m = Add(triangle, s)",
    "an input": "m = Add(s, mask)",
}
SOFTMAX = {
    "plain": "p = Softmax <axis = -1> (m)",
    "guarded": "p0 = Softmax <axis = -1> (m) nan = IsNaN(p0) p = Where(nan, zero, p0)",
}


def _attention(scaled: str, keys: str, mask: str, softmax: str) -> str:
    spell = KEYS[keys].format
    body = SCALED[scaled].format(
        k=spell(out="kt", source="k"), ks=spell(out="kt", source="ks"), k0=spell(out="kt0", source="k")
    )
    triangle = np.where(np.tri(6, 10, 4) > 0, 0, -1e9).ravel()
    constants = ATTENTION.replace("<", f"<float[1, 1, 6, 10] triangle = {{{', '.join(map(str, triangle))}}}, ", 1)
    given = {"for each query": ", bool[2, 1, 6, 10] seen", "an input": ", float[2, 1, 6, 10] mask"}.get(mask, "")
    return f"""{HEAD} g (float[2, 4, 6, 8] q, float[2, 4, 10, 8] k, float[2, 4, 10, 8] v{given})
        => (float[2, 4, 6, 8] y) {constants} {{ {body} {MASKS[mask]} {SOFTMAX[softmax]} y = MatMul(p, v) }}"""


@pytest.mark.slow
@pytest.mark.parametrize("softmax", SOFTMAX)
@pytest.mark.parametrize("mask", ["none", "for each query", "causal"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("scaled", SCALED)
def test_attention(scaled: str, keys: str, mask: str, softmax: str) -> None:
    kinds = _kinds(_attention(scaled, keys, mask, softmax), verify=False)
    assert kinds == ({"Attention": 1, "Where": 1} if mask == "for each query" else {"Attention": 1})


@pytest.mark.parametrize("mask", ["", "[6, 10]", "[8, 6, 10]", "[8, 1, 10]"])
def test_attention_of_three_dimensions(mask: str) -> None:
    given = f", bool{mask} seen" if mask else ""
    model = f"""{HEAD} g (float[8, 6, 8] q, float[8, 10, 8] k, float[8, 10, 8] v{given}) => (float[8, 6, 8] y)
    {ATTENTION} {{ kt = Transpose <perm = [0, 2, 1]> (k) qs = Mul(q, scale) s = MatMul(qs, kt)
    {MASKS["for each query" if mask else "none"]} p = Softmax <axis = -1> (m) y = MatMul(p, v) }}"""
    assert _kinds(model, verify=False)["Attention"] == 1


BIAS = ", ".join(str(k % 7 / 4 - 0.5) for k in range(80))
LOWEST = ", ".join(str(0 if j <= i else -3.4028234663852886e38) for i in range(10) for j in range(10))
HEADS = f"""<float scale = {{0.25}}, float zero = {{0}}, float low = {{-3.4028234663852886e38}},
    float[8, 1, 10] bias = {{{BIAS}}}, float[1, 1, 10, 10] mask = {{{LOWEST}}},
    int64[3] three = {{8, 10, 16}}, int64[3] rows = {{8, 10, 10}}, int64[4] split = {{2, 4, 10, 10}},
    int64[4] back = {{2, 4, 10, 16}}>"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "hidden"),
    [("", "h = Add(s4, mask)"), (", bool[2, 1, 10, 10] seen", "w = Where(seen, zero, low) h = Add(s4, w)")],
)
@pytest.mark.parametrize(
    "values",
    ["y = MatMul(p, v)", "p3 = Reshape(p, rows) v3 = Reshape(v, three) y3 = MatMul(p3, v3) y = Reshape(y3, back)"],
)
def test_heads_as_batches_with_a_bias_of_each_head(inputs: str, hidden: str, values: str) -> None:
    """ALiBi, as BLOOM has it: scores of three dimensions get the bias, those of four the mask."""
    x = "float[2, 4, 10, 16]"
    text = f"""{HEAD} g ({x} q, {x} k, {x} v{inputs}) => ({x} y) {HEADS} {{
        q3 = Reshape(q, three) k3 = Reshape(k, three) t3 = Transpose <perm = [0, 2, 1]> (k3) m3 = MatMul(q3, t3)
        c3 = Mul(m3, scale) s3 = Add(bias, c3) s4 = Reshape(s3, split) {hidden} p = Softmax <axis = -1> (h) {values}
    }}"""
    assert _kinds(text, host="c")["Reshape"] == 0
    assert _kinds(text)["Reshape"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["none", "for each query", "causal", "an input"])
@pytest.mark.parametrize("batch", [2, "N"])
def test_queries_may_share_one_head(mask: str, batch: int | str) -> None:
    model = _attention("on both", "at once", mask, "plain").replace("[2, 4, 10, 8]", "[2, 1, 10, 8]")
    model = model.replace("[2,", f"[{batch},")
    result = eqsat.optimize(model)
    kinds = Counter(node.op_type for node in result.model.graph)
    assert kinds["Attention"] == 1 and not kinds["MatMul"] and not kinds["Softmax"]
    feed = random_inputs(load(model, dims={} if batch == 2 else {"N": 2}), seed=1)
    (wanted,) = run_ort(load(model), feed)
    for backend in ("numpy", "c") if batch == 2 else ("numpy",):
        np.testing.assert_allclose(result.run(feed, backend=backend)["y"], wanted, rtol=1e-5, atol=1e-6)


DIVIDED = {
    "slices": "qs = Slice(a, zero, one, two) ks = Slice(a, one, last, two) vs = Slice(a, last, end, two) "
    "q4 = Reshape(qs, heads) k4 = Reshape(ks, heads) v4 = Reshape(vs, heads) q = Transpose <perm = [0, 2, 1, 3]> (q4) "
    "kt = Transpose <perm = [0, 2, 3, 1]> (k4) v = Transpose <perm = [0, 2, 1, 3]> (v4)",
    "elements": "a5 = Reshape(a, parts) t = Transpose <perm = [2, 0, 3, 1, 4]> (a5) q = Gather <axis = 0> (t, i) "
    "k = Gather <axis = 0> (t, j) v = Gather <axis = 0> (t, l) kt = Transpose <perm = [0, 1, 3, 2]> (k)",
    "elements from the end": "a5 = Reshape(a, parts) q4 = Gather <axis = 2> (a5, i) k4 = Gather <axis = 2> (a5, j) "
    "v4 = Gather <axis = 2> (a5, m) q = Transpose <perm = [0, 2, 1, 3]> (q4) "
    "kt = Transpose <perm = [0, 2, 3, 1]> (k4) v = Transpose <perm = [0, 2, 1, 3]> (v4)",
}


@pytest.mark.parametrize("sizes", ["1, 128", "N, M"])
@pytest.mark.parametrize("body", DIVIDED.values(), ids=DIVIDED)
def test_queries_keys_and_values_of_one_product(body: str, sizes: str) -> None:
    model = f"""{HEAD} g (float[{sizes}, 768] a) => (float[{sizes}, 256] y) <int64[1] zero = {{0}},
        int64[1] one = {{256}}, int64[1] last = {{512}}, int64[1] end = {{768}}, int64[1] two = {{2}},
        int64[4] heads = {{0, 0, 4, 64}}, int64[5] parts = {{0, 0, 3, 4, 64}},
        int64 i = {{0}}, int64 j = {{1}}, int64 l = {{2}}, int64 m = {{-1}},
        float scale = {{0.125}}, int64[3] back = {{0, 0, 256}}> {{ {body}
        s = MatMul(q, kt) s2 = Mul(s, scale) p = Softmax <axis = -1> (s2) o = MatMul(p, v)
        t2 = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(t2, back) }}"""
    result = eqsat.optimize(model, host="ort")
    kinds = Counter(node.op_type for node in result.model.graph)
    assert kinds == {"Slice": 3, "MultiHeadAttention": 1}
    for shape in ((1, 128, 768), (1, 1, 768), (3, 5, 768))[: 1 if sizes[0] == "1" else 3]:
        feed = {"a": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        (wanted,) = run_ort(load(model), feed)
        np.testing.assert_allclose(result.run(feed)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_a_query_without_keys_is_zero_where_the_softmax_is_guarded() -> None:
    model = _attention("on scores", "at once", "an input", "guarded")
    result = eqsat.optimize(model)
    # The lowest number, which ONNX Runtime takes for -inf, is replaced in the mask.
    assert sorted(node.op_type for node in result.model.graph) == ["Attention", "Equal", "Where"]
    feed = random_inputs(load(model), seed=2)
    feed["mask"][0, 0, 3] = -np.inf
    feed["mask"][1, 0, 5, :4] = -np.inf
    (wanted,) = run_ort(load(model), feed)
    assert not wanted[0, :, 3].any()
    for backend in ("numpy", "c"):
        np.testing.assert_allclose(result.run(feed, backend=backend)["y"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heads", [4, 1])
def test_an_attention_of_the_input_can_be_taken_apart(heads: int, tmp_path: Path) -> None:
    target = tmp_path / "parts.target"
    target.write_text(
        """target parts
    peak float32 = 100e12
    bandwidth = 40e12, launch = 1e-9, dispatch = 1e-9
    link bandwidth = 40e12, latency = 1e-9
    supports MatMul, Softmax, Mul, Transpose
""",
        "utf-8",
    )
    model = f"""<ir_version: 10, opset_import: ["": 23]>
    g (float[2, 4, 64, 32] q, float[2, {heads}, 64, 32] k, float[2, {heads}, 64, 32] v) => (float[2, 4, 64, 32] y)
    {{ y = Attention <scale = 0.5> (q, k, v) }}"""
    assert _kinds(model, targets=[target]).keys() >= {"MatMul", "Softmax"}


# ---- rectifiers, absolute values and truth values --------------------------------------------------------------------

RECTIFIERS = {
    "where greater": "c = Greater(x, zero) y = Where(c, x, zero)",
    "where less": "c = Less(x, zero) y = Where(c, zero, x)",
    "where not less": "n = Less(zero, x) y = Where(n, x, zero)",
    "max": "y = Max(x, zero)",
    "max twice": "m = Max(x, zero) y = Max(m, x)",
    "max of min": "l = Min(x, a) m = Max(x, l) y = Relu(m)",
}
ABSOLUTES = {
    "max": "n = Neg(x) y = Max(n, x)",
    "sign": "s = Sign(x) y = Mul(s, x)",
    "root": "q = Mul(x, x) y = Sqrt(q)",
    "where": "n = Neg(x) c = Less(x, n) y = Where(c, n, x)",
}


@pytest.mark.parametrize(
    ("body", "kernel"),
    [*((body, "Relu") for body in RECTIFIERS.values()), *((body, "Abs") for body in ABSOLUTES.values())],
    ids=[*(f"relu by {name}" for name in RECTIFIERS), *(f"abs by {name}" for name in ABSOLUTES)],
)
def test_one_kernel(body: str, kernel: str) -> None:
    model = f"{HEAD} g (float[2, 8] x, float[2, 8] a) => (float[2, 8] y) <float zero = {{0}}> {{ {body} }}"
    assert _kinds(model) == {kernel: 1}
