"""The definition of cost and feasibility, against a second one written word for word."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eqsat.extract.problem import Budget, Choice, Problem
from eqsat.extract.program_cost import check, cost_of, needed, program_cost
from tests.extract.oracle import cost, launch_problem, programs, random_problem


@pytest.mark.parametrize("seed", range(40))
def test_programs_cost_what_the_definition_says(seed: int) -> None:
    for problem in (random_problem(seed), launch_problem(seed)):
        for chosen in itertools.islice(programs(problem), 40):
            ordered = needed(problem, chosen)
            assert ordered is not None
            check(problem, ordered)
            assert program_cost(problem, ordered) == pytest.approx(cost(problem, chosen), rel=1e-12, abs=1e-18)


def example() -> Problem:
    """Two accelerators: 0 is the input, 1 and 2 read it, 3 reads both."""
    inf = float("inf")
    return Problem(
        targets=("cpu", "npu", "dsp"),
        classes=4,
        node_class=np.array([0, 1, 2, 3]),
        children=((), (0,), (0,), (1, 2)),
        cost=np.array([[0.0, inf, inf], [9.0, 1.0, inf], [9.0, inf, 2.0], [9.0, 4.0, 3.0]]),
        copy_in=np.array([[0.0, 0.1, 0.2], [0.0, 1.0, 2.0], [0.0, 10.0, 20.0], [0.0, 100.0, 200.0]]),
        copy_out=np.array([[0.0, 0.0, 0.0], [0.0, 0.01, 0.0], [0.0, 0.0, 0.02], [0.0, 0.03, 0.04]]),
        dispatch=np.array([0.0, 1000.0, 2000.0]),
        roots=(3,),
    )


def test_the_way_between_accelerators_leads_through_the_host() -> None:
    choices = {0: Choice(0, 0), 1: Choice(1, 1), 2: Choice(2, 2), 3: Choice(3, 1)}
    parts = cost_of(example(), choices)
    assert parts.nodes == 0 + 1 + 2 + 4
    # 0 into both; 2 out of the dsp and into the npu; 3 home.
    assert parts.copies == pytest.approx(0.1 + 0.2 + 0.02 + 10 + 0.03)
    assert parts.dispatch == 3000.0


def test_a_value_is_copied_once_per_target() -> None:
    problem = replace(example(), children=((), (0,), (0,), (0, 1, 2)))
    choices = {0: Choice(0, 0), 1: Choice(1, 0), 2: Choice(2, 0), 3: Choice(3, 1)}
    assert cost_of(problem, choices).copies == pytest.approx(0.1 + 1 + 10 + 0.03)


def test_what_is_not_needed_is_left_out() -> None:
    problem = replace(example(), roots=(1,))
    choices = {c: Choice(c, 0) for c in range(4)}
    found = needed(problem, choices)
    assert found is not None
    assert list(found) == [0, 1]


GOOD = {0: Choice(0, 0), 1: Choice(1, 0), 2: Choice(2, 0), 3: Choice(3, 0)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: Choice(2, 0)}, "another class"),
        ({0: Choice(0, 1)}, "cannot run"),
        ({2: None}, "not computed before"),
        ({3: None}, "root class 3"),
    ],
)
def test_defects_are_named(change: dict[int, Choice | None], message: str) -> None:
    choices = {c: choice for c, choice in (GOOD | change).items() if choice is not None}
    with pytest.raises(ValueError, match=message):
        check(example(), choices)


def test_order_idle_classes_copies_and_budgets_are_checked() -> None:
    problem = example()
    check(problem, GOOD)
    with pytest.raises(ValueError, match="not computed before"):
        check(problem, {c: GOOD[c] for c in (1, 0, 2, 3)})
    with pytest.raises(ValueError, match="not needed"):
        check(replace(problem, roots=(1,)), GOOD)
    locked = replace(problem, copy_in=np.full((4, 3), np.inf))
    with pytest.raises(ValueError, match="cannot be copied"):
        check(locked, GOOD | {1: Choice(1, 1)})
    tight = replace(problem, budgets=(Budget("noise", np.array([0.0, 1.0, 1.0, 0.0]), 1.5),))
    with pytest.raises(ValueError, match=r"budget 'noise': 2 exceeds the limit of 1.5"):
        check(tight, GOOD)
