"""Numbers that are not limits, seeds or tolerances: one message, in Python and on the command line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import EqsatError, ModelError

_TEXT = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("time_limit", v) for v in (math.nan, math.inf, -math.inf, -1, 0, "5", None, True)),
        *(("iterations", v) for v in (-1, 2.5, math.nan)),
        *(("enodes", v) for v in (0, -1, math.nan)),
        *(("seed", v) for v in (-1, 1.5, "a")),
        ("objective", "cheapest"),
        ("numerics", "foo"),
    ],
)
def test_optimize(name: str, value: Any) -> None:
    with pytest.raises(EqsatError, match="required"):
        eqsat.optimize(_TEXT, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [*((n, v) for n in ("rtol", "atol") for v in (math.nan, math.inf, -1.0)), ("seed", -1)],
)
def test_compare(name: str, value: Any) -> None:
    with pytest.raises(EqsatError, match="required"):
        eqsat.compare(_TEXT, _TEXT, **{name: value})


@pytest.mark.parametrize(
    "arguments",
    [
        *(["optimize", "m.onnx", "-o", "o.onnx", f"--time-limit={v}"] for v in ("nan", "inf", "-1", "0", "1e999", "x")),
        *(["compare", "m.onnx", "m.onnx", f"--rtol={v}"] for v in ("nan", "inf", "-1")),
        *(["quantize", "m.onnx", "-c", "c.npz", "-o", "o.onnx", f"--percentile={v}"] for v in ("nan", "inf", "0")),
        ["optimize", "m.onnx", "-o", "o.onnx", "--iterations=-1"],
        ["optimize", "m.onnx", "-o", "o.onnx", "--enodes=0"],
    ],
)
def test_command_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(_TEXT), "m.onnx")
    Path("c.npz").write_bytes(b"")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "Invalid value" in said
    assert "internal error" not in said
    assert not Path("o.onnx").exists()


def test_scan_with_a_batch_is_refused() -> None:
    text = """<ir_version: 4, opset_import: ["": 8]>
    g (float[1,2] a, float[1,3,2] s) => (float[1,2] b, float[1,3,2] z) {
        b, z = Scan<num_scan_inputs=1, body=c (float[2] p, float[2] e) => (float[2] q, float[2] r) {
            q = Add(p, e) r = Mul(p, e) }>( , a, s) }"""
    model = onnx.parser.parse_model(text)
    with pytest.raises(ModelError, match="Scan of opset 9 or newer"):
        eqsat.load(model)
