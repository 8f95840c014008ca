"""Zones that no good program uses are dropped before HiGHS branches, and so are programs without any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.models import SHARED
from benchmarks.zoo import read
from eqsat.extract.milp.extraction_search import ExtractionSearch
from eqsat.extract.solve import solve
from eqsat.search import Search
from tests.extract.oracle import cost, launch_problem, programs


@pytest.mark.parametrize("seed", [124, 1809])
def test_a_zone_that_cannot_pay_is_dropped(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[bool] = []
    probe = ExtractionSearch._probe

    def watched(search: ExtractionSearch) -> bool:
        dropped.append(probe(search))
        return dropped[-1]

    monkeypatch.setattr(ExtractionSearch, "_probe", watched)
    problem = launch_problem(seed)
    found = solve(problem, time_limit=600)
    assert any(dropped)
    assert found.cost == pytest.approx(min(cost(problem, chosen) for chosen in programs(problem)))


@pytest.mark.slow
def test_a_launch_that_cannot_pay_is_not_made() -> None:
    """A launch on oneDNN costs as much as a third of this network in C: fractions of it look cheap everywhere."""
    path = SHARED / "tiny_dscnn.qdq_u8s8.onnx"
    if not path.exists():
        pytest.skip("the model is not there")
    formulation = Search.of(onnx.load(path), "dnnl", host="c").formulation
    found = solve(formulation.problem, incumbent=formulation.original, time_limit=600)
    assert found.stop_reason == "optimal"
    assert {choice.target for choice in found.choices.values()} == {0}
    alone = Search.of(onnx.load(path), host="c").formulation
    assert found.cost == pytest.approx(solve(alone.problem, incumbent=alone.original).cost)


@pytest.mark.parametrize("free", [False, True])
def test_programs_without_accelerators_are_left_out_once_they_are_known(
    free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one of them is the best or not, the best is found and the bound is one of all programs."""
    # Small problems are mostly closed before.
    cut = ExtractionSearch._cut
    monkeypatch.setattr(ExtractionSearch, "_cut", lambda search, *rounds: not rounds and cut(search))
    known: list[float] = []
    search_host_alone = ExtractionSearch._search_host_alone

    def watched(search: ExtractionSearch) -> None:
        search_host_alone(search)
        known.append(search.left_out)

    monkeypatch.setattr(ExtractionSearch, "_search_host_alone", watched)
    is_host: list[bool] = []
    for seed in range(40):
        problem = launch_problem(seed)
        if free:
            # One accelerator is launched for nothing: what runs there has no part in what is left out.
            problem.dispatch[-1] = 0.0
        best = min((cost(problem, chosen) for chosen in programs(problem)), default=np.inf)
        if best == np.inf:
            continue
        known.clear()
        found = solve(problem, time_limit=600)
        assert found.cost == pytest.approx(best)
        assert found.bound == pytest.approx(best)
        if free:
            assert set(known) <= {np.inf}
        elif min(known, default=np.inf) < np.inf:
            is_host.append({choice.target for choice in found.choices.values()} == {0})
    if not free:
        assert 0 < sum(is_host) < len(is_host)


@pytest.mark.slow
def test_a_launch_that_hardly_pays_is_proven() -> None:
    """Slot attention as PyTorch 2.13 exports it: three GRU cells after one another, each of which might be a region."""
    path = Path(__file__).parents[2] / "data" / "slot_attention.onnx.xz"
    formulation = Search.of(read(path), "dnnl").formulation
    found = solve(formulation.problem, incumbent=formulation.original)
    assert found.stop_reason == "optimal"
