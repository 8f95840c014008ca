"""The benchmark of the cost model: what it reports; and, on a quiet machine, how good the model is."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

pytest.importorskip("threadpoolctl")

from benchmarks import cost_model
from benchmarks.cost_model import Sample, spread, summary

TEXT = """<ir_version: 10, opset_import: ["": 21]> small (float[1,3,64,64] x) => (float[1,3,8,8] y, float[1,3,1,1] z) {
    p = MaxPool<kernel_shape = [8, 8], strides = [8, 8]>(x) y = Exp(p) z = GlobalAveragePool(y) }"""


def test_tables_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    model, figures = tmp_path / "small.onnx", tmp_path / "figures.json"
    onnx.save(onnx.parser.parse_model(TEXT), model)
    arguments = ["--models", str(model), "--seconds", "0.01", "--kernels", "--json", str(figures)]
    assert cost_model.main(arguments) == 0
    content = json.loads(figures.read_text("utf-8"), parse_constant=_refuse)
    kernels = content["kernels"]
    assert len(kernels) >= 2 and all(k["model"] == "small" for k in kernels)
    assert all(k["ratio"] == pytest.approx(k["predicted"] / k["measured"]) for k in kernels)
    assert sum(row["kernels"] for row in content["families"]) == content["all"]["kernels"] == len(kernels)
    (row,) = content["models"]
    assert row["milliseconds"] == pytest.approx(1e3 * sum(k["measured"] for k in kernels))
    out = capsys.readouterr().out
    assert f"{len(kernels)} kernels: Spearman" in out and "GlobalAveragePool" in out


def _refuse(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def test_another_host_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    model, host, figures = tmp_path / "small.onnx", tmp_path / "h.target", tmp_path / "figures.json"
    onnx.save(onnx.parser.parse_model(TEXT), model)
    host.write_text(
        "host h\n    peak float32 = 1\n    bandwidth = 1, launch = 7\n    supports *\n    family * cost 7\n", "utf-8"
    )
    arguments = ["--models", str(model), "--seconds", "0.01", "--target", str(host), "--json", str(figures)]
    assert cost_model.main(arguments) == 0
    assert {k["predicted"] for k in json.loads(figures.read_text("utf-8"))["kernels"]} == {7}
    with pytest.raises(SystemExit):
        cost_model.main(["--target", "nothing"])
    assert "by name or the path" in capsys.readouterr().err


def test_summary_by_hand():
    found = [
        Sample("m", n, n, "f", (2,), t, p) for n, t, p in (("a", 1e-3, 2e-3), ("b", 2e-3, 1e-3), ("c", 4e-3, 4e-3))
    ]
    row = summary("m", found)
    assert row["spearman"] == pytest.approx(0.5) and row["median ratio"] == 1
    assert row["too cheap"].startswith("0.50 b 2 in m") and row["too dear"].startswith("2.00 a")
    assert row["milliseconds"] == pytest.approx(7) and row["predicted"] == pytest.approx(7)
    assert spread(found) == pytest.approx(2) and summary("m", found[:1])["spearman"] is None


@pytest.mark.heavy
def test_order_of_kernels_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Spearman's correlation over all kernels of some networks; of times, but only in their order."""
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    figures = tmp_path / "figures.json"
    arguments = ["--models", "squeezenet", "shufflenet", "inception_v1", "--seconds", "2", "--json", str(figures)]
    assert cost_model.main(arguments) == 0
    assert json.loads(figures.read_text("utf-8"))["all"]["spearman"] >= 0.9
