"""RNN, GRU and LSTM against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.errors import ExecutionError
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, run_reference, values

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TIME, BATCH, FEATURES, HIDDEN = 5, 3, 4, 6


def inputs_of(
    rng: np.random.Generator, name: str, directions: int, *, bias: bool, lengths: bool, states: bool, peepholes: bool
) -> list[np.ndarray | None]:
    gates = GATES[name]

    def draw(*shape: int) -> np.ndarray:
        return values(rng, shape, np.float32, -0.8, 0.8)

    x = draw(TIME, BATCH, FEATURES)
    w, r = draw(directions, gates * HIDDEN, FEATURES), draw(directions, gates * HIDDEN, HIDDEN)
    inputs: list[np.ndarray | None] = [x, w, r, draw(directions, 2 * gates * HIDDEN) if bias else None]
    inputs.append(np.array([TIME, 2, 3], np.int32) if lengths else None)
    inputs.append(draw(directions, BATCH, HIDDEN) if states else None)
    if name == "LSTM":
        inputs.append(draw(directions, BATCH, HIDDEN) if states else None)
        inputs.append(draw(directions, 3 * HIDDEN) if peepholes else None)
    return inputs


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_options(name: str, direction: str, bias: bool, lengths: bool, states: bool):
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    inputs = inputs_of(rng, name, directions, bias=bias, lengths=lengths, states=states, peepholes=bias)
    attrs: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    if name == "RNN":
        attrs["activations"] = ["Tanh"] * directions
    check(name, inputs, attrs, outputs=3 if name == "LSTM" else 2, rtol=1e-4, atol=1e-5)
    if name == "GRU":
        check(name, inputs, attrs | {"linear_before_reset": 1}, outputs=2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "activations", "alpha", "beta"),
    [
        ("RNN", ["Relu"], (), ()),
        ("RNN", ["LeakyRelu"], (0.3,), ()),
        ("RNN", ["ScaledTanh"], (0.9,), (1.2,)),
        ("RNN", ["Affine"], (0.5,), (0.1,)),
        ("RNN", ["Elu"], (0.7,), ()),
        ("RNN", ["ThresholdedRelu"], (0.2,), ()),
        ("GRU", ["HardSigmoid", "Softsign"], (0.3,), (0.4,)),
        ("LSTM", ["Sigmoid", "Softplus", "HardSigmoid"], (0.25,), (0.45,)),
    ],
)
def test_activations(name: str, activations: list[str], alpha: tuple[float, ...], beta: tuple[float, ...]):
    rng = np.random.default_rng(1)
    inputs = inputs_of(rng, name, 1, bias=True, lengths=False, states=True, peepholes=False)
    attrs: dict[str, Any] = {"hidden_size": HIDDEN, "activations": activations}
    attrs |= {"activation_alpha": alpha} if alpha else {}
    attrs |= {"activation_beta": beta} if beta else {}
    check(name, inputs, attrs, outputs=3 if name == "LSTM" else 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_clipping(name: str):
    rng = np.random.default_rng(2)
    inputs = inputs_of(rng, name, 1, bias=True, lengths=False, states=False, peepholes=False)
    inputs[0] = inputs[0] * 5 if inputs[0] is not None else None
    attrs: dict[str, Any] = {"hidden_size": HIDDEN, "clip": 0.5}
    if name == "RNN":
        attrs["activations"] = ["Tanh"]
    check(name, inputs, attrs, outputs=3 if name == "LSTM" else 2, rtol=1e-4, atol=1e-5)


def test_coupled_gates():
    rng = np.random.default_rng(3)
    inputs = inputs_of(rng, "LSTM", 1, bias=True, lengths=False, states=True, peepholes=False)
    check("LSTM", inputs, {"hidden_size": HIDDEN, "input_forget": 1}, outputs=3, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_batch_first(name: str):
    rng = np.random.default_rng(4)
    inputs = inputs_of(rng, name, 1, bias=True, lengths=False, states=True, peepholes=False)[
        : 7 if name == "LSTM" else 6
    ]
    attrs: dict[str, Any] = {"hidden_size": HIDDEN}
    if name == "RNN":
        attrs["activations"] = ["Tanh"]
    count = 3 if name == "LSTM" else 2
    usual = run_ours(OpKey("", name), attrs, inputs, count)
    swapped = [v if i not in (0, 5, 6) or v is None else np.swapaxes(v, 0, 1) for i, v in enumerate(inputs)]
    moved = run_ours(OpKey("", name), attrs | {"layout": 1}, swapped, count)
    np.testing.assert_array_equal(moved[0], usual[0].transpose(2, 0, 1, 3))
    for a, b in zip(moved[1:], usual[1:], strict=True):
        np.testing.assert_array_equal(a, b.transpose(1, 0, 2))
    check(name, inputs, attrs, outputs=count, judge=run_reference, rtol=1e-4, atol=1e-5)


def test_unknown_activation():
    inputs = inputs_of(np.random.default_rng(5), "RNN", 1, bias=False, lengths=False, states=False, peepholes=False)
    with pytest.raises(ExecutionError, match="'Sine'"):
        run_ours(OpKey("", "RNN"), {"activations": ("Sine",)}, inputs, 2)
