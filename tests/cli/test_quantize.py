"""``quantize`` from end to end: a file in, a file within the budget out, one message for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.cli import main
from tests.quantization.networks import residual, samples
from tests.quantization.runtime import needs_exact_products, sqnr

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = residual()
    eqsat.save(model, "net.onnx")
    np.savez("samples.npz", x=samples(model, 6)["x"])


def error_of(path: str) -> float:
    def run(name: str) -> np.ndarray:
        session = onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"])
        return np.stack([np.asarray(session.run(None, {"x": x})[0]) for x in np.load("samples.npz")["x"]])

    return sqnr(run("net.onnx"), run(path))


@needs_exact_products
def test_writes_a_model_within_the_budget(capsys: Capture) -> None:
    arguments = ["quantize", "net.onnx", "-c", "samples.npz", "-b", "48dB", "-o", "q.onnx", "--report", "r.html"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.rstrip().endswith("saved     q.onnx")
    row = next(line.split() for line in out.splitlines() if line.strip().startswith("output "))
    assert row == ["output", "required", "predicted", "measured"]
    assert "48.0 dB" in out
    assert "integer   " in out
    onnx.checker.check_model("q.onnx", full_check=True)
    assert error_of("q.onnx") >= 48
    assert Path("r.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert "Quantization" in Path("r.html").read_text("utf-8")


def test_json_is_the_report(capsys: Capture) -> None:
    assert main(["quantize", "net.onnx", "-c", "samples.npz", "--budget", "output=40", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = report["quantization"]
    assert found["outputs"][0]["required"] == 40
    assert found["outputs"][0]["actual"] >= 40
    assert found["conversions"] == "disabled"
    assert found["samples"] == 6


@pytest.mark.slow
def test_modes_and_options(capsys: Capture) -> None:
    given = ["quantize", "net.onnx", "-c", "samples.npz", "-q", "-o", "q.onnx"]
    assert main([*given, "--simulate"]) == 0
    kinds = [n.op_type for n in onnx.load("q.onnx").graph.node]
    assert kinds.count("Conv") == 3
    assert kinds.count("DequantizeLinear") > 6
    assert main([*given, "--fully-integral", "-t", "ethos_n"]) == 0
    assert [n.op_type for n in onnx.load("q.onnx").graph.node] == ["prefix", "core", "suffix"]
    assert main([*given, "--conversions", "enabled", "--activation", "int8", "--method", "mse", "--per-tensor"]) == 0
    assert {f.name for f in onnx.load("q.onnx").functions} == {"prefix", "core", "suffix"}
    assert error_of("q.onnx") > 25
    assert main([*given, "--skip", "conv_1", "--samples", "3", "--symmetric"]) == 0
    assert "Conv" in [n.op_type for n in onnx.load("q.onnx").graph.node]
    assert main([*given, "--operators", "Conv, Relu"]) == 0
    assert "Gemm" in [n.op_type for n in onnx.load("q.onnx").graph.node]
    balanced, nearest = (_bytes([*given, *more]) for more in ([], ["--nearest"]))
    assert balanced == _bytes(given) and balanced != nearest
    assert capsys.readouterr() == ("", "")


def _bytes(arguments: list[str]) -> bytes:
    assert main(arguments) == 0
    return Path("q.onnx").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-c", "no.npz"], 1, "error: calibration data 'no.npz': a .npz or .npy file or a folder of them is required"),
        (["-c", "samples.npz", "-b", "quiet"], 1, "error: option budget: a number of dB above 0, such as 30"),
        (["-c", "samples.npz", "-b", "y=30"], 1, "error: option budget: the name of a float output is required"),
        (["-c", "samples.npz", "--skip", "con_1"], 1, "error: option skip: the name of a node"),
        (["-c", "samples.npz", "-t", "dnll"], 1, "error: "),
        (["-c", "samples.npz", "--fully-integral", "-b", "90"], 1, "an SQNR of 90 dB for 'output' is required"),
        (["-c", "samples.npz", "--conversions", "enabled", "--simulate"], 1, "error: option conversions: "),
        (["-c", "samples.npz", "--report", "r.pdf"], 1, "error: r.pdf: the name of a report that ends in"),
        (
            ["-c", "samples.npz", "--report", "no/r.html"],
            1,
            "error: no: a directory to write to is required; got no such",
        ),
        (["-c", "samples.npz", "-b", "30", "-b", "40"], 2, "several budgets are given as OUTPUT=DB each"),
        (["-c", "samples.npz", "-b", "a=30", "-b", "a=40"], 2, "output 'a' is given twice"),
        ([], 2, "Missing option '-c' / '--calibration'"),
        (["-c", "samples.npz", "--method", "best"], 2, "Invalid value for '--method'"),
    ],
)
def test_wrong_input_gives_one_message(arguments: list[str], code: int, message: str, capsys: Capture) -> None:
    assert main(["quantize", "net.onnx", *arguments, "-o", "q.onnx"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert not Path("q.onnx").exists()
