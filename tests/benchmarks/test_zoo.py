"""The table over exported models: graphs get weights, sizes stay free, and what goes wrong is in the row."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import zoo

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 8] x, int64[N] i, float[8, 4] w) => (float[N, 4] y) {
    a = MatMul(x, w) b = Gather<axis=0>(a, i) y = Relu(b) }"""


def _file(folder: Path) -> Path:
    model = onnx.parser.parse_model(TEXT)
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [8, 4], np.zeros(32, np.float32))
    weight.doc_string = "random 1.0 0.5 -1.0 2.0"
    model.graph.initializer.append(weight)
    path = folder / "small.onnx.xz"
    path.write_bytes(lzma.compress(model.SerializeToString()))
    notes = {"dims": {"N": 5}, "feeds": {"i": {"lo": 0, "hi": 1}}}
    (folder / "small.json").write_text(json.dumps(notes), encoding="utf-8")
    return path


def test_weights_are_drawn_as_noted(tmp_path: Path):
    path = _file(tmp_path)
    first, again = (onnx.numpy_helper.to_array(zoo.read(path).graph.initializer[0]) for _ in range(2))
    assert np.array_equal(first, again)
    assert first.min() >= -1
    assert first.max() <= 2
    assert first.std() > 0.2


def test_a_row_has_sizes_and_errors(tmp_path: Path):
    row = zoo.row_of(_file(tmp_path), "dnnl", 30.0, with_c=True)
    assert row["sizes"] == 4, row
    assert max(row["error"], row["numpy"], row["C"]) < 1e-6
    assert row["gap"] < 1e-6


def test_what_is_not_in_order_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = _file(tmp_path)
    assert "problem" not in zoo.row_of(path, "", 30.0, with_c=True)
    assert zoo.row_of(path, "", 30.0, with_c=False, gap=-1.0)["problem"] == "the gap is 0.0e+00 (optimal)"
    differs = zoo.row_of(path, "", 30.0, with_c=True, tolerance=-1.0)["problem"]
    assert [differs.count(what) for what in ("saved file", "executor", "generated C")] == [1, 1, 1]
    # Indices that no size allows: nothing is executed, so nothing is known to be right.
    (tmp_path / "small.json").write_text(json.dumps({"feeds": {"i": {"lo": 1000, "hi": 1001}}}), encoding="utf-8")
    row = zoo.row_of(path, "", 30.0, with_c=True)
    assert row["sizes"] == 0
    assert "at none of the sizes: " in row["problem"]
    assert "generated C: ONNX Runtime does not run the input" in row["problem"]


def test_the_table_names_what_goes_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert zoo.main([str(tmp_path), "--target", "", "--json", str(tmp_path / "zoo.json")]) == 1
    assert "broken: " in capsys.readouterr().out
    assert json.loads((tmp_path / "zoo.json").read_text("utf-8"))[0]["problem"]


def test_differences_count_by_output():
    a, b = np.array([1.0, -4.0]), np.array([1.0, -3.0])
    assert zoo.error_of([a, a], [a, b]) == 0.25
    assert zoo.error_of([a], [a[:1]]) == np.inf
    assert zoo.error_of([np.array([np.nan, np.inf])], [np.array([np.nan, np.inf])]) == 0
    for wrong in (np.nan, np.inf):
        assert zoo.error_of([np.array([1.0, 2.0])], [np.array([1.0, wrong])]) == np.inf
        assert zoo.error_of([np.array([1.0, wrong])], [np.array([1.0, 2.0])]) == np.inf
    assert zoo.error_of([np.array([np.inf])], [np.array([-np.inf])]) == np.inf
