"""Operators that a search does not look into: calls of functions which compute the same."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.model.load import load
from eqsat.partition.onnx_nodes import has_subgraphs
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline
from eqsat.partition.write_plan import to_model
from eqsat.schema.attributes import op_key, to_attrs
from eqsat.schema.metadata import REGION
from eqsat.schema.types import OpKey, type_of
from tests.partition.plans import random_feeds, run_ort
from tests.partition.random_plans import random_plan

DOMAIN = "eqsat.kiwi"


def hidden(model: ir.Model, opaque: dict[ir.Node, OpKey]) -> ir.Model:
    """The model for the search; what was given is not changed."""
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    result = inline(model, operators=False, opaque=opaque)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    return result


def called(model: ir.Model) -> set[OpKey]:
    return {op_key(node) for node in model.graph if node.op_identifier() in model.functions}


@pytest.mark.parametrize("seed", range(12))
def test_the_search_sees_one_call_of_each(seed: int) -> None:
    """Regions, composites and operators, in the main graph and in regions: chosen ones stay, and all others go."""
    plan, flat = random_plan(seed)
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    rng = random.Random(seed)
    opaque: dict[ir.Node, OpKey] = {}
    for node in model.graph:
        function = model.functions.get(node.op_identifier())
        if function is not None and REGION in function.metadata_props:
            if rng.random() < 0.5:
                opaque[node] = op_key(node)
                continue
            inside = [inner for inner in function if inner.op_type != "Constant"]
        else:
            inside = [node]
        for inner in inside:
            if rng.random() < 0.5 and not has_subgraphs(to_attrs(inner)):
                opaque[inner] = OpKey(DOMAIN, f"{inner.op_type}__{len(opaque)}")
    result = hidden(model, opaque)
    assert called(result) == set(opaque.values())
    feeds = random_feeds(flat, seed)
    for a, b in zip(run_ort(ir.to_proto(result), feeds), run_ort(flat, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    loaded = load(result)
    assert called(loaded) == set(opaque.values())
    assert all(type_of(v) is not None for node in loaded.graph for v in node.outputs if v.uses())


def test_absent_operands_and_further_results() -> None:
    text = f"""<ir_version: 10, opset_import: ["": 21, "{DOMAIN}": 1]>
    g (float[4, 6] x, float high) => (float[4, 6] y, int64[4, 2] places) {{
        c = Clip (x, , high)
        k = Constant <value = int64[1] {{2}}> ()
        most, places = TopK <axis = 1> (c, k)
        p, q = Split <axis = 1, num_outputs = 2> (c)
        y = Concat <axis = 1> (q, p)
    }}"""
    given = onnx.parser.parse_model(text)
    model = load(given)
    opaque = {node: OpKey(DOMAIN, f"{node.op_type}__{i}") for i, node in enumerate(model.graph)}
    result = hidden(model, opaque)
    assert [(op_key(node), len(node.inputs)) for node in result.graph] == [
        (op, sum(v is not None for v in node.inputs)) for node, op in opaque.items()
    ]
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    feeds = {"x": x, "high": np.array(0.5, np.float32)}
    for a, b in zip(run_ort(ir.to_proto(result), feeds), run_ort(given, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_attribute_belongs_to_the_function() -> None:
    """Two calls that differ in attributes alone are two operators for the search."""
    model = load(
        """<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y) {
            a = LeakyRelu <alpha = 0.25> (x)
            b = LeakyRelu <alpha = 0.5> (x)
            y = Add (a, b)
        }"""
    )
    first, second, _ = model.graph
    result = hidden(model, {first: OpKey(DOMAIN, "first"), second: OpKey(DOMAIN, "second")})
    assert [node.op_type for node in result.graph] == ["first", "second", "Add"]
    assert not any(node.attributes for node in result.graph)
    (y,) = run_ort(ir.to_proto(result), {"x": np.array([-4, -2, 0, 2], np.float32)})
    assert y.tolist() == [-3, -1.5, 0, 4]
