"""Maps, sequences and optionals at the borders of models: opaque, while all else is optimized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper

import eqsat
from eqsat.cli import main
from eqsat.errors import ExecutionError

_ML = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
_HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def _map(key: int, value: int) -> onnx.TypeProto:
    kind = onnx.TypeProto()
    kind.map_type.key_type = key
    kind.map_type.value_type.tensor_type.elem_type = value
    return kind


def _classifier(labels: list[int] | list[str]) -> onnx.ModelProto:
    """What scikit-learn exports: a label, and a map from labels to probabilities for each row."""
    rng = np.random.default_rng(0)
    is_text = isinstance(labels[0], str)
    kind = onnx.TypeProto()
    kind.sequence_type.elem_type.CopyFrom(_map(T.STRING if is_text else T.INT64, T.FLOAT))
    attribute: dict[str, Any] = {"classlabels_strings" if is_text else "classlabels_int64s": labels}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Softmax", ["a"], ["p"], axis=1),
        helper.make_node("ArgMax", ["p"], ["i"], axis=1, keepdims=0),
        helper.make_node("Identity", ["i"], ["label"]),
        helper.make_node("ZipMap", ["p"], ["probabilities"], domain="ai.onnx.ml", **attribute),
    ]
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal((4, 3)).astype(np.float32), "w"),
        onnx.numpy_helper.from_array(rng.standard_normal(3).astype(np.float32), "b"),
    ]
    outputs = [helper.make_tensor_value_info("label", T.INT64, ["N"]), helper.make_value_info("probabilities", kind)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, ["N", 4])], outputs, weights)
    return helper.make_model(graph, opset_imports=_ML, ir_version=8)


def _ort(model: onnx.ModelProto | Path, feed: dict[str, Any]) -> list[Any]:
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session: Any = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def _same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _same(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-5)
    else:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [[3, 1, 2], ["a", "c", "b"]], ids=["numbers", "strings"])
@pytest.mark.parametrize("name", ["out.onnx", "out.onnxtxt", "out.json"])
@pytest.mark.parametrize("flat", [False, True])
def test_a_classifier_with_a_map_is_optimized(labels: Any, name: str, flat: bool, tmp_path: Path) -> None:
    model = _classifier(labels)
    given = model.SerializeToString()
    result = eqsat.optimize(model, "dnnl")
    assert model.SerializeToString() == given
    verification = result.summary.verification
    assert result.cost < result.baseline_cost and verification is not None
    assert not verification.skipped and verification.outputs == 2
    result.save(tmp_path / name, flat=flat)
    file = onnx.load(tmp_path / name)
    assert file.graph.output[1].type == model.graph.output[1].type
    feed = {"x": np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)}
    wanted = _ort(model, feed)
    _same(wanted, _ort(file, feed))
    _same(wanted, list(result.run(feed).values()))
    assert all(d.agrees for d in eqsat.compare(model, tmp_path / name, feed).outputs)
    again = eqsat.optimize(tmp_path / name, "dnnl")
    assert again.cost == pytest.approx(result.cost)


def test_weights_beside_a_model_with_a_map(tmp_path: Path) -> None:
    model = _classifier([0, 1, 2])
    weight = np.random.default_rng(0).standard_normal((4096, 3)).astype(np.float32)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4096
    eqsat.optimize(model).save(tmp_path / "out.onnx", external_data=True)
    assert (tmp_path / "out.onnx.data").stat().st_size >= weight.nbytes > (tmp_path / "out.onnx").stat().st_size
    feed = {"x": np.random.default_rng(1).standard_normal((2, 4096)).astype(np.float32)}
    wanted = _ort(model, feed)
    _same([wanted[0]], _ort(tmp_path / "out.onnx", feed)[:1])
    assert eqsat.load(tmp_path / "out.onnx").graph.outputs[1].name == "probabilities"


def test_a_wrong_map_is_found() -> None:
    left, right = _classifier([0, 1, 2]), _classifier([0, 1, 5])
    found = eqsat.compare(left, right, {"x": np.ones((1, 4), np.float32)})
    assert not found.outputs[1].agrees and "map" in found.outputs[1].reason
    right = _classifier([0, 1, 2])
    right.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.ones(3, np.float32), "b"))
    assert not eqsat.compare(left, right, {"x": np.ones((1, 4), np.float32)}).outputs[1].agrees


def test_the_command_line_prints_and_stores_maps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save(_classifier(["a", "b", "c"]), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--dim", "N=2", "-o", str(tmp_path / "o.npz")]) == 0
    shown = capfd.readouterr().out
    assert "sequence of 2" in shown and "map of 'a': " in shown
    assert "probabilities[1]['c']" in np.load(tmp_path / "o.npz")


def test_a_map_is_an_input(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DictVectorizer", ["m"], ["d"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"]),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Neg", ["n"], ["k"]),
        helper.make_node("Add", ["d", "k"], ["y"]),
    ]
    inputs = [helper.make_value_info("m", _map(T.STRING, T.FLOAT)), helper.make_tensor_value_info("x", T.FLOAT, [1, 3])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", T.FLOAT, [1, 3])])
    model = helper.make_model(graph, opset_imports=_ML, ir_version=8)
    result = eqsat.optimize(model)
    assert [node.op_type for node in result.model.graph] == ["DictVectorizer", "Add"]
    result.save(tmp_path / "out.onnx")
    feed: dict[str, Any] = {"m": {"a": 1.5, "c": -2.0}, "x": np.ones((1, 3), np.float32)}
    _same(_ort(model, feed), _ort(tmp_path / "out.onnx", feed))
    _same(_ort(model, feed), list(result.run(feed).values()))
    with pytest.raises(ExecutionError, match=r"input 'm': a map \(a dictionary\) is required; got float32\[3\]"):
        result.run({**feed, "m": np.zeros(3, np.float32)})


WORDS: dict[str, Any] = {"string_vocabulary": ["a", "b", "c"]}
NUMBERS: dict[str, Any] = {"int64_vocabulary": [7, 3, 5, 0]}
# Types of keys and values, the operator, its attributes, and maps.
VECTORIZED = [
    ((T.STRING, T.FLOAT), "DictVectorizer", WORDS, [{"a": 1.5, "c": -2.0}, {"b": 1.0, "unknown": 3.0}]),
    ((T.STRING, T.DOUBLE), "DictVectorizer", WORDS, [{"c": 0.1, "a": 1e-300}]),
    ((T.INT64, T.FLOAT), "DictVectorizer", NUMBERS, [{3: 1.5, 0: -2.0}, {7: 1.0, 3: 2.0, 5: 3.0, 0: 4.0}]),
    ((T.INT64, T.DOUBLE), "DictVectorizer", NUMBERS, [{3: 0.1}]),
    ((T.STRING, T.INT64), "DictVectorizer", WORDS, [{"b": 2**53 + 1}]),
    ((T.INT64, T.FLOAT), "CastMap", {}, [{5: 1.5, -2: 0.25}, {1: 3.0}]),
    ((T.INT64, T.FLOAT), "CastMap", {"map_form": "SPARSE", "max_map": 5}, [{4: 1.5, 0: 0.25}]),
    ((T.INT64, T.FLOAT), "CastMap", {"cast_to": "TO_INT64"}, [{5: 1.5, 2: -2.75}]),
]


@pytest.mark.parametrize(("kinds", "op", "attributes", "maps"), VECTORIZED)
def test_tensors_are_made_of_maps(
    kinds: tuple[int, int], op: str, attributes: dict[str, Any], maps: list[dict[Any, Any]], tmp_path: Path
) -> None:
    # What follows is optimized: two signs that cancel each other.
    wanted_type = {"TO_INT64": T.INT64}.get(attributes.get("cast_to", ""), T.FLOAT if op == "CastMap" else kinds[1])
    nodes = [
        helper.make_node(op, ["m"], ["d"], domain="ai.onnx.ml", **attributes),
        helper.make_node("Neg", ["d"], ["n"]),
        helper.make_node("Neg", ["n"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", wanted_type, [1, None])]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("m", _map(*kinds))], outputs)
    model = helper.make_model(graph, opset_imports=_ML, ir_version=8)
    result = eqsat.optimize(model)
    (node,) = result.model.graph
    assert node.op_type == op
    sizes = [len(v) for k, v in attributes.items() if k.endswith("vocabulary")] or [attributes.get("max_map")]
    shape = eqsat.load(model).graph.node(0).outputs[0].shape
    assert shape is not None and shape[0] == 1 and (sizes == [None] or shape[1] == sizes[0])
    seen = result.summary.verification
    assert seen is not None and seen.agrees and seen.outputs == 1 and seen.max_abs_error == 0
    result.save(tmp_path / "out.onnx")
    for given in maps:
        feed: dict[str, Any] = {"m": given}
        (found,) = result.run(feed).values()
        if kinds[1] == T.FLOAT:
            (wanted,) = _ort(model, feed)
            np.testing.assert_array_equal(_ort(tmp_path / "out.onnx", feed)[0], wanted, strict=True)
        else:  # ONNX Runtime's Python takes no such maps.
            keys = attributes.get("string_vocabulary") or attributes["int64_vocabulary"]
            wanted = np.array([[given.get(key, 0) for key in keys]], helper.tensor_dtype_to_np_dtype(kinds[1]))
        np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"cast_to": "TO_INT64"}, np.array([[-3, 12]])),
        ({"map_form": "SPARSE", "max_map": 7}, np.array([[0, 0, -3, 0, 0, 12, 0]], np.float32)),
        ({"cast_to": "TO_STRING"}, np.array([["-3", "12"]], object)),
    ],
)
def test_tensors_are_made_of_maps_to_strings(attributes: dict[str, Any], wanted: np.ndarray) -> None:
    # ONNX Runtime's Python takes no such maps.
    node = helper.make_node("CastMap", ["m"], ["y"], domain="ai.onnx.ml", **attributes)
    outputs = [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(wanted.dtype), [1, None])]
    graph = helper.make_graph([node], "g", [helper.make_value_info("m", _map(T.INT64, T.STRING))], outputs)
    model = helper.make_model(graph, opset_imports=_ML, ir_version=8)
    feed: dict[str, Any] = {"m": {5: "12", 2: "-3"}}
    (found,) = eqsat.run(model, feed).values()
    np.testing.assert_array_equal(found, wanted, strict=True)
    result = eqsat.optimize(model)
    assert result.summary.verification is not None and result.summary.verification.agrees


def test_a_key_that_a_sparse_map_has_no_place_for(tmp_path: Path) -> None:
    node = helper.make_node("CastMap", ["m"], ["y"], domain="ai.onnx.ml", map_form="SPARSE", max_map=3)
    inputs, outputs = (
        [helper.make_value_info("m", _map(T.INT64, T.FLOAT))],
        [helper.make_tensor_value_info("y", 1, [1, 3])],
    )
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=_ML, ir_version=8)
    feed: dict[str, Any] = {"m": {3: 1.0}}
    with pytest.raises(ExecutionError, match="keys from 0 to 2 are required, and 3 is none of them"):
        eqsat.run(model, feed)


BORDERS = {
    "seq(float[2,3]) x, float[2,3] w": "c = ConcatFromSequence<axis=0>(x) n = Neg(w) m = Neg(n) s = Abs(c) z = Abs(s)"
    " y = SequenceInsert(x, m)",
    "seq(float[2,3]) x": "i = Constant<value = int64 {1}>() a = SequenceAt(x, i) n = Neg(a) z = Neg(n)"
    " y = SequenceConstruct(z, a)",
    "optional(float[2,3]) x": "a = OptionalGetElement(x) n = Neg(a) z = Neg(n) y = SequenceConstruct(z, a)",
    "float[4,3] x": "n = Neg(x) m = Neg(n) z = Abs(m) y = SplitToSequence<axis=0>(m)",
}


@pytest.mark.parametrize("inputs", BORDERS)
@pytest.mark.parametrize("targets", [(), ("dnnl",)], ids=["cpu", "dnnl"])
def test_sequences_and_optionals_stay_as_they_are(inputs: str, targets: tuple[str, ...], tmp_path: Path) -> None:
    text = f"{_HEAD} g ({inputs}) => (float[?,3] z, seq(float[]) y) {{ {BORDERS[inputs]} }}"
    model = onnx.parser.parse_model(text.replace("?", "M"))
    result = eqsat.optimize(model, targets)
    verification = result.summary.verification
    assert result.cost < result.baseline_cost and verification is not None and not verification.skipped
    result.save(tmp_path / "out.onnx")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((2, 3)).astype(np.float32) for _ in range(2))
    first = rng.standard_normal((4, 3)).astype(np.float32) if inputs.startswith("float[4") else x
    feed: dict[str, Any] = {"x": [x, w] if inputs.startswith("seq") else first} | ({"w": w} if " w" in inputs else {})
    wanted = eqsat.run(model, feed)
    for name, value in result.run(feed).items():
        _same(value, wanted[name])
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)
    if not inputs.startswith("optional"):  # ONNX Runtime's Python cannot give one.
        _same(_ort(model, feed), _ort(tmp_path / "out.onnx", feed))
