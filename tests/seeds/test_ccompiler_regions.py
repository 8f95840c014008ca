"""A post on cutting a graph into regions: ccompiler computes + - *, the host keeps the divisions.

The document annotates what ccompiler supports, cuts it out with ``PartitionGraph`` and gets three functions:
``multiply``, ``add; subtract`` and ``add``. Its first example is the same with DNNL's own annotator.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from benchmarks.baseline import relay
from benchmarks.baseline.expr import from_model
from benchmarks.baseline.tables import tables
from eqsat.model.load import load
from eqsat.partition.saved import inline, read_regions
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel
from tests.seeds.helpers import check_values, function, listing, operators


def graph(size: int = 10) -> ir.Model:
    """The document's graph: six inputs, five operators of ccompiler and two divisions."""
    names = ("x", "w0", "w1", "w2", "w3", "w4")
    x, w0, w1, w2, w3, w4 = (eqsat.input(name, (size, size)) for name in names)
    quotient = (x * w0) / ((x + w1) - w2)
    return eqsat.graph((quotient + w3) / w4)


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_three_regions_and_the_divisions_on_the_host(size: int) -> None:
    model = graph(size)
    result = eqsat.optimize(model, targets="ccompiler")
    assert sorted(r.nodes for r in result.regions if r.target == "ccompiler") == [("Add",), ("Add", "Sub"), ("Mul",)]
    assert [k for r in result.regions if r.target == "cpu" for k in r.nodes] == ["Div", "Div"]
    assert (result.summary.after.regions, result.summary.after.host_operators) == (3, 2)
    assert result.stop_reason == "optimal"
    check_values(model, result, rtol=2e-5)


def test_the_functions_of_the_document() -> None:
    model = graph()
    result = eqsat.optimize(model, targets="ccompiler")
    assert operators(result.model.graph) == ["ccompiler", "ccompiler", "Div", "ccompiler", "Div"]
    assert sorted(listing(result.model.graph)) == [
        "add_1 = ccompiler_2(div, w3)",
        "div = Div(mul, sub)",
        "mul = ccompiler_1(x, w0)",
        "output = Div(add_1, w4)",
        "sub = ccompiler_0(x, w1, w2)",
    ]
    assert listing(function(result.model, "ccompiler_0")) == ["add = Add(x, w1)", "sub = Sub(add, w2)"]
    assert listing(function(result.model, "ccompiler_1")) == ["mul = Mul(x, w0)"]
    assert listing(function(result.model, "ccompiler_2")) == ["add_1 = Add(div, w3)"]
    # What `Compiler="ccompiler"` and `global_symbol` were.
    for region in read_regions(result.model):
        if region.function is not None:
            assert region.function.metadata_props["eqsat.target"] == region.target == "ccompiler"
            assert region.function.metadata_props["eqsat.region"] == region.function.name == region.name
    assert [n.metadata_props["eqsat.target"] for n in result.model.graph if n.op_type == "Div"] == ["cpu", "cpu"]


def test_the_file_says_the_same_to_everybody(tmp_path) -> None:
    model, path = graph(), tmp_path / "out.onnx"
    eqsat.optimize(model, targets="ccompiler").save(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    loaded = load(path)
    found = [(r.target, [n.op_type for n in r.nodes]) for r in read_regions(loaded)]
    assert sorted(nodes for target, nodes in found if target == "ccompiler") == [["Add"], ["Add", "Sub"], ["Mul"]]
    assert sorted(operators(inline(loaded).graph)) == sorted(operators(model.graph))
    assert eqsat.compare(model, path).agrees


def test_as_many_regions_as_relay_merges_and_fewer_than_it_annotates() -> None:
    costs = CostModel(load_targets("ccompiler"))
    model = load(graph())
    merged = relay.partition(from_model(model), tables(costs), merge=True)
    annotated = relay.partition(from_model(model), tables(costs), merge=False)
    assert (len(merged.regions), len(annotated.regions)) == (3, 4)
    assert eqsat.optimize(model, targets="ccompiler").summary.after.regions == 3


def test_the_reasons_why_the_divisions_stay() -> None:
    rows = eqsat.optimize(graph(), targets="ccompiler").summary.host_operators
    assert [(row.op, row.refusals[0].reason) for row in rows] == [("Div", "operator not supported by ccompiler")] * 2


def test_what_ccompiler_refuses_stays_on_the_host() -> None:
    # Its loops have no broadcasting and no doubles.
    x, row = eqsat.input("x", (10, 10)), eqsat.input("row", (1, 10))
    wide = eqsat.input("wide", (10, 10), "float64")
    model = eqsat.graph({"a": x + row, "b": wide * wide})
    result = eqsat.optimize(model, targets="ccompiler", default_rules=False)
    assert result.summary.after.regions == 0
    reasons = {row.op: row.refusals[0].reason for row in result.summary.host_operators}
    assert "no broadcasting" in reasons["Add"] and "over float" in reasons["Mul"]
    check_values(model, result)


def test_dnnl_takes_what_it_supports() -> None:
    """``AnnotateTarget(["dnnl"])``: an operator that it lacks cuts the graph."""
    rng = np.random.default_rng(0)
    x = eqsat.input("x", (8, 64))
    w = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2)]
    op = eqsat.op
    model = eqsat.graph(op.Relu(op.MatMul(op.Atan(op.Tanh(op.MatMul(x, w[0]))), w[1])))
    result = eqsat.optimize(model, targets=["dnnl -dispatch=0 -link.latency=0 -launch=1e-7"])
    assert [r.target for r in result.regions] == ["dnnl", "cpu", "dnnl"]
    assert result.regions[1].nodes == ("Atan",)
    check_values(model, result, rtol=1e-4)
