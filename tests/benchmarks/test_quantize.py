"""The quantization benchmark: its figures against a recomputation, its table, its sweep, and its models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from benchmarks import quantize
from benchmarks.float_models import SMALL, float_model, samples
from benchmarks.models import LIGHT
from benchmarks.quantize_peer import operators_in_runtime, quantized_by_peer, rows, sqnr
from eqsat.partition.saved import inline
from tests.fuzz.check import ort_outputs


def decibels(model: onnx.ModelProto, other: onnx.ModelProto) -> float:
    """Of the second to the first on the benchmark's fresh samples, one by one."""
    signal = noise = 0.0
    for row in rows(samples(model, 8, seed=1)):
        (exact,), (rounded,) = (ort_outputs(m.SerializeToString(), row).values() for m in (model, other))
        signal += float(np.sum(exact.astype(np.float64) ** 2))
        noise += float(np.sum((rounded.astype(np.float64) - exact) ** 2))
    return 10 * np.log10(signal / noise)


@pytest.mark.slow
def test_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert quantize.main(["--models", "unfolded", "--peer-methods", "minmax", "--json", str(file)]) == 0
    written = json.loads(file.read_text("utf-8"))
    own, peer = written["methods"]
    assert [own["quantizer"], own["method"], own["integer"], own["float"]] == ["eqsat", "minmax", 6, 0]
    assert [peer["quantizer"], peer["method"], peer["integer"], peer["float"]] == ["peer", "minmax", 3, 2]
    assert own["MACs %"] == 100

    model = float_model("unfolded")
    seen = samples(model, 8, seed=0)
    result = eqsat.quantize(model, seen)
    assert own["cost"] == pytest.approx(result.cost / result.baseline_cost)
    ours = ir.to_proto(inline(result.model))
    # Optimized, ONNX Runtime computes with integers: the same but for ties.
    assert own["SQNR"] == pytest.approx(decibels(model, ours), abs=0.3)
    assert peer["SQNR"] == pytest.approx(decibels(model, quantized_by_peer(model, seen, "minmax")), abs=0.3)
    (line,) = written["summary"]
    assert line["gain dB"] == pytest.approx(own["SQNR"] - peer["SQNR"]) and line["cost"] <= 1 + 1e-9

    printed = capsys.readouterr().out.splitlines()
    cells = dict(zip(printed[0].split(), printed[1].split(), strict=False))
    assert (cells["model"], cells["quantizer"], cells["SQNR"]) == ("unfolded", "eqsat", f"{own['SQNR']:.3g}")


@pytest.mark.slow
def test_sweep(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    assert quantize.main(["--models", "unfolded", "--sweep", "--json", str(file)]) == 0
    found = json.loads(file.read_text("utf-8"))["sweep"]
    assert len(found) == 1 + len(quantize.STEPS)
    assert [row["cost"] for row in found] == sorted(row["cost"] for row in found)
    assert [row["predicted"] for row in found] == sorted(row["predicted"] for row in found)
    assert found[0]["budget"] == "none" and found[0]["float"] == 0 and found[-1]["float"] > 0
    assert all(row["measured"] >= row["budget"] for row in found[1:])
    assert all(row["gap %"] <= 1 for row in found)


def test_operators_of_the_runtime() -> None:
    model = float_model("act_times_pool")
    integer, floating = operators_in_runtime(quantized_by_peer(model, samples(model, 2, seed=0), "minmax"))
    assert integer == {"QLinearConv": 1, "QLinearGlobalAveragePool": 1, "QLinearMul": 1} and not floating
    integer, floating = operators_in_runtime(model)
    assert not integer and sum(floating.values()) == 3


def test_decibels() -> None:
    exact = np.array([1.0, -1.0], np.float32)
    assert sqnr(exact, np.array([1.1, -1.0])) == pytest.approx(10 * np.log10(2 / 0.01))
    assert sqnr(exact, exact) == np.inf


@pytest.mark.parametrize("name", [*SMALL, "squeezenet"])
def test_models(name: str) -> None:
    """Valid, deterministic, and without a softmax that hides errors."""
    model = float_model(name)
    onnx.checker.check_model(model, full_check=True)
    assert model.SerializeToString() == float_model(name).SerializeToString()
    assert model.opset_import[0].version == 17
    assert "Softmax" not in {node.op_type for node in model.graph.node}
    for array in samples(model, 3, seed=0).values():
        assert len(array) == 3 and array.dtype == np.float32 and array.std() > 0.5


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"a model must be a file or one of .*, got 'resnet5000'"):
        float_model("resnet5000")
    assert set(quantize.HEAVY) < set(LIGHT)
