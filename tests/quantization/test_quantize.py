"""``eqsat.quantize`` from end to end: errors within budgets, sweeps, what stays in floats, and messages."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.errors import QuantizationError
from eqsat.model.load import load
from eqsat.quantization.methods import ANY_METHOD, METHODS
from eqsat.stages.event import Event
from tests.quantization.networks import NETWORKS, built, convolution, he, normal, residual, samples
from tests.quantization.runtime import needs_exact_products, sqnr
from tests.quantization.runtime import run as run_in_peer


def wide() -> ir.Model:
    """Large enough for integers to pay, with a normalisation that is not folded yet, and several spellings of moves."""
    x = eqsat.input("x", (1, 8, 20, 20))
    ones = np.ones(16, np.float32)
    a = op.Conv(x, he(16, 8, 3, 3, seed=1), pads=[1, 1, 1, 1])
    a = op.Relu(op.BatchNormalization(a, ones * 1.5, normal(16, seed=2), normal(16, seed=3, std=0.1), ones * 0.7))
    b = op.Clip(op.Conv(a, he(16, 16, 3, 3, seed=4), pads=[1, 1, 1, 1]), np.float32(0), np.float32(6))
    c = op.Relu(op.Conv(b, he(16, 16, 3, 3, seed=5), normal(16, seed=6, std=0.1), pads=[1, 1, 1, 1]) + a)
    return built(op.Gemm(op.Flatten(op.MaxPool(c, kernel_shape=[2, 2], strides=[2, 2])), normal(1600, 10, seed=7)))


# ---- accuracy -------------------------------------------------------------------------------------


@needs_exact_products
@pytest.mark.parametrize("std", [0.1, 1.0, 3.0, 10.0])
def test_relative_error_at_any_scale_of_the_input(std: float) -> None:
    model = convolution()
    data = samples(model, 8, std=std)
    result = eqsat.quantize(model, data)
    assert result.share.integer == 1
    assert result.share.floating == 0
    fresh = samples(model, 4, seed=1, std=std)
    exact, rounded = run_in_peer(model, fresh), run_in_peer(result.model, fresh)
    rms = float(np.sqrt(np.mean((rounded - exact) ** 2) / np.mean(exact**2)))
    assert rms <= 0.02
    assert sqnr(run_in_peer(model, data), run_in_peer(result.model, data)) == pytest.approx(
        result.actual["output"], abs=0.05
    )


@pytest.mark.slow
@pytest.mark.parametrize("std", [0.5, 4.0])
def test_auto_is_the_most_accurate_of_all_methods(std: float) -> None:
    model = wide()
    data = samples(model, 4, std=std)
    found = {m: eqsat.quantize(model, data, method=m, simulate=True).actual["output"] for m in (*METHODS, "auto")}
    assert found["auto"] == max(found.values())
    assert len({round(v, 3) for v in found.values()}) > 1


def test_a_normalisation_is_folded_before_it_is_rounded() -> None:
    model = wide()
    result = eqsat.quantize(model, samples(model, 4))
    assert result.share.floating == 0
    assert not any(k.op == "BatchNormalization" for k in result.summary.kernels)
    assert result.actual["output"] > 35


@needs_exact_products
@pytest.mark.slow
@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_range_and_integers(method, activation) -> None:
    model = wide()
    result = eqsat.quantize(model, samples(model, 4), method=method, activation=activation)
    kinds = {t.quantizer.dtype.name for t in result.scheme.tensors if t.kind == "activation"}
    assert kinds == {activation}
    assert result.share.integer >= 5
    assert result.actual["output"] > 25
    fresh = samples(model, 2, seed=3)
    np.testing.assert_array_equal(run_in_peer(result.model, fresh)[0], result.run({"x": fresh["x"][0]})["output"])


# ---- budgets --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide", *(pytest.param(n, marks=pytest.mark.heavy) for n in NETWORKS)])
def test_a_sweep_is_monotone(name: str) -> None:
    model = wide() if name == "wide" else NETWORKS[name]()
    data = samples(model, 6)
    budgets: list[float | None] = [80, 55, 50, 45, 40, None]
    results = [eqsat.quantize(model, data, budget=b) for b in budgets]
    for budget, result in zip(budgets, results, strict=True):
        assert result.actual["output"] >= (budget or 0)
        assert result.gap < 1e-4
    for tight, loose in itertools.pairwise(results):
        assert loose.cost <= tight.cost * (1 + 1e-4)
        assert loose.predicted["output"] <= tight.predicted["output"] + 1e-9
    assert results[0].tensors == ()


@pytest.mark.slow
def test_what_is_measured_decides() -> None:
    # The noise is measured on one sample only, where it happens to be small; the budget lies between.
    model = residual()
    data = samples(model, 8)
    free = eqsat.quantize(model, data, noise_samples=1)
    between = free.actual["output"] + 0.4
    result = eqsat.quantize(model, data, budget=between, noise_samples=1, check_samples=8)
    assert result.actual["output"] >= between
    exact = np.stack([eqsat.run(model, {"x": x})["output"] for x in data["x"]])
    rounded = np.stack([result.run({"x": x})["output"] for x in data["x"]])
    assert sqnr(exact, rounded) >= between


def test_a_missed_budget_is_tightened(monkeypatch: pytest.MonkeyPatch) -> None:
    # A model of the noise that is 6 dB too optimistic.
    from eqsat.quantization import pipeline

    honest = pipeline.measure_noise

    def optimistic(*args, **more):
        noise = honest(*args, **more)
        noise.weights[:] /= 4
        return noise

    monkeypatch.setattr(pipeline, "measure_noise", optimistic)
    model = wide()
    data = samples(model, 4)
    result = eqsat.quantize(model, data, budget=47)
    assert result.extractions > 1
    assert result.actual["output"] >= 47
    assert result.share.integer > 0


def two_outputs() -> ir.Model:
    def branch(name: str, seed: int):
        x = eqsat.input(name, (1, 8, 16, 16))
        a = op.Relu(op.Conv(x, he(16, 8, 3, 3, seed=seed), pads=[1, 1, 1, 1]))
        return op.Conv(a, he(16, 16, 3, 3, seed=seed + 1), pads=[1, 1, 1, 1])

    return load(eqsat.graph({"b": branch("x", 1), "c": branch("y", 3)}))


def test_budgets_by_output() -> None:
    model = two_outputs()
    first, second = (v.name or "" for v in model.graph.outputs)
    data = samples(model, 4)
    free = eqsat.quantize(model, data)
    one = eqsat.quantize(model, data, budget={first: "90dB"})
    assert set(one.required) == {first}
    assert one.actual[first] >= 90
    # The other output still is as cheap as can be.
    assert one.actual[second] < 60
    assert free.cost < one.cost < one.baseline_cost
    both = eqsat.quantize(model, data, budget={first: 90, second: 90.0})
    assert min(both.actual.values()) >= 90


# ---- what stays in floats ---------------------------------------------------------------------------


def test_skipped_nodes_stay_floats() -> None:
    model = wide()
    data = samples(model, 4)
    add = next(n for n in model.graph if n.op_type == "Add")
    name = add.outputs[0].name or ""
    assert any("Add" in k.op for k in eqsat.quantize(model, data).summary.kernels)
    result = eqsat.quantize(model, data, skip=[name])
    ops = [k.op for k in result.summary.kernels]
    assert "com.microsoft.QLinearAdd" not in ops
    assert "Add" in ops
    assert ("Add", "skipped on request") in {(f.op, f.reason) for f in result.floats}
    assert "QLinearConv" in ops


@pytest.mark.slow
def test_a_skipped_node_is_found_in_what_it_was_folded_into() -> None:
    model = wide()
    data = samples(model, 4)
    first = next(n for n in model.graph if n.op_type == "Conv")
    for node in (first, next(n for n in model.graph if n.op_type == "BatchNormalization")):
        result = eqsat.quantize(model, data, skip=[node.outputs[0].name or ""])
        assert [k.op for k in result.summary.kernels].count("Conv") == 1
        assert [f.op for f in result.floats if f.reason == "skipped on request"] == ["Conv"]


def test_only_some_operators() -> None:
    model = wide()
    result = eqsat.quantize(model, samples(model, 4), operators=["Conv", "Relu", "Clip"])
    ops = [k.op for k in result.summary.kernels]
    assert ops.count("QLinearConv") == 3
    assert {f.op for f in result.floats} >= {"Add", "Gemm"}
    assert all("not among" in f.reason for f in result.floats if f.op in ("Add", "Gemm"))


def test_reasons_for_floats() -> None:
    x = eqsat.input("x", (4, 32))
    model = built(op.LayerNormalization(op.MatMul(x, normal(32, 32, seed=1)), normal(32, seed=2)))
    result = eqsat.quantize(model, samples(model, 4))
    assert {f.op: f.reason for f in result.floats} == {
        "LayerNormalization": "LayerNormalization has no integer form",
        "MatMul": "cheaper in floats",
    }


# ---- the result as a whole ---------------------------------------------------------------------------


@needs_exact_products
@pytest.mark.slow
def test_reports_and_files(tmp_path: Path) -> None:
    model = wide()
    data = samples(model, 4)
    result = eqsat.quantize(model, data, "ethos_n", budget="30dB")
    result.save(tmp_path / "q.onnx")
    onnx.checker.check_model(str(tmp_path / "q.onnx"), full_check=True)
    assert [o.name for o in onnx.load(tmp_path / "q.onnx").graph.output] == ["output"]
    np.testing.assert_array_equal(
        run_in_peer(onnx.load(tmp_path / "q.onnx"), data)[0], result.run({"x": data["x"][0]})["output"]
    )
    result.report(tmp_path / "r.json")
    report = json.loads((tmp_path / "r.json").read_text("utf-8"))["quantization"]
    assert report["outputs"] == [
        {
            "name": "output",
            "required": 30.0,
            "predicted": result.predicted["output"],
            "actual": result.actual["output"],
        }
    ]
    assert report["integer"] == result.share.integer
    assert {t["name"] for t in report["tensors"] if t["rounded"]} == set(result.tensors)
    for suffix in ("html", "txt"):
        result.report(tmp_path / f"r.{suffix}")
        text = (tmp_path / f"r.{suffix}").read_text("utf-8")
        assert f"{result.actual['output']:.1f} dB" in text
        assert "30.0 dB" in text
    assert "integer" in repr(result)


@pytest.mark.slow
def test_equal_to_the_byte_in_each_run() -> None:
    model = wide()
    data = samples(model, 4)
    first, second = (
        ir.to_proto(eqsat.quantize(model, data, "ethos_n", budget=40).model).SerializeToString() for _ in range(2)
    )
    assert first == second


def test_samples_that_come_once_and_progress() -> None:
    model = convolution()
    data = samples(model, 6)
    events: list[Event] = []
    result = eqsat.quantize(model, ({"x": x} for x in data["x"]), samples=5, progress=events.append)
    assert result.summary.quantization is not None
    assert result.summary.quantization.samples == 5
    assert result.actual == eqsat.quantize(model, {"x": data["x"][:5]}).actual
    stages = list(dict.fromkeys(e.stage for e in events))
    assert stages == [
        "calibrate", "measure", "load", "bodies", "encode", "saturate", "price", "extract", "partition",
        "verify", "check",
    ]  # fmt: skip
    assert [e.step for e in events if e.stage == "calibrate"] == [1, 2, 3, 4, 5]


def test_a_model_without_anything_to_round() -> None:
    x = eqsat.input("x", (4,), "int64")
    model = built(op.Add(x, np.arange(4)))
    result = eqsat.quantize(model, {"x": np.zeros((2, 4), np.int64)}, budget=30)
    assert result.tensors == ()
    assert result.actual == {}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"budget": "loud"}, "option budget: a number of dB above 0, such as 30 or '30dB', is required; got 'loud'"),
        ({"budget": 0}, "option budget: a number of dB above 0"),
        ({"budget": math.nan}, "option budget: a number of dB above 0"),
        ({"budget": True}, "option budget: a number of dB above 0"),
        ({"budget": {"outptu": 30}}, "option budget: the name of a float output is required; got 'outptu'"),
        ({"budget": {"output": "3 apples"}}, "option budget, output 'output': a number of dB above 0"),
        ({"method": "avg"}, f"option method: one of {', '.join(ANY_METHOD)} is required; got 'avg'"),
        ({"activation": "int4"}, "option activation: one of uint8, int8 is required; got 'int4'"),
        ({"skip": ["cnov"]}, "option skip: the name of a node, or of one of its outputs, is required; got 'cnov'"),
        ({"operators": ["Konv"]}, "option operators: an operator of ONNX is required; got 'Konv'"),
        ({"conversions": "on"}, "option conversions: one of disabled, enabled, fully_integral is required; got 'on'"),
        ({"conversions": "enabled", "simulate": True}, "option conversions: conversions='disabled' is required"),
        ({"samples": 0}, "option samples: at least one sample is required; got 0"),
        ({"noise_samples": 0}, "option noise_samples: at least one sample is required; got 0"),
        ({"check_samples": -1}, "option check_samples: at least one sample is required; got -1"),
    ],
)
def test_messages(more: dict, message: str) -> None:
    model = convolution()
    with pytest.raises(QuantizationError) as caught:
        eqsat.quantize(model, samples(model, 2), **more)
    assert str(caught.value).startswith(message)
