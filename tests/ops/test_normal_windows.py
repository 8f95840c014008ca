"""``auto_pad`` and ``output_shape`` made explicit, against ONNX Runtime executing the original attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from eqsat.model.load import load
from tests.model.running import run_ort

MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def _model(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]], weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", infos, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _check(node: onnx.NodeProto, x: np.ndarray, weights: dict[str, np.ndarray]) -> None:
    original = _model(node, {"x": x.shape}, weights)
    expected = run_ort(original, {"x": x})
    model = load(original)
    normal = model.graph[0]
    rank = x.ndim - 2
    if "ceil_mode" not in normal.attributes or normal.attributes["ceil_mode"].value == 0:
        assert "auto_pad" not in normal.attributes or normal.attributes["auto_pad"].value == "NOTSET"
        assert len(normal.attributes["pads"].value) == 2 * rank
    assert len(normal.attributes["kernel_shape"].value) == rank
    assert len(normal.attributes["strides"].value) == rank
    assert "output_shape" not in normal.attributes
    (y,) = run_ort(model, {"x": x})
    np.testing.assert_allclose(y, expected[0], rtol=1e-6, atol=1e-6)
    shape = model.graph.outputs[0].shape
    assert shape is not None and shape.numpy() == expected[0].shape


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operator", ["Conv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose"])
@pytest.mark.parametrize("seed", range(6))
def test_explicit_pads_compute_the_same(operator: str, mode: str, seed: int) -> None:
    rng = np.random.default_rng((seed, MODES.index(mode), len(operator)))
    rank = int(rng.integers(1, 3))
    x = rng.standard_normal((2, 4, *rng.integers(5, 10, rank))).astype(np.float32)
    kernel = [int(k) for k in rng.integers(1, 4, rank)]
    attributes: dict[str, Any] = {"strides": [int(s) for s in rng.integers(1, 4, rank)]}
    if operator == "MaxPool" and mode.startswith("SAME"):
        # ONNX Runtime refuses windows that leave gaps: their padding is negative to it.
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], kernel, strict=True)]
    weights = {}
    inputs = ["x"]
    if operator.startswith("Conv"):
        groups = int(rng.choice([1, 2]))
        first, second = (4, 3) if operator == "ConvTranspose" else (6, 4 // groups)
        weights["w"] = rng.standard_normal((first, second, *kernel)).astype(np.float32)
        inputs.append("w")
        attributes["group"] = groups
        if rng.integers(2) and mode in ("NOTSET", "VALID"):
            attributes["dilations"] = [int(d) for d in rng.integers(1, 3, rank)]
    else:
        attributes["kernel_shape"] = kernel
        if operator == "AveragePool":
            attributes["count_include_pad"] = int(rng.integers(2))
        if mode == "NOTSET":
            attributes["pads"] = [int(p) for p in rng.integers(0, min(kernel), 2 * rank)]
            if operator != "LpPool":
                attributes["ceil_mode"] = int(rng.integers(2))
    if mode != "NOTSET":
        attributes["auto_pad"] = mode
    _check(helper.make_node(operator, inputs, ["y"], **attributes), x, weights)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("seed", range(6))
def test_output_shape_becomes_pads(mode: str, seed: int) -> None:
    rng = np.random.default_rng((seed, MODES.index(mode)))
    x = rng.standard_normal((1, 2, 5, 6)).astype(np.float32)
    kernel, strides = rng.integers(2, 5, 2), rng.integers(1, 3, 2)
    full = [int(s * (d - 1) + k) for s, d, k in zip(strides, x.shape[2:], kernel, strict=True)]
    wanted = [int(f - rng.integers(1 - s, min(k, s))) for f, k, s in zip(full, kernel, strides, strict=True)]
    w = rng.standard_normal((2, 3, *kernel)).astype(np.float32)
    attributes: dict[str, Any] = {"strides": [int(s) for s in strides], "output_shape": wanted}
    if mode != "NOTSET":
        attributes["auto_pad"] = mode
    _check(helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes), x, {"w": w})


def test_symbolic_size_keeps_what_depends_on_it() -> None:
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 1, "H", "W"))
    w = onnx.numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")

    def pads_with(stride: int) -> tuple[str, list[int] | None]:
        node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_LOWER", strides=[stride, stride])
        output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
        model = load(helper.make_model(helper.make_graph([node], "g", [info], [output], [w])))
        attributes = model.graph[0].attributes
        pads = attributes.get("pads")
        return str(attributes["auto_pad"].value), None if pads is None else list(pads.value)

    assert pads_with(1) == ("NOTSET", [1, 1, 1, 1])
    assert pads_with(2) == ("SAME_LOWER", None)
