"""Models in float16: they are valid, and what the table has to say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import c_half
from benchmarks.half_models import half
from benchmarks.peer import session

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4, 6, 6] x, int64 n) => (float[1, 3, 12, 12] y, float[m] r)
<float[4] scales = {1.0, 1.0, 2.0, 2.0}, float[3, 4, 1, 1] w = {WEIGHTS}, float start = {0.0}, float step = {1.0}> {
    c = Conv(x, w) y = Resize<mode = "linear">(c, , scales) end = Cast<to = 1>(n) r = Range(start, end, step) }"""


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT.replace("WEIGHTS", ", ".join(["0.5", "1e20", "-1e-12", "0.0"] * 3)))


def test_half_models_are_valid() -> None:
    made = half(model())
    onnx.checker.check_model(made, full_check=True)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    np.testing.assert_array_equal(weights["w"].ravel()[:4], np.array([0.5, 65504, -1e-7, 0], np.float16))
    y, r = session(made).run(None, {"x": np.zeros((1, 4, 6, 6), np.float16), "n": np.array(3)})
    assert (np.asarray(y).dtype, np.asarray(r).tolist()) == (np.float16, [0, 1, 2])


@pytest.mark.slow
def test_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = "g (float[5, 40] x) => (float[5, 40] y) {a = Softmax(x) y = Mul(a, x)}"
    text = f'<ir_version: 8, opset_import: ["": 17]> {graph}'
    path = tmp_path / "small.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    assert c_half.main([str(path), "--repeat", "1"]) == 0
    assert "geometric mean" in capsys.readouterr().out
