"""One program whatever the spelling: what follows from indices, which are never negative."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from tests.model.running import run_ort

FLOORED = """q = Div(i, n) l = Less(i, zero) t = Less(n, zero) e = Equal(l, t) o = Not(e) r = Mod(i, n)
    c = Cast<to = 9>(r) a = And(o, c) d = Cast<to = 7>(a) y = Sub(q, d) z = Mod(i, n)"""
INDICES = {
    "places": "v, i = TopK(x, k)",
    "the greatest": "i = ArgMax<axis = 1, keepdims = 1>(x)",
    "remainders": "v, j = TopK(x, k) f = Sub(j, n) i = Mod(f, n)",
}


@pytest.mark.parametrize("indices", INDICES)
def test_a_quotient_of_indices_is_not_rounded_down(indices: str, tmp_path: Path) -> None:
    """PyTorch's exporter corrects the quotient of negative numbers."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[3, 40] x) => (int64[3, K] y, int64[3, K] z) <int64[1] k = {{5}}, int64 n = {{8}}, int64 zero = {{0}}>
        {{ {INDICES[indices]} {FLOORED} }}""")
    result = eqsat.optimize(model)
    kinds = Counter(node.op_type for node in result.model.graph)
    assert not kinds["Less"] and not kinds["And"] and kinds["Div"] == 1
    result.save(tmp_path / "out.onnx")
    feed = {"x": np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)}
    for found in (run_ort(onnx.load(tmp_path / "out.onnx"), feed), list(result.run(feed).values())):
        for a, b in zip(found, run_ort(model, feed), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("divisor", [8, -8])
def test_a_quotient_of_any_numbers_is(divisor: int) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (int64[64] i) => (int64[64] y, int64[64] z) <int64 n = {{{divisor}}}, int64 zero = {{0}}> {{ {FLOORED} }}""")
    numbers = np.arange(-32, 32)
    found = eqsat.optimize(model).run({"i": numbers})
    np.testing.assert_array_equal(found["y"], numbers // divisor)
    np.testing.assert_array_equal(found["z"], numbers % divisor)
