"""Every operator of ``com.microsoft``, and those of domains that nobody knows, stay in the model."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.errors import ModelError
from eqsat.schema import opset
from eqsat.schema.types import OpKey

MS = "com.microsoft"
_VALUES = {"INT": 2, "FLOAT": 1.0, "STRING": "x", "INTS": [1], "FLOATS": [1.0]}
_ORDER = ("FLOAT", "INT32", "UINT8", "INT8", "INT64")
RANK = 3


def surrounded(node: onnx.NodeProto, given: list[onnx.ValueInfoProto], domains: list[str]) -> onnx.ModelProto:
    """A node that nothing is known of, between operators that can be optimized."""
    around = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
        helper.make_node("Mul", ["x", "x"], ["z"]),
    ]
    floats = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xyz"]
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output]
    graph = helper.make_graph([*around, node], "g", [floats[0], *given], [*floats[1:], *results])
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def node_of(name: str) -> tuple[onnx.NodeProto, list[onnx.ValueInfoProto]]:
    """A node with all inputs that the schema requires, of unknown sizes."""
    op = OpKey(MS, name)
    schema = opset.schema(op)
    names, given = [], []
    single = onnx.defs.OpSchema.FormalParameterOption.Optional
    for i in range(max(schema.min_input, 1)):
        parameter = schema.inputs[min(i, len(schema.inputs) - 1)]
        if parameter.option == single and i >= schema.min_input:
            break
        if parameter.option == single:
            names.append("")
            continue
        allowed = {d.name for d in opset.input_dtypes(op, i)}
        kind = next((d for d in _ORDER if d in allowed), None) or sorted(allowed)[0]
        dims = [f"n{i}_{axis}" for axis in range(RANK)]
        names.append(f"i{i}")
        given.append(helper.make_tensor_value_info(f"i{i}", getattr(TensorProto, kind), dims))
    attrs = {n: _VALUES.get(a.type.name) for n, a in schema.attributes.items() if a.required}
    a, b = (helper.make_tensor_value_info(v, TensorProto.FLOAT, [1]) for v in "ab")
    graph = helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "body", [a], [b])
    attrs = {n: graph if v is None else v for n, v in attrs.items()}
    results = [f"o{i}" for i in range(max(1, schema.min_output))]
    return helper.make_node(name, names, results, domain=MS, **attrs), given


REFUSED = {
    "CDist": "not a permutation of 3 axes",
    "ExpandDims": "rank 3, not 0 or 1",
    "FusedGemm": "expected to have rank 2",
    "GatedDeltaNet": "initial_state is required",
    "MatMulBlockQuantizedFp4Weight": "B must have rank 2",
    "MatMulBlockQuantizedFp8Weight": "B must have rank 2",
    "NGramHashMapping": "must have rank 1",
    "PackedSparseAttentionIndexer": "policy_mode must be",
    "Pad": "rank 3, not 1",
    "PagedAttention": "requires a value cache",
    "QEmbedLayerNormalization": "needs block_size",
    "QGemm": "expected to have rank 2",
    "SparseAttentionIndexer": "policy_mode must be",
    "SparsePagedAttention": "query must have rank 2",
    "VarlenCausalConvWithState": "must have rank 2",
    "VarlenNGramHashMapping": "must have rank 1",
}
"""Operators that cannot have operands of rank 3, or not these attributes, and what the message says."""
SPARSE = ("SparseToDenseMatMul",)
"""Their operands are not tensors."""
NAMES = opset.operator_names(MS)


def check_kept(model: onnx.ModelProto, name: str) -> None:
    result = eqsat.optimize(model, verify=False)
    assert len([n for n in result.model.graph if (n.domain, n.op_type) == (MS, name)]) == 1
    assert [n.op_type for n in result.model.graph].count("Relu") == 1, "the rest is optimized"


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SPARSE])
def test_every_operator_is_kept(name: str) -> None:
    node, given = node_of(name)
    model = surrounded(node, given, [MS])
    if name not in REFUSED:
        check_kept(model, name)
        return
    with pytest.raises(ModelError) as caught:
        check_kept(model, name)
    assert REFUSED[name] in str(caught.value)
    assert f"({name}, output" in str(caught.value)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SPARSE])
def test_every_operator_of_operands_without_types_is_kept(name: str) -> None:
    node, given = node_of(name)
    model = surrounded(node, [], [MS, "my.shop"])
    model.graph.node.insert(0, helper.make_node("Source", ["x"], [v.name for v in given], domain="my.shop"))
    check_kept(model, name)


@pytest.mark.parametrize("targets", [(), ("dnnl",)], ids=["host", "dnnl"])
def test_an_operator_of_an_invented_domain_is_kept(targets: tuple[str, ...]) -> None:
    """It has no type; what is before it and after it is optimized."""
    node = helper.make_node("Fold", ["r", "m"], ["o", "p"], domain="my.shop", creases=3)
    given = [helper.make_tensor_value_info("m", TensorProto.INT64, ["N"])]
    model = surrounded(node, given, ["my.shop"])
    model.graph.node.append(helper.make_node("Relu", ["o"], ["q"]))
    model.graph.node.append(helper.make_node("Relu", ["q"], ["s"]))
    model.graph.output.append(helper.make_value_info("s", onnx.TypeProto()))
    result = eqsat.optimize(model, targets=targets)
    (kept,) = [n for n in result.model.graph if n.domain == "my.shop"]
    assert kept.attributes["creases"].as_int() == 3
    assert [v.name for v in kept.outputs][:1] == ["o"]
    assert {region.target for region in result.regions if "my.shop.Fold" in region.nodes} == {"cpu"}
    assert any("my.shop.Fold is opaque" in reason for reason in result.summary.verification.skipped)
