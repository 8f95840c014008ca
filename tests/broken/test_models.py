"""Broken models: each kind gives one error that names the place, what was required, what was found, and what to do."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import benchmarks.models
from eqsat.errors import ModelError
from eqsat.model.load import load

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'


def _message(source: object) -> str:
    with pytest.raises(ModelError) as caught:
        load(source)
    message = str(caught.value)
    assert "Traceback" not in message
    assert "onnxruntime_src" not in message and "/onnx/" not in message.replace("/onnx/backend", "")
    return message


def _require(source: object, *parts: str) -> None:
    message = _message(source)
    for part in parts:
        assert part in message, message


# ---- files -----------------------------------------------------------------------------------------


def _model() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        HEAD + "g (float[2,3] x) => (float[2,3] y) <float[2,3] w = {1,2,3,4,5,6}> { h = Relu(x) y = Add(h, w) }"
    )


class TestFiles:
    def test_missing(self, tmp_path: Path) -> None:
        (tmp_path / "model.onnx").write_bytes(_model().SerializeToString())
        _require(
            tmp_path / "modle.onnx",
            "modle.onnx: a model file is required; got no such file",
            "did you mean `model.onnx`?",
        )
        _require(tmp_path / "no" / "m.onnx", "no such file", "there is no directory")

    def test_directory(self, tmp_path: Path) -> None:
        _require(tmp_path, "a model file is required; got a directory")

    def test_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "m.onnx"
        path.write_bytes(b"")
        _require(path, f"{path}: an ONNX model is required; got an empty file")

    @pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
    def test_truncated(self, tmp_path: Path, part: float) -> None:
        data = benchmarks.models.light_path("squeezenet").read_bytes()
        path = tmp_path / "m.onnx"
        path.write_bytes(data[: int(len(data) * part)])
        _require(
            path, f"{path}: a complete ONNX model is required; got {int(len(data) * part)} bytes that are truncated"
        )

    def test_every_truncation_is_one_error(self, tmp_path: Path) -> None:
        data = _model().SerializeToString()
        for length in range(len(data)):
            _message(data[:length])

    def test_random_bytes(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(200):
            _message(rng.bytes(int(rng.integers(1, 200))))

    def test_changed_bytes_crash_nothing(self) -> None:
        """A file with a byte gone wrong loads or is refused, with nothing else in between."""
        data = bytearray(_model().SerializeToString())
        rng = np.random.default_rng(1)
        refused = 0
        for _ in range(400):
            changed = bytearray(data)
            changed[int(rng.integers(len(data)))] = int(rng.integers(256))
            try:
                load(bytes(changed))
            except ModelError:
                refused += 1
        assert refused > 100

    def test_foreign_formats(self, tmp_path: Path) -> None:
        archive = tmp_path / "m.pt"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("data.pkl", b"x")
        _require(archive, "torch.onnx.export")
        (tmp_path / "m.tflite").write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(40))
        _require(tmp_path / "m.tflite", "TensorFlow Lite", "tf2onnx")
        (tmp_path / "m.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(40))
        _require(tmp_path / "m.h5", "tf2onnx")
        (tmp_path / "m.pth").write_bytes(pickle.dumps({"a": 1}, protocol=2))
        _require(tmp_path / "m.pth", "torch.onnx.export")

    def test_no_graph(self) -> None:
        _require(onnx.ModelProto(ir_version=8).SerializeToString(), "an ONNX model with a graph is required")

    def test_no_source(self) -> None:
        _require(17, "a path, bytes, ONNX text, onnx.ModelProto or onnx_ir.Model is required; got int")
        _require(None, "got NoneType")

    def test_text(self, tmp_path: Path) -> None:
        _require(HEAD + "g (float[2] x) => (float[2] y) {\n  y = Relu(x\n}", "text:4:1", "hint: Expected character )")
        path = tmp_path / "m.onnxtxt"
        path.write_text(HEAD + "g (float[2] x) = (float[2] y) { y = Relu(x) }", "utf-8")
        _require(path, f"{path}:2:", "a model in ONNX's text format is required")
        path.write_bytes(b"\xff\xfe\x00")
        _require(path, "UTF-8")

    def test_json(self, tmp_path: Path) -> None:
        path = tmp_path / "m.json"
        path.write_text("{", "utf-8")
        _require(path, f"{path}: an ONNX model as json is required")

    def test_unreadable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.onnx"
        path.write_bytes(b"x")

        def refuse(self: Path, mode: str) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        _require(path, "a readable file is required; got Permission denied")


class TestExternalData:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        w = np.arange(5000, dtype=np.float32)
        info = helper.make_tensor_value_info("x", 1, [5000])
        out = helper.make_tensor_value_info("y", 1, [5000])
        node = helper.make_node("Add", ["x", "w"], ["y"])
        graph = helper.make_graph([node], "g", [info], [out], [onnx.numpy_helper.from_array(w, "w")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / "m.onnx"
        onnx.save(model, path, save_as_external_data=True, location="m.bin", size_threshold=100)
        return path

    def test_is_read(self, path: Path) -> None:
        tensor = load(path).graph.initializers["w"].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), np.arange(5000, dtype=np.float32))

    def test_missing(self, path: Path) -> None:
        (path.parent / "m.bin").unlink()
        _require(path, "tensor 'w': the file with the external data is required; got no file 'm.bin'", "copy it beside")

    def test_truncated(self, path: Path) -> None:
        data = (path.parent / "m.bin").read_bytes()
        (path.parent / "m.bin").write_bytes(data[:-1])
        _require(
            path, "tensor 'w': 20000 bytes in the external data file 'm.bin' are required; got 19999 bytes", "truncated"
        )

    def test_without_directory(self, path: Path) -> None:
        proto = onnx.load(path, load_external_data=False)
        _require(proto, "tensor 'w'", "load the model by its path")

    @pytest.mark.parametrize("location", ["../m.bin", "/etc/passwd"])
    def test_outside(self, path: Path, location: str) -> None:
        proto = onnx.load(path, load_external_data=False)
        proto.graph.initializer[0].external_data[0].value = location
        path.write_bytes(proto.SerializeToString())
        _require(path, "external data beside the model is required", repr(location))

    def test_wrong_length(self, path: Path) -> None:
        proto = onnx.load(path, load_external_data=False)
        entry = next(e for e in proto.graph.initializer[0].external_data if e.key == "length")
        entry.value = "8"
        path.write_bytes(proto.SerializeToString())
        _require(path, "20000 bytes of external data for float[5000] are required; got length 8")
        entry.value = "many"
        path.write_bytes(proto.SerializeToString())
        _require(path, "numbers as offset and length")


# ---- graphs ----------------------------------------------------------------------------------------

TEXTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dangling edge": (
        "g (float[2] input) => (float[2] y) { [act] h = Relu(inptu) y = Exp(h) }",
        ("node 'act' (Relu): the input of a node must be computed somewhere; got 'inptu'", "did you mean `input`?"),
    ),
    "dangling edge of an unnamed node": (
        "g (float[2] x) => (float[2] y) { h = Relu(x) y = Add(h, nothing) }",
        ("node 1 (Add, output 'y'): the input of a node must be computed somewhere; got 'nothing'",),
    ),
    "dangling edge in a subgraph": (
        """g (bool c, float[2] x) => (float[2] y) { y = If(c) <
            then_branch = t () => (float[2] a) { [inner] a = Relu(hidden) },
            else_branch = e () => (float[2] b) { b = Exp(x) }> }""",
        ("node 'inner' (Relu): the input of a node must be computed somewhere; got 'hidden'",),
    ),
    "output that nothing computes": (
        "g (float[2] x) => (float[2] result) { resutl = Relu(x) }",
        ("graph output 'result': the output of a graph must be computed somewhere", "did you mean `resutl`?"),
    ),
    "unknown operator": (
        "g (float[2] x) => (float[2] y) { [n] y = Reul(x) }",
        ("node 'n' (Reul): an operator of opset 26 of ONNX is required; got `Reul`", "did you mean `Relu`"),
    ),
    "unknown operator of another domain": (
        "g (float[2] x) => (float[2] y) { y = com.microsoft.Gleu(x) }",
        ("an operator of domain 'com.microsoft' is required; got `Gleu`", "did you mean `Gelu`?"),
    ),
    "unknown domain": (
        "g (float[2] x) => (float[2] y) { y = com.microsft.Gelu(x) }",
        ("an operator of a known domain is required; got `com.microsft`", "did you mean `com.microsoft`?"),
    ),
    "operator newer than the opset": (
        "g (float[2] x) => (float[2] y) { y = Gelu(x) }",
        ("an operator of opset 17 of ONNX is required; got `Gelu`", "it exists since opset 20"),
    ),
    "operator removed before the opset": (
        "g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> { y = Upsample(x, s) }",
        ("an operator of opset 17 of ONNX is required; got `Upsample`", "it was removed before opset 17"),
    ),
    "unknown attribute": (
        "g (float[1,1,4,4] x, float[1,1,3,3] w) => (float[1,1,2,2] y) { [c] y = Conv<stride = [1,1]>(x, w) }",
        ("node 'c' (Conv): an attribute of Conv is required; got `stride`", "did you mean `strides`?"),
    ),
    "attribute of the wrong type": (
        "g (float[1,1,4,4] x, float[1,1,3,3] w) => (float[1,1,2,2] y) { [c] y = Conv<strides = 1>(x, w) }",
        ("node 'c' (Conv): attribute `strides` of type INTS is required; got INT",),
    ),
    "required attribute": (
        "g (float[2] x) => (float[4] y) { [c] y = Concat(x, x) }",
        ("node 'c' (Concat): every required attribute must be given; got no `axis`",),
    ),
    "too few inputs": (
        "g (float[1,1,4,4] x) => (float[1,1,2,2] y) { y = Conv(x) }",
        ("node 0 (Conv, output 'y'): 2 to 3 inputs of Conv are required; got 1",),
    ),
    "too many inputs": (
        "g (float[2] x) => (float[2] y) { y = Relu(x, x) }",
        ("1 input of Relu is required; got 2",),
    ),
    "absent input that is required": (
        'g (float[2] x) => (float[2] y) { y = Add(x, "") }',
        ("input `B` of Add is required; got an empty name",),
    ),
    "cycle": (
        "g (float[2] x) => (float[2] y) { a = Add(x, c) b = Relu(a) c = Exp(b) y = Neg(c) }",
        (
            "the graph: a graph without cycles is required; got",
            "(Add, output 'a')",
            "(Exp, output 'c')",
            "(Relu, output 'b')",
        ),
    ),
    "node that reads itself": (
        "g (float[2] x) => (float[2] y) { y = Add(x, y) }",
        ("a graph without cycles is required", "(Add, output 'y')"),
    ),
    "name twice": (
        "g (float[2] x) => (float[2] y) { [one] h = Relu(x) [two] h = Exp(x) y = Neg(h) }",
        ("node 'two' (Exp): every tensor needs a unique name; got 'h' again", "node 'one' (Relu) has the same name"),
    ),
    "name of an input again": (
        "g (float[2] x) => (float[2] x) { x = Relu(x) }",
        ("every tensor needs a unique name; got 'x' again", "an input has the same name"),
    ),
    "element types": (
        "g (float[2] x, int64[2] i) => (float[2] y) { [sum] y = Add(x, i) }",
        ("node 'sum' (Add): inputs and attributes that fit together are required; got float[2], int64[2]",),
    ),
    "element type that an operator does not take": (
        "g (bool[2] x) => (bool[2] y) { [act] y = Relu(x) }",
        ("node 'act' (Relu)", "got bool[2]"),
    ),
    "shapes": (
        "g (float[2,3] x, float[4,5] w) => (float[2,5] y) { [fc] y = MatMul(x, w) }",
        ("node 'fc' (MatMul): inputs and attributes that fit together are required; got float[2, 3], float[4, 5]",),
    ),
    "channels": (
        "g (float[1,3,8,8] x, float[4,5,3,3] w) => (float[1,4,6,6] y) { [c] y = Conv(x, w) }",
        ("node 'c' (Conv)", "the input has 3 channels, the weight takes 5"),
    ),
    "elements of a reshape": (
        "g (float[2,3] x) => (float[4] y) <int64[1] s = {4}> { [r] y = Reshape(x, s) }",
        ("node 'r' (Reshape)", "6 elements do not make [4] (shape [4])"),
    ),
    "declared type of an output": (
        "g (float[2] x) => (int64[2] y) { y = Relu(x) }",
        ("output 'y': an output of the declared type int64[2] is required; got float[2]",),
    ),
    "declared shape of an output": (
        "g (float[2] x) => (float[3] y) { y = Relu(x) }",
        ("output 'y': an output of the declared shape float[3] is required; got float[2]",),
    ),
    "function that calls itself": (
        """g (float[2] x) => (float[2] y) { y = my.f(x) }
        <domain: "my", opset_import: ["": 17, "my": 1]> f (a) => (b) { b = my.h(a) }
        <domain: "my", opset_import: ["": 17, "my": 1]> h (a) => (b) { b = my.f(a) }""",
        ("functions that do not call themselves are required; got my.f -> my.h -> my.f",),
    ),
    "dangling edge in a function": (
        """g (float[2] x) => (float[2] y) { y = my.f(x) }
        <domain: "my", opset_import: ["": 17]> f (a) => (b) { b = Relu(c) }""",
        ("the input of a node must be computed somewhere; got 'c'",),
    ),
    "attribute that a function does not have": (
        """g (float[2] x) => (float[2] y) { y = my.f(x) }
        <domain: "my", opset_import: ["": 17]> f <alpha> (a) => (b) { b = Elu<alpha: float = @beta>(a) }""",
        ("an attribute of the function is required; got a reference to 'beta'", "it has alpha"),
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_graphs(kind: str, tmp_path: Path) -> None:
    text, parts = TEXTS[kind]
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "com.microsft": 1, "my": 1]>\n'
    proto = onnx.parser.parse_model(head + text)
    _require(proto, *parts)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    message = _message(path)
    assert message.startswith(f"{path}: "), message
    for part in parts:
        assert part in message


Change = Callable[[onnx.ModelProto], None]


def _opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 99


def _no_opset(model: onnx.ModelProto) -> None:
    del model.opset_import[:]


def _no_ir(model: onnx.ModelProto) -> None:
    model.ClearField("ir_version")


def _input_twice(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def _initializer_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _output_twice(model: onnx.ModelProto) -> None:
    model.graph.output.append(model.graph.output[0])


def _no_outputs(model: onnx.ModelProto) -> None:
    del model.graph.output[:]


def _untyped_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].ClearField("type")


def _short_data(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros((2, 3), np.float32), "w"))
    tensor.raw_data = tensor.raw_data[:-4]


def _short_list(model: onnx.ModelProto) -> None:
    del model.graph.initializer[0].float_data[-1:]


def _no_element_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 0


def _odd_element_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def _negative_dim(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -2


def _attribute_twice(model: onnx.ModelProto) -> None:
    node = model.graph.node.add(op_type="Softmax", input=["h"], output=["z"])
    node.attribute.extend([helper.make_attribute("axis", 1), helper.make_attribute("axis", 0)])


CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "opset": (_opset, ("an opset from 1 to", "got 99")),
    "no opset": (_no_opset, ("an opset import of domain 'ai.onnx' is required; got none",)),
    "no IR version": (_no_ir, ("a model with an IR version is required; got none",)),
    "input twice": (_input_twice, ("input 'x': every input needs a unique name",)),
    "initializer twice": (_initializer_twice, ("tensor 'w': every initializer needs a unique name",)),
    "output twice": (_output_twice, ("output 'y': every output needs a unique name",)),
    "no outputs": (_no_outputs, ("a graph with outputs is required",)),
    "untyped input": (_untyped_input, ("input 'x': an input with a type is required",)),
    "too little raw data": (_short_data, ("tensor 'w': 24 bytes of data for float[2, 3] are required; got 20 bytes",)),
    "too few numbers": (_short_list, ("tensor 'w': 6 elements of data for float[2, 3] are required; got 5",)),
    "no element type": (_no_element_type, ("tensor 'w': a tensor with an element type is required",)),
    "odd element type": (_odd_element_type, ("tensor 'w': a tensor of an element type that ONNX knows", "number 99")),
    "negative dimension": (
        _negative_dim,
        ("tensor 'w': a shape without negative dimensions is required; got [-2, 3]",),
    ),
    "attribute twice": (_attribute_twice, ("every attribute may be given once; got 'axis' twice",)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_changed_models(kind: str) -> None:
    change, parts = CHANGES[kind]
    model = _model()
    load(model)
    change(model)
    _require(model, *parts)


class TestIrModels:
    def test_dangling(self) -> None:
        x, lost = ir.val("x", ir.DataType.FLOAT, [2]), ir.val("lost", ir.DataType.FLOAT, [2])
        node = ir.node("Add", [x, lost], name="sum")
        graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20}, name="g")
        node.outputs[0].name = "y"
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        with pytest.raises(ModelError):
            load(ir.Model(graph, ir_version=10))

    def test_initializer_without_value(self) -> None:
        x, w = ir.val("x", ir.DataType.FLOAT, [2]), ir.val("w", ir.DataType.FLOAT, [2])
        node = ir.node("Add", [x, w])
        node.outputs[0].name = "y"
        graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 20}, name="g")
        _require(ir.Model(graph, ir_version=10), "tensor 'w': an initializer with a value is required")
