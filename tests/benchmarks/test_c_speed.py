"""The benchmark of generated C: what it reports, on a model that takes no time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import onnx
import onnx.parser
import pytest

pytest.importorskip("threadpoolctl")

from benchmarks import c_speed

TEXT = """<ir_version: 10, opset_import: ["": 21]> small (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu(x) }"""


def test_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    model, figures = tmp_path / "small.onnx", tmp_path / "figures.json"
    onnx.save(onnx.parser.parse_model(TEXT), model)
    assert c_speed.main(["--models", str(model), "--repeat", "3", "--json", str(figures)]) == 0
    content = json.loads(figures.read_text("utf-8"))
    (row,) = content["models"]
    assert (row["model"], row["type"], row["difference"]) == ("small", "float32", 0)
    assert content["summary"]["float32"] == {"geometric mean": pytest.approx(row["ratio"]), "worst": row["ratio"]}
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["model", "type", "onnxruntime", "c", "ratio", "difference", "build"]
    assert lines[2].split()[:2] == ["small", "float32"]


def test_geometric_mean():
    assert math.isclose(c_speed.geometric_mean([0.5, 2.0, 8.0]), 2.0)
