"""The graphs compute what they say, whatever the spelling and the order of their nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks import graphs
from benchmarks.cases import CASES, case


def _run(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in model.graph.input
    }
    results = ReferenceEvaluator(model).run(None, inputs)
    return inputs | dict(zip((o.name for o in model.graph.output), results, strict=True))


@pytest.mark.parametrize("spelling", graphs.SPELLINGS)
def test_spellings_compute_a_dense_layer(spelling: str) -> None:
    model = graphs.dense_spelling(spelling)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in graphs.dense_spelling("plain").graph.initializer}
    values = _run(model)
    expected = values["x"] @ weights["w"] + weights["b"]
    if spelling == "residual_first":
        expected = expected + values["r"]
    found = values[model.graph.output[0].name]
    np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [1, 3, 8, 64])
def test_region_order_computes_different_values(k: int) -> None:
    first, last = (_run(graphs.region_order(k, first=f)) for f in (True, False))
    assert [*first][2] == "n"
    assert [*last][-1] == "n"
    for name, value in first.items():
        np.testing.assert_array_equal(value, last[name])
    values = [first[f"d{i + 1}"].tobytes() for i in range(k)]
    assert len(set(values)) == k
    np.testing.assert_array_equal(first["n"], 4 * first["p"] * first["q"])
    np.testing.assert_allclose(first["d1"], 2 * first["p"] * np.tanh(2 * first["q"]), rtol=1e-6)


def test_region_order_has_a_limit() -> None:
    with pytest.raises(ValueError, match="k must be from 1 to 64, got 65"):
        graphs.region_order(65, first=True)


def test_shuffling_keeps_the_values() -> None:
    model = graphs.residual_chain(2)
    expected = _run(model)
    orders = set()
    for seed in range(4):
        other = graphs.shuffled(model, seed)
        onnx.checker.check_model(other)
        orders.add(tuple(n.output[0] for n in other.graph.node))
        for name, value in _run(other).items():
            np.testing.assert_array_equal(value, expected[name])
    assert len(orders) == 4


@pytest.mark.parametrize("blocks", [1, 4, 200])
def test_residual_chains_have_25_nodes_a_block(blocks: int) -> None:
    assert len(graphs.residual_chain(blocks).graph.node) == 25 * blocks + 1
    assert len(graphs.residual_chain(blocks, affine=False).graph.node) == 10 * blocks + 1


def test_residual_chains_neither_vanish_nor_explode() -> None:
    values = _run(graphs.residual_chain(40))
    assert 1e-3 < float(np.abs([*values.values()][-1]).mean()) < 1e3


def test_chains_are_the_three_sequences() -> None:
    ops = " ".join(n.op_type.lower() for n in graphs.overlapping_chains().graph.node)
    assert ops == " softmax ".join(graphs.CHAINS)


def test_names_of_cases_are_unique() -> None:
    assert len({c.name for c in CASES}) == len(CASES)
    assert case("chains").targets == ("toy_chain",)
    with pytest.raises(ValueError, match="a case must be one of"):
        case("chain")
