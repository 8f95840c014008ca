"""The benchmarks' toy targets: the optimum that each is there for is the optimum of its numbers, at every size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import OpKey, TensorType
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel
from tests.targets.instances import FLOAT

SIZES = [1, 16, 1000, 10**5, 10**7]
ARITY = {"add": 2, "mul": 2, "sub": 2, "relu": 1, "sigmoid": 1, "tanh": 1}


class Costs:
    """Costs of operators on tensors of one size."""

    def __init__(self, target: str, size: int) -> None:
        self.model = CostModel(load_targets(target))
        self.target = self.model.targets[1]
        self.kind = TensorType(FLOAT, (size,))
        self.copy = self.model.copy_in(1, self.kind)
        self.dispatch = self.model.dispatch(1)

    def plain(self, name: str, where: int) -> float:
        inputs = [TensorFacts(self.kind)] * ARITY[name]
        return self.model.operator(where, OpKey("", name.capitalize()), (), inputs, [self.kind])

    def pair(self, first: str, second: str) -> float | None:
        """A composite of two operators, None if the target has none."""
        found = next((c for c in self.target.composites if c.name == f"{first}_{second}"), None)
        if found is None:
            return None
        inputs = ARITY[first] + ARITY[second] - 1
        one = BodyNode(OpKey("", first.capitalize()), (), tuple(range(ARITY[first])))
        two = BodyNode(OpKey("", second.capitalize()), (), (inputs, *range(ARITY[first], inputs)))
        body = Body(inputs, (one, two), (inputs + 1,))
        return self.model.composite(1, found, {}, body, [self.kind] * inputs, self.kind)


def covers(chain: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """All ways to cut a chain into single operators and pairs."""
    if not chain:
        yield ()
    for length in (1, 2):
        if length <= len(chain):
            for rest in covers(chain[length:]):
                yield (chain[:length], *rest)


def price(costs: Costs, cover: tuple[tuple[str, ...], ...]) -> float | None:
    """A chain between two operators of the host; further operands come from the host's memory."""
    total, on_host = 0.0, True
    for piece in cover:
        if len(piece) == 1:
            total += costs.plain(piece[0], 0) + (0 if on_host else costs.copy)
            on_host = True
            continue
        cost = costs.pair(*piece)
        if cost is None:
            return None
        total += cost + costs.copy * (sum(ARITY[op] - 1 for op in piece) + on_host) + costs.dispatch * on_host
        on_host = False
    return total + (0 if on_host else costs.copy)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chain", ["add relu mul add", "relu mul add relu", "mul add relu mul"])
def test_two_pairs_are_the_best_cover_of_each_chain(chain: str, size: int) -> None:
    costs = Costs("toy_chain", size)
    prices = {c: p for c in covers(tuple(chain.split())) if (p := price(costs, c)) is not None}
    assert len(prices) >= 4
    best = min(prices, key=prices.__getitem__)
    assert [len(piece) for piece in best] == [2, 2]
    assert sorted(prices.values())[1] > 1.01 * prices[best]


@pytest.mark.parametrize("size", SIZES)
def test_computing_the_shared_sum_twice_pays(size: int) -> None:
    costs = Costs("toy_shared", size)
    relu, sigmoid = costs.pair("add", "relu"), costs.pair("add", "sigmoid")
    assert relu is not None
    assert sigmoid is not None
    start, in_and_out = costs.dispatch, costs.copy
    twice = start + 2 * in_and_out + relu + sigmoid + 2 * in_and_out
    host = costs.plain("add", 0) + costs.plain("relu", 0) + costs.plain("sigmoid", 0)
    ones = [
        costs.plain("add", 0) + costs.plain(left, 0) + start + 3 * in_and_out + fused
        for left, fused in (("sigmoid", relu), ("relu", sigmoid))
    ]
    assert twice < 0.99 * min(host, *ones)


@pytest.mark.parametrize(("k", "size"), list(itertools.product([1, 5, 64], SIZES)))
def test_two_regions_beat_one_with_a_sum_on_the_host(k: int, size: int) -> None:
    """``a = p + p; b = q + q; h_j = tanh(b) ...; n = a * b; d_i = a ∘ h_j``; five of the d_i share an h_j."""
    costs = Costs("toy_regions", size)
    functions = -(-k // 5)
    tanh = functions * costs.plain("tanh", 0)
    on_target = {op: costs.plain(op, 1) for op in ("add", "mul")}
    outputs = (1 + k) * (on_target["mul"] + costs.copy)
    last = on_target["add"] + outputs + (1 + functions) * costs.copy  # a of p, n and the d_i of the h_j
    two = tanh + 2 * costs.dispatch + (2 * costs.copy + on_target["add"]) + last
    one = tanh + costs.dispatch + costs.plain("add", 0) + costs.copy + last
    host = tanh + 2 * costs.plain("add", 0) + (1 + k) * costs.plain("mul", 0)
    assert two < one
    assert two < host


@pytest.mark.parametrize(("rows", "inside", "columns"), [(1, 1, 1), (32, 64, 48), (512, 512, 512)])
def test_one_composite_beats_the_host(rows: int, inside: int, columns: int) -> None:
    model = CostModel(load_targets("toy_matmul"))
    (composite,) = model.targets[1].composites
    x, w, b, y = (TensorType(FLOAT, s) for s in ((rows, inside), (inside, columns), (columns,), (rows, columns)))
    product, add, relu = (OpKey("", op) for op in ("MatMul", "Add", "Relu"))
    for residual in (False, True):
        nodes = [BodyNode(product, (), (0, 1)), BodyNode(add, (), (3 + residual, 2))]
        nodes += [BodyNode(add, (), (5, 3))] if residual else []
        nodes.append(BodyNode(relu, (), (3 + residual + len(nodes) - 1,)))
        inputs = [x, w, b, *([y] if residual else [])]
        body = Body(len(inputs), tuple(nodes), (len(inputs) + len(nodes) - 1,))
        fused = model.composite(1, composite, {}, body, inputs, y)
        moved = model.copy_in(1, x) + residual * model.copy_in(1, y) + model.copy_out(1, y)
        facts = [TensorFacts(t, np.zeros(()) if t is b else None) for t in (x, w, y, b)]
        host = model.operator(0, product, (), facts[:2], [y]) + model.operator(0, relu, (), [facts[2]], [y])
        host += model.operator(0, add, (), [facts[2], facts[3]], [y])
        host += residual * model.operator(0, add, (), [facts[2], facts[2]], [y])
        assert model.dispatch(1) + moved + fused < host
