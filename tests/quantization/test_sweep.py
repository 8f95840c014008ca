"""A sweep: no program of it is worse than another, each costs what its budget costs by itself, and layers add up."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import QuantizationError
from eqsat.quantization.result import QuantizationResult
from eqsat.report.html import to_html
from eqsat.report.quantized import Quantization
from eqsat.report.table import as_text
from tests.quantization.networks import residual, samples


@pytest.fixture(scope="module")
def swept() -> QuantizationResult:
    model = residual()
    return eqsat.quantize(model, samples(model, 6), sweep=6)


def _told(result: QuantizationResult) -> Quantization:
    told = result.summary.quantization
    assert told is not None
    return told


def test_from_the_cheapest_to_the_most_accurate(swept: QuantizationResult) -> None:
    points = _told(swept).sweep
    assert 2 <= len(points) <= 6
    assert (points[0].required, points[0].cost) == (None, pytest.approx(swept.cost))
    assert math.isinf(points[-1].predicted)
    for one, other in itertools.pairwise(points):
        assert one.cost < other.cost
        assert one.predicted < other.predicted
    for point in points:
        assert point.predicted >= (point.required or -math.inf)


def test_each_costs_what_its_budget_costs_by_itself(swept: QuantizationResult) -> None:
    model = residual()
    compared = 0
    for point in _told(swept).sweep[1:-1]:
        own = eqsat.quantize(model, samples(model, 6), budget=point.required)
        # Another extraction has a tighter limit than the one that was asked for.
        if own.extractions == 1 and point.proven:
            assert own.cost == pytest.approx(point.cost)
            compared += 1
    assert compared


def test_layers_name_their_tensors_and_costs(swept: QuantizationResult) -> None:
    told = _told(swept)
    rows = {row.name: row for row in told.layers}
    before = swept.summary.graphs[0].before
    assert set(rows) <= {n.name for n in before.nodes}
    assert sum(r.before for r in told.layers) == pytest.approx(sum(n.cost for n in before.nodes if n.name in rows))
    kernels = sum(k.cost for k in swept.summary.kernels)
    assert 0 < sum(r.after for r in told.layers) <= kernels * (1 + 1e-9)
    noise = {row.name: row.noise for row in told.tensors}
    for row in told.layers:
        if row.tensors == 1 and row.name in noise:
            assert row.noise == noise[row.name]
        assert 0 <= row.rounded <= row.tensors


def test_the_report_shows_it(swept: QuantizationResult) -> None:
    page, text = to_html(swept.summary), as_text(swept.summary)
    assert "Cost against accuracy" in page
    assert "Layers: cost against error" in page
    assert page.count("tensors rounded</title>") == len(_told(swept).sweep)
    assert "exact" in text
    without = eqsat.quantize(residual(), samples(residual(), 2))
    assert "Cost against accuracy" not in to_html(without.summary)


def test_a_sweep_changes_no_result() -> None:
    model = residual()
    cases: list[dict[str, Any]] = [
        {"simulate": True},
        {"simulate": True, "budget": "45dB"},
        {"conversions": "fully_integral"},
    ]
    for options in cases:
        plain = eqsat.quantize(model, samples(model, 4), **options)
        swept = eqsat.quantize(model, samples(model, 4), sweep=3, **options)
        assert swept.tensors == plain.tensors
        assert (swept.cost, swept.actual) == (plain.cost, plain.actual)
        assert _told(swept).sweep
        assert not _told(plain).sweep


def test_one_program_is_no_sweep() -> None:
    with pytest.raises(QuantizationError, match="at least two programs"):
        eqsat.quantize(residual(), samples(residual(), 2), sweep=1)


def test_the_command_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = residual()
    eqsat.save(model, "net.onnx")
    np.savez("samples.npz", x=samples(model, 4)["x"])
    assert main(["quantize", "net.onnx", "-c", "samples.npz", "--sweep", "3", "--measure", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measured"]["seconds"] > 0
    assert any(kernel["measured"] for kernel in report["kernels"])
    found = report["quantization"]
    assert found["sweep"][-1]["predicted"] is None
    assert found["sweep"][0]["cost"] <= found["sweep"][-1]["cost"]
    assert {"name", "op", "tensors", "rounded", "noise", "before", "after"} == set(found["layers"][0])
