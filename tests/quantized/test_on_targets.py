"""Small quantized networks on accelerators: integers throughout, one cost for both files, ONNX Runtime's results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from eqsat.search import Search
from tests.quantization.runtime import needs_exact_products
from tests.quantized.checks import float_arithmetic, greatest_difference
from tests.quantized.networks import attention, gated, plain, quantized

ROOT = Path(__file__).parents[2]
NETWORKS = {"plain": plain, "gated": gated, "attention": attention}
NEAR = "-dispatch=0 -launch=1e-12 -link.latency=0 -link.bandwidth=1e18"
TARGETS = {
    "dnnl": "dnnl",
    "near dnnl": f"dnnl {NEAR}",
    "ethos_n and dnnl": "ethos_n, dnnl",
    "near ethos_n and dnnl": f"ethos_n {NEAR}, dnnl {NEAR}",
}


@needs_exact_products
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("network", NETWORKS)
def test_both_files(tmp_path: Path, network: str, target: str) -> None:
    costs, pieces = [], []
    for layout in (QuantFormat.QDQ, QuantFormat.QOperator):
        # Products of activations have signed weights, too.
        kind = QuantType.QInt8 if network == "attention" else QuantType.QUInt8
        model = quantized(tmp_path, NETWORKS[network](), layout, kind, per_channel=True)
        result = Search.of(model, TARGETS[target], time_limit=60).extract()
        assert result.stop_reason == "optimal"
        assert float_arithmetic(result) == []
        assert greatest_difference(model, result) <= 1.01
        costs.append(result.cost)
        pieces.append([region.target for region in result.regions])
    if (network, target) != ("gated", "near ethos_n and dnnl"):
        # The quantizer gives an average pool the scale of its input in one file and another scale in the other, and
        # this device has no pool that rescales.
        assert costs[0] == pytest.approx(costs[1], rel=1e-9)
    if target.startswith("near"):
        assert all(set(regions) - {"cpu"} for regions in pieces), "something is offloaded"


SCRIPT = """
import hashlib, sys
from pathlib import Path
import onnx_ir as ir
from onnxruntime.quantization import QuantFormat, QuantType
from eqsat.search import Search
from tests.quantized.networks import gated, plain, quantized

folder = Path(sys.argv[1])
for make in (plain, gated):
    for layout in (QuantFormat.QDQ, QuantFormat.QOperator):
        model = quantized(folder, make(), layout, QuantType.QUInt8, True)
        for targets in ((), "dnnl", "ethos_n, dnnl"):
            result = Search.of(model, targets, time_limit=60).extract()
            content = ir.to_proto(result.model).SerializeToString(deterministic=True)
            print(repr(result.cost), hashlib.sha256(content).hexdigest())
"""


@pytest.mark.slow
def test_ties_are_resolved_alike_in_each_process(tmp_path: Path) -> None:
    """A reshape and a flattening cost the same; which one is taken depends on nothing but the model."""

    def run(seed: str) -> str:
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SCRIPT, str(folder)]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True
        ).stdout

    first, second = run("1"), run("2")
    assert first.count("\n") == 12
    assert first == second


def test_functions_of_eqsat_load_without_their_room() -> None:
    script = """
import onnx, sys
from eqsat.model.load import load
model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21, "eqsat": 1]>
    g (int32[4] x) => (uint8[4] y) <float one = {1}, int32 zero = {0}> {
        r = eqsat.Requantize<axis=0, dtype=2>(x, one, zero, one, zero)
        y = eqsat.StopFusion(r)
    }''')
print([node.op_type for node in load(model).graph])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True).stdout
    assert found == "['Requantize', 'StopFusion']\n"
