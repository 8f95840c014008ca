"""Every source of a model gives the same model, and none is changed by loading it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from eqsat.errors import ModelError
from eqsat.model.load import load
from eqsat.model.read.sources import HEAVY, read

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x) => (float[2,3] y) <float[2,3] w = {1,2,3,4,5,6}> {
    s = Softmax<axis=-1>(x)
    y = Add(s, w)
}"""


def _bytes(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString()


def test_sources_agree(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(TEXT)
    expected = _bytes(load(proto))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    (tmp_path / "m.onnxtxt").write_text(TEXT, "utf-8")
    onnx.save(proto, tmp_path / "m.textproto")
    onnx.save(proto, tmp_path / "m.json")
    (tmp_path / "model_without_suffix").write_bytes(proto.SerializeToString())
    names = ("m.onnx", "m.onnxtxt", "m.textproto", "m.json", "model_without_suffix")
    sources = [str(path), TEXT, proto.SerializeToString(), bytearray(proto.SerializeToString()), ir.from_proto(proto)]
    for source in (*(tmp_path / n for n in names), *sources):
        assert _bytes(load(source)) == expected, source


def test_loading_twice_changes_nothing() -> None:
    once = load(TEXT)
    assert _bytes(load(once)) == _bytes(once)


def test_the_source_is_not_changed() -> None:
    proto = onnx.parser.parse_model(TEXT)
    before = proto.SerializeToString()
    load(proto)
    assert proto.SerializeToString() == before
    model = ir.from_proto(proto)
    before = _bytes(model)
    loaded = load(model)
    assert _bytes(model) == before
    assert not set(loaded.graph) & set(model.graph)


def _heavy(*, as_node: bool = False, ir_version: int = 8) -> onnx.ModelProto:
    w = np.arange(HEAVY + 1, dtype=np.float32)
    tensor = onnx.numpy_helper.from_array(w, "w")
    infos = [helper.make_tensor_value_info(n, 1, w.shape) for n in "xy"]
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    inputs, tensors = infos[:1], [tensor]
    if as_node:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
        tensors = []
    elif ir_version < 4:
        inputs = [*inputs, helper.make_tensor_value_info("w", 1, w.shape)]
    graph = helper.make_graph(nodes, "g", inputs, infos[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=ir_version)


def test_weights_are_set_aside_and_come_back() -> None:
    for proto in (_heavy(), _heavy(as_node=True), _heavy(ir_version=3)):
        source = read(proto)
        assert list(source.weights) == ["w"]
        assert source.proto.ByteSize() < 1000
        model = load(proto)
        assert [v.name for v in model.graph.inputs] == ["x"]
        tensor = model.graph.initializers["w"].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), np.arange(HEAVY + 1, dtype=np.float32))
        again = load(model)
        assert _bytes(again) == _bytes(model)


def test_a_graph_of_unnamed_values() -> None:
    x = ir.val("x", ir.DataType.FLOAT, [2])
    first = ir.node("Relu", [x])
    second = ir.node("Exp", [first.outputs[0]])
    second.outputs[0].name = "y"
    graph = ir.Graph([x], second.outputs, nodes=[first, second], opset_imports={"": 20}, name="g")
    model = load(ir.Model(graph, ir_version=10))
    assert [n.op_type for n in model.graph] == ["Relu", "Exp"]
    assert all(v.name for n in model.graph for v in n.outputs)


def test_special_element_types_survive() -> None:
    infos = [helper.make_tensor_value_info("x", 1, [3]), helper.make_tensor_value_info("y", 1, [3])]
    for dtype in (
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.FLOAT8E4M3FN,
        onnx.TensorProto.INT4,
        onnx.TensorProto.STRING,
    ):
        strings = dtype == onnx.TensorProto.STRING
        tensor = helper.make_tensor("w", dtype, [3], ["a", "bc", ""] if strings else [1, 2, 3])
        nodes = [helper.make_node("Identity", ["w"], ["z"]), helper.make_node("Relu", ["x"], ["y"])]
        outputs = [infos[1], helper.make_tensor_value_info("z", dtype, [3])]
        proto = helper.make_model(helper.make_graph(nodes, "g", infos[:1], outputs, [tensor]), ir_version=10)
        model = load(io.BytesIO(proto.SerializeToString()).getvalue())
        held = ir.to_proto(model).graph.initializer[0]
        found, expected = onnx.numpy_helper.to_array(held), onnx.numpy_helper.to_array(tensor)
        assert held.data_type == dtype
        assert found.tolist() == expected.tolist()
        assert model.graph.outputs[1].dtype == ir.DataType(dtype)


def test_a_directory_names_its_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a model file is required; got a directory") as empty:
        load(tmp_path)
    assert empty.value.hint == ""
    for name in "dcba":
        (tmp_path / f"{name}.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="got a directory") as full:
        load(tmp_path)
    assert full.value.hint == "it contains a.onnx, b.onnx, c.onnx, ..."


def test_a_file_that_is_not_a_model_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="got an empty file") as empty:
        load(tmp_path / "empty.onnx")
    (tmp_path / "bare.onnx").write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    with pytest.raises(ModelError, match="bytes without one") as bare:
        load(tmp_path / "bare.onnx")
    assert "download" in empty.value.hint and "give the .onnx file" in bare.value.hint
