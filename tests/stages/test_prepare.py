"""``prepare``: rules of a target that are carried out on a model before anything else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.errors import TargetError

HOST = """host h
    prepare "before.rules"
    peak float32 = 1e9
    bandwidth = 1e9, launch = 1e-6
    supports Exp
        cost 1
    supports *
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "before.rules").write_text("rule dear : real\n    Relu(x)  =>  Exp(Log(Relu(x)))\n", "utf-8")
    (tmp_path / "h.target").write_text(HOST, "utf-8")
    return tmp_path / "h.target"


def test_wherever_the_left_side_occurs_and_without_a_choice(host: Path) -> None:
    x = eqsat.input("x", (2, 3))
    result = eqsat.optimize(eqsat.graph(op.Relu(op.Neg(op.Relu(x)))), host=host)
    names = [node.op_type for node in result.model.graph]
    assert names == ["Relu", "Log", "Exp", "Neg", "Relu", "Log", "Exp"]
    assert "dear" in {rule.name for rule in result.summary.rules if rule.applied}


def test_only_for_this_target(host: Path) -> None:
    x = eqsat.input("x", (2, 3))
    result = eqsat.optimize(eqsat.graph(op.Relu(x)))
    assert [node.op_type for node in result.model.graph] == ["Relu"]


def test_a_missing_file(host: Path) -> None:
    host.write_text(HOST.replace("before.rules", "none.rules"), "utf-8")
    with pytest.raises(TargetError, match=r"h.target:2:13: the path of a rule file is required.*`none.rules`"):
        eqsat.optimize(eqsat.graph(op.Relu(eqsat.input("x", (2, 3)))), host=host)


def test_values_stay(tmp_path: Path) -> None:
    x = eqsat.input("x", (3, 4))
    s, z = np.float32(0.1), np.int8(-5)
    model = eqsat.graph(op.DequantizeLinear(op.QuantizeLinear(x, s, z), s, z) * np.float32(2))
    result = eqsat.optimize(model, host="ort")
    feed = {"x": np.linspace(-30, 30, 12, dtype=np.float32).reshape(3, 4)}
    for found, wanted in zip(result.run(feed).values(), eqsat.run(model, feed).values(), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_constants_that_rules_compute_from_each_other() -> None:
    """Zero points moved by 128 are constants that lead to each other."""
    y = eqsat.input("x", (3, 4))
    for scale, zero in ((0.1, 0), (0.2, -128), (0.3, 0), (0.4, -128), (0.5, 127), (0.6, -1)):
        s, z = np.float32(scale), np.int8(zero)
        y = op.Neg(op.DequantizeLinear(op.QuantizeLinear(y, s, z), s, z))
    result = eqsat.optimize(eqsat.graph(y), host="ort", verify=False)
    types = {node.outputs[0].dtype for node in result.model.graph if node.op_type == "QuantizeLinear"}
    assert types == {ir.DataType.UINT8}
