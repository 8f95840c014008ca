"""The light networks with random weights: valid, deterministic, and free of what hides errors."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from benchmarks.models import LIGHT, before_softmax, light, light_path, with_output

SMALL = ("densenet121", "inception_v1", "shufflenet", "squeezenet")


@pytest.mark.parametrize("name", SMALL)
def test_same_operators_and_no_equal_weights(name: str) -> None:
    original = onnx.load(light_path(name))
    model = light(name)
    kept = [n.op_type for n in original.graph.node if n.op_type != "ConstantOfShape"]
    assert [n.op_type for n in model.graph.node] == kept
    weights = {i.name for i in original.graph.initializer}
    assert [i.name for i in model.graph.input] == [i.name for i in original.graph.input if i.name not in weights]
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1:
            assert np.unique(array).size > array.size // 2, tensor.name


def test_deterministic() -> None:
    assert light("squeezenet").SerializeToString() == light("squeezenet").SerializeToString()
    assert light("squeezenet").SerializeToString() != light("squeezenet", seed=1).SerializeToString()


@pytest.mark.parametrize("name", ("inception_v1", "squeezenet"))
def test_values_neither_vanish_nor_overflow(name: str) -> None:
    model = light(name)
    logits = before_softmax(model)
    model = with_output(model, logits, [f"d{i}" for i in range(4 if name == "squeezenet" else 2)])
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    value = np.asarray(session.run([logits], {model.graph.input[0].name: x})[0])
    assert 0.1 < value.std() < 100


def test_names_are_those_of_the_package() -> None:
    folder = light_path("resnet50").parent
    assert sorted(p.stem.removeprefix("light_") for p in folder.glob("light_*.onnx")) == sorted(LIGHT)
