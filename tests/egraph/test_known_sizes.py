"""What is known of shapes although sizes are free: numbers become constants, and shapes become literals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.egraph.shape_operands import END, literal_operands
from eqsat.schema.dimension import dimension
from eqsat.schema.free_sizes import FreeSize, within
from eqsat.schema.types import OpKey, TensorType
from tests.model.running import run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
MODELS = {
    # Scaled by the root of a size that is known, as attention is.
    "root of a size": (
        """(float[N, 4, 197, 64] x) => (float[N, 4, 197, 64] y)
        <int64[1] last = {-1}, int64[1] end = {9223372036854775807}, int64[1] zero = {0}, float one = {1}> {
        s = Shape(x) l = Slice(s, last, end, zero) k = Squeeze(l, zero) f = Cast<to=1>(k) q = Sqrt(f) r = Div(one, q)
        y = Mul(x, r) }""",
        ["Mul"],
    ),
    # The shape of a tensor as its own elements.
    "view as another tensor": (
        """(float[N, 32, 16] x, float[N, 32, 4, 4] w) => (float[N, 32, 4, 4] y)
        <int64 i = {0}, int64 j = {2}, int64[1] at = {0}, int64[1] c = {32}> {
        s = Shape(w) n = Gather(s, i) h = Gather(s, j) n1 = Unsqueeze(n, at) h1 = Unsqueeze(h, at)
        k = Concat<axis=0>(n1, c, h1, h1) r = Reshape(x, k) y = Add(r, w) }""",
        ["Add", "Reshape"],
    ),
    # PyTorch's exporter writes that 0 is a size. The literal's 0 copies one.
    "zeros that are sizes": (
        """(float[N, M, 32] x) => (float[N, M, 2, 16] y)
        <int64 i = {0}, int64 j = {1}, int64[1] at = {0}, int64[1] a = {2}, int64[1] b = {16}> {
        s = Shape(x) n = Gather(s, i) m = Gather(s, j) n1 = Unsqueeze(n, at) m1 = Unsqueeze(m, at)
        k = Concat<axis=0>(n1, m1, a, b) y = Reshape<allowzero=1>(x, k) }""",
        ["Reshape"],
    ),
    # The whole axis, and its last element.
    "slice by a size": (
        """(float[N, 8] x) => (float[M, 8] y, float[K, 8] z)
        <int64 i = {0}, int64 one = {1}, int64[1] at = {0}> {
        f = Relu(x) s = Shape(x) n = Gather(s, i) m = Sub(n, one) e = Unsqueeze(n, at) d = Unsqueeze(m, at)
        a = Slice(f, at, e, at) y = Neg(a) z = Slice(x, d, e, at) }""",
        ["Neg", "Relu", "Slice"],
    ),
    # A vector of one size becomes a number: the shape to be had is empty.
    "a size without a dimension": (
        """(float[N, M] x) => (float[N, M] y)
        <int64[1] at = {1}, int64[0] none = {}> {
        s = Shape(x) l = Gather(s, at) n = Reshape(l, none) f = Cast<to=1>(n) y = Mul(x, f) }""",
        ["Cast", "Mul", "Reshape", "Shape"],
    ),
    # TensorFlow's sizes are int32; all operands of a slice are of one type.
    "slice by a size of 32 bits": (
        """(float[N, M] x) => (float[K, M] y, float[N, L] z)
        <int32[1] at = {0}, int32[1] one = {1}, int32[1] step = {-1}, int32[1] two = {2},
        int32[1] least = {-2147483648}> {
        s = Shape(x) t = Cast<to=6>(s) n = Slice(t, at, one, at) d = Sub(n, one) e = Slice(x, d, n, at, one)
        b = Sub(t, one) w = Slice(b, one, two, at) y = Neg(e)
        z = Slice(x, w, least, one, step) }""",
        ["Neg", "Slice"],
    ),
    # TorchScript's `expand` with -1 for the sizes that stay.
    "expand": (
        """(float[N, 1, M] x, float[N, M] w) => (float[N, 3, M] y)
        <int64 i = {0}, int64[1] at = {0}, int64[1] three = {3}, int64[1] minus = {-1}, int64[3] ones = {1, 1, 1}> {
        s = Shape(w) n = Gather(s, i) n1 = Unsqueeze(n, at) c = Concat<axis=0>(n1, three, minus)
        cs = Shape(c) o = ConstantOfShape<value = int64[1] {1}>(cs) t = Mul(o, minus) q = Equal(c, t)
        k = Where(q, ones, c) e = Expand(x, k) y = Relu(e) }""",
        ["Expand", "Relu"],
    ),
    # Halves of a padded size through floats.
    "floats": (
        """(float[N, 6, 8] x) => (float[K, 3, 2] y)
        <int64 i = {1}, float half = {0.5}, int64[1] at = {0}, int64[1] all = {-1}, int64[1] two = {2}> {
        s = Shape(x) c = Gather(s, i) f = Cast<to=1>(c) h = Mul(f, half) g = Ceil(h) k = Cast<to=7>(g)
        k1 = Unsqueeze(k, at) v = Concat<axis=0>(all, k1, two) r = Reshape(x, v) y = Relu(r) }""",
        ["Relu", "Reshape"],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_sizes_that_are_known_need_no_arithmetic(name: str, tmp_path: Path):
    text, wanted = MODELS[name]
    model = onnx.parser.parse_model(HEAD + text)
    result = eqsat.optimize(model)
    found = sorted({node.op_type for node in result.model.graph})
    assert found == wanted
    result.save(tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx")
    for n, m in ((1, 5), (2, 1), (7, 3)):
        sizes = {"N": n, "M": m}
        rng = np.random.default_rng(n)
        feeds = {
            v.name: rng.standard_normal(
                [d.dim_value or sizes[d.dim_param] for d in v.type.tensor_type.shape.dim]
            ).astype(np.float32)
            for v in model.graph.input
        }
        for a, b in zip(run_ort(model, feeds), run_ort(saved, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_ends_of_slices_are_counted_from_the_end_only_where_there_are_so_many_elements():
    op = OpKey("", "Slice")
    with within({"N": FreeSize(3, None, 0)}):
        n = dimension("N")
        assert n is not None
        x = TensorType(ir.DataType.FLOAT, ("N", 8))

        def literal(start: int, end: int) -> dict[int, list[int]]:
            values = []
            for element in (start, end):
                array = np.empty(1, object)
                array[0] = element
                values.append(array)
            return literal_operands(op, x, [None, *values, np.array([0])], None)

        assert literal(0, n) == {1: [0], 2: [END]}
        assert literal(n - 3, n - 1) == {1: [-3], 2: [-1]}
        assert literal(n + 2, n) == {1: [END], 2: [END]}
        assert literal(n - 4, n) == {}
        assert literal(0, 2 * n) == {}


@pytest.mark.parametrize("host", ["cpu", "ort", "c"])
def test_a_single_size_costs_the_same_however_it_is_read(host: str) -> None:
    """Exporters pick an element of the whole shape, or read a part and drop its dimension."""
    spellings = (
        "s = Shape(x) n = Gather(s, i) t = Shape(w) m = Gather(t, i)",
        "s = Shape<start = 1, end = 2>(x) n = Squeeze(s, zero) t = Shape<start = 1, end = 2>(w) m = Squeeze(t, zero)",
        "s = Shape(x) p = Slice(s, one, two) n = Squeeze(p) t = Shape<start = -1>(w) m = Reshape(t, none)",
    )
    costs = []
    for sizes in spellings:
        model = onnx.parser.parse_model(
            HEAD
            + f"""(float[N, M] x, float[N, K] w) => (float[N, L] y)
            <int64 i = {{1}}, int64 nought = {{0}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}},
            int64[0] none = {{}}> {{
            {sizes} a = Add(n, m) r = Range(nought, a, i) f = Cast<to = 1>(r)
            c = Concat<axis = 1>(x, w) y = Mul(c, f) }}"""
        )
        result = eqsat.optimize(model, host=host, dims={"N": (1, 8, 4), "M": (1, 64, 6), "K": (1, 64, 5)})
        costs.append(result.cost)
        for n, m, k in ((1, 1, 1), (3, 2, 7), (2, 9, 1)):
            feeds = {"x": np.ones((n, m), np.float32), "w": np.full((n, k), 2, np.float32)}
            np.testing.assert_array_equal(result.run(feeds)["y"], run_ort(model, feeds)[0])
    assert max(costs) < (1 + 1e-9) * min(costs)
