"""Recurrent networks of no steps, no sequences or no inputs have costs in generated C, and run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import eqsat

HIDDEN = 5


@pytest.mark.parametrize(("steps", "sequences", "inputs"), [(0, 2, 3), (4, 0, 3), (4, 2, 0), (3, 2, 3)])
@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_networks(operator: str, gates: int, steps: int, sequences: int, inputs: int) -> None:
    random = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(random.standard_normal((1, gates * HIDDEN, size)).astype(np.float32), name)
        for name, size in (("w", inputs), ("r", HIDDEN))
    ]
    node = onnx.helper.make_node(operator, ["x", "w", "r"], ["y"], hidden_size=HIDDEN)
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [steps, sequences, inputs]), ("y", [steps, 1, sequences, HIDDEN]))
    )
    graph = onnx.helper.make_graph([node], "g", [x], [y], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    result = eqsat.optimize(model, host="c")
    assert result.summary.after.cost > 0
    values = {"x": random.standard_normal((steps, sequences, inputs)).astype(np.float32)}
    expected = result.run(values)["y"]
    assert expected.shape == (steps, 1, sequences, HIDDEN)
    np.testing.assert_allclose(result.compile()(values)["y"], expected, rtol=1e-5, atol=1e-6)
