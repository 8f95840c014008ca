"""Operators of other domains: what is said of one that nothing defines, and that a declaration gives it a meaning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.errors import CodegenError, ExecutionError
from tests.model.running import run_ort

# As Brevitas exports it for QONNX.
MODEL = """
<ir_version: 9, opset_import: ["" : 17, "qonnx.custom_op.general" : 1]>
g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y)
<float scale = {0.25}, float zero = {ZERO}, float bits = {BITS}> {
    a = Relu (x)
    b = Sub (x, a)
    y = qonnx.custom_op.general.Quant
        <signed = SIGNED, narrow = NARROW, rounding_mode = "ROUND"> (b, scale, zero, bits)
}
"""
NAME = "qonnx.custom_op.general.Quant"
PAGE = Path(__file__).parents[1] / "docs" / "write-a-rule.md"


def model_of(bits: int = 4, zero: int = 0, signed: int = 1, narrow: int = 0) -> onnx.ModelProto:
    values = {"BITS": bits, "ZERO": zero, "SIGNED": signed, "NARROW": narrow}
    text = MODEL
    for name, value in values.items():
        text = text.replace(name, str(value))
    return onnx.parser.parse_model(text)


def test_an_undefined_operator_is_named_where_it_would_be_executed() -> None:
    result = eqsat.optimize(model_of())
    assert "opaque" in str(result.summary.verification)
    with pytest.raises(ExecutionError) as caught:
        result.run({"x": np.zeros((2, 3, 4, 4), np.float32)})
    assert "an operator that ONNX, eqsat or a declaration defines is required" in str(caught.value)
    assert f"`operator {NAME}(...) = ...`" in caught.value.hint


def test_c_does_not_refer_to_an_executor_that_knows_no_more(tmp_path: Path) -> None:
    with pytest.raises(CodegenError) as caught:
        eqsat.optimize(model_of()).codegen(tmp_path / "c")
    assert f"{NAME}, which neither ONNX nor a declaration defines" in str(caught.value)
    assert "numpy" not in caught.value.hint and f"`operator {NAME}(...) = ...`" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "zero", "signed", "narrow"), [(4, 0, 1, 0), (3, 0, 1, 1), (2, 3, 0, 0), (3, 1, 0, 1)])
def test_the_declaration_of_the_page_is_what_qonnx_computes(
    bits: int, zero: int, signed: int, narrow: int, tmp_path: Path
) -> None:
    text = PAGE.read_text(encoding="utf-8").split('Path("qonnx.rules").write_text("""')[1].split('"""')[0]
    rules = tmp_path / "qonnx.rules"
    rules.write_text(text, encoding="utf-8")
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4), scale=3).astype(np.float32)
    least = (-(2 ** (bits - 1)) + narrow) if signed else 0
    most = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    wanted = (np.clip(np.round(np.minimum(x, 0) / 0.25 + zero), least, most) - zero) * np.float32(0.25)
    result = eqsat.optimize(model_of(bits, zero, signed, narrow), rules=[rules])
    assert result.summary.verification is not None and result.summary.verification.agrees
    np.testing.assert_array_equal(result.run({"x": x})["y"], wanted)
    np.testing.assert_array_equal(result.run({"x": x}, backend="c")["y"], wanted)
    result.save(tmp_path / "out.onnx")
    np.testing.assert_array_equal(run_ort(onnx.load(tmp_path / "out.onnx"), {"x": x})[0], wanted)
