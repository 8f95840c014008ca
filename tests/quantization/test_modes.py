"""Simulation, and programs cut into prefix, integer core and suffix: valid, executed, and as accurate as measured."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.errors import QuantizationError
from eqsat.quantization.integer_part import PARTS, cut
from eqsat.schema.metadata import PARTS_DOMAIN
from tests.quantization.networks import built, he, normal, residual, samples
from tests.quantization.runtime import needs_exact_products, sqnr
from tests.quantization.runtime import run as run_in_peer


def _conv(x, channels: int, seed: int, *bias: np.ndarray):
    return op.Conv(x, he(channels, channels, 3, 3, seed=seed), *bias, pads=[1, 1, 1, 1])


def act_times_sigmoid() -> ir.Model:
    data, gate = eqsat.input("data", (1, 16, 64, 64)), eqsat.input("data2", (1, 16, 1, 1))
    return built(op.Relu(_conv(data, 16, 1)) * op.Sigmoid(gate))


def act_times_pool() -> ir.Model:
    act = op.Relu(_conv(eqsat.input("data", (1, 16, 64, 64)), 16, 1))
    return built(act * op.GlobalAveragePool(act))


def conv_bias_relu() -> ir.Model:
    return built(op.Relu(_conv(eqsat.input("data", (1, 16, 32, 32)), 16, 1, normal(16, seed=2, std=0.1))))


def conv_residual() -> ir.Model:
    data = eqsat.input("data", (1, 16, 32, 32))
    return built(op.Relu(_conv(data, 16, 1, normal(16, seed=2, std=0.1)) + data))


GRAPHS = {f.__name__: f for f in (act_times_sigmoid, act_times_pool, conv_bias_relu, conv_residual)}
MODES = {
    "simulate": {"simulate": True},
    "disabled": {},
    "enabled": {"conversions": "enabled"},
    "fully_integral": {"conversions": "fully_integral"},
}


@needs_exact_products
@pytest.mark.slow
@pytest.mark.parametrize("target", [None, "ethos_n"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_graph_in_mode(graph: str, mode: str, target: str | None, tmp_path: Path) -> None:
    model = GRAPHS[graph]()
    data = samples(model, 3)
    result = eqsat.quantize(model, data, target or (), **MODES[mode])
    result.save(tmp_path / "q.onnx")
    saved = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(saved, full_check=True)

    exact, peer = run_in_peer(model, data), run_in_peer(saved, data)
    assert sqnr(exact, peer) > 34
    assert sqnr(exact, peer) == pytest.approx(result.actual["output"], abs=0.3)
    rows = zip(*data.values(), strict=True)
    own = np.stack([result.run(dict(zip(data, row, strict=True)))["output"] for row in rows])
    step = float(np.diff(np.unique(own)).min())
    # Simulated products are floats, in which the two do not add up in one order.
    assert np.abs(peer - own).max() <= (1.01 * step if mode == "simulate" else 0)

    if mode == "simulate":
        floats = [n.op_type for n in saved.graph.node if not n.op_type.endswith("quantizeLinear")]
        assert sorted(n for n in floats if n != "QuantizeLinear") == sorted(n.op_type for n in model.graph)
        assert not saved.functions
        # Weights are stored as integers.
        assert {t.data_type for t in saved.graph.initializer if len(t.dims) == 4} == {onnx.TensorProto.INT8}
    elif mode == "disabled":
        assert not any(f.domain == PARTS_DOMAIN for f in saved.functions)
    else:
        _check_parts(saved)
        by_name = {f.name: [n.op_type for n in f.node] for f in saved.functions if f.domain == PARTS_DOMAIN}
        assert set(by_name["prefix"]) == {"QuantizeLinear"}
        assert set(by_name["suffix"]) == {"DequantizeLinear"}
        assert len(by_name["prefix"]) == len(data)
        assert by_name["core"]


def _check_parts(model: onnx.ModelProto) -> None:
    """The main graph is calls of the parts in order, and the core knows no floats but scales."""
    calls = list(model.graph.node)
    assert [n.op_type for n in calls] == [p for p in PARTS if p in {n.op_type for n in calls}]
    assert all(n.domain == PARTS_DOMAIN for n in calls)
    core = next(n for n in calls if n.op_type == "core")
    constants = {t.name for t in model.graph.initializer}
    types = {v.name: v.type.tensor_type.elem_type for v in [*model.graph.value_info, *model.graph.output]}
    crossing = [v for v in (*core.input, *core.output) if v not in constants]
    assert crossing
    assert {types[v] for v in crossing} <= {onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT64}


def test_the_core_alone_gives_the_integers() -> None:
    model = residual()
    data = samples(model, 2)
    result = eqsat.quantize(model, data, conversions="fully_integral", activation="int8")
    parts = {f.name: f for f in result.model.functions.values() if f.domain == PARTS_DOMAIN}
    assert set(parts) == set(PARTS)
    assert {v.dtype for node in parts["core"] for v in node.outputs} == {ir.DataType.INT8}
    whole = eqsat.quantize(model, data, activation="int8")
    for x in data["x"]:
        np.testing.assert_array_equal(result.run({"x": x})["output"], whole.run({"x": x})["output"])


@pytest.mark.slow
@pytest.mark.parametrize("targets", [(), ("ethos_n",)], ids=["host", "ethos_n"])
def test_parts_are_compiled_and_optimized_like_the_whole(targets: tuple[str, ...], tmp_path: Path) -> None:
    model = conv_residual()
    data = samples(model, 2)
    parts = eqsat.quantize(model, data, conversions="fully_integral", targets=targets)
    whole = eqsat.quantize(model, data, targets=targets)
    feeds = {name: arrays[0] for name, arrays in data.items()}
    expected = whole.run(feeds, backend="c")["output"]
    np.testing.assert_array_equal(parts.run(feeds, backend="c")["output"], expected)
    saved = tmp_path / "parts.onnx"
    parts.save(saved)
    np.testing.assert_array_equal(eqsat.compile(saved).run(feeds)["output"], expected)
    again = eqsat.optimize(saved, targets=targets)
    assert again.summary.before.cost == pytest.approx(eqsat.optimize(whole.model, targets=targets).summary.before.cost)
    assert again.summary.verification is not None and again.summary.verification.agrees
    eqsat.write_c(saved, tmp_path / "program", backends=[])
    assert (tmp_path / "program" / "model.c").is_file()


def test_what_is_not_integer_is_outside_of_the_core() -> None:
    x = eqsat.input("x", (1, 16, 24, 24))
    a = op.Relu(_conv(_conv(x, 16, 1), 16, 2))
    # No integer form, in the middle: what follows is less work than what precedes.
    b = op.LRN(a, size=3)
    model = built(op.Relu(op.Conv(b, he(16, 16, 1, 1, seed=3))))
    data = samples(model, 3)
    result = eqsat.quantize(model, data, conversions="enabled")
    proto = ir.to_proto(result.model)
    onnx.checker.check_model(proto, full_check=True)
    _check_parts(proto)
    parts = {f.name: [n.op_type for n in f.node] for f in proto.functions}
    assert parts["core"].count("QLinearConv") == 2
    assert "LRN" in parts["suffix"]
    plain = eqsat.quantize(model, data)
    np.testing.assert_array_equal(run_in_peer(proto, data), run_in_peer(plain.model, data))


def test_a_simulation_within_a_budget_rounds_less() -> None:
    model = act_times_pool()
    data = samples(model, 3)
    everything = eqsat.quantize(model, data, simulate=True)
    some = eqsat.quantize(model, data, simulate=True, budget=everything.actual["output"] + 3)
    assert set(some.tensors) < set(everything.tensors)
    assert some.actual["output"] >= everything.actual["output"] + 3
    assert sqnr(run_in_peer(model, data), run_in_peer(some.model, data)) >= everything.actual["output"] + 2.9


def test_impossible_requests_name_every_operator() -> None:
    x = eqsat.input("x", (2, 32))
    a = op.LayerNormalization(op.MatMul(x, normal(32, 32, seed=1)), normal(32, seed=2))
    b = op.MatMul(op.Tanh(a), normal(32, 32, seed=3))
    model = built(op.Hardmax(b))
    with pytest.raises(QuantizationError) as caught:
        eqsat.quantize(model, samples(model, 2), conversions="fully_integral")
    text = str(caught.value)
    assert "2 without an integer form" in text
    assert "LayerNormalization has no integer form" in text
    assert "Hardmax has no integer form" in text
    assert "MatMul" not in text
    assert "Tanh" not in text


def test_a_skipped_node_makes_a_fully_integral_program_impossible() -> None:
    model = conv_residual()
    name = next(n.outputs[0].name for n in model.graph if n.op_type == "Add") or ""
    with pytest.raises(QuantizationError, match=f"Add '{name}': skipped on request"):
        eqsat.quantize(model, samples(model, 2), conversions="fully_integral", skip=[name])


def test_a_fully_integral_program_that_is_too_noisy() -> None:
    model = conv_residual()
    with pytest.raises(QuantizationError, match="an SQNR of 60 dB for 'output' is required"):
        eqsat.quantize(model, samples(model, 2), conversions="fully_integral", budget=60)


@pytest.mark.parametrize("seed", range(30))
def test_the_cut_leaves_most_work_in_the_core(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values: list[ir.Value] = [ir.Value(name="x")]
    nodes = []
    for i in range(8):
        picks = rng.choice(len(values), size=min(len(values), int(rng.integers(1, 3))), replace=False)
        nodes.append(ir.Node("", "Max", [values[p] for p in picks], name=str(i)))
        values.append(nodes[-1].outputs[0])
    work = [int(w) for w in rng.integers(0, 20, 8)]
    integer = [bool(b) for b in rng.random(8) < 0.65]
    labels = cut(nodes, work, integer)
    graph = nx.DiGraph()
    index = {node: i for i, node in enumerate(nodes)}
    for i, node in enumerate(nodes):
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None:
                graph.add_edge(index[producer], i)

    def worth(candidate: list[int]) -> int:
        monotone = all(candidate[a] <= candidate[b] for a, b in graph.edges)
        allowed = all(integer[i] or label != 1 for i, label in enumerate(candidate))
        return sum(work[i] + 1 for i, label in enumerate(candidate) if label == 1) if monotone and allowed else -1

    every = (list(c) for c in np.ndindex(*[3] * 8))
    assert worth(labels) == max(map(worth, every))
