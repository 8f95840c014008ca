"""Statistics of normalizations in the type that the model asks for, compared with the formula in float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import eqsat

SHAPE = (3, 8, 5)


@pytest.mark.parametrize("name", ["LayerNormalization", "RMSNormalization", "GroupNormalization"])
def test_statistics_of_doubles_in_doubles(name: str) -> None:
    rng = np.random.default_rng(0)
    x = 3 * rng.standard_normal(SHAPE) + 2
    scale = rng.standard_normal(8 if name == "GroupNormalization" else 5)
    operands = ["x", "s"] if name == "RMSNormalization" else ["x", "s", "s"]
    groups = name == "GroupNormalization"
    node = helper.make_node(name, operands, ["y"], stash_type=TensorProto.DOUBLE)
    if groups:
        node.attribute.append(helper.make_attribute("num_groups", 2))
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.DOUBLE, SHAPE), info("s", TensorProto.DOUBLE, scale.shape)]
    graph = helper.make_graph([node], "g", inputs, [info("y", TensorProto.DOUBLE, SHAPE)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    rows = x.reshape(3, 2, -1) if groups else x
    mean = 0 if name == "RMSNormalization" else rows.mean(-1, keepdims=True)
    # The model has epsilon as a float32.
    normed = (rows - mean) / np.sqrt(((rows - mean) ** 2).mean(-1, keepdims=True) + float(np.float32(1e-5)))
    factor = scale[:, None] if groups else scale
    expected = normed.reshape(SHAPE) * factor + (0 if name == "RMSNormalization" else factor)
    (found,) = eqsat.run(model, {"x": x, "s": scale}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
