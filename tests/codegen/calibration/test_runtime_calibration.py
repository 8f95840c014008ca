"""Numbers of a runtime's host from measured kernels of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.codegen.calibration.measure_runtime import calibrate_runtime, calibrated_runtime, is_runtime, measure_kernels
from eqsat.codegen.calibration.runtime_kernels import kernels_of
from eqsat.model.load import load
from eqsat.targets.find_targets import load_host, read_target_file
from eqsat.targets.kernel_cost import priced
from eqsat.targets.numbers import numerals, substituted

HOST = load_host("ort")
FILE = Path(HOST.place.file)
TEXT = FILE.read_text("utf-8")


def model() -> object:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x = eqsat.input("x", (1, 32, 64))
    y = x + op.Gelu(op.MatMul(x, weights(64, 64)))
    return eqsat.graph([op.LayerNormalization(y, weights(64), weights(64)), op.Reshape(op.Relu(y), np.array([64, 32]))])


def test_each_kernel_of_the_model_and_each_fused_one_once() -> None:
    names = sorted(kernel.name for kernel in kernels_of(load(model()), HOST))
    assert names == [
        "Add",
        "Gelu",
        "LayerNormalization",
        "MatMul",
        "Relu",
        "Sum",
        "com.microsoft.SkipLayerNormalization",
    ]


def test_a_kernel_alone_is_measured() -> None:
    kernels = kernels_of(load(model()), HOST)
    found = measure_kernels(kernels, 0.01)
    assert len(found) >= len(kernels) - 2  # the smallest are within the error of the clock
    assert all(0 < seconds < 0.1 for _, seconds in found)


def test_numbers_are_found_again() -> None:
    """On a machine that differs from the file in some numbers, these follow from the times of the kernels."""
    true = {"product_rate": 2.0, "skip_normalized": 0.25, "start": 3.0}
    values = {n.place: n.value * true.get(n.name, 1.0) for n in numerals(TEXT, str(FILE), "ort") if n.is_let}
    kernels = [k for rows in (16, 64, 256) for k in kernels_of(load(_layer(rows)), HOST)]
    measured = [(k, priced(substituted(k.cost, values), k.env, k.name)) for k in kernels]
    found = calibrated_runtime(HOST, TEXT, measured)
    assert found.after < 1.05 < found.before
    changes = {n.name: value / n.value for n, value in found.changes.items()}
    for name, factor in true.items():
        assert changes[name] == pytest.approx(factor, rel=0.15)
    assert found.text.count("\n") == TEXT.count("\n")


def _layer(rows: int) -> object:
    x = eqsat.input("x", (1, rows, 128))
    w = np.ones((128, 128), np.float32)
    y = op.LayerNormalization(op.MatMul(x, w) + x, np.ones(128, np.float32))
    return eqsat.graph([y, op.Relu(op.MatMul(y, w))])


@pytest.mark.slow
def test_free_sizes_get_typical_values(tmp_path: Path) -> None:
    x = eqsat.input("x", ("batch", "n", 8))
    seen: list[tuple[str, int, int]] = []
    found = calibrate_runtime(
        "ort", seconds=0.001, on=eqsat.graph(op.Exp(op.Relu(x))), progress=lambda *event: seen.append(event)
    )
    assert seen[-1][0] == "fitting" and found.measured
    path = tmp_path / "mine.target"
    path.write_text(found.text, "utf-8")
    assert read_target_file(path)[0].name == "ort"


def test_which_hosts_are_runtimes() -> None:
    assert {name: is_runtime(load_host(name)) for name in ("c", "cpu", "ort")} == {
        "c": False,
        "cpu": False,
        "ort": True,
    }


@pytest.mark.slow
def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    eqsat.save(model(), "m.onnx")
    assert main(["targets", "calibrate", "ort", "--on", "m.onnx", "--quick", "-o", "mine.target"]) == 0
    out = capsys.readouterr().out
    assert "kernels measured; half of them are predicted within a factor of" in out and "product_rate" in out
    assert main(["optimize", "m.onnx", "--host", "mine.target", "-o", "o.onnx", "-q"]) == 0
    assert main(["targets", "calibrate", "c", "--on", "m.onnx"]) == 1
    assert "a host that is a runtime is required with --on" in capsys.readouterr().err
