"""A saved file gives the values of its input also where ONNX Runtime merges a Pad with zeros into a MaxPool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.model.write.unmerged_pads import with_pads_unmerged
from tests.model.running import run_ort

MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[1, 16, 16, 32] x) => (float[1, P, Q, 32] y)
<int64[8] widths = {0, 1, WIDTH, 0, 0, 0, 1, 0}, float[32, 32, 3, 3] w = {WEIGHTS}> {
    a = Pad (x, widths)
    b = Transpose <perm = [0, 3, 1, 2]> (a)
    c = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b)
    d = Conv <pads = [1, 1, 1, 1]> (c, w)
    e = Relu (d)
    y = Transpose <perm = [0, 2, 3, 1]> (e)
}
"""


@pytest.mark.parametrize("target", ["", "dnnl"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("width", [1, 2])
def test_zeros_around_negative_numbers_are_kept(width: int, flat: bool, target: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = ", ".join(f"{w:.3f}" for w in rng.normal(size=32 * 32 * 9))
    model = onnx.parser.parse_model(MODEL.replace("WIDTH", str(width)).replace("WEIGHTS", weights))
    feed = {"x": -np.abs(rng.normal(size=(1, 16, 16, 32))).astype(np.float32)}
    path = tmp_path / "out.onnx"
    eqsat.optimize(model, [target] if target else []).save(path, flat=flat)
    (wanted,) = run_ort(model, feed)
    np.testing.assert_allclose(run_ort(onnx.load(path), feed, optimize=True)[0], wanted, atol=1e-3)
    np.testing.assert_allclose(eqsat.run(path, feed)["y"], wanted, atol=1e-3)
    again = tmp_path / "again.onnx"
    eqsat.optimize(path, [target] if target else []).save(again, flat=flat)
    assert [n.op_type for n in onnx.load(again).graph.node] == [n.op_type for n in onnx.load(path).graph.node]


@pytest.mark.parametrize(
    ("pad", "is_changed"),
    [
        ("Pad (x, widths)", True),
        ('Pad <mode = "constant"> (x, widths, zero)', True),
        ("Pad (x, widths, low)", False),
        ('Pad <mode = "edge"> (x, widths)', False),
    ],
)
def test_only_zeros_are_kept_apart(pad: str, is_changed: bool) -> None:
    text = f"""
    <ir_version: 9, opset_import: ["" : 17]>
    g (float[1, 2, 6, 6] x) => (float[1, 2, P, Q] y)
    <int64[8] widths = {{0, 0, 1, 1, 0, 0, 1, 1}}, float zero = {{0}}, float low = {{-9}}> {{
        a = {pad}
        y = MaxPool <kernel_shape = [3, 3]> (a)
    }}
    """
    model = ir.from_proto(onnx.parser.parse_model(text))
    written = with_pads_unmerged(model)
    assert (written is not model) == is_changed
    feed = {"x": -np.abs(np.random.default_rng(0).normal(size=(1, 2, 6, 6))).astype(np.float32)}
    (wanted,) = run_ort(model, feed)
    np.testing.assert_array_equal(run_ort(written, feed, optimize=True)[0], wanted)


def test_calls_of_functions_are_followed() -> None:
    """A Pad in one function, and its MaxPool in another one."""
    text = """
    <ir_version: 9, opset_import: ["" : 17, "f" : 1]>
    g (float[1, 2, 6, 6] x) => (float[1, 2, P, Q] y) {
        a = f.outer (x)
        y = f.inner (a)
    }
    <domain: "f", opset_import: ["" : 17]>
    outer (x) => (y) {
        widths = Constant <value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}> ()
        y = Pad (x, widths)
    }
    <domain: "f", opset_import: ["" : 17]>
    inner (x) => (y) {
        y = MaxPool <kernel_shape = [3, 3]> (x)
    }
    """
    model = ir.from_proto(onnx.parser.parse_model(text))
    feed = {"x": -np.abs(np.random.default_rng(0).normal(size=(1, 2, 6, 6))).astype(np.float32)}
    (wanted,) = run_ort(model, feed)
    np.testing.assert_array_equal(run_ort(with_pads_unmerged(model), feed, optimize=True)[0], wanted)
