"""Inputs that are bound to values: the branch that they choose remains, and the file loads where the input loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import ModelError
from eqsat.model.load import load
from tests.model.running import run_ort

# The branch for other rates does not fit the size 1 that the caller binds.
TEXT = """<ir_version: 8, opset_import: ["": 16]>
g (float[N, 8] x, int64 sr, string[1] s) => (float[N, K] y) <int64 rate = {16000}, int64[2] four = {4, 4}> {
    c = Equal(sr, rate)
    y = If (c) <
        then_branch = a () => (float[N, 8] p) { n = Neg(x) p = Neg(n) },
        else_branch = b () => (float[4, 4] q) { q = Reshape(x, four) }
    >
    unused = Identity(s)
}"""
X = np.arange(8, dtype=np.float32).reshape(1, 8)


def test_the_branch_that_a_value_chooses_remains(tmp_path: Path):
    model = onnx.parser.parse_model(TEXT)
    result = eqsat.optimize(model, dims={"N": 1}, values={"sr": 16000, "s": ["a"]})
    result.save(tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx")
    assert [i.name for i in saved.graph.input] == ["x"]
    assert not any(n.op_type == "If" for n in saved.graph.node)
    assert np.array_equal(run_ort(saved, {"x": X})[0], X)
    assert np.array_equal(result.run({"x": X})["y"], X)


@pytest.mark.parametrize("value", [2, 2.0, np.int32(2), np.array(2.0), True])
def test_values_take_the_type_of_the_input(value: Any):
    text = '<ir_version: 8, opset_import: ["": 16]> g (float[2] x, float k) => (float[2] y) { y = Mul(x, k) }'
    model = load(text, values={"k": value})
    assert eqsat.run(model, {"x": np.ones(2, np.float32)})["y"].tolist() == [float(value)] * 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"srr": 1}, "did you mean `sr`"),
        ({"sr": 1.5}, "of type INT64"),
        ({"sr": [1, 2]}, "of shape"),
        ({"sr": "many"}, "numbers are required"),
        ({"sr": [[1], [2, 3]]}, "a number, a list or an array"),
        ({"s": 3}, "strings are required"),
        ({"x": np.zeros((1, 9), np.float32)}, "of shape"),
        ({"sr": 10**30}, "numbers are required"),
    ],
)
def test_values_that_do_not_fit(values: dict[str, Any], message: str):
    with pytest.raises(ModelError, match=message):
        load(TEXT, values=values)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "in.onnx")
    given = ["--dim", "N=1", "--set", "sr=16000", "--set", 's=["a"]']
    assert main(["optimize", str(tmp_path / "in.onnx"), *given, "-o", str(tmp_path / "out.onnx")]) == 0
    assert main(["compare", str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx"), *given]) == 0
    assert main(["optimize", str(tmp_path / "in.onnx"), "--set", "sr"]) != 0
    assert main(["optimize", str(tmp_path / "in.onnx"), "--set", "sr=1", "--set", "sr=2"]) != 0
    assert "Traceback" not in capsys.readouterr().err
