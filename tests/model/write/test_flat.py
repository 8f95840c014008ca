"""Files without functions: the same values, names and placement, for tools that know no functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from benchmarks import graphs
from benchmarks.models import light
from eqsat.cli import main
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.write.flat import flat
from eqsat.partition.saved import read_regions
from eqsat.result import Result
from tests.fuzz.check import ort_outputs

CONVOLUTION = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 8, 128, 128] x, float[8, 8, 3, 3] w) => (float[1, 8, 128, 128] y)
    <float[8] b = {0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2}> {
    [first] c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    [second] r = Relu(c)
    [third] a = Add(r, x)
    [fourth] d = Conv <pads = [1, 1, 1, 1]> (a, w, b)
    [fifth] e = Relu(d)
    [sixth] f = Add(e, a)
    [seventh] y = Sigmoid(f)
}"""
BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (bool[1] q, float[8, 8] x) => (float[8, 8] y) {
    c = MatMul(x, x)
    z = If (q) <then_branch = t () => (float[8, 8] r) { s = Relu(c) r = Add(s, x) },
                else_branch = e () => (float[8, 8] p) { c2 = Tanh(c) p = Mul(c2, x) }>
    y = Relu(z)
}"""


def _saved(result: Result, path: Path, **options: Any) -> onnx.ModelProto:
    result.save(path, flat=True, **options)
    onnx.checker.check_model(path, full_check=True)
    proto = onnx.load(path)
    assert len(proto.functions) == 0
    assert all(not o.domain.startswith("eqsat") for o in proto.opset_import)
    return proto


def _same(result: Result, proto: onnx.ModelProto, tolerance: float = 0) -> None:
    arrays = complete_inputs(load(result.model), seed=1)
    want = ort_outputs(ir.to_proto(result.model).SerializeToString(), arrays)
    found = ort_outputs(proto.SerializeToString(), arrays)
    assert found.keys() == want.keys()
    for name, value in want.items():
        scale = max(float(np.abs(value).max()), 1e-3) if value.size else 1
        np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance * scale)


def _places(nodes: list[ir.Node]) -> list[tuple[str, str]]:
    return [(node.metadata_props["eqsat.target"], node.metadata_props["eqsat.region"]) for node in nodes]


def test_composites_and_regions_become_metadata(tmp_path: Path) -> None:
    result = eqsat.optimize(CONVOLUTION, targets=["dnnl"])
    assert result.summary.after.composites == 2
    proto = _saved(result, tmp_path / "m.onnx")
    _same(result, proto, 1e-6)
    nodes = [{p.key: p.value for p in node.metadata_props} | {"op": node.op_type} for node in proto.graph.node]
    nodes = [node for node in nodes if node["op"] != "Constant"]
    assert [node["op"] for node in nodes] == ["Conv", "Relu", "Add", "Conv", "Relu", "Add", "Sigmoid"]
    assert {node["eqsat.region"] for node in nodes} == {"dnnl_0"}
    assert {node["eqsat.target"] for node in nodes} == {"dnnl"}
    assert [node.get("eqsat.kernel") for node in nodes] == [*["third"] * 3, *["sixth"] * 3, None]
    assert {node.get("eqsat.composite") for node in nodes[:6]} == {"conv_eltwise_sum"}
    # One cost for each kernel, so that the sum is right; no C call of a kernel on a node that is a part of it.
    kernels = [float(node["eqsat.cost"]) for node in nodes if "eqsat.cost" in node]
    assert len(kernels) == 3
    assert sum(kernels) == pytest.approx(sum(_costs(result.model)))
    assert not any("eqsat.call" in node for node in nodes)
    # Tensors between kernels keep their names, and no name stands twice.
    outputs = [name for node in proto.graph.node for name in node.output]
    assert {"a", "f", "y"} <= set(outputs)
    assert len(set(outputs)) == len(outputs)
    assert len({node.name for node in proto.graph.node}) == len(proto.graph.node)


def _costs(model: ir.Model) -> list[float]:
    scopes = [model.graph, *model.functions.values()]
    return [float(node.metadata_props.get("eqsat.cost", "0")) for scope in scopes for node in scope]


@pytest.mark.slow
@pytest.mark.parametrize("targets", [["dnnl"], ["ethos_n"], ["dnnl", "ethos_n"]], ids=",".join)
@pytest.mark.parametrize(
    "model",
    [CONVOLUTION, BRANCHES, graphs.shared_sum(), graphs.residual_chain(3), graphs.ccompiler_example()],
    ids=["convolution", "branches", "sum", "residual", "example"],
)
def test_values_and_regions_stay(model: onnx.ModelProto | str, targets: list[str], tmp_path: Path) -> None:
    result = eqsat.optimize(model, targets=targets)
    proto = _saved(result, tmp_path / "m.onnx")
    _same(result, proto, 2e-6)
    loaded = load(tmp_path / "m.onnx")
    assert [(r.name, r.target) for r in read_regions(loaded)] == [
        (r.name, r.target) for r in read_regions(result.model)
    ]
    arrays = complete_inputs(loaded, seed=2)
    for name, value in result.run(arrays).items():
        np.testing.assert_allclose(eqsat.run(loaded, arrays)[name], value, rtol=1e-5, atol=1e-5)
    # It is optimized again as any other model.
    assert eqsat.optimize(loaded, targets=targets).cost == pytest.approx(result.cost, rel=1e-6)


def test_a_network_of_a_kind_that_repeats_composites(tmp_path: Path) -> None:
    result = eqsat.optimize(light("squeezenet"), targets=["dnnl"], verify=False)
    proto = _saved(result, tmp_path / "m.onnx")
    _same(result, proto, 1e-5)
    kernels = {p.value for node in proto.graph.node for p in node.metadata_props if p.key == "eqsat.kernel"}
    assert len(kernels) == result.summary.after.composites > 5


def test_with_an_older_opset_and_weights_beside_it(tmp_path: Path) -> None:
    result = eqsat.optimize(CONVOLUTION, targets=["dnnl"])
    proto = _saved(result, tmp_path / "m.onnx", opset=13, external_data=True)
    assert [o.version for o in proto.opset_import if o.domain == ""] == [13]
    _same(result, proto, 1e-6)


def test_operators_of_eqsat_and_of_the_user_are_replaced_by_their_bodies(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text("operator acme.Twice(x: floats) = x + x\n", "utf-8")
    text = """<ir_version: 10, opset_import: ["": 21, "acme": 1]>
    g (float[4] x) => (float[4] y) { t = acme.Twice(x) y = Tanh(t) }"""
    result = eqsat.optimize(text, declarations=[tmp_path / "own.rules"])
    proto = _saved(result, tmp_path / "m.onnx")
    assert {node.domain for node in proto.graph.node} == {""}
    x = np.array([-2, -0.1, 0, 3], np.float32)
    np.testing.assert_allclose(ort_outputs(proto.SerializeToString(), {"x": x})["y"], np.tanh(2 * x), rtol=1e-6)


def test_the_model_in_memory_is_not_changed(tmp_path: Path) -> None:
    result = eqsat.optimize(CONVOLUTION, targets=["dnnl"])
    before = ir.to_proto(result.model).SerializeToString(deterministic=True)
    contents = set()
    for name in ("a.onnx", "b.onnx"):
        result.save(tmp_path / name, flat=True)
        contents.add((tmp_path / name).read_bytes())
    assert len(contents) == 1
    assert ir.to_proto(result.model).SerializeToString(deterministic=True) == before
    again = flat(flat(result.model))
    assert [n.op_type for n in again.graph] == [n.op_type for n in flat(result.model).graph]


def test_as_c(tmp_path: Path) -> None:
    result = eqsat.optimize(CONVOLUTION, targets=["dnnl"])
    result.save(tmp_path / "m.onnx", flat=True)
    arrays = complete_inputs(load(result.model), seed=1)
    found = eqsat.run(tmp_path / "m.onnx", arrays, backend="c")
    np.testing.assert_allclose(found["y"], result.run(arrays)["y"], rtol=1e-4, atol=1e-5)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(CONVOLUTION).SerializeToString())
    out = tmp_path / "out.onnx"
    assert main(["optimize", str(tmp_path / "m.onnx"), "-t", "dnnl", "--flat", "-q", "-o", str(out)]) == 0
    assert len(onnx.load(out).functions) == 0
    assert main(["compare", str(tmp_path / "m.onnx"), str(out)]) == 0
