"""The benchmark of generated C: what it reports, on models that take no time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import onnx
import onnx.parser
import pytest

pytest.importorskip("threadpoolctl")

from benchmarks import c_speed

SMALL = """<ir_version: 10, opset_import: ["": 21]> small (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu(x) }"""
FREE = """<ir_version: 10, opset_import: ["": 21]> free (float[N,4] x, int64[N] i) => (float[N,4] y)
{ y = Gather <axis = 0> (x, i) }"""
BROKEN = """<ir_version: 10, opset_import: ["": 21]> broken (float[2] x) => (float[3] y) { y = Relu(x) }"""


def saved(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.slow
def test_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model, figures = saved(SMALL, tmp_path / "small.onnx"), tmp_path / "figures.json"
    arguments = [str(model), "--threads", "1", "2", "--repeat", "3", "--json", str(figures)]
    assert c_speed.main(arguments) == 0
    content = json.loads(figures.read_text("utf-8"))
    one, two = content["models"]
    assert (one["model"], one["type"], one["threads"], one["difference"]) == ("small", "float32", 1, 0)
    assert (two["model"], two["threads"], two["same"]) == ("small", 2, True)
    first = content["summary"]["1"]["float32"]
    assert first == {"geometric mean": pytest.approx(one["ratio"]), "worst": one["ratio"]} | {
        key: value for key, value in first.items() if key == "to openvino"
    }
    assert content["summary"]["2"]["float32"]["speed-up"] == pytest.approx(two["speed-up"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["model", "type", "threads", "onnxruntime", "c"]
    assert lines[2].split()[:2] == ["small", "float32"]


@pytest.mark.slow
def test_a_folder_with_notes_and_a_model_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved(FREE, tmp_path / "free.onnx")
    (tmp_path / "free.json").write_text(json.dumps({"dims": {"N": 5}, "feeds": {"i": {"lo": 0, "hi": 5}}}), "utf-8")
    saved(BROKEN, tmp_path / "broken.onnx")
    figures = tmp_path / "figures.json"
    assert c_speed.main([str(tmp_path), "--repeat", "1", "--json", str(figures)]) == 1
    broken, free = json.loads(figures.read_text("utf-8"))["models"]
    assert free["model"] == "free" and free["difference"] == 0
    assert "problem" in broken
    assert f"broken: {broken['problem']}" in capsys.readouterr().out


def test_geometric_mean():
    assert math.isclose(c_speed.geometric_mean([0.5, 2.0, 8.0]), 2.0)
