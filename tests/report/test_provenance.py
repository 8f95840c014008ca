"""A report names what it was made from: hashes of files, versions, the command line; no date unless it is given."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.report.html import to_html
from eqsat.rules.location import rules_dir

RULE = "rule twice : exact\n    Relu(Relu(Relu(x)))  =>  Relu(x)\n"
TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { a = Relu (x) y = Relu (a) }"""


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _model(path: Path) -> Path:
    eqsat.save(eqsat.graph(op.Relu(op.MatMul(eqsat.input("x", (2, 8)), np.ones((8, 8), np.float32)))), path)
    return path


@pytest.mark.slow
def test_files_have_their_hashes(tmp_path: Path) -> None:
    model, rules = _model(tmp_path / "m.onnx"), tmp_path / "own.rules"
    rules.write_text(RULE, "utf-8")
    made = eqsat.optimize(model, ["dnnl"], rules=[rules], verify=False).summary.made
    assert made is not None
    files = {(f.kind, f.name): f for f in made.files}
    assert files["model", "m.onnx"].sha256 == _sha256(model)
    assert files["model", "m.onnx"].bytes == model.stat().st_size
    assert files["rules", "own.rules"].sha256 == _sha256(rules)
    dnnl = files["target", "rules/targets/dnnl.target"]
    assert dnnl.sha256 == _sha256(rules_dir() / "targets" / "dnnl.target")
    assert ("rules", "rules/fusion.rules") in files
    assert made.versions["eqsat"] == eqsat.__version__
    assert {"Python", "egglog", "numpy"} <= set(made.versions)
    assert made.command == ""
    # A folder of the machine is nobody's business.
    assert str(tmp_path) not in to_html(eqsat.optimize(model, verify=False).summary)


def test_weights_beside_the_model_are_hashed(tmp_path: Path) -> None:
    model = eqsat.graph(op.MatMul(eqsat.input("x", (2, 64)), np.ones((64, 128), np.float32)))
    eqsat.save(model, tmp_path / "m.onnx", external_data="w.bin")
    made = eqsat.optimize(tmp_path / "m.onnx", verify=False).summary.made
    assert made is not None
    assert [(f.kind, f.name, f.sha256) for f in made.files[:2]] == [
        ("model", "m.onnx", _sha256(tmp_path / "m.onnx")),
        ("weights", "w.bin", _sha256(tmp_path / "w.bin")),
    ]


def test_models_that_are_no_files() -> None:
    def first(source: object) -> tuple[str, int | None, str]:
        made = eqsat.optimize(source, verify=False).summary.made  # pyright: ignore[reportArgumentType]
        assert made is not None
        return made.files[0].name, made.files[0].bytes, made.files[0].sha256

    data = TEXT.encode()
    assert first(TEXT) == ("ONNX text", len(data), hashlib.sha256(data).hexdigest())
    model = eqsat.graph(op.Relu(eqsat.input("x", (2,))))
    data = ir.to_proto(model).SerializeToString()
    assert first(data)[1:] == (len(data), hashlib.sha256(data).hexdigest())
    assert first(model) == (model.graph.name, None, "")
    assert first(ir.to_proto(model)) == (model.graph.name, None, "")


def test_the_command_line_and_the_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(_model(tmp_path / "my model.onnx"))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert main(["optimize", model, "--json", "--no-verify"]) == 0
    made = json.loads(capsys.readouterr().out)["made"]
    assert made["command"] == f"eqsat optimize '{model}' --json --no-verify"
    assert made["date"] == ""
    for epoch, date in (("86400", "1970-01-02T00:00:00+00:00"), ("soon", ""), ("9" * 30, "")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        made_then = eqsat.optimize(model, verify=False).summary.made
        assert made_then is not None
        assert made_then.date == date


def test_a_page_has_the_date_of_its_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    model = str(_model(tmp_path / "model.onnx"))
    page = tmp_path / "page.html"
    before = datetime.now(UTC).replace(microsecond=0)
    eqsat.optimize(model, verify=False).report(page)
    (date,) = re.findall(r"· (\d{4}-\d\d-\d\dT[\d:]+\+00:00)</p>", page.read_text("utf-8"))
    assert before <= datetime.fromisoformat(date) <= datetime.now(UTC)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    eqsat.optimize(model, verify=False).report(page)
    assert "1970-01-02T00:00:00+00:00" in page.read_text("utf-8")
