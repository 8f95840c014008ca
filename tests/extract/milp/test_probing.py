"""Zones that no good program uses are dropped before HiGHS branches."""

from __future__ import annotations

import onnx
import pytest

from benchmarks.models import SHARED
from eqsat.extract.milp.search import Search as IntegerProgram
from eqsat.extract.solve import solve
from eqsat.search import Search
from tests.extract.oracle import cost, launch_problem, programs


@pytest.mark.parametrize("seed", [124, 778, 1333])
def test_a_zone_that_cannot_pay_is_dropped(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[bool] = []
    probe = IntegerProgram._probe

    def watched(search: IntegerProgram) -> bool:
        dropped.append(probe(search))
        return dropped[-1]

    monkeypatch.setattr(IntegerProgram, "_probe", watched)
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
