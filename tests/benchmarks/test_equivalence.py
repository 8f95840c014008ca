"""The table of proven results, on a small model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from benchmarks import equivalence
from eqsat import op


@pytest.mark.slow
def test_own_results_are_proven(tmp_path: Path) -> None:
    x = eqsat.input("x", ("batch", 4))
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    eqsat.save(eqsat.graph(op.Relu(op.Relu(op.MatMul(x, w)))), tmp_path / "small.onnx")
    rows = equivalence.rows_of(tmp_path / "small.onnx", "", 20.0, own=True)
    assert [row["optimizer"] for row in rows] == ["eqsat", "eqsat dnnl", "eqsat cpu", "eqsat c"]
    assert all(row["verdict"] in ("exact", "lsb", "real") and row["rules"] > 0 for row in rows), rows
    shares = equivalence.shares(rows)
    assert [(row["models"], row["proven"], row["different"]) for row in shares] == [(1, 1, 0)] * 4


def test_another_model_is_not_proven(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> small (float[2] x) => (float[2] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text.replace("Relu", "Abs")), str(tmp_path / "other.onnx"))
    row = equivalence.compared(onnx.parser.parse_model(text), tmp_path / "other.onnx", 20.0)
    assert row["verdict"] == "different" and "y" in row["apart"]
