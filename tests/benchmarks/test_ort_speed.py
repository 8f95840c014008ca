"""The comparison of optimizers in ONNX Runtime, on a small model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import eqsat
from benchmarks import ort_speed
from eqsat import op


@pytest.mark.slow
def test_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = eqsat.input("x", ("batch", 3, 8, 8))
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    eqsat.save(eqsat.graph(op.Relu(op.Conv(x, w))), tmp_path / "small.onnx")
    out = tmp_path / "out.json"
    given = [
        str(tmp_path),
        "--threads",
        "1",
        "--seconds",
        "0.01",
        "--python",
        str(tmp_path / "none"),
        "--json",
        str(out),
    ]
    assert ort_speed.main(given) == 0
    said = capsys.readouterr()
    assert "onnxslim is left out" in said.err and "onnxsim is left out" in said.err
    assert "small: 1 thread, " in said.err
    (row,) = json.loads(out.read_text("utf-8"))
    assert row["model"] == "small" and row["onnxruntime"] > 0 and row["eqsat"] > 0 and row["error"] < 1e-5
    assert "geometric mean" in said.out


def test_means() -> None:
    rows = [{"threads": 1, "eqsat": 2.0, "onnxruntime": 1.0}, {"threads": 1, "eqsat": 0.5}, {"problem": "none"}]
    assert ort_speed.means(rows) == [
        {"model": "geometric mean", "threads": 1, "onnxruntime": 1.0, "eqsat": 1.0},
    ]
