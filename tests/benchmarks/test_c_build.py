"""The benchmark of building generated C: what it reports, on a model that takes no time."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from benchmarks import c_build

TEXT = """<ir_version: 10, opset_import: ["": 21]> small (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu(x) }"""


@pytest.mark.slow
def test_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model, figures = tmp_path / "small.onnx", tmp_path / "figures.json"
    onnx.save(onnx.parser.parse_model(TEXT), model)
    assert c_build.main(["--models", str(model), "--weights", "default", "blob", "--json", str(figures)]) == 0
    rows = json.loads(figures.read_text("utf-8"))["models"]
    assert [(row["model"], row["weights"]) for row in rows] == [("small", "default"), ("small", "blob")]
    for row in rows:
        assert row["make"] == pytest.approx(row["generate"] + row["compile"] + row["compile weights"])
        assert row["compile"] > 0 and row["peak"] > 0 and row["compiler's peak"] > 0
    assert rows[0]["compile weights"] > rows[1]["compile weights"] == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["model", "weights"]
