"""The table over single operators: settings are what kernels compute, equal ones are one, and rows are right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import c_operators
from benchmarks.odd_settings import odd
from benchmarks.operator_settings import Setting, feeds_of, keep, kept, of_models, with_weights
from benchmarks.own_settings import own
from benchmarks.peer import session
from benchmarks.quantized_settings import quantized
from benchmarks.typed_settings import typed
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from eqsat.targets.find_targets import load_host

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[4, 6, 10] x, int64[3] i, float[10, 24] w, float[24] b, float[24, 10] v) => (float[4, 10, 3] y) {
    a = MatMul(x, w) c = Add(a, b) d = Relu(c) e = MatMul(d, v) f = Add(e, x)
    s = Softmax<axis=-1>(f) t = Transpose<perm=[0, 2, 1]>(s) y = Gather<axis=2>(t, i) }"""


def _file(folder: Path) -> Path:
    model = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in {"w": (10, 24), "b": (24,), "v": (24, 10)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.random(shape, np.float32), name))
    path = folder / "small.onnx"
    onnx.save(model, path)
    return path


def _settings(folder: Path) -> list[Setting]:
    found, problems = of_models([_file(folder)], load_host("c"), 0.0)
    assert not problems
    return found


def test_the_settings_of_a_model_are_its_kernels(tmp_path: Path):
    found = {s.what: s for s in _settings(tmp_path)}
    assert {"MatMul + Add + Relu", "MatMul + Add", "Softmax"} <= set(found)
    assert sum(s.shares["small"] for s in found.values()) == pytest.approx(1)
    assert found["MatMul + Add + Relu"].shapes == "4x6x10 [10x24]"
    for setting in found.values():
        model = with_weights(setting.model)
        feeds = feeds_of(model)
        wanted = session(model).run(None, feeds)
        for a, b in zip(wanted, CModel(load(model)).run(feeds).values(), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_equal_settings_are_one(tmp_path: Path):
    first = _file(tmp_path)
    (tmp_path / "again.onnx").write_bytes(first.read_bytes())
    once, _ = of_models([first], load_host("c"), 0.0)
    twice, _ = of_models([first, tmp_path / "again.onnx"], load_host("c"), 0.0)
    assert [s.what for s in twice] == [s.what for s in once]
    assert all(set(s.shares) == {"small", "again"} for s in twice)


def test_settings_below_the_share_are_left_out(tmp_path: Path):
    found, _ = of_models([_file(tmp_path)], load_host("c"), 0.3)
    assert found
    assert all(s.shares["small"] >= 0.3 for s in found)


def test_a_model_that_cannot_be_read_is_named(tmp_path: Path):
    path = tmp_path / "bad.onnx"
    onnx.save(onnx.parser.parse_model(TEXT.replace("Softmax", "Unknown").replace("axis=-1", "axes=-1")), path)
    found, problems = of_models([path], load_host("c"), 0.0)
    assert not found
    assert problems[0].startswith("bad: ")


def test_kept_settings_are_the_same(tmp_path: Path):
    settings = _settings(tmp_path)
    keep(settings, tmp_path / "kept")
    again = list(kept(sorted((tmp_path / "kept").iterdir())))
    assert [(s.what, s.shares, s.counts, s.shapes) for s in again] == [
        (s.what, s.shares, s.counts, s.shapes) for s in settings
    ]


@pytest.mark.slow
def test_own_settings_are_models():
    settings = [*own(), *typed(), *odd(), *quantized()]
    assert len({s.what for s in settings}) > 50
    for setting in settings:
        loaded = load(setting.model)
        assert all(y.shape is not None and y.dtype is not None for y in loaded.graph.outputs), setting.shapes


@pytest.mark.slow
def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "rows.json"
    arguments = [str(_file(tmp_path)), "--share", "0", "--only", "Softmax", "CumSum", "--repeat", "1"]
    assert c_operators.main([*arguments, "--json", str(path)]) == 0
    rows = json.loads(path.read_text("utf-8"))["rows"]
    assert {r["what"] for r in rows} == {"Softmax", "CumSum"}
    assert all(r["C"] > 0 and r["ORT"] > 0 and r["difference"] < 1e-3 for r in rows)  # float16 is among them
    shown = capsys.readouterr().out
    assert "geometric mean" in shown
    assert "softmax of rows" in shown
