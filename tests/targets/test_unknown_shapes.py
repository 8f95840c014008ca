"""Operators whose shapes nobody knows have a price as well."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat


@pytest.mark.parametrize("host", ["cpu", "ort", "c"])
def test_gathering_from_a_tensor_of_unknown_rank(host: str) -> None:
    # The axes that are dropped are data, so that nobody knows what is left.
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,1,N] x, int64[K] axes, int64[2] i) => (float[?] y) {
        s = Squeeze(x, axes) t = Gather(s, i) r = Relu(t) shape = Shape(r) n = ReduceSum <keepdims = 0> (shape)
        f = Cast <to = 1> (n) m = Unsqueeze(f, zero) y = Identity(m)
    }""".replace("zero)", "axis)").replace("=> (float[?] y) {", "=> (float[1] y) <int64[1] axis = {0}> {")
    result = eqsat.optimize(model, host=host)
    given = {"x": np.ones((2, 1, 3), np.float32), "axes": np.array([1]), "i": np.array([0, 1])}
    assert result.cost > 0
    np.testing.assert_array_equal(result.run(given)["y"], [5.0])
