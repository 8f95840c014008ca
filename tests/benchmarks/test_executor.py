"""The executor's benchmark: what it reports, on a model that takes no time."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import onnx
import onnx.parser
import pytest

pytest.importorskip("threadpoolctl")

from benchmarks import executor, timing

TEXT = """<ir_version: 10, opset_import: ["": 21]> small (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu(x) }"""


def test_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model, figures = tmp_path / "small.onnx", tmp_path / "figures.json"
    onnx.save(onnx.parser.parse_model(TEXT), model)
    assert executor.main(["--models", str(model), "--repeat", "3", "--json", str(figures)]) == 0
    (row,) = json.loads(figures.read_text("utf-8"))["models"]
    assert row["model"] == "small"
    assert row["ratio"] == row["eqsat"] / row["onnxruntime"]
    assert row["speedup"] == row["reference"] / row["eqsat"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["model", "onnxruntime", "eqsat", "ratio", "reference", "speedup"]
    assert lines[2].split()[0] == "small"


def test_times_are_medians(monkeypatch: pytest.MonkeyPatch):
    ticks = iter([0.0, 1.0, 1.0, 4.0, 4.0, 5.0, 5.0, 15.0, 15.0, 17.0, 17.0, 19.0])
    monkeypatch.setattr(executor.time, "perf_counter", lambda: next(ticks))
    assert executor.seconds({"a": list, "b": list}, 3) == {"a": 1.0, "b": 3.0}


def test_short_runs_are_repeated(monkeypatch: pytest.MonkeyPatch):
    """Four calls of 0.3 s make a sample of at least 1 s; what is reported is one call."""
    now = 0.0
    called = []

    def run():
        nonlocal now
        now += 0.3
        called.append(now)

    monkeypatch.setattr(timing, "time", SimpleNamespace(process_time=lambda: 2 * now, perf_counter=lambda: now))
    (times,) = timing.times_in_turn([run], 2, least=1.0)
    assert times.cpu == pytest.approx([0.6, 0.6])
    first, second = times.wall
    assert first == pytest.approx(0.3) and second == pytest.approx(0.3)
    assert len(called) == 2 + 2 * 4
