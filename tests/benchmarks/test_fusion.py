"""Each attention and each norm that an exporter took apart is one operator again, with the values of the original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from benchmarks.fusion import GRAPHS, fused
from benchmarks.ort_speed import operands, session
from benchmarks.zoo import files, name_of, notes_of, read


@pytest.mark.slow
@pytest.mark.parametrize("host", ["cpu", "ort"])
@pytest.mark.parametrize("path", files([str(GRAPHS)]), ids=name_of)
def test_all_are_found(path: Path, host: str, tmp_path: Path) -> None:
    original, written = tmp_path / "original.onnx", tmp_path / "written.onnx"
    onnx.save(read(path), str(original))
    eqsat.optimize(original, host=host).save(written)
    has = notes_of(path)
    assert fused(written) == (has["attentions"], has["norms"])
    given = dict(operands(path))
    wanted, found = (session(file, 1).run(None, given) for file in (original, written))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * float(np.abs(a).max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    ["sdpa", *(pytest.param(name, marks=pytest.mark.slow) for name in ("eager", "module", "gqa_rope", "cross_cache"))],
)
def test_both_exporters_have_one_cost(network: str) -> None:
    costs = [
        eqsat.optimize(read(GRAPHS / f"{network}_{how}.onnx.xz"), targets=["dnnl"]).cost for how in ("ts", "dynamo")
    ]
    assert max(costs) <= 1.001 * min(costs)


def test_operators_inside_of_functions_count(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20, "local": 1]>
    g (float[2,8] x, float[8] s) => (float[2,8] y) { y = local.part(x, s) }
    <domain: "local", opset_import: ["": 20]> part (x, s) => (y) { y = LayerNormalization(x, s) }"""
    path = tmp_path / "functions.onnx"
    onnx.save(onnx.parser.parse_model(text), str(path))
    assert fused(path) == (0, 1)
