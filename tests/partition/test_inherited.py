"""Nodes keep their names, documentation and metadata; what is written on tensors, graphs and models stays as well."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import eqsat
from eqsat.cli import main
from eqsat.errors import ModelError
from tests.model.running import random_inputs, run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
CHAIN = f"""{HEAD} g (float[N,4] x, bool q) => (float[N,4] y, float[N,4] z) {{
    [a_Exp] a = Exp(x)
    [b_Relu] b = Relu(a)
    [c_Sqrt] y = Sqrt(b)
    [d_If] z = If (q) <then_branch = t () => (float[N,4] p) {{ [then_Cos] p = Cos(b) }},
                       else_branch = e () => (float[N,4] r) {{ [else_Sin] r = Sin(b) }}> }}"""


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """All nodes but those of the functions of composites, which have no place in the input."""
    inside = [n for f in model.functions if not f.domain.endswith(".composite") for n in f.node]
    return [*(n for graph in _graphs(model.graph) for n in graph.node), *inside]


def _parsed(text: str) -> onnx.ModelProto:
    """A model with names of nodes like those of PyTorch: ``/fc/MatMul`` where the text has ``fc_MatMul``."""
    model = onnx.parser.parse_model(text)
    for node in _nodes(model):
        node.name = f"/{node.name.replace('_', '/')}" if "_" in node.name else node.name
    return model


def _said(node: onnx.NodeProto) -> tuple[str, str, dict[str, str]]:
    own = {p.key: p.value for p in node.metadata_props if not p.key.startswith("eqsat.")}
    return node.name, node.doc_string, own


def _remarked(text: str) -> onnx.ModelProto:
    """A model with something written on every node."""
    model = _parsed(text)
    for i, node in enumerate(_nodes(model)):
        node.doc_string = f"documentation {i}"
        node.metadata_props.add(key="namespace", value=f"layer.{i}")
    return model


def _saved(model: onnx.ModelProto, path: Path, *targets: str, flat: bool = False) -> onnx.ModelProto:
    eqsat.optimize(model, list(targets)).save(path, flat=flat)
    saved = onnx.load(path)
    onnx.checker.check_model(saved, full_check=True)
    for graph in _graphs(saved.graph):
        assert max(Counter(n.name for n in graph.node).values()) == 1
    return saved


@pytest.mark.parametrize("opset", [9, 12, 17, 23])
def test_nodes_that_stay_keep_everything(tmp_path: Path, opset: int) -> None:
    model = _remarked(CHAIN.replace("17", str(opset)))
    expected = sorted(_said(n) for n in _nodes(model))
    assert sorted(_said(n) for n in _nodes(_saved(model, tmp_path / "m.onnx"))) == expected
    eqsat.save(eqsat.load(model), tmp_path / "loaded.onnx")
    assert sorted(_said(n) for n in _nodes(onnx.load(tmp_path / "loaded.onnx"))) == expected


def test_conversion_to_newer_opsets_loses_nothing(tmp_path: Path) -> None:
    """The bounds of Clip were attributes: the converter rewrites the model, and drops metadata and denotations."""
    text = """<ir_version: 4, opset_import: ["": 9]> g (float[N,4] x, bool q) => (float[N,4] y) {
        [clip] c = Clip<min = 0.0, max = 6.0>(x)
        [branch] y = If (q) <then_branch = t () => (float[N,4] p) { [inner] p = Clip<min = 1.0>(c) },
                             else_branch = e () => (float[N,4] r) { [other] r = Exp(c) }> }"""
    model = _remarked(text)
    model.graph.input[0].type.denotation = "IMAGE"
    model.graph.quantization_annotation.add(tensor_name="c").quant_parameter_tensor_names.add(key="SCALE", value="x")
    saved = _saved(model, tmp_path / "m.onnx")
    kept = {node.name: _said(node) for node in _nodes(saved)}
    for node in _nodes(model):
        assert kept[node.name] == _said(node)
    assert saved.graph.input[0].type.denotation == "IMAGE"
    assert saved.graph.quantization_annotation == model.graph.quantization_annotation


def test_tensors_graphs_and_models_keep_what_is_written_on_them(tmp_path: Path) -> None:
    model = _parsed(CHAIN)
    model.producer_name, model.producer_version, model.domain, model.doc_string = "exporter", "7.1", "org.me", "a model"
    model.model_version = 5
    onnx.helper.set_model_props(model, {"names": "{0: 'cat'}"})
    graph = model.graph
    graph.doc_string = "a graph"
    graph.metadata_props.add(key="layout", value="NC")
    graph.node[3].attribute[0].g.doc_string = "a branch"
    x, y = graph.input[0], graph.output[0]
    x.doc_string, x.type.denotation, x.type.tensor_type.shape.dim[0].denotation = "an input", "TENSOR", "DATA_BATCH"
    y.doc_string, y.type.denotation = "an output", "IMAGE"
    inner = graph.value_info.add()
    inner.CopyFrom(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["N", 4]))
    inner.doc_string = "a value"
    for value in (x, y, inner):
        value.metadata_props.add(key="of", value=value.name)
    graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "scale_of_a"))
    annotation = graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale_of_a")

    for targets in ([], ["dnnl -launch=0 -dispatch=0 -link.latency=0"]):
        saved = _saved(model, tmp_path / "m.onnx", *targets)
        assert (saved.producer_name, saved.producer_version, saved.domain) == ("exporter", "7.1", "org.me")
        assert (saved.doc_string, saved.model_version, saved.graph.doc_string) == ("a model", 5, "a graph")
        said = {p.key: p.value for p in saved.metadata_props}
        assert said["names"] == "{0: 'cat'}" and said["eqsat.version"] == eqsat.__version__
        assert [(p.key, p.value) for p in saved.graph.metadata_props] == [("layout", "NC")]
        assert {g.doc_string for g in _graphs(saved.graph)} == {"a graph", "a branch", ""}
        assert list(saved.graph.input) == list(graph.input)
        assert list(saved.graph.output) == list(graph.output)
        inside = [v for f in saved.functions for v in f.value_info]
        found = [v for v in (*saved.graph.value_info, *inside) if v.name == "a"]
        assert all(v.doc_string == "a value" and v.metadata_props == inner.metadata_props for v in found)
        if not targets:
            assert found
            assert saved.graph.quantization_annotation == graph.quantization_annotation
            assert [t for t in saved.graph.initializer if t.name == "scale_of_a"]
    # A model without a producer is eqsat's.
    model.producer_name = model.producer_version = ""
    assert _saved(model, tmp_path / "m.onnx").producer_name == "eqsat"


def test_what_rules_make_has_the_name_of_what_it_computes(tmp_path: Path) -> None:
    model = _remarked(f"""{HEAD} g (float[8,16] x, float[16,16] w) => (float[8,16] y) {{
        [fc_MatMul] p = MatMul(x, w)
        [fc_Add] s = Add(p, x)
        [two_Add] t = Add(s, s)
        [act_Relu] y = Relu(t) }}""")
    saved = _saved(model, tmp_path / "m.onnx")
    assert [(n.name, n.op_type) for n in saved.graph.node] == [
        ("/fc/Add", "Gemm"), ("/two/Add", "Mul"), ("/act/Relu", "Relu"),
    ]  # fmt: skip
    # What is written on a node is true of that operator alone.
    assert [_said(n)[1] for n in saved.graph.node] == ["", "", "documentation 3"]


def test_equal_nodes_become_one_with_the_name_of_the_first(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[4] x) => (float[4] y) {{ [one] a = Exp(x) [two] b = Exp(x) [sum] y = Atan2(a, b) }}"
    text = text.replace("Atan2", "Div")
    saved = _saved(_parsed(text), tmp_path / "m.onnx")
    assert [n.name for n in saved.graph.node if n.op_type == "Exp"] in (["one"], [])


def test_nodes_without_names_are_named_after_their_results(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[4] x) => (float[4] y) {{ a = Exp(x) [a] b = Sqrt(a) y = Atan(b) }}"
    saved = _saved(_parsed(text), tmp_path / "m.onnx")
    assert [(n.op_type, n.name) for n in saved.graph.node] == [("Exp", "a_1"), ("Sqrt", "a"), ("Atan", "y")]


def _convolutions() -> onnx.ModelProto:
    """Two convolutions with activations, the second one written as ``x * sigmoid(x)``."""
    rng = np.random.default_rng(0)
    model = _parsed(f"""{HEAD} g (float[1,16,32,32] x) => (float[1,16,32,32] y) {{
        [n1_Conv] c = Conv<pads = [1, 1, 1, 1]>(x, w)
        [n1_Relu] r = Relu(c)
        [n2_Conv] d = Conv<pads = [1, 1, 1, 1]>(r, v)
        [n2_Sigmoid] s = Sigmoid(d)
        [n2_Mul] m = Mul(d, s)
        [n3_Softmax] y = Softmax<axis = 1>(m) }}""")
    for name in "wv":
        array = rng.standard_normal((16, 16, 3, 3), np.float32) / 12
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def test_names_inside_of_regions_and_composites(tmp_path: Path) -> None:
    model = _convolutions()
    placed = _saved(model, tmp_path / "placed.onnx", "dnnl")
    calls = [n for f in placed.functions if f.name == "dnnl_0" for n in f.node]
    inner = {n.name: [p.value for p in n.metadata_props if p.key == "eqsat.nodes"] for n in calls}
    assert {"/n1/Relu", "/n2/Mul"} <= set(inner)
    assert "/n1/Conv" in json.loads(inner["/n1/Relu"][0]) and "/n2/Conv" in json.loads(inner["/n2/Mul"][0])

    flat = _saved(model, tmp_path / "flat.onnx", "dnnl", flat=True)
    of = {n.name: n.op_type for n in flat.graph.node}
    assert [of[name] for name in ("/n1/Conv", "/n1/Relu", "/n2/Conv")] == ["Conv", "Relu", "Conv"]
    assert "/n2/Mul" in of
    inputs = random_inputs(model)
    for made in (placed, flat):
        np.testing.assert_allclose(run_ort(made, inputs)[0], run_ort(model, inputs)[0], rtol=1e-5, atol=1e-6)
    # Optimized again, nodes have these names once more.
    again = _saved(placed, tmp_path / "again.onnx", "dnnl", flat=True)
    assert Counter(n.name for n in again.graph.node) == Counter(list(of))


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '["/n1/Relu", "/n1/Relu", "/n1/Relu", "x", "x"]'])
def test_metadata_that_others_wrote_name_nothing_twice(tmp_path: Path, text: str) -> None:
    placed = _saved(_convolutions(), tmp_path / "placed.onnx", "dnnl")
    for function in placed.functions:
        for node in function.node:
            for entry in node.metadata_props:
                if entry.key == "eqsat.nodes":
                    entry.value = text
    eqsat.save(eqsat.load(placed), tmp_path / "flat.onnx", flat=True)
    names = Counter(n.name for n in onnx.load(tmp_path / "flat.onnx").graph.node)
    assert max(names.values()) == 1


def test_a_node_is_explained_by_either_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = eqsat.optimize(_convolutions(), "dnnl")
    result.save(tmp_path / "m.onnx")
    by_result = result.explain("m")
    assert result.explain("/n2/Mul") == by_result and by_result.op.startswith("dnnl.")
    assert result.explain("/n3/Softmax").sources == ("y",)
    for name in ("m", "/n2/Mul", "/n2/Conv", "/n2/Sigmoid"):
        assert main(["explain", str(tmp_path / "m.onnx"), name]) == 0
        assert by_result.op in capsys.readouterr().out
    with pytest.raises(ModelError, match="it is part of m"):
        result.explain("/n2/Conv")
    with pytest.raises(ModelError, match=r"did you mean .*/n2/Mul"):
        result.explain("/n2/Mull")


def test_layers_are_skipped_by_their_names_after_an_optimization(tmp_path: Path) -> None:
    """The list of layers that a quantizer leaves out holds for the optimized file as for the input."""
    eqsat.optimize(_convolutions()).save(tmp_path / "m.onnx")
    samples = {"x": np.random.default_rng(1).standard_normal((4, 1, 16, 32, 32), np.float32)}
    result = eqsat.quantize(tmp_path / "m.onnx", [{"x": x} for x in samples["x"]], skip=["/n2/Conv"], simulate=True)
    result.save(tmp_path / "q.onnx", flat=True)
    graph = onnx.load(tmp_path / "q.onnx").graph
    makers = {o: n.op_type for n in graph.node for o in n.output}
    weights = {n.name: makers.get(n.input[1], "") for n in graph.node if n.op_type == "Conv"}
    assert weights == {"/n1/Conv": "DequantizeLinear", "/n2/Conv": ""}
