"""Sizes that layers compute from tensors of their own are the same sizes, and what follows from them is shared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.search import Search
from tests.model.running import run_ort

DIMS = {"B": (1, 8, 2), "S": (1, 64, 12)}
SIZES = {
    "picked": "s = Shape(h) n = Gather(s, i) m = Unsqueeze(n, zero)",
    "sliced": "s = Shape(h) m = Slice(s, one, two, zero) n = Squeeze(m, zero)",
    "read": "m = Shape<start = 1, end = 2>(h) n = Squeeze(m, zero)",
    "read from the end": "m = Shape<start = -2, end = -1>(h) n = Reshape(m, none)",
    "of a transposed tensor": "t = Transpose<perm = [2, 1, 0]>(h) s = Shape(t) n = Gather(s, i) m = Unsqueeze(n, zero)",
    "computed": "s = Shape(h) e = Gather(s, i) o = Add(e, i) n = Sub(o, i) m = Unsqueeze(n, zero)",
}
BIAS = """k = Concat<axis = 0>(m, m) f = ConstantOfShape<value = float[1] {-10000.0}>(k) tri = Trilu(f, i)
    r = Range(nought, n, i) r0 = Unsqueeze(r, zero) r1 = Unsqueeze(r, one) d = Sub(r0, r1) c = Cast<to = 1>(d)
    bias = Add(tri, c)"""


def layers(spelling: str, count: int = 3) -> onnx.ModelProto:
    """Each layer adds a mask and a bias for its own number of rows, as a tracer writes it."""
    names = "s n m t e o k f tri r r0 r1 d c bias"
    body = ""
    for layer in range(count):
        text = f"{SIZES[spelling]} {BIAS} z = MatMul(bias, h) y = Tanh(z)"
        words = {w: f"{w}{layer}_" for w in names.split()} | {"h": f"h{layer}", "z": f"z{layer}", "y": f"h{layer + 1}"}
        body += "".join(words.get(w, w) for w in _words(text)) + "\n"
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[B, S, 8] h0)
        => (float[B, S, 8] h{count}) <int64 i = {{1}}, int64[1] zero = {{0}}, int64[1] one = {{1}},
        int64[1] two = {{2}}, int64 nought = {{0}}, int64[0] none = {{}}> {{ {body} }}""")


def _words(text: str) -> list[str]:
    """Names, and what is between them."""
    found = [""]
    for letter in text:
        if found[-1] and (letter.isalnum() or letter == "_") == (found[-1][-1].isalnum() or found[-1][-1] == "_"):
            found[-1] += letter
        else:
            found.append(letter)
    return found


@pytest.mark.parametrize("spelling", SIZES)
def test_layers_share_what_follows_from_their_sizes(spelling: str, tmp_path: Path) -> None:
    model = layers(spelling)
    result = eqsat.optimize(model, dims=DIMS)
    kinds = Counter(node.op_type for node in result.model.graph)
    assert {k: kinds[k] for k in ("Shape", "Range", "Trilu", "MatMul")} == {
        "Shape": 1,
        "Range": 1,
        "Trilu": 1,
        "MatMul": 3,
    }
    result.save(tmp_path / "out.onnx")
    for batch, rows in ((1, 1), (2, 5), (3, 64)):
        feed = {"h0": np.random.default_rng(rows).standard_normal((batch, rows, 8)).astype(np.float32)}
        for found in (run_ort(onnx.load(tmp_path / "out.onnx"), feed), list(result.run(feed).values())):
            for x, wanted in zip(found, run_ort(model, feed), strict=True):
                np.testing.assert_allclose(x, wanted, rtol=1e-5, atol=1e-5)


def test_all_spellings_of_a_size_cost_the_same() -> None:
    costs = {name: eqsat.optimize(layers(name), dims=DIMS, verify=False).cost for name in SIZES}
    assert max(costs.values()) <= min(costs.values()) * 1.0001, costs


def test_sizes_of_other_names_stay_apart(tmp_path: Path) -> None:
    """They may differ, although they have the same range."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] a, float[M, 4] b) => (int64[2] x, int64[2] y, int64[1] z) <int64[1] zero = {0}> {
        x = Shape(a) y = Shape(b) k = Concat<axis = 0>(x, y) s = ReduceSum<keepdims = 0>(k) z = Unsqueeze(s, zero) }""")
    result = eqsat.optimize(model, dims={"N": (1, 9, 3), "M": (1, 9, 3)})
    result.save(tmp_path / "out.onnx")
    feed = {"a": np.ones((2, 4), np.float32), "b": np.ones((7, 4), np.float32)}
    for found in (run_ort(onnx.load(tmp_path / "out.onnx"), feed), list(result.run(feed).values())):
        assert [x.tolist() for x in found] == [[2, 4], [7, 4], [17]]


def test_equal_sizes_that_are_results_keep_their_names(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] a) => (int64[2] x, int64[2] y, int64[1] z) <int64[1] zero = {0}> {
        b = Relu(a) x = Shape(a) y = Shape(b) z = Slice(y, zero, one, zero) } """.replace(
            "{0}>", "{0}, int64[1] one = {1}>"
        )
    )
    result = eqsat.optimize(model, dims={"N": (1, 9, 3)})
    result.save(tmp_path / "out.onnx")
    feed = {"a": np.ones((5, 4), np.float32)}
    for found in (run_ort(onnx.load(tmp_path / "out.onnx"), feed), list(result.run(feed).values())):
        assert [x.tolist() for x in found] == [[5, 4], [5, 4], [5]]


@pytest.mark.slow
def test_each_layer_adds_the_same() -> None:
    sizes = [len(Search.of(layers("picked", n), dims=DIMS, free_sizes=True).snapshot.nodes) for n in (2, 4, 8)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


def test_sizes_that_are_computed_in_two_ways_are_read_once(tmp_path: Path) -> None:
    """No shape has the second one: it is what a joined tensor has more than one of its parts."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] a) => (float[N, 4] y, float[N, 4] z) <int64 zero = {0}, int64 one = {1}, int64[1] at = {1}> {
        s = Shape(a) n = Gather(s, zero) p = Range(zero, n, one) q = Cast<to = 1>(p) u = Unsqueeze(q, at) y = Mul(a, u)
        j = Concat<axis = 0>(a, a) t = Shape(j) k = Gather(t, zero) m = Sub(k, n) v = Range(zero, m, one)
        w = Cast<to = 1>(v) x = Unsqueeze(w, at) z = Add(a, x) }""")
    result = eqsat.optimize(model, dims={"N": (1, 9, 3)})
    assert [node.op.name for node in result.plan.nodes].count("Range") == 1
    result.save(tmp_path / "out.onnx")
    for rows in (1, 2, 9):
        feed = {"a": np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)}
        for found in (run_ort(onnx.load(tmp_path / "out.onnx"), feed), list(result.run(feed).values())):
            for got, wanted in zip(found, run_ort(model, feed), strict=True):
                np.testing.assert_array_equal(got, wanted)
