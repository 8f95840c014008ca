"""Verifies a result by executing it next to its input, within a budget of work.

First the whole network: the input by an independent implementation, the result by eqsat's executor, on ordinary
numbers. Then the pieces that the result computes in another way, each on its numbers in the network and on drawn ones.
All limits count work, so that the same input is verified in the same way on any machine; only where a machine is many
times slower does the clock end it, and then the summary says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.egraph.encode import Encoding
from eqsat.egraph.limits import LastGuard
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import ExecutionError, LimitError, VerificationError
from eqsat.execute.difference import COARSE, NATIVE, Difference
from eqsat.execute.inputs import complete_inputs
from eqsat.ops.evaluate import TensorValue
from eqsat.partition.plan import Plan
from eqsat.report.summary import Verification
from eqsat.rules.selection import NumericsClass
from eqsat.schema.chosen_sizes import equated, samples, smallest_unlike, typical_sizes
from eqsat.schema.free_sizes import FreeSizes
from eqsat.verify import judge_values
from eqsat.verify.blame import error_of
from eqsat.verify.culprits import Fails, culprits, model_of
from eqsat.verify.examine import Examiner, Tolerance
from eqsat.verify.folded_constants import wrong_constant
from eqsat.verify.implementations import unlike_operator
from eqsat.verify.judge_values import ValueDifference
from eqsat.verify.leaf_samples import ORDINARY, Style
from eqsat.verify.leaves import obstacle
from eqsat.verify.oracle import Failed, FallbackOracle
from eqsat.verify.pieces import ComparedPiece, find_pieces
from eqsat.verify.programs import Programs
from eqsat.verify.trials import EVALUATIONS, IN_NETWORK, SAMPLES, Trials, UndecidedTrial
from eqsat.verify.whole import compare_outputs, is_explained, is_put_together, run_input, run_result

MOST_WORK = 40_000_000_000
"""Work up to which a network is executed as a whole at one choice of its free sizes."""
WORK_OF_ALL_SIZES = 100_000_000_000
"""The same for all sizes together: a batch of 32 takes 32 times as long as a batch of 1."""
PIECES_WORK = 30_000_000
"""Work on pieces of any network; each of its operators adds the following amount."""
WORK_OF_NODE = 700_000
MOST_NODES = 5000
"""Number of operators that add to it; in larger networks fewer pieces are executed."""
CONFIRM = 4
"""Factor of the work on pieces that may be spent on following differences backwards."""

MOST_SUSPECTS = 4
"""Pieces that are optimized again with only the exact rules."""
SHAPES = ((2, 3, 2), (2, 3, 2, 2), (2, 3), (3,), ())
"""Shapes for inputs of unknown rank, which bodies of control flow may have; the first one that the input accepts is
taken.
"""
LATE = "the time limit was reached"
"""Why something was not executed."""


_Executed = tuple[dict[str, TensorValue], list[TensorValue], list[TensorValue]]
"""Inputs by name, the outputs of the input model, and the outputs of the result."""


@dataclass
class Verifier:
    """One verification.

    Attributes:
        model: The loaded input.
        result: The result in the form that will be saved.
        applied: Rules that applied, with the class of each.
        lsb: Largest change of integers of up to 16 bits by rules, in units.
        fails: Optimizes a piece again, to find the rule to blame.
        sizes: Free sizes of the inputs.
        guard: When its time is over, the remaining samples are not executed.
    """

    model: ir.Model
    encoding: Encoding
    snapshot: Snapshot
    plan: Plan
    result: ir.Model
    outputs: Sequence[ir.Value]
    numerics: NumericsClass
    applied: Mapping[str, str]
    seed: int = 0
    lsb: int = 1
    fails: Fails | None = None
    sizes: FreeSizes = field(default_factory=dict)
    guard: LastGuard = field(default_factory=LastGuard)
    _done: list[str] = field(default_factory=list)
    _skipped: dict[str, int] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)
    _equal: tuple[str, str] | None = None
    _unlike: str | None = None

    def run(self) -> Verification:
        """Executes and compares.

        Raises:
            VerificationError: The result computes something else than the input.
        """
        numbers = tuple(self.encoding.number[v] for v in self.outputs)
        programs = self.programs = Programs(self.encoding, self.snapshot, self.plan, numbers, typical_sizes(self.sizes))
        strict = self.numerics == "exact" or all(kind == "exact" for kind in self.applied.values())
        exact = frozenset(rule for rule, kind in self.applied.items() if kind == "exact")
        self.oracle = FallbackOracle()
        steps = any(kind == "lsb" for kind in self.applied.values())
        self.examiner = Examiner(programs, Tolerance(strict, self.lsb, exact, steps), self.oracle)
        approximate = any(kind == "approximate" for kind in self.applied.values())
        pieces = [] if approximate else find_pieces(programs)
        if approximate:
            self._skip("rules of class approximate applied")
        found = self._whole(pieces)
        executed = self._pieces(pieces)
        return Verification(
            agrees=True if found is not None or executed else None,
            outputs=len(self.outputs) if found else 0,
            max_abs_error=max((d.max_abs_error for d in found or ()), default=0.0),
            max_rel_error=max((d.max_rel_error for d in found or ()), default=0.0),
            seed=self.seed,
            done=found is not None or bool(executed),
            samples=tuple(self._done),
            pieces=len(pieces),
            executed=executed,
            input_by=self.oracle.said(),
            result_by=("eqsat",),
            tolerance=_tolerance(strict, self.model),
            max_piece_error=self.examiner.worst,
            notes=tuple(dict.fromkeys(self._notes)),
            skipped=tuple(f"{reason} ({count})" if count > 1 else reason for reason, count in self._skipped.items()),
        )

    # ---- the whole --------------------------------------------------------------------------------

    def _whole(self, pieces: Sequence[ComparedPiece]) -> list[Difference] | None:
        """How the outputs differ; None if the network cannot be executed."""
        self.natural: dict[int, TensorValue] = {}
        reason = self.programs.obstacle_to_comparing()
        if reason:
            self._skip(f"the network as a whole: {reason}")
            return None
        found: list[Difference] = []
        natural: dict[int, TensorValue] = {}
        executed_at: list[Mapping[str, int]] = []
        left = WORK_OF_ALL_SIZES
        waiting = [*samples(self.sizes)]
        for sizes in waiting:
            work = self.programs.network_work(sizes)
            budget = min(left, WORK_OF_ALL_SIZES if executed_at else MOST_WORK)
            if work > budget:
                of = f"{budget:.2g} that are left of the budget" if executed_at else f"budget of {budget:.2g}"
                what = f"its work of {work:.2g} is beyond the {of}"
                self._skip(f"the network as a whole{_at(sizes)}: {what}")
                if len(executed_at) < 2 and (small := smallest_unlike(self.sizes)) not in waiting:
                    waiting.append(small)
                continue
            left -= work
            if self.guard.is_over():
                self._skip(f"the network as a whole{_at(sizes)}: {LATE}")
                continue
            try:
                executed = self._executed(pieces, sizes)
            except LimitError as error:
                self._skip(f"the network as a whole{_at(sizes)}: the result cannot be executed ({str(error)[:120]})")
                continue
            except (Failed, ExecutionError) as error:
                other = self._at_equal_sizes(pieces, sizes)
                if other is None:
                    self._skip(f"the network as a whole{_at(sizes)}: the input cannot be executed ({str(error)[:120]})")
                    continue
                sizes, executed = other
            if sizes in executed_at:
                continue
            executed_at.append(sizes)
            found += self._network(pieces, sizes, executed)
            natural = natural or self.natural
        self.natural = natural
        return found or None

    def _executed(self, pieces: Sequence[ComparedPiece], sizes: Mapping[str, int]) -> _Executed:
        """Inputs of some sizes, with the outputs of the input model and of the result.

        Raises:
            Failed, ExecutionError: The model does not have these sizes.
            LimitError: The result exceeds a limit.
            VerificationError: The result cannot be executed although the input can.
        """
        self.natural = {}
        arrays, left = self._input(pieces, sizes)
        try:
            return arrays, left, run_result(self.result, arrays)
        except Failed as error:
            if not self._runs(arrays):
                raise Failed(f"eqsat: {error}") from error
            raise VerificationError(
                "the result must be executable if the input is",
                place=f"model {self.model.graph.name!r}{_at(sizes)}",
                actual=str(error)[:300],
                hint="please report it with the model; verify=False (--no-verify) keeps the result as it is",
            ) from error

    def _input(
        self, pieces: Sequence[ComparedPiece], sizes: Mapping[str, int]
    ) -> tuple[dict[str, TensorValue], list[TensorValue]]:
        """Inputs with the outputs of the input model; inputs of unknown rank get the first shape that it accepts.

        Raises:
            Failed, ExecutionError: The model does not have these sizes.
        """
        wanted = {*self.programs.given, *(c for p in pieces for c in p.leaves)}
        given = self.model.graph.inputs
        waiting = list(
            SHAPES if any(v.shape is None and isinstance(v.type, ir.TensorType) for v in given) else SHAPES[:1]
        )
        while True:
            arrays = complete_inputs(self.model, dims=sizes, seed=self.seed, unknown=waiting.pop(0))
            try:
                left, self.natural = run_input(self.programs, arrays, self.oracle, wanted)
            except (Failed, ExecutionError):
                if not waiting:
                    raise
                continue
            return arrays, left

    def _at_equal_sizes(
        self, pieces: Sequence[ComparedPiece], sizes: Mapping[str, int]
    ) -> tuple[Mapping[str, int], _Executed] | None:
        """The same with two sizes made equal, because exporters may give one size two names; None if that does not
        help.
        """
        # A choice that has helped before is tried first.
        for pair, equal in sorted(equated(self.sizes, sizes), key=lambda tried: tried[0] != self._equal):
            try:
                executed = self._executed(pieces, equal)
            except (Failed, ExecutionError, LimitError):
                continue
            self._equal = pair
            return equal, executed
        return None

    def _network(
        self, pieces: Sequence[ComparedPiece], sizes: Mapping[str, int], executed: _Executed
    ) -> list[Difference]:
        """How the outputs differ at some sizes."""
        programs = self.programs
        arrays, left, right = executed
        self._done.append(f"{ORDINARY.name} as inputs (seed {self.seed}){_at(sizes)}")
        found = compare_outputs(programs, left, right, "real")
        if all(d.agrees for d in found):
            return found
        complete, trials = True, Trials(self.examiner, self.natural, 0)
        for piece in pieces:
            if obstacle(programs, piece) or trials.in_network(piece) is None:
                complete = False
                continue
            differing = trials.natural_difference(piece, precise=False)
            if differing is not None:
                raise self._error(piece, differing, IN_NETWORK)
        # If every piece is right for its operands, rounding adds up, or kernels have been connected wrongly.
        complete = complete and is_put_together(programs, arrays, right)
        if not complete and not is_explained(programs, arrays, right, "real"):
            worst = next(d for d in found if not d.agrees)
            raise error_of(programs, None, None, self.applied, IN_NETWORK, output=worst)
        # Operators are compared at the first sizes at which outputs differ: what one of them explains is no check.
        if self._unlike is None:
            self._unlike = unlike_operator(programs, arrays, self.oracle)
        self._notes.append(
            self._unlike
            or f"outputs differ{_at(sizes)} by the rounding that adds up in the network; every rewritten piece agrees"
        )
        return found

    def _runs(self, arrays: Mapping[str, TensorValue]) -> bool:
        """Whether eqsat's executor runs the input itself; other runtimes are less strict with sizes that do not fit."""
        try:
            run_result(self.model, arrays)
        except (Failed, LimitError):
            return False
        return True

    # ---- pieces -----------------------------------------------------------------------------------

    def _pieces(self, pieces: Sequence[ComparedPiece]) -> int:
        """Checks constants and as many pieces as the budget allows, in execution order; returns how many."""
        programs = self.programs
        budget = PIECES_WORK + WORK_OF_NODE * min(len(programs.nodes), MOST_NODES)
        bad = wrong_constant(programs, self.oracle, budget)
        if bad is not None:
            raise error_of(programs, None, bad[1], self.applied, IN_NETWORK, value=bad[0])
        works = []
        for at, piece in enumerate(pieces):
            reason = obstacle(programs, piece)
            if reason:
                self._skip(f"pieces: {reason}")
            else:
                works.append((piece.work(programs), at))
        # Each sample is computed by three to four evaluations, two of them in float64.
        level: dict[int, int] = {}
        spent = 0
        for count, chosen in ((3, 1), (SAMPLES, 2)):
            for work, at in sorted(works):
                if spent + count * EVALUATIONS * work > budget:
                    break
                if level.get(at, 0) == chosen - 1:
                    spent += count * EVALUATIONS * work
                    level[at] = chosen
        left = len(works) - len(level)
        if left:
            self._skip("pieces: beyond the budget", left)
        trials = Trials(self.examiner, self.natural, CONFIRM * budget, self.seed)
        executed = 0
        for done, at in enumerate(sorted(level)):
            if self.guard.is_over():
                self._skip(f"pieces: {LATE}", len(level) - done)
                break
            try:
                found = trials.settle(pieces[at], thorough=level[at] == 2)
            except UndecidedTrial:
                self._skip("pieces that differ only on numbers that the network may never produce there")
                continue
            if found is not None:
                raise self._error(*found)
            executed += 1
        self._confirm_suspects()
        self._done += [f"{name} at the borders of rewritten pieces" for name in trials.used]
        return executed

    def _confirm_suspects(self) -> None:
        """Optimizes pieces that exact rules may have made inexact again, with only those rules: then nothing may
        change.
        """
        examiner = self.examiner
        for piece, found, style in list(examiner.suspects.values())[:MOST_SUSPECTS]:
            model = model_of(self.programs, piece, self.model) if self.fails is not None else None
            if model is not None and self.fails is not None and self.fails(model, examiner.tolerance.exact):
                guilty = culprits(model, sorted(examiner.tolerance.exact), self.fails)
                raise error_of(self.programs, piece, found, self.applied, style, guilty=guilty)

    def _error(self, piece: ComparedPiece, found: ValueDifference, style: Style) -> VerificationError:
        model = model_of(self.programs, piece, self.model) if self.fails is not None else None
        guilty: tuple[str, ...] = ()
        if self.fails is not None and model is not None:
            guilty = culprits(model, tuple(self.applied), self.fails)
        return error_of(self.programs, piece, found, self.applied, style, guilty=guilty)

    def _skip(self, reason: str, count: int = 1) -> None:
        self._skipped[reason] = self._skipped.get(reason, 0) + count


def _at(sizes: Mapping[str, int]) -> str:
    return f" at {', '.join(f'{name} = {size}' for name, size in sizes.items())}" if sizes else ""


def _tolerance(strict: bool, model: ir.Model) -> str:
    names = {v.dtype.numpy().name for v in model.graph.outputs if v.dtype is not None and v.dtype.is_floating_point()}
    if strict:
        return "exact except for the order of additions"
    rtol = max((NATIVE.get(n, COARSE) for n in names), default=0.0)
    return (
        f"{rtol:g} of a tensor's largest magnitude; {judge_values.narrowest(names):g} of each element in float64"
        if names
        else "1 lsb"
    )


def switched_off(reason: str) -> Verification:
    """The summary if nothing was executed."""
    return Verification(
        agrees=None, outputs=0, max_abs_error=0.0, max_rel_error=0.0, seed=0, done=False, skipped=(reason,)
    )


__all__ = ["Verifier", "switched_off"]
