"""The face of HiGHS: blocks of rows, bounds that change, statuses."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.extract.effort import Effort
from eqsat.extract.milp.highs import LONG_LOOSE, IntegerProgram, Rows


def triangle() -> IntegerProgram:
    """At least two of three, by rows over pairs."""
    rows = Rows()
    rows.add_block(np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 2, 0]), 1.0, 3, 1.0, np.inf)
    return IntegerProgram(np.array([1.0, 2.0, 3.0]), np.zeros(3), np.ones(3), np.ones(3, dtype=bool), rows)


def test_relaxation_and_integer_solutions_take_turns() -> None:
    program = triangle()
    relaxed = program.relaxation()
    assert relaxed.value == pytest.approx(3.0)
    assert relaxed.reduced is not None
    whole = program.integer()
    assert whole.status == "optimal"
    assert whole.value == whole.bound == pytest.approx(3.0)
    assert program.relaxation().value == pytest.approx(3.0)


def test_rows_and_bounds_may_change_between_solves() -> None:
    program = triangle()
    program.relaxation()
    program.bound_columns(np.array([0]), np.zeros(1), np.zeros(1))
    assert program.relaxation().value == pytest.approx(5.0)
    more = Rows()
    more.add([1, 2], [1.0, 1.0], -np.inf, 1.5)
    program.add(more)
    assert program.relaxation().status == "infeasible"
    assert program.integer().bound == np.inf


def test_entries_of_one_place_add_up_and_empty_rows_stay() -> None:
    rows = Rows()
    rows.add_block(
        np.array([2, 0, 2]), np.array([1, 0, 1]), np.array([1.0, 4.0, 2.0]), 3, -1.0, np.array([1.0, 2.0, 3.0])
    )
    rows.add([0, 0], [1.0, -1.0], 0.0, 0.0)
    starts, index, value, lower, upper = rows.arrays()
    assert starts.tolist() == [0, 1, 1, 2, 3]
    assert index.tolist() == [0, 1, 0]
    assert value.tolist() == [4.0, 3.0, 0.0]
    assert lower.tolist() == [-1, -1, -1, 0]
    assert upper.tolist() == [1, 2, 3, 0]


def test_no_time_is_no_answer() -> None:
    outcome = triangle().integer(Effort(0.0))
    assert outcome.status == "limit"
    assert outcome.x is None
    assert outcome.bound == -np.inf


def test_a_start_is_taken() -> None:
    program = triangle()
    outcome = program.integer(start=np.array([1.0, 1.0, 0.0]))
    assert outcome.value == pytest.approx(3.0)


def test_rows_that_stay_loose_are_taken_out() -> None:
    program = triangle()
    loose = Rows()
    for _ in range(20):
        loose.add([0, 1, 2], [1.0, 1.0, 1.0], 0.5, np.inf)
    kept = Rows()
    kept.add([0, 1, 2], [1.0, 1.0, 1.0], 0.25, np.inf)
    tight = Rows()
    tight.add([0], [1.0], -np.inf, 0.25)
    program.add(loose, removable=True)
    program.add(kept)
    program.add(tight, removable=True)
    wanted = program.relaxation()
    counts = []
    for _ in range(2 * LONG_LOOSE):
        program.drop_loose(program.relaxation())
        counts.append(program.rows)
    assert counts == [25] * (LONG_LOOSE - 1) + [5] * (LONG_LOOSE + 1)
    assert program.relaxation().value == pytest.approx(wanted.value)
    # Columns and rows are as they were, also for integers and for what comes after.
    assert program.integer().value == pytest.approx(5.0)
    again = Rows()
    again.add([1], [1.0], 0.9, np.inf)
    program.add(again, removable=True)
    assert program.relaxation().value == pytest.approx(0.25 + 2 * 0.9 + 3 * 0.75)


def test_rows_come_and_go_only_while_the_value_grows() -> None:
    program = triangle()
    for _ in range(3):
        loose = Rows()
        for _ in range(20):
            loose.add([0, 1, 2], [1.0, 1.0, 1.0], 0.5, np.inf)
        program.add(loose, removable=True)
        for _ in range(LONG_LOOSE):
            program.drop_loose(program.relaxation())
    assert program.rows == 3 + 2 * 20
