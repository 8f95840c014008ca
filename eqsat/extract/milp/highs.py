"""A linear or integer program for HiGHS, kept as arrays so that rows can be appended in bulk.

HiGHS runs on one thread with a fixed seed, and counts its work (``eqsat.extract.effort``): only the last guard
can make two runs differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import highspy
import numpy as np

from eqsat.extract.effort import Effort

_STATUS = highspy.HighsModelStatus
PIVOT = 1e-8
"""Units of work of a pivot, by row."""
ROUND = 6e-7
"""Work of a relaxation, and of the search for rows that it violates, per non-zero."""
CHECK = 2e-6
"""Between two checks of its limits by branch and cut, by non-zero."""


@dataclass(frozen=True)
class SolverResult:
    """The result of a solve.

    Attributes:
        x: Shape (columns,), None if no feasible point was found.
        value: Objective of ``x``, ``inf`` without one.
        bound: No feasible point costs less; ``inf`` if the program is infeasible.
        status: ``"optimal"``, ``"infeasible"`` or ``"limit"``.
        reduced: Shape (columns,), reduced costs, only for a linear program solved to optimality.
    """

    x: np.ndarray | None
    value: float
    bound: float
    status: str
    reduced: np.ndarray | None = None


class Rows:
    """Rows ``lower <= A x <= upper`` in compressed form, appended one by one or in blocks."""

    def __init__(self) -> None:
        self._index: list[np.ndarray] = []
        self._value: list[np.ndarray] = []
        self._length: list[np.ndarray] = []
        self._lower: list[np.ndarray] = []
        self._upper: list[np.ndarray] = []
        self.count = 0

    def add(self, index: Iterable[int], value: Iterable[float], lower: float, upper: float) -> None:
        """Append one row; an index may come twice, its coefficients add up."""
        sums: dict[int, float] = {}
        for column, coefficient in zip(index, value, strict=True):
            sums[column] = sums.get(column, 0.0) + coefficient
        columns = sorted(sums)
        self._index.append(np.array(columns, dtype=np.int32))
        self._value.append(np.array([sums[column] for column in columns], dtype=np.float64))
        self._length.append(np.array([len(columns)], dtype=np.int64))
        self._lower.append(np.array([lower], dtype=np.float64))
        self._upper.append(np.array([upper], dtype=np.float64))
        self.count += 1

    def add_implication(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Append the row that says: the sum of some columns is at most the sum of others."""
        self.add(chain(left, right), chain(repeat(1.0, len(left)), repeat(-1.0, len(right))), -np.inf, 0.0)

    def add_block(
        self, row: np.ndarray, column: np.ndarray, value: object, count: int, lower: object, upper: object
    ) -> None:
        """Append ``count`` rows given as triplets; triplets of one place add up.

        Args:
            row: Shape (entries,), in ``range(count)``.
            column: Shape (entries,).
            value: Shape (entries,) or a scalar.
            count: Number of rows, also empty ones.
            lower: Shape (count,) or a scalar.
            upper: Likewise.
        """
        if not count:
            return
        row = np.asarray(row, dtype=np.int64)
        column = np.asarray(column, dtype=np.int64)
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), row.shape)
        order = np.lexsort((column, row))
        row, column, values = row[order], column[order], values[order]
        if len(row):
            first = np.ones(len(row), dtype=bool)
            first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
            starts = np.flatnonzero(first)
            values = np.add.reduceat(values, starts)
            row, column = row[starts], column[starts]
        self._index.append(column.astype(np.int32))
        self._value.append(values)
        self._length.append(np.bincount(row, minlength=count))
        self._lower.append(np.broadcast_to(np.asarray(lower, dtype=np.float64), (count,)))
        self._upper.append(np.broadcast_to(np.asarray(upper, dtype=np.float64), (count,)))
        self.count += count

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Starts (rows + 1), indices, values, lower and upper bounds."""
        if not self.count:
            nothing = np.zeros(0)
            return np.zeros(1, dtype=np.int32), np.zeros(0, dtype=np.int32), nothing, nothing, nothing
        starts = np.concatenate([[0], np.cumsum(np.concatenate(self._length))]).astype(np.int32)
        return (
            starts,
            np.concatenate(self._index),
            np.concatenate(self._value),
            np.concatenate(self._lower),
            np.concatenate(self._upper),
        )


LONG_LOOSE = 5
"""Relaxations in which a row has not been tight, after which it may be taken out."""
MOST_LOOSE = 0.1
"""Share of the rows that may stay although they are slack, since removing rows takes time as well."""


class IntegerProgram:
    """Minimise ``cost @ x`` over rows and bounds; columns stay, rows may be added between two solves."""

    def __init__(
        self, cost: np.ndarray, lower: np.ndarray, upper: np.ndarray, integer: np.ndarray, rows: Rows, seed: int = 0
    ) -> None:
        self.cost = np.asarray(cost, dtype=np.float64)
        self._integer = np.asarray(integer, dtype=bool)
        starts, index, value, row_lower, row_upper = rows.arrays()
        lp = highspy.HighsLp()
        lp.num_col_ = len(self.cost)
        lp.num_row_ = rows.count
        lp.col_cost_ = self.cost
        lp.col_lower_ = np.asarray(lower, dtype=np.float64)
        lp.col_upper_ = np.asarray(upper, dtype=np.float64)
        lp.row_lower_ = row_lower
        lp.row_upper_ = row_upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = starts
        lp.a_matrix_.index_ = index
        lp.a_matrix_.value_ = value
        self._highs = highspy.Highs()
        for option, setting in (("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", seed)):
            self._highs.setOptionValue(option, setting)
        self._highs.passModel(lp)
        self._integral = False
        # Per row the relaxations since it was last tight; -1 where it stays anyway.
        self._loose = np.full(rows.count, -1)
        self._value_then = -np.inf

    @property
    def rows(self) -> int:
        """Their number."""
        return len(self._loose)

    def add(self, rows: Rows, *, removable: bool = False) -> None:
        """Append rows.

        Args:
            rows: The rows.
            removable: Whether :meth:`drop_loose` may take them out again.
        """
        if not rows.count:
            return
        starts, index, value, lower, upper = rows.arrays()
        self._highs.addRows(rows.count, lower, upper, len(index), starts[:-1], index, value)
        self._loose = np.append(self._loose, np.full(rows.count, 0 if removable else -1))

    def drop_loose(self, outcome: SolverResult) -> None:
        """Take out the removable rows that have been loose in many relaxations.

        They do not bound the solution, and each pivot takes longer for them. Whoever finds violated rows finds them
        again if a later solution violates them. The value has to have grown since rows were last taken out, so that
        the same rows cannot come and go for ever.

        Args:
            outcome: Of the last relaxation.
        """
        answer, basic = self._highs.getBasicVariables()  # pyright: ignore[reportAttributeAccessIssue]
        if answer != highspy.HighsStatus.kOk:
            return
        is_loose = np.zeros(len(self._loose), dtype=bool)
        is_loose[-1 - basic[basic < 0]] = True
        self._loose = np.where(self._loose < 0, -1, np.where(is_loose, self._loose + 1, 0))
        old = np.flatnonzero(self._loose >= LONG_LOOSE)
        if len(old) > MOST_LOOSE * len(self._loose) and outcome.value > self._value_then + 1e-9 * abs(outcome.value):
            self._value_then = outcome.value
            self._highs.deleteRows(len(old), old.astype(np.int32))
            self._loose = np.delete(self._loose, old)

    def bound_columns(self, columns: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Replace the bounds of some columns."""
        if len(columns):
            self._highs.changeColsBounds(
                len(columns),
                np.asarray(columns, dtype=np.int32),
                np.asarray(lower, dtype=np.float64),
                np.asarray(upper, dtype=np.float64),
            )

    def relaxation(self, effort: Effort | None = None) -> SolverResult:
        """Solve without integrality, from the last basis if there is one."""
        self._set_integral(False)
        return self._run(effort)

    def integer(
        self,
        effort: Effort | None = None,
        gap: float = 0.0,
        start: np.ndarray | None = None,
        node_limit: int | None = None,
        stop_at_better: bool = False,
    ) -> SolverResult:
        """Solve by branch and cut.

        Args:
            effort: What may be done, by default everything.
            gap: Relative gap at which to stop.
            start: Shape (columns,), a feasible point.
            node_limit: Limit on the search tree.
            stop_at_better: Whether to stop soon after the first point that is better than the start.
        """
        self._set_integral(True)
        self._highs.setOptionValue("mip_rel_gap", gap)
        self._highs.setOptionValue("mip_abs_gap", 0.0)
        self._highs.setOptionValue("mip_max_nodes", 2**31 - 1 if node_limit is None else node_limit)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = start.tolist()
            solution.value_valid = True
            self._highs.setSolution(solution)
        known = float(self.cost @ start) if stop_at_better and start is not None else -np.inf
        return self._run(effort, known - 1e-6 * abs(known))

    def _set_integral(self, wanted: bool) -> None:
        if wanted != self._integral:
            kinds = np.where(self._integer & wanted, 1, 0).astype(np.uint8)
            columns = np.arange(len(kinds), dtype=np.int32)
            self._highs.changeColsIntegrality(len(kinds), columns, kinds)
            self._integral = wanted

    def _run(self, effort: Effort | None, enough: float = -np.inf) -> SolverResult:
        if effort is not None and effort.is_over:
            return SolverResult(None, np.inf, -np.inf, "limit")
        highs = self._highs
        pivots, seconds = 2**31 - 1, np.inf
        if effort is not None:
            # HiGHS measures its limit from the creation of the object, across solves.
            seconds = highs.getRunTime() + effort.guard.left
            if not self._integral:
                pivots = min(pivots, 1 + int(effort.work / (PIVOT * max(1, highs.getNumRow()))))
        highs.setOptionValue("time_limit", seconds)
        highs.setOptionValue("simplex_iteration_limit", pivots)

        done = False

        def note(event: highspy.HighsCallbackEvent) -> None:
            nonlocal done
            done = done or event.data_out.objective_function_value < enough

        def check(event: highspy.HighsCallbackEvent) -> None:
            if effort is not None:
                effort.spend(CHECK * highs.getNumNz())
            if event.data_in is not None:
                # HiGHS keeps the answer of the last run.
                event.data_in.user_interrupt = done or (effort is not None and effort.is_over)

        if effort is not None and self._integral:
            # HiGHS asks at the same points of its search in each run.
            highs.cbMipInterrupt.subscribe(check)
            highs.cbMipImprovingSolution.subscribe(note)
        highs.run()
        highs.cbMipInterrupt.unsubscribe(check)
        highs.cbMipImprovingSolution.unsubscribe(note)
        if effort is not None and not self._integral:
            pivots = highs.getInfo().simplex_iteration_count
            effort.spend(PIVOT * highs.getNumRow() * max(0, pivots) + ROUND * highs.getNumNz())
        status = highs.getModelStatus()
        if effort is not None and status == _STATUS.kTimeLimit:
            effort.be_late()
        if status in (_STATUS.kInfeasible, _STATUS.kUnboundedOrInfeasible):
            return SolverResult(None, np.inf, np.inf, "infeasible")
        info = highs.getInfo()
        optimal = status == _STATUS.kOptimal
        solution = highs.getSolution()
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        x = np.array(solution.col_value) if feasible else None
        value = info.objective_function_value if feasible else np.inf
        if self._integral and self._integer.any():
            bound = info.mip_dual_bound
            return SolverResult(x, value, bound, "optimal" if optimal else "limit")
        if not optimal:
            return SolverResult(x, value, -np.inf, "limit")
        return SolverResult(x, value, value, "optimal", np.array(solution.col_dual))
