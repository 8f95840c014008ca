"""ONNX Runtime does not round folded weights to 8 bits in a saved file if it does not in the input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.model.kept_floats import KEPT, with_floats_kept
from tests.model.running import run_ort
from tests.quantization.runtime import needs_exact_products

CONV = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[1, 3, 8, 8] x) => (float[1, 8, 8, 8] y)
<float s = {0.02}, int8 z = {0}, float t = {0.01}, uint8 u = {0}, float[8, 3, 3, 3] w = {WEIGHTS}, float[8] b = {BIAS},
 int8[8, 3, 3, 3] i = {INTEGERS}, float[8] r = {SCALES}, int8[8] o = {0, 0, 0, 0, 0, 0, 0, 0}, int8 low = {-8},
 int8 high = {7}, float[8, 1, 1] c = {CHANNELS}> {
    q = QuantizeLinear (x, s, z)
    d = DequantizeLinear (q, s, z)
    BODY
    p = QuantizeLinear (e, t, u)
    y = DequantizeLinear (p, t, u)
}
"""
FOUR_BITS = """
    k = Clip (i, low, high)
    f = DequantizeLinear <axis = 0> (k, r, o)
"""
BODIES = {
    "weights of four bits": FOUR_BITS + "e = Conv <pads = [1, 1, 1, 1]> (d, f, b)",
    "a Relu before the end": FOUR_BITS + "a = Conv <pads = [1, 1, 1, 1]> (d, f, b)\n e = Relu (a)",
    "a Reshape between": FOUR_BITS
    + """
    n = Constant <value_ints = [1, 3, 8, 8]> ()
    h = Reshape (d, n)
    e = Conv <pads = [1, 1, 1, 1]> (h, f, b)
""",
    "a scale per channel": FOUR_BITS + "a = Conv <pads = [1, 1, 1, 1]> (d, f, b)\n e = Mul (a, c)",
}


def text_of(body: str) -> str:
    rng = np.random.default_rng(0)

    def listed(values: np.ndarray) -> str:
        return ", ".join(f"{v:.4g}" for v in values.ravel())

    text = CONV.replace("BODY", body)
    text = text.replace("WEIGHTS", listed(rng.normal(size=8 * 27))).replace("BIAS", listed(rng.normal(size=8)))
    text = text.replace("CHANNELS", listed(np.exp(rng.normal(size=8))))
    text = text.replace("INTEGERS", ", ".join(str(k) for k in rng.integers(-9, 10, 8 * 27)))
    return text.replace("SCALES", listed(np.exp(2 * rng.normal(size=8)) / 100))


def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["", "dnnl"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("body", BODIES)
def test_folded_weights_keep_their_values(body: str, flat: bool, target: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(text_of(BODIES[body]))
    x = feed()
    (wanted,) = run_ort(model, x)
    path = tmp_path / "out.onnx"
    again = tmp_path / "again.onnx"
    result = eqsat.optimize(model, [target] if target else [])
    result.save(path, flat=flat)
    eqsat.optimize(path, [target] if target else []).save(again, flat=flat)
    for saved in (path, again):
        (got,) = run_ort(onnx.load(saved), x, optimize=True)
        # A step of the result's quantization, where a sum is half-way between two.
        assert np.mean(got != wanted) < 0.01
        np.testing.assert_allclose(got, wanted, atol=0.0101)
    np.testing.assert_allclose(result.run(x, backend="c")["y"], wanted, atol=0.0101)


def test_each_call_of_a_function_is_looked_at() -> None:
    """Only the weights of the second call must keep their values."""
    rng = np.random.default_rng(0)
    text = """
    <ir_version: 9, opset_import: ["" : 17, "f" : 1]>
    g (float[1, 3, 8, 8] x) => (float[1, 8, 6, 6] y)
    <float s = {0.02}, int8 z = {0}, float t = {0.01}, uint8 u = {0}, float[4, 3, 3, 3] v = {V},
     float[4, 3, 3, 3] w = {W}> {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        a = f.conv (d, v)
        k = QuantizeLinear (a, t, u)
        l = DequantizeLinear (k, t, u)
        b = f.conv (d, w)
        m = QuantizeLinear (b, t, u)
        n = DequantizeLinear (m, t, u)
        y = Concat <axis = 1> (l, n)
    }
    <domain: "f", opset_import: ["" : 17]>
    conv (x, w) => (y) { y = Conv (x, w) }
    """
    for name in "VW":
        weights = rng.normal(size=(4, 27)) * np.exp(3 * rng.normal(size=(4, 1))) / 30
        text = text.replace(f"{{{name}}}", f"{{{', '.join(f'{v:.6f}' for v in weights.ravel())}}}")
    model = ir.from_proto(onnx.parser.parse_model(text))
    model.graph.initializers["w"].meta[KEPT] = True
    x = feed()
    (wanted,) = run_ort(model, x)
    assert not np.array_equal(run_ort(model, x, optimize=True)[0][:, 4:], wanted[:, 4:])
    (kept,) = run_ort(with_floats_kept(model), x, optimize=True)
    np.testing.assert_array_equal(kept[:, 4:], wanted[:, 4:])


CONVOLUTION = "a = Conv <pads = [1, 1, 1, 1]> (d, w)\n"
TRANSPOSED = "a = ConvTranspose <pads = [1, 1, 1, 1]> (d, v)\n"
JOINED = {
    "a factor": CONVOLUTION + "e = Mul (a, c)",
    "a summand and a factor": CONVOLUTION + "f = Add (a, c)\n e = Mul (f, c)",
    "normalization": CONVOLUTION + "e = BatchNormalization (a, o, o, o, o)",
    "normalization of a transposed convolution": TRANSPOSED + "e = BatchNormalization (a, o, o, o, o)",
    "a bias": "a = MatMul (d, m) e = Add (o, a)",
}
APART = {
    "a factor that comes first": CONVOLUTION + "e = Mul (c, a)",
    "a factor of a transposed convolution": TRANSPOSED + "e = Mul (a, c)",
    "a product alone": "e = MatMul (d, m)",
}


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
@pytest.mark.parametrize("case", [*JOINED, *APART])
def test_what_the_runtime_joins_with_a_product(case: str, domain: str) -> None:
    """It rounds the weights of both together."""
    steps = (JOINED | APART)[case]
    rank = 2 if "MatMul" in steps else 4
    shape = [4, 8] if rank == 2 else [1, 8, 6, 6]
    rng = np.random.default_rng(0)

    def listed(values: np.ndarray) -> str:
        return "{" + ", ".join(f"{v:.5f}" for v in values.ravel()) + "}"

    uneven = rng.normal(size=(8, 8, 3, 3)) * np.exp(2 * rng.normal(size=(8, 1, 1, 1)))
    text = f"""
    <ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float{shape} x) => (float{shape} y)
    <float s = {{0.02}}, uint8 z = {{128}}, float t = {{0.5}}, float[8, 8, 3, 3] w = {listed(uneven)},
     float[8, 8, 3, 3] v = {listed(uneven.swapaxes(0, 1))}, float[8, 8] m = {listed(uneven[:, :, 0, 0].T)},
     float[8, 1, 1] c = {listed(rng.random(8) + 0.5)}, float[8] o = {listed(rng.random(8) + 0.5)}> {{
        q = {domain}QuantizeLinear (x, s, z)
        d = {domain}DequantizeLinear (q, s, z)
        {steps}
        p = {domain}QuantizeLinear (e, t, z)
        y = {domain}DequantizeLinear (p, t, z)
    }}"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    for name in "wvm":
        model.graph.initializers[name].meta[KEPT] = True
    x = {"x": rng.normal(size=shape).astype(np.float32)}
    (wanted,) = run_ort(model, x)
    rounds = case in JOINED
    assert np.array_equal(run_ort(model, x, optimize=True)[0], wanted) != rounds
    kept = with_floats_kept(model)
    assert ("Max" in {node.op_type for node in kept.graph}) == rounds
    # A step where a sum is half-way between two.
    (got,) = run_ort(kept, x, optimize=True)
    assert np.mean(got != wanted) < 0.01
    np.testing.assert_allclose(got, wanted, atol=0.51)


@needs_exact_products
@pytest.mark.parametrize("host", ["cpu", "ort"])
def test_what_quantization_leaves_in_floats_stays_in_floats(host: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    x = eqsat.input("x", (1, 8, 16, 16))
    uneven = weights(16, 16, 3, 3) * np.exp(2 * rng.normal(size=(16, 1, 1, 1))).astype(np.float32)
    first = op.Relu(op.Conv(x, weights(16, 8, 3, 3), weights(16), pads=[1] * 4))
    second = op.Relu(op.Conv(first, uneven, weights(16), pads=[1] * 4))
    model = eqsat.load(eqsat.graph(op.Conv(second, weights(8, 16, 3, 3), weights(8), pads=[1] * 4)))
    skipped = [node.outputs[0].name or "" for node in model.graph if node.op_type == "Conv"][1]
    samples = rng.normal(size=(4, 8, 16, 16)).astype(np.float32)
    path = tmp_path / "out.onnx"
    result = eqsat.quantize(model, {"x": samples}, skip=[skipped], host=host)
    result.save(path)
    given = {"x": samples[:1]}
    (wanted,) = result.run(given).values()
    (got,) = run_ort(onnx.load(path), given, optimize=True)
    assert np.mean(np.abs(got - wanted) > 1e-5) < 0.01


def test_weights_that_are_rounded_in_the_input_stay_as_they_are(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(text_of("e = Conv <pads = [1, 1, 1, 1]> (d, w, b)"))
    x = feed()
    (wanted,) = run_ort(model, x, optimize=True)
    path = tmp_path / "out.onnx"
    eqsat.optimize(model).save(path)
    assert "Max" not in {node.op_type for node in onnx.load(path).graph.node}
    np.testing.assert_array_equal(run_ort(onnx.load(path), x, optimize=True)[0], wanted)


def test_a_saved_file_can_be_loaded_and_saved(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(text_of(BODIES["weights of four bits"]))
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    eqsat.optimize(model).save(first)
    eqsat.save(eqsat.load(first), second)
    x = feed()
    np.testing.assert_array_equal(
        run_ort(onnx.load(second), x, optimize=True)[0], run_ort(onnx.load(first), x, optimize=True)[0]
    )
