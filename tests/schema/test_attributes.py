"""Attribute bundles: canonical, and the same after a way through onnx_ir and protobuf."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import ModelError
from eqsat.schema import opset
from eqsat.schema.attributes import (
    attr,
    captured_values,
    from_attrs,
    make_attrs,
    op_key,
    to_attrs,
    to_protos,
)
from eqsat.schema.types import Attrs, GraphAttr, OpaqueAttr, OpKey, TensorAttr
from tests.model.node_cases import cases

CONV = OpKey("", "Conv")


def _node(op: OpKey, attrs: Attrs) -> ir.Node:
    return ir.Node(op.domain, op.name, [], from_attrs(attrs, op))


@pytest.mark.slow
def test_all_node_cases_round_trip() -> None:
    for case in cases():
        if any(isinstance(v, GraphAttr) for _, v in case.attrs):
            continue
        again = to_attrs(_node(case.op, case.attrs))
        assert again == case.attrs, case.name
        protos = to_protos(case.attrs, case.op)
        through = ir.from_proto(onnx.NodeProto(op_type=case.op.name, domain=case.op.domain, attribute=protos))
        assert to_attrs(through) == case.attrs, case.name
        assert hash(again) == hash(case.attrs)


def test_defaults_are_filled_in_and_sorted() -> None:
    attrs = make_attrs(CONV, {"strides": [2, 2]})
    assert attrs == (("auto_pad", "NOTSET"), ("group", 1), ("strides", (2, 2)))
    assert attrs == to_attrs(ir.Node("", "Conv", [], [ir.AttrInt64s("strides", [2, 2])]))


@given(st.floats(allow_nan=False, allow_infinity=False, width=64, min_value=-1e30, max_value=1e30))
def test_floats_are_what_onnx_stores(value: float) -> None:
    attrs = make_attrs(OpKey("", "LeakyRelu"), {"alpha": value})
    (proto,) = to_protos(attrs)
    assert proto.f == attr(attrs, "alpha")
    assert to_attrs(_node(OpKey("", "LeakyRelu"), attrs)) == attrs


def test_the_schema_tells_types() -> None:
    (alpha,) = from_attrs(make_attrs(OpKey("", "LeakyRelu"), {"alpha": 1}), OpKey("", "LeakyRelu"))
    assert alpha.type == ir.AttributeType.FLOAT
    empty = from_attrs((("axes", ()),), OpKey("", "Resize"))[0]
    assert empty.type == ir.AttributeType.INTS


def test_tensors_and_lists_of_numpy_numbers() -> None:
    attrs = make_attrs(OpKey("", "ConstantOfShape"), {"value": np.array([2.0], np.float32)})
    assert attr(attrs, "value") == TensorAttr(np.array([2.0], np.float32), ir.DataType.FLOAT)
    assert attr(make_attrs(CONV, {"pads": np.array([1, 1])}), "pads") == (1, 1)
    assert attr(make_attrs(CONV, {"group": np.int64(3)}), "group") == 3


def test_strings_compare_by_content() -> None:
    one = TensorAttr(np.array(["a", "b"], object), ir.DataType.STRING)
    two = TensorAttr(np.array(["a", "b"], object), ir.DataType.STRING)
    other = TensorAttr(np.array(["a", "c"], object), ir.DataType.STRING)
    assert one == two and hash(one) == hash(two)
    assert one != other


def test_types_as_attributes_are_opaque_but_equal() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g () => (optional(seq(float[2])) y) { y = Optional<type: type_proto = seq(float[2])>() }"""
    nodes = [ir.from_proto(onnx.parser.parse_model(text)).graph[0] for _ in range(2)]
    first, second = (to_attrs(n) for n in nodes)
    assert isinstance(attr(first, "type"), OpaqueAttr)
    assert first == second and hash(first) == hash(second)
    assert to_attrs(_node(OpKey("", "Optional"), first)) == first


def test_values() -> None:
    attrs = make_attrs(CONV, {"strides": [2, 2]})
    assert attr(attrs, "strides", 7) == (2, 2)
    assert attr(attrs, "nothing", 7) == 7


def test_captured_values_in_order() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (bool c, float[2] x, float[2] z, float[2] w) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] a) { b = Add(z, x) a = If(c) <
                then_branch = t2 () => (float[2] d) { d = Mul(b, w) },
                else_branch = e2 () => (float[2] e) { e = Identity(x) }
            > },
            else_branch = f () => (x) { }
        >
    }"""
    node = ir.from_proto(onnx.parser.parse_model(text)).graph[0]
    assert [v.name for v in captured_values(node.attributes["then_branch"].as_graph())] == ["z", "x", "c", "w"]
    assert [v.name for v in captured_values(node.attributes["else_branch"].as_graph())] == ["x"]
    assert attr(to_attrs(node), "then_branch").captured == ("z", "x", "c", "w")


def test_overloads_are_operators_of_their_own() -> None:
    assert op_key(ir.Node("my", "f", [], overload="fast")) == OpKey("my", "f:fast")
    assert op_key(ir.Node("ai.onnx", "Relu", [])) == OpKey("", "Relu")


def test_references_to_function_attributes_are_refused() -> None:
    node = ir.Node("", "Elu", [], [ir.RefAttr("alpha", "beta", ir.AttributeType.FLOAT)], name="n")
    with pytest.raises(ModelError, match="attribute 'alpha' of node 'n'"):
        to_attrs(node)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"stride": 1}, "did you mean `strides`?"),
        ({"strides": 2}, "a value of type INTS is required for attribute `strides`; got 2"),
        ({"group": "one"}, "a value of type INT is required"),
        ({"auto_pad": 3}, "a value of type STRING is required"),
        ({"strides": [1.5]}, "got [1.5]"),
    ],
)
def test_errors(values: dict[str, object], part: str) -> None:
    with pytest.raises(ModelError) as caught:
        make_attrs(CONV, values)
    assert part in str(caught.value)


def test_schema_helpers() -> None:
    assert opset.input_names(CONV) == ("X", "W", "B")
    assert opset.input_arity(CONV) == (2, 3)
    assert opset.is_variadic(OpKey("", "Concat")) and not opset.is_variadic(CONV)
    assert opset.required_attributes(OpKey("", "Concat")) == ("axis",)
    assert ir.DataType.FLOAT in opset.input_dtypes(CONV, 0)
    assert ir.DataType.INT64 not in opset.input_dtypes(CONV, 1)
    assert opset.input_dtypes(OpKey("", "Reshape"), 1) == {ir.DataType.INT64}
    assert opset.output_names(OpKey("", "TopK")) == ("Values", "Indices")
    assert opset.find_schema(OpKey("", "Upsample")) is None
    assert opset.find_schema(OpKey("ai.onnx", "Relu")) is not None
    for name in opset.operator_names():
        assert opset.schema(OpKey("", name)).since_version <= opset.PINNED_OPSET


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        ("Reul", "`Relu`"),
        ("conv", "`Conv`"),
        ("Requantise", "`DequantizeLinear`"),
        ("MatMull", "`MatMul`"),
        ("Convolution", "`Conv`"),
    ],
)
def test_did_you_mean(name: str, proposed: str) -> None:
    with pytest.raises(ModelError) as caught:
        opset.schema(OpKey("", name))
    assert proposed in str(caught.value)
    assert opset.did_you_mean("zzzz", opset.operator_names()) == ""
