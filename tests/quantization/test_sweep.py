"""A sweep: no program of it is worse than another, each costs what its budget costs by itself, and layers add up."""

from __future__ import annotations

import dataclasses
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
from eqsat.extract.problem import Solution
from eqsat.quantization.result import QuantizationResult
from eqsat.quantization.sweep import LimitedProgram, bounded, without_needless
from eqsat.report.html import to_html
from eqsat.report.quantized import Quantization, SweepPoint
from eqsat.report.table import as_text
from eqsat.stages.extract import extract
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


@pytest.mark.slow
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


def _of(noise: float, cost: float, bound: float, predicted: float = 40.0) -> LimitedProgram:
    return LimitedProgram(
        (noise,), SweepPoint(None, cost, predicted, 1, bound, "optimal" if cost == bound else "work limit")
    )


def test_a_bound_holds_under_tighter_limits() -> None:
    loose, tight, tightest = bounded([_of(math.inf, 3.0, 3.0), _of(0.1, 4.0, 2.0), _of(0.0, 3.0, 1.0)])
    assert (loose.bound, tight.bound, tightest.bound) == (3.0, 3.0, 3.0)
    # Nothing cheaper exists even without the limit.
    assert (loose.proven, tight.proven, tightest.proven) == (True, False, True)
    # The other way round nothing follows.
    loose, tight = bounded([_of(math.inf, 3.0, 2.0), _of(0.1, 4.0, 4.0)])
    assert (loose.bound, loose.proven, tight.proven) == (2.0, False, True)
    # Nor if each is looser for one output.
    one, other = (LimitedProgram(noise, _of(0.0, 3.0, b).point) for noise, b in (((0.1, 0.2), 3.0), ((0.2, 0.1), 1.0)))
    assert bounded([one, other])[1].bound == 1.0


def test_the_result_is_in_the_sweep_where_it_is_better() -> None:
    points = [_of(math.inf, 3.0, 2.0, 20.0).point, _of(0.1, 6.0, 2.0, 30.0).point, _of(0.0, 9.0, 2.0, 50.0).point]
    better = _of(0.1, 5.0, 5.0, 40.0).point
    assert without_needless(points, better) == (points[0], better, points[2])
    between = _of(0.1, 5.0, 5.0, 25.0).point
    assert without_needless(points, between) == tuple(points)
    assert without_needless(points, points[1]) == tuple(points)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, pytest.param("45dB", marks=pytest.mark.slow)])
def test_the_sweep_and_the_head_agree(budget: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each search of the sweep is cut short, so that its programs are proven only by what the result knows.
    def cut_short(*arguments: Any, **options: Any) -> Solution:
        found = extract(*arguments, **options)
        return dataclasses.replace(found, bound=found.cost / 2, stop_reason="work limit")

    monkeypatch.setattr("eqsat.quantization.sweep.extract", cut_short)
    model = residual()
    found = eqsat.quantize(model, samples(model, 6), budget=budget, sweep=4)
    # A looser limit than the budget may have cheaper programs; a tighter one has none.
    tight = [p for p in _told(found).sweep if budget is None or (p.required or 0.0) >= 45.0]
    assert tight and all(p.bound >= found.summary.bound for p in tight)
    same = [p for p in tight if p.cost == found.cost]
    assert budget is not None or same
    assert all((p.gap, p.stop_reason) == (found.gap, found.summary.stop_reason) for p in same)
    assert any("(work limit)" in line for line in as_text(found.summary).splitlines())


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


@pytest.mark.slow
def test_the_report_shows_it(swept: QuantizationResult) -> None:
    page, text = to_html(swept.summary), as_text(swept.summary)
    assert "Cost against accuracy" in page
    assert "Layers: cost against error" in page
    assert page.count("tensors rounded</title>") == len(_told(swept).sweep)
    assert "exact" in text
    without = eqsat.quantize(residual(), samples(residual(), 2))
    assert "Cost against accuracy" not in to_html(without.summary)


@pytest.mark.slow
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


@pytest.mark.slow
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
    said = {"required", "cost", "predicted", "rounded", "bound", "stop_reason", "gap", "proven"}
    assert said == set(found["sweep"][0])
    assert {"name", "op", "tensors", "rounded", "noise", "before", "after"} == set(found["layers"][0])
