"""``eqsat codegen`` says when a quantized model would be computed in floats, and that optimizing it helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from eqsat.cli import main


def quantized(count: int) -> onnx.ModelProto:
    """Products in the QDQ format, one after the other."""
    weights = ", ".join(map(str, np.random.default_rng(0).integers(-99, 99, 64)))
    steps = "".join(
        f"""
        f{k} = DequantizeLinear(q{k}, s, zero)
        w{k} = DequantizeLinear(w, s, none)
        p{k} = MatMul(f{k}, w{k})
        q{k + 1} = QuantizeLinear(p{k}, s, zero)"""
        for k in range(count)
    )
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g (float[4, 8] x) => (float[4, 8] y)
        <float s = {{0.05}}, uint8 zero = {{128}}, int8 none = {{0}}, int8[8, 8] w = {{{weights}}}> {{
        q0 = QuantizeLinear(x, s, zero){steps}
        y = DequantizeLinear(q{count}, s, zero)
        }}"""
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("count", "said"), [(1, "1 quantized operator is spelled"), (3, "3 quantized operators are")])
def test_a_model_that_was_not_optimized(count: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(quantized(count), "qdq.onnx")
    assert main(["codegen", "qdq.onnx", "-o", "out"]) == 0
    shown = capsys.readouterr().out
    assert said in shown
    assert "`eqsat optimize qdq.onnx -o FILE` first" in shown
    assert main(["codegen", "qdq.onnx", "-o", "out", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_an_optimized_model(capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(quantized(2), "qdq.onnx")
    assert main(["optimize", "qdq.onnx", "-o", "better.onnx"]) == 0
    capsys.readouterr()
    assert main(["codegen", "better.onnx", "-o", "out"]) == 0
    assert "hint" not in capsys.readouterr().out


def test_a_float_model(capsys: pytest.CaptureFixture[str]) -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[4, 4] x) => (float[4, 4] y) { y = MatMul(x, x) }'
    onnx.save(onnx.parser.parse_model(text), "float.onnx")
    assert main(["codegen", "float.onnx", "-o", "out"]) == 0
    assert "hint" not in capsys.readouterr().out
