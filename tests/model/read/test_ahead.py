"""Normalizations that ONNX Runtime writes at opsets before ONNX has them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.errors import ModelError
from eqsat.model.load import load
from tests.model.running import run_ort

F = TensorProto.FLOAT


def model(name: str, version: int, outputs: tuple[str, ...] = ("y",), **attrs: object) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["i"], ["q"]),
        helper.make_node("Relu", ["q"], ["x"]),
        helper.make_node(name, ["x", "s"], list(outputs), **attrs),
    ]
    given = [helper.make_tensor_value_info("i", F, ["N", 6]), helper.make_tensor_value_info("s", F, [6])]
    results = [helper.make_tensor_value_info(o, F, None) for o in outputs]
    graph = helper.make_graph(nodes, "g", given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def feed() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"i": rng.standard_normal((3, 6)).astype(np.float32), "s": rng.standard_normal(6).astype(np.float32)}


@pytest.mark.parametrize("version", [11, 13, 16, 17, 21])
@pytest.mark.parametrize(
    ("name", "outputs", "attrs"),
    [
        ("LayerNormalization", ("y",), {"axis": -1}),
        ("LayerNormalization", ("y", "m", "v"), {"epsilon": 1e-3, "axis": 1}),
        ("SimplifiedLayerNormalization", ("y",), {}),
        ("SimplifiedLayerNormalization", ("y",), {"axis": -1, "epsilon": 1e-2, "stash_type": 1}),
    ],
)
def test_they_are_optimized(name: str, outputs: tuple[str, ...], attrs: dict[str, object], version: int) -> None:
    given = model(name, version, outputs, **attrs)
    before = given.SerializeToString(deterministic=True)
    result = eqsat.optimize(given)
    assert given.SerializeToString(deterministic=True) == before
    wanted = {"SimplifiedLayerNormalization": "RMSNormalization"}.get(name, name)
    assert [node.op_type for node in result.model.graph] == ["Relu", wanted]
    assert set(result.model.opset_imports) == {""}
    assert result.summary.verification.agrees
    expected = run_ort(given, feed())
    for a, b in zip(run_ort(ir.to_proto(result.model), feed()), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    for name_of, b in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(result.run(feed())[name_of], b, rtol=1e-6, atol=1e-6)


def test_in_functions_and_branches() -> None:
    text = """<ir_version: 8, opset_import: ["": 13, "my": 1]>
        g (float[2, 6] x, float[6] s, bool c) => (float[2, 6] y) {
            a = my.f(x, s)
            y = If (c) <then_branch = t () => (float[2, 6] u) { u = SimplifiedLayerNormalization(a, s) },
                        else_branch = e () => (float[2, 6] v) { v = LayerNormalization(a, s) }>
        }
        <domain: "my", opset_import: ["": 13]> f (p, q) => (r) { r = LayerNormalization(p, q) }"""
    given = onnx.parser.parse_model(text)
    x, s = feed()["i"][:2], feed()["s"]

    def normed(v: np.ndarray, center: bool) -> np.ndarray:
        v = v - v.mean(-1, keepdims=True) if center else v
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * s

    assert set(load(given).opset_imports) == {""}
    for c in (True, False):
        found = eqsat.run(given, {"x": x, "s": s, "c": np.array(c)})["y"]
        np.testing.assert_allclose(found, normed(normed(x, True), not c), rtol=1e-5, atol=1e-6)


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(ModelError, match="LayerNormalization"):
        load(model("LayerNormalization", 13, axis=5))
    with pytest.raises(ModelError, match="SimplifiedLayerNormalization"):
        load(model("SimplifiedLayerNormalization", 17, ("y", "v")))
    with pytest.raises(ModelError, match="creases"):
        load(model("LayerNormalization", 13, creases=3))
