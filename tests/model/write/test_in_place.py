"""A saved file gives the values of its input also where ONNX Runtime's kernel is wrong in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat

MODEL = """
<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 1]>
g (float[N, 6] x) => (float[N, 12] y) {
    a = Concat <axis = 1> (x, x)
    b = ai.onnx.ml.Normalizer <norm = "NORM"> (a)
    y = Neg (b)
}
"""


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
@pytest.mark.parametrize("rows", [None, 3])
def test_signs_are_kept_through_a_normalizer(norm: str, rows: int | None, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL.replace("NORM", norm))
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    before = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    path = tmp_path / "out.onnx"
    eqsat.optimize(model, dims={} if rows is None else {"N": rows}).save(path)
    after = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    np.testing.assert_allclose(after, before, rtol=1e-6)
    assert eqsat.load(path).graph.outputs[0].shape is not None
