"""The e-graph grows with the network and not with its square, and rounds do not depend on depth at all."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.errors import EqsatError
from eqsat.execute.executor import Executor
from eqsat.model.expression import Tensor
from eqsat.model.load import load
from eqsat.rules.reader import read_text
from eqsat.search import Search
from tests.egraph.chains import CHAINS, windows

DEPTHS = (1, 2, 4, 12, 24, 48)
MOST_ENODES = 6.0
"""E-nodes per operator of the model, constants included."""
MOST_ENODES_OF_WINDOWS = 12.0
"""The same for attention in windows of an image, whose views have more spellings."""
MOST_SPELLINGS = 5
"""E-nodes of a class."""
MOST_ROUNDS = 8


LONG = ("post_norm", "post_norm_spelled", "pre_norm_spelled")
"""Chains that take the longest."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in CHAINS],
)
def searches(request: pytest.FixtureRequest) -> dict[int, Search]:
    """By depth, with all shipped rules."""
    return {depth: Search.of(CHAINS[request.param](depth), time_limit=600) for depth in DEPTHS}


@pytest.mark.slow
def test_enodes_are_linear_in_depth(searches: dict[int, Search]) -> None:
    sizes = {depth: len(search.snapshot.nodes) for depth, search in searches.items()}
    for depth, search in searches.items():
        assert sizes[depth] <= MOST_ENODES * len(search.model.graph), depth
        assert max(len(nodes) for nodes in search.snapshot.classes) <= MOST_SPELLINGS, depth
    assert sizes[48] - sizes[24] == 2 * (sizes[24] - sizes[12]), "each layer adds the same"


@pytest.mark.slow
def test_each_rule_adds_the_same_in_each_layer(searches: dict[int, Search]) -> None:
    added = {
        depth: Counter(search.saturation.names[n.rule] for n in search.snapshot.nodes if n.kind == "op")
        for depth, search in searches.items()
    }
    for rule in added[48]:
        assert added[48][rule] - added[24][rule] == 2 * (added[24][rule] - added[12][rule]), rule


@pytest.mark.slow
def test_rounds_do_not_depend_on_depth(searches: dict[int, Search]) -> None:
    assert {s.saturation.stop_reason for s in searches.values()} == {"saturated"}
    rounds = {depth: s.saturation.iterations for depth, s in searches.items()}
    assert max(rounds.values()) <= MOST_ROUNDS
    assert rounds[48] == rounds[4]


@pytest.mark.slow
def test_views_between_windows_do_not_multiply() -> None:
    """They have many spellings in a layer, and as many in each."""
    sizes = {}
    for layers in (1, 2, 3):
        search = Search.of(windows(layers), targets=["dnnl"])
        sizes[layers] = len(search.snapshot.nodes)
        assert sizes[layers] <= MOST_ENODES_OF_WINDOWS * len(search.model.graph), layers
    assert sizes[3] - sizes[2] <= 1.1 * (sizes[2] - sizes[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_solved_and_compute_the_same(name: str) -> None:
    model = CHAINS[name](3)
    result = eqsat.optimize(model, targets=["dnnl"])
    assert result.gap <= 1e-6
    generator = np.random.default_rng(0)
    feeds = {
        v.name: generator.normal(size=v.shape.numpy()).astype(v.dtype.numpy())
        if v.dtype.is_floating_point()
        else np.ones(v.shape.numpy(), v.dtype.numpy())
        for v in model.graph.inputs
    }
    for expected, found in zip(Executor(load(model)).run(feeds).values(), result.run(feeds).values(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "constants"), [("alternating_sum", 24), ("affine_maps", 24)])
def test_all_constants_of_a_sum_meet(name: str, constants: int) -> None:
    result = eqsat.optimize(CHAINS[name](constants))
    counts = Counter(node.op_type for node in result.model.graph)
    fixed = {v.name for v in result.model.graph.initializers.values()}
    added = [n for n in result.model.graph if n.op_type == "Add" and any(v.name in fixed for v in n.inputs)]
    assert len(added) == 1, counts


def test_growth_is_reported_with_the_rule_and_the_tensor() -> None:
    rules = """
rule regroup : real
    (x + y) + z  =>  x + (y + z)
"""
    model = CHAINS["pre_norm"](4)
    result = eqsat.optimize(model, rules=read_text(rules, "test.rules").rules, default_rules=False, iterations=3)
    saturation = result.summary.saturation
    assert saturation.stop_reason != "saturated"
    row = saturation.growth[0]
    assert row.rule == "regroup" and row.enodes >= row.largest > 1 and row.op == "Add"
    assert row.tensor in {v.name for node in load(model).graph for v in node.outputs}
    assert f"growth    regroup ({row.place}) added {row.enodes:,} e-nodes" in str(result)


def test_nothing_is_reported_where_all_was_found() -> None:
    assert eqsat.optimize(CHAINS["pre_norm"](1)).summary.saturation.growth == ()


def test_targets_cannot_ask_for_facts_of_the_egraph() -> None:
    text = """
target acc
    peak float32 = 1e12
    bandwidth = 1e12
    launch = 1e-9
    link bandwidth = 1e12, latency = 1e-9
    supports Add
        where x.has_free_term
"""
    with pytest.raises(EqsatError, match="is known only in `where` of rules and composites"):
        read_text(text, "acc.target")


def test_neutral_constants_do_not_multiply() -> None:
    """Until `x * 1` is x, it is an operand of itself: constants must not move past the 1 again and again."""
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y)
    <float one = {1.0}, float b = {0.6}, float zero = {0.0}>
    { u = Mul(x, b)  v = Mul(u, one)  w = Mul(v, z)  s = Add(w, b)  t = Add(s, zero)  y = Add(t, x) }"""
    saturation = eqsat.optimize(model).summary.saturation
    assert saturation is not None
    assert saturation.stop_reason == "saturated"
    assert saturation.enodes < 40


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("u = Mul(x, b) v = Div(u, one) y = Sub(v, one)", 20),  # Coordinates of one of 2 pixels, from 0 to 1.
        ("u = Mul(x, b) v = Div(u, one) w = Div(v, one) z = Mul(w, x) y = Add(z, one)", 30),
        ("u = Add(x, b) v = Sub(u, zero) w = Mul(v, x) y = Add(w, one)", 30),
    ],
)
def test_neutral_divisors_and_subtrahends_do_not_multiply(body: str, most: int) -> None:
    """The same of `x / 1` and `x - 0`: the search would do nothing else until its limit."""
    model = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 3] x) => (float[2, 3] y) <float one = {{1.0}}, float b = {{2.0}}, float zero = {{0.0}}> {{ {body} }}"""
    result = eqsat.optimize(model)
    saturation = result.summary.saturation
    assert saturation is not None
    assert saturation.stop_reason == "saturated"
    assert saturation.enodes < most
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(result.run({"x": x})["y"], eqsat.run(model, {"x": x})["y"], rtol=1e-5, atol=1e-6)


def test_large_biases_of_zeros_do_not_multiply() -> None:
    """A sum is an operand of itself after zeros are left out: zeros plus zeros must not be another constant."""
    q, k = eqsat.input("q", (4, 3, 49, 8)), eqsat.input("k", (4, 3, 8, 49))
    zeros = np.zeros((1, 3, 49, 49), np.float32)
    mask = np.where(np.random.default_rng(0).random((4, 1, 49, 49)) < 0.5, 0, -100).astype(np.float32)
    scores = op.MatMul(q, k) * np.float32(0.5) + op.Transpose(zeros, perm=[0, 1, 3, 2])
    saturation = eqsat.optimize(eqsat.graph(op.Softmax(scores + mask, axis=-1))).summary.saturation
    assert saturation is not None
    assert saturation.stop_reason == "saturated"
    assert saturation.enodes < 40


def test_large_scales_of_ones_do_not_multiply() -> None:
    """Weights times ones are the weights, also where they are too large to be computed in the e-graph."""
    x, weights = eqsat.input("x", (1, 65)), np.random.default_rng(0).normal(size=(65, 65)).astype(np.float32)
    product = op.MatMul(x * np.ones(65, np.float32), weights) * np.ones(65, np.float32)
    result = eqsat.optimize(eqsat.graph(op.Relu(product)))
    saturation = result.summary.saturation
    assert saturation is not None
    assert saturation.stop_reason == "saturated"
    assert saturation.enodes < 20
    assert [n.op_type for n in result.model.graph] == ["MatMul", "Relu"]


@pytest.mark.parametrize(("shift", "times"), [(0.0, 0), (0.5, 1)])
def test_only_shifts_that_shift_go_through_a_product(shift: float, times: int) -> None:
    """The product of zeros and large weights is not known to be zeros, and would be moved on as a bias."""
    weights = np.random.default_rng(0).normal(size=(65, 65)).astype(np.float32)
    y = op.MatMul(eqsat.input("x", (2, 65)) + np.full(65, shift, np.float32), weights)
    (row,) = [r for r in eqsat.optimize(eqsat.graph(y)).summary.rules if r.name == "fold_shifted_input_into_matmul"]
    assert row.applied == times


@pytest.mark.parametrize("blocks", [1, 4])
def test_layers_of_pixels_and_convolutions_do_not_take_turns(blocks: int) -> None:
    """Squeeze and excitation: written as the other one, either would get new weights in each round."""
    rng = np.random.default_rng(0)

    def convolved(x: Tensor, outputs: int, inputs: int) -> Tensor:
        weights = rng.normal(size=(outputs, inputs, 1, 1)).astype(np.float32)
        return op.Conv(x, weights, rng.normal(size=outputs).astype(np.float32))

    x = eqsat.input("x", (1, 16, 8, 8))
    for _ in range(blocks):
        gate = op.Sigmoid(convolved(op.Relu(convolved(op.GlobalAveragePool(x), 4, 16)), 16, 4))
        x = convolved(op.Mul(x, gate), 16, 16)
    saturation = eqsat.optimize(eqsat.graph(x), "dnnl", verify=False).summary.saturation
    assert saturation is not None
    assert saturation.stop_reason == "saturated"
    assert saturation.enodes < 20 * blocks


def test_a_bias_for_each_element_stays_in_its_gemm() -> None:
    rng = np.random.default_rng(0)
    x = eqsat.input("x", (16, 70))
    for _ in range(3):
        weights, bias = (rng.normal(size=size).astype(np.float32) for size in ((70, 70), (16, 70)))
        x = op.Relu(op.Gemm(x, weights, bias, transB=1))
    saturation = eqsat.optimize(eqsat.graph(x), "dnnl", verify=False).summary.saturation
    assert saturation is not None
    assert saturation.enodes < 20
