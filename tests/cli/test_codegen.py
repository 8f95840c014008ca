"""``codegen`` and ``run --backend c`` on the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from eqsat.cli import main
from eqsat.codegen.compiler import find_compiler

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 8] x, float[N, 8] y) => (float[N, 8] z)
{
    s = Add(x, y)
    d = Sub(x, y)
    e = Softmax(s)
    p = MatMul(e, w)
    z = Mul(p, d)
}
""".replace("=> (float[N, 8] z)", "=> (float[N, 8] z) <float[8, 8] w = {%s}>" % ", ".join(["0.5"] * 64))  # noqa: UP031

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "net.onnx")
    rng = np.random.default_rng(0)
    np.savez("xy.npz", **{n: rng.standard_normal((3, 8)).astype(np.float32) for n in "xy"})


def test_writes_a_program(capsys: Capture) -> None:
    assert main(["codegen", "net.onnx", "-o", "out", "--dim", "N=3", "--input", "xy.npz", "--name", "net"]) == 0
    shown = capsys.readouterr().out
    assert "wrote     out" in shown and "arena" in shown
    sources = ["net.c", "net_weights.c", "net_example.c", "main.c"]
    subprocess.run([*find_compiler(), *sources, "-std=c11", "-lm", "-o", "check"], cwd="out", check=True)
    assert subprocess.run(["./check"], cwd="out", check=False).returncode == 0


def test_memory_map(capsys: Capture) -> None:
    assert main(["codegen", "net.onnx", "-o", "out", "--dim", "N=3", "--memory-map"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["offset", "bytes", "kernels", "tensor"]
    assert any(line.endswith(" s, e") for line in lines), "the softmax is computed in place"


def test_json(capsys: Capture) -> None:
    assert main(["codegen", "net.onnx", "-o", "out", "--dim", "N=3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [a["name"] for a in shown["inputs"]] == ["x", "y"] and shown["outputs"][0]["shape"] == [3, 8]
    assert shown["arena"] >= shown["live_bound"] > 0 and shown["weights"] >= 8 * 8 * 4
    assert {k["operators"].split()[0] for k in shown["kernels"]} >= {"Softmax", "MatMul"}
    assert shown["libraries"] == {} and shown["quantized_in_floats"] == 0 and shown["selection"]["kernels"] == {}
    assert Path("out/model.c").exists()


def test_quiet(capsys: Capture) -> None:
    assert main(["codegen", "net.onnx", "-o", "out", "--dim", "N=3", "-q", "--weights", "blob", "--isa", "avx2"]) == 0
    assert capsys.readouterr() == ("", "")
    assert "avx512" not in Path("out/model.c").read_text("utf-8")
    assert Path("out/model_weights.bin").exists()


def test_sizes_must_be_known(capsys: Capture) -> None:
    assert main(["codegen", "net.onnx", "-o", "out"]) == 1
    message = capsys.readouterr().err
    assert "required for each symbolic dimension; got `N` without one" in message and "--dim N=1..4@1" in message
    assert not Path("out").exists()


def test_wrong_usage(capsys: Capture) -> None:
    assert main(["codegen", "net.onnx"]) == 2
    assert main(["codegen", "net.onnx", "-o", "out", "--weights", "text"]) == 2
    assert main(["codegen", "net.onnx", "-o", "out", "--dim", "N=3", "--name", "1"]) == 1
    assert main(["codegen", "none.onnx", "-o", "out"]) == 1


def test_run_as_c(capsys: Capture) -> None:
    assert main(["run", "net.onnx", "-i", "xy.npz", "-o", "numpy.npz", "-q"]) == 0
    assert main(["run", "net.onnx", "-i", "xy.npz", "-o", "c.npz", "-q", "--backend", "c"]) == 0
    np.testing.assert_allclose(np.load("c.npz")["z"], np.load("numpy.npz")["z"], rtol=1e-5, atol=1e-6)


def test_run_without_a_compiler(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main(["run", "net.onnx", "-i", "xy.npz", "--backend", "c"]) == 1
    message = capsys.readouterr().err
    assert "a C compiler is required" in message and "numpy" in message
