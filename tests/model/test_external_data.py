"""Weights in a file beside the model: asked for by name, aligned, written together with the model, in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import ModelError
from eqsat.model import save as saving
from eqsat.model.load import load
from eqsat.model.save import ALIGNMENT, save
from tests.model.running import random_inputs, run_ort

ROOT = Path(__file__).parents[2]
F = np.float32


def _model(layers: int = 3, size: int = 80) -> ir.Model:
    rng = np.random.default_rng(0)
    x = eqsat.input("x", (2, size))
    for _ in range(layers):
        x = eqsat.op.Relu(x @ rng.standard_normal((size, size)).astype(F))
    return eqsat.graph({"y": x + rng.standard_normal(size).astype(F)})


def _entries(path: Path) -> list[dict[str, str]]:
    proto = onnx.load(path, load_external_data=False)
    return [{e.key: e.value for e in t.external_data} for t in proto.graph.initializer if t.external_data]


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def _same(path: Path, model: ir.Model) -> None:
    inputs = random_inputs(model)
    onnx.checker.check_model(path, full_check=True)
    for found, want in zip(run_ort(onnx.load(path), inputs), run_ort(model, inputs), strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(("asked", "name"), [(True, "m.onnx.data"), ("weights.bin", "weights.bin")])
def test_weights_lie_beside_the_model(tmp_path: Path, asked: bool | str, name: str) -> None:
    model = _model()
    save(model, tmp_path / "m.onnx", external_data=asked)
    assert _names(tmp_path) == sorted(["m.onnx", name])
    entries = _entries(tmp_path / "m.onnx")
    assert len(entries) == 3
    for entry in entries:
        assert entry["location"] == name
        assert int(entry["offset"]) % ALIGNMENT == 0
        assert int(entry["length"]) == 80 * 80 * 4
    _same(tmp_path / "m.onnx", model)


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    contents = set()
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        save(_model(), folder / "m.onnx", external_data=True)
        contents.add(b"".join((folder / name).read_bytes() for name in _names(folder)))
    assert len(contents) == 1


def test_external_weights_are_streamed_to_external_weights(tmp_path: Path) -> None:
    save(_model(), tmp_path / "m.onnx", external_data="w.bin")
    loaded = load(tmp_path / "m.onnx")
    result = eqsat.optimize(loaded, default_rules=False)
    weights = [v.const_value for v in result.model.graph.initializers.values()]
    # Nothing has read them into memory.
    assert sum(isinstance(w, ir.ExternalTensor) for w in weights) == 3
    result.save(tmp_path / "out.onnx", external_data=True)
    assert _names(tmp_path) == ["m.onnx", "out.onnx", "out.onnx.data", "w.bin"]
    _same(tmp_path / "out.onnx", _model())


def test_no_external_data_where_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(_model(), tmp_path / "m.onnx", external_data=False, external_from=100)
    assert _names(tmp_path) == ["m.onnx"]
    monkeypatch.setattr(saving, "MOST_INSIDE", 10_000)
    with pytest.raises(ModelError, match=r"weights of at most 10,000 bytes are required in one file; got 77,120"):
        save(_model(), tmp_path / "n.onnx", external_data=False)
    assert _names(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("name", ["", ".", "..", "../w", "a/w", "/tmp/w", "a\\w", "C:w", "m.onnx", "w\n", "w\0"])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ModelError, match="the name of a file beside the model is required for external data"):
        save(_model(), tmp_path / "in" / "m.onnx", external_data=name)
    assert _names(tmp_path) == ["in"]
    assert _names(tmp_path / "in") == []


def test_the_weights_of_the_model_that_was_loaded_stay(tmp_path: Path) -> None:
    save(_model(), tmp_path / "m.onnx", external_data="w.bin")
    before = (tmp_path / "w.bin").read_bytes()
    with pytest.raises(ModelError, match="from which the model's weights were read"):
        save(load(tmp_path / "m.onnx"), tmp_path / "out.onnx", external_data="w.bin")
    assert (tmp_path / "w.bin").read_bytes() == before
    assert _names(tmp_path) == ["m.onnx", "w.bin"]


def test_a_failure_leaves_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(_model(), tmp_path / "m.onnx", external_data=True)
    before = [(tmp_path / name).read_bytes() for name in _names(tmp_path)]
    plain = Path.replace

    def fail_at_the_model(self: Path, target: Path) -> Path:
        if Path(target) == tmp_path / "m.onnx" and "kept" not in self.parts:
            raise OSError(28, "No space left on device")
        return plain(self, target)

    monkeypatch.setattr(Path, "replace", fail_at_the_model)
    with pytest.raises(ModelError, match="No space left on device"):
        save(_model(4), tmp_path / "m.onnx", external_data=True)
    monkeypatch.undo()
    assert [(tmp_path / name).read_bytes() for name in _names(tmp_path)] == before


def test_a_pipe_takes_one_file_only(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match="one file is written there, not several"):
        save(_model(), "/dev/stdout", external_data=True)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "written"),
    [(["--external-data"], "out.onnx.data"), (["--external-data", "w.bin"], "w.bin"), ([], "")],
)
def test_the_command(tmp_path: Path, arguments: list[str], written: str) -> None:
    model = _model()
    save(model, tmp_path / "m.onnx")
    assert main(["optimize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out.onnx"), "-q", *arguments]) == 0
    assert _names(tmp_path) == sorted(["m.onnx", "out.onnx", *([written] if written else [])])
    _same(tmp_path / "out.onnx", model)


def test_weights_without_a_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(_model(), tmp_path / "m.onnx")
    assert main(["optimize", str(tmp_path / "m.onnx"), "--external-data"]) == 2
    out, err = capsys.readouterr()
    assert "'--external-data': a file for the model is required, with --output" in err and not out


def test_with_an_older_opset(tmp_path: Path) -> None:
    save(_model(), tmp_path / "m.onnx", external_data=True, opset=13)
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version <= 13
    _same(tmp_path / "m.onnx", _model())


@pytest.mark.heavy
def test_three_gigabytes_in_little_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.weights", "--layers", "48", "--folder", str(tmp_path), "--json", "-"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["weights"] == 48 * 64 << 20
    assert found["peak"] <= 1.3 * found["weights"] + (300 << 20)
    assert found["equal"]
