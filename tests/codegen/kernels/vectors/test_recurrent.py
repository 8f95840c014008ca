"""RNN, GRU and LSTM in C for every instruction set, against the numpy executor and ONNX Runtime."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.joined_cases import Built, Joined, joined

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SHAPES = {
    "one_row": (5, 1, 7, 32),
    "rows": (4, 3, 10, 24),
    "odd": (3, 2, 5, 19),
    "less_than_a_vector": (6, 2, 3, 3),
    "one_element": (3, 1, 1, 1),
    "one_step": (1, 4, 16, 48),
    "many_rows": (2, 17, 9, 16),
}
"""Steps, batch, features, hidden elements."""
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"direction": "reverse", "bias": True, "given": (5,)},
    "both": {"direction": "bidirectional", "bias": True, "given": (5, 6)},
    "fixed_states": {"direction": "bidirectional", "bias": True, "fixed": (5, 6), "only": (1, 2)},
    "other_functions": {"bias": True, "names": ["HardSigmoid", "LeakyRelu", "Softsign"], "given": (5, 6)},
    "clipped": {"bias": True, "attributes": {"clip": 0.2}, "direction": "bidirectional"},
    "lengths": {"lengths": "given", "bias": True, "given": (5, 6)},
    "lengths_both": {"lengths": "fixed", "direction": "bidirectional", "bias": True},
    "lengths_back": {"lengths": "given", "direction": "reverse", "only": (1, 2)},
    "computed": {"bias": True, "computed": ("w", "r", "b"), "direction": "bidirectional", "lengths": "given"},
    "more_functions": {"bias": True, "names": ["Sigmoid", "Relu", "Affine"], "only": (0,)},
}


def built(kind: str, shape: tuple[int, int, int, int], way: Mapping[str, Any], seed: int) -> Built:
    """A model of one node, and its inputs."""
    rng = np.random.default_rng(seed)
    time, batch, features, n = shape
    direction = way.get("direction", "forward")
    d, gates = (2 if direction == "bidirectional" else 1), GATES[kind]

    def some(*sizes: int) -> np.ndarray:
        return (rng.standard_normal(sizes) / max(sizes[-1], 1) ** 0.5).astype(np.float32)

    weights: dict[str, np.ndarray] = {"w": some(d, gates * n, features), "r": some(d, gates * n, n)}
    if way.get("bias"):
        weights["b"] = some(d, 2 * gates * n)
    feeds: dict[str, np.ndarray] = {"x": rng.standard_normal((time, batch, features)).astype(np.float32)}
    lengths = way.get("lengths")
    if lengths:
        (feeds if lengths == "given" else weights)["n"] = rng.integers(1, time + 1, batch).astype(np.int32)
    for name in way.get("computed", ()):
        feeds[name] = weights.pop(name)
    operands = ["x", "w", "r", "b" if way.get("bias") else "", "n" if lengths else ""]
    for index, name in ((5, "h0"), (6, "c0"))[: 2 if kind == "LSTM" else 1]:
        given, fixed = index in way.get("given", ()), index in way.get("fixed", ())
        if given or fixed:
            (feeds if given else weights)[name] = some(d, batch, n)
        operands.append(name if given or fixed else "")
    if kind == "LSTM" and (peepholes := way.get("peepholes")):
        (feeds if peepholes == "given" else weights)["p"] = some(d, 3 * n)
        operands += ["p"]
    names = ["y", "h", "c"][: 3 if kind == "LSTM" else 2]
    only = way.get("only", (0, 1, 2))
    attributes: dict[str, Any] = {"hidden_size": n, "direction": direction} | way.get("attributes", {})
    if "names" in way:
        attributes["activations"] = way["names"][: {"RNN": 1, "GRU": 2, "LSTM": 3}[kind]] * d
        if "Affine" in attributes["activations"]:  # whose defaults ONNX leaves open
            attributes |= {"activation_alpha": [0.7] * d, "activation_beta": [0.1] * d}
    if kind == "GRU":
        attributes["linear_before_reset"] = way.get("after", 0)
    results = [name if k in only else "" for k, name in enumerate(names)]
    node = helper.make_node(kind, operands, results, **attributes)
    shapes = {"y": (time, d, batch, n), "h": (d, batch, n), "c": (d, batch, n)}
    graph = helper.make_graph(
        [node],
        "recurrent",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, shapes[k]) for k in results if k],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), feeds


LSTM_WAYS: dict[str, dict[str, Any]] = {
    "peepholes": {"peepholes": "fixed", "bias": True, "given": (5, 6)},
    "given_peepholes": {"peepholes": "given", "direction": "bidirectional"},
    "coupled": {"peepholes": "fixed", "bias": True, "attributes": {"input_forget": 1}},
    "smooth_functions": {"bias": True, "names": ["Sigmoid", "Elu", "Softplus"]},
}


def cases() -> dict[str, Built]:
    """Every kind in every shape, by turns in one of the ways."""
    found = {}
    kinds = [("RNN", {}), ("GRU", {}), ("GRU", {"after": 1}), ("LSTM", {})]
    for seed, (shape_name, shape) in enumerate(SHAPES.items()):
        for number, (kind, more) in enumerate(kinds):
            for turn in range(2):
                way = list(WAYS)[(seed + number + 3 * turn) % len(WAYS)]
                name = f"{kind}{'_after' if more else ''}-{shape_name}-{way}"
                found[name] = built(kind, shape, WAYS[way] | more, seed)
        for way, options in LSTM_WAYS.items():
            found[f"LSTM-{shape_name}-{way}"] = built("LSTM", shape, options, seed)
    return found


@functools.cache
def every_case() -> Joined:
    return joined(cases())


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_values(isa: Isa) -> None:
    compiled = every_case().compiled(isa)
    kernels = [k.family for k in compiled.emitted.kernels if k.task.operator.name in GATES]
    assert kernels == ["recurrent vectors"] * len(cases())
    every_case().check(compiled, lambda size: 2e-6)


@pytest.mark.parametrize("kind", GATES)
def test_threads_share_directions(kind: str) -> None:
    model, feeds = built(kind, (40, 4, 64, 128), WAYS["both"], 3)
    alone, shared = CModel(load(model)), CModel(load(model), threads=2)
    assert shared.emitted.shared == 1
    expected = alone.run(feeds)
    for name, found in shared.run(feeds).items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)
