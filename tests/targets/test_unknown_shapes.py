"""Operators whose shapes nobody knows have a price as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import eqsat
from benchmarks.zoo import read


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


@pytest.mark.slow
@pytest.mark.parametrize("dims", [{}, {"b": 1}])
def test_types_that_stay_open_in_what_rules_make(dims: dict[str, int]) -> None:
    # The head of SigLIP as TorchScript exports it (transformers 5.23, weights drawn again): a query that is a constant
    # expression too large to be computed while rules run.
    model = read(Path(__file__).parents[1] / "data" / "attention_pooling.onnx.xz")
    result = eqsat.optimize(model, targets=["dnnl"], dims=dims)
    given = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"pixel_values": given})
    for a, b in zip(result.run({"pixel_values": given}).values(), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(b).max()))


@pytest.mark.parametrize("host", ["cpu", "ort", "c"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_a_convolution_of_a_tensor_of_unknown_sizes(host: str, op: str) -> None:
    # The sizes that are taken for those that nobody knows do not fit the weights.
    result = eqsat.optimize(
        f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[K] x, int64[4] s) => (float[a,b,c,d] y) <float[2,2,1,1] w = {{1,2,3,4}}, float[2] b = {{0.5,1}}> {{
        v = Reshape(x, s) c = {op}(v, w, b) y = Relu(c)
    }}""",
        host=host,
    )
    x = np.arange(-8, 8, dtype=np.float32)
    v = x.reshape(1, 2, 2, 4)
    weights = np.array([[1, 2], [3, 4]], np.float32)
    product = np.einsum("oi,nihw->nohw" if op == "Conv" else "io,nihw->nohw", weights, v)
    wanted = np.maximum(product + np.array([0.5, 1], np.float32)[:, None, None], 0)
    (found,) = result.run({"x": x, "s": np.array(v.shape)}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
