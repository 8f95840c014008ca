"""Rules within 1 lsb where the integers themselves are not compared: in what is made of them, a unit is a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import eqsat
from eqsat import op
from eqsat.errors import VerificationError
from eqsat.report.summary import Verification

ROUNDED = """rule rounded : {kind}
    Abs(DequantizeLinear(QuantizeLinear(x, s, z), s, z))
        =>  Sqrt(moved * moved)
    let moved = DequantizeLinear(QuantizeLinear(x + s * {steps}, s, z), s, z)
"""


@pytest.mark.parametrize("batch", [4, "N"])
@pytest.mark.parametrize(
    ("kind", "steps", "holds"),
    [("within 1 lsb", 0.4, True), ("within 1 lsb", 1.0, True), ("within 1 lsb", 1.6, False), ("real", 0.4, False)],
)
def test_a_unit_inside_of_a_piece_is_a_step_of_its_result(
    kind: str, steps: float, holds: bool, batch: int | str, tmp_path: Path
) -> None:
    path = tmp_path / "some.rules"
    path.write_text(ROUNDED.format(kind=kind, steps=steps), "utf-8")
    x = eqsat.input("x", (batch, 50), "float32")
    scale, zero = np.float32(0.05), np.int8(3)
    y = op.Abs(op.DequantizeLinear(op.QuantizeLinear(x, scale, zero), scale, zero))

    def optimized() -> eqsat.Result:
        return eqsat.optimize(eqsat.graph(y), rules=[path], default_rules=False, trust=True, objective="worst")

    if holds:
        verification = optimized().summary.verification
        assert verification is not None and verification.agrees
    else:
        with pytest.raises(VerificationError, match="rounded"):
            optimized()


def test_a_quantized_network_whose_bias_is_float_becomes_c() -> None:
    """Its biases are rounded to integers, and the integers of the result lie in another order."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,3,32,32] x) => (float[1,16,16,16] y)
        <float s = {0.03}, float t = {0.02}, int8 z = {0}, float r = {0.004}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) w = DequantizeLinear(u, r, z)
        c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(d, w, b) a = Relu(c)
        e = QuantizeLinear(a, t, z) f = DequantizeLinear(e, t, z) v = DequantizeLinear(k, r, z)
        h = Conv<group = 16, pads = [1, 1, 1, 1]>(f, v, b) i = Relu(h)
        j = QuantizeLinear(i, t, z) l = DequantizeLinear(j, t, z) m = Add(f, l)
        n = QuantizeLinear(m, s, z) y = DequantizeLinear(n, s, z) }"""
    )
    weights = {
        "u": rng.integers(-127, 128, (16, 3, 3, 3)).astype(np.int8),
        "k": rng.integers(-127, 128, (16, 1, 3, 3)).astype(np.int8),
        "b": rng.uniform(-0.2, 0.2, 16).astype(np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    result = eqsat.optimize(model, host="c")
    assert result.summary.verification is not None and result.summary.verification.agrees
    assert any(kernel.op == "c.integer_convolution" for kernel in result.summary.kernels)


def quantized_chain(length: int) -> ir.Model:
    """Layers of a quantized network with a free batch size, in which roundings add up."""
    rng = np.random.default_rng(0)
    y = eqsat.input("x", ("N", 64), "float32")
    scale, zero = np.float32(0.05), np.int8(0)
    for _ in range(length):
        weights = (rng.standard_normal((64, 64)) / 8).astype(np.float32)
        y = op.Relu(op.DequantizeLinear(op.QuantizeLinear(y, scale, zero), scale, zero) @ weights)
    return eqsat.graph(y)


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.02, False)])
def test_a_fault_between_layers_that_round_is_found_at_free_sizes(factor: float, holds: bool, tmp_path: Path) -> None:
    """Outputs differ at each size in both cases; a wrong layer must not pass for the rounding of those before it."""
    path = tmp_path / "some.rules"
    text = (
        f"rule scaled : within 1 lsb\n    Relu(x @ w)  =>  Relu(x @ (w * 0.3)) * {factor / 0.3}\n    where const(w)\n"
    )
    path.write_text(text, "utf-8")

    def verified() -> object:
        result = eqsat.optimize(
            quantized_chain(6), rules=[path], default_rules=False, trust=True, objective="worst", dims={"N": (1, None)}
        )
        assert "scaled" in {row.name for row in result.summary.rules if row.applied}
        return result.summary.verification

    if holds:
        seen = verified()
        assert isinstance(seen, Verification) and seen.agrees and seen.executed
    else:
        with pytest.raises(VerificationError, match="scaled"):
            verified()
