"""What a summary says about a model as such."""

from __future__ import annotations

import onnx
import pytest

import eqsat

TRAINED = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3, 4] x, bool c) => (float[2, 3, 4] y)
<float ratio = {0.5}, float[3] one = {1, 1, 1}, float[3] zero = {0, 0, 0}, bool training = {TRAINING}> {
d = Dropout(x, ratio, training)
n, m, v = BatchNormalization<training_mode = 1>(d, one, zero, zero, one)
y = If(c) <then_branch = b () => (float[2, 3, 4] t) { t = Dropout(n, ratio, training) },
    else_branch = e () => (float[2, 3, 4] f) { f = Identity(n) }> }"""


@pytest.mark.parametrize(("training", "said"), [(1, "1 BatchNormalization, 2 Dropout;"), (0, "1 BatchNormalization;")])
def test_operators_in_training_mode_are_named_once(training: int, said: str) -> None:
    model = onnx.parser.parse_model(TRAINED.replace("TRAINING", str(training)))
    notes = [note for note in eqsat.optimize(model, verify=False).summary.notes if "training" in note]
    assert len(notes) == 1
    assert said in notes[0]


def test_models_for_inference_have_no_such_note() -> None:
    model = onnx.parser.parse_model(TRAINED.replace("TRAINING", "0").replace("training_mode = 1", "epsilon = 0.1"))
    model.graph.node[1].output[:] = ["n"]
    assert not [note for note in eqsat.optimize(model).summary.notes if "training" in note]
