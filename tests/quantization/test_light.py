"""Well-known networks: integers throughout, and within a budget a program that is proven to be near the cheapest."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import eqsat
from benchmarks.models import before_softmax, light


def headless(name: str) -> onnx.ModelProto:
    """A light network without its Softmax, which would hide errors."""
    model = light(name)
    logits = before_softmax(model)
    known = onnx.shape_inference.infer_shapes(model).graph.value_info
    output = next(v for v in known if v.name == logits)
    kept = [n for n in model.graph.node if n.op_type != "Softmax"]
    del model.graph.output[:], model.graph.node[:]
    model.graph.output.append(output)
    model.graph.node.extend(kept)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "budgets"),
    [
        ("squeezenet", (None, 48)),
        pytest.param("shufflenet", (None, 42), marks=pytest.mark.heavy),
        pytest.param("resnet50", (None, 42, 46, 50, 60), marks=pytest.mark.heavy),
    ],
)
def test_near_the_cheapest_within_a_budget(name: str, budgets: tuple[float | None, ...]) -> None:
    model = headless(name)
    (given,) = model.graph.input
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    data = {given.name: np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)}
    costs, shares = [], []
    for budget in budgets:
        result = eqsat.quantize(model, data, budget=budget)
        assert result.gap <= 0.01
        if budget is None:
            assert result.share.floating == 0
        else:
            assert min(result.actual.values()) >= budget
            assert result.share.integer > 0
        costs.append(result.cost)
        shares.append(result.cost / result.baseline_cost)
    assert costs == sorted(costs)
    assert shares[0] < 0.35
