"""Operators that the reference of ONNX evaluates, and what it has wrong, against ONNX Runtime."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.ops.reference import ReferenceNode
from eqsat.schema.types import OpKey

FEATURES = 4


@pytest.mark.parametrize("kernel", ["RBF", "LINEAR", "POLY", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_of_a_support_vector_classifier(classes: int, kernel: str) -> None:
    rng = np.random.default_rng(classes)
    per_class = rng.integers(2, 5, classes)
    vectors, pairs = int(per_class.sum()), classes * (classes - 1) // 2
    node = helper.make_node(
        "SVMClassifier",
        ["x"],
        ["label", "probability"],
        domain="ai.onnx.ml",
        classlabels_ints=list(range(classes)),
        coefficients=rng.standard_normal((classes - 1) * vectors).tolist(),
        kernel_params=[0.3, 0.1, 2.0],
        kernel_type=kernel,
        prob_a=(-1 - rng.random(pairs)).tolist(),
        prob_b=(0.2 * rng.random(pairs)).tolist(),
        rho=rng.standard_normal(pairs).tolist(),
        support_vectors=rng.standard_normal(vectors * FEATURES).tolist(),
        vectors_per_class=per_class.tolist(),
        post_transform="NONE",
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", FEATURES])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]),
            helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["N", classes]),
        ],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    x = rng.standard_normal((9, FEATURES)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    label, probability = session.run(None, {"x": x})
    found = eqsat.run(model, {"x": x})
    np.testing.assert_allclose(found["probability"], probability, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["label"], label)


def test_no_elements_cause_no_warning() -> None:
    node = ReferenceNode(OpKey("", "InstanceNormalization"), 22, [helper.make_attribute("epsilon", 1e-5)], 1)
    scale = np.ones(2, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (made,) = node([np.zeros((1, 2, 0), np.float32), scale, scale])
    assert made.shape == (1, 2, 0)
