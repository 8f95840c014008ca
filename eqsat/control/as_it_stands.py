"""The result for a model that is left unchanged: it is too large for an e-graph, or the time was over.

Even then a file that must not exceed an opset has definitions in the place of newer operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.control.before import cost_before
from eqsat.control.origins import origins_of_input
from eqsat.model.write.max_opset import newer_in, within_opset
from eqsat.model.write.too_new import TooNewError
from eqsat.partition.plan import Plan
from eqsat.report.summary import SearchRun, Totals
from eqsat.report.untouched import summarize_untouched
from eqsat.result import Result
from eqsat.stages.clock import Clock
from eqsat.stages.load import LoadedInput
from eqsat.stages.newer import replaced_note
from eqsat.stages.options import Objective, SearchOptions
from eqsat.stages.price import costs_of
from eqsat.verify.verify import switched_off


def left_unchanged(loaded: LoadedInput, opset: int | None) -> LoadedInput:
    """The input before rules were carried out on it, and without operators that are too new.

    Args:
        loaded: The model.
        opset: The newest opset of its file; None for any.

    Raises:
        TooNewError: Operators that are too new have no definitions.
    """
    model, _ = within_opset(loaded.given, opset)
    newer = [] if opset is None else newer_in(model.graph, opset)
    if newer and opset is not None:
        raise TooNewError(newer, opset)
    return replace(loaded, model=model, carried_out=())


def as_it_stands(
    loaded: LoadedInput, options: SearchOptions, clock: Clock, objective: Objective, reason: str, notes: Sequence[str]
) -> Result:
    """The model itself, on the host.

    Args:
        loaded: The result of :func:`left_unchanged`.
        reason: Why it is left unchanged: ``"size limit"`` or ``"time limit"``.
        notes: What was left out, a sentence each.
    """
    costs, model = costs_of(loaded), loaded.model
    if loaded.newer and options.opset is not None:
        notes = (*notes, replaced_note(loaded.newer, options.opset))
    with clock.stage("price"):
        after = before = _on_host(*cost_before(model, loaded.targets, loaded.sizes))
        if model is not loaded.given:
            before = _on_host(*cost_before(loaded.given, loaded.targets, loaded.sizes))
        run = SearchRun(objective, options.numerics, clock.seconds, notes)
        summary = summarize_untouched(model, costs.targets, before, after, reason, run)
    names = tuple(t.name for t in loaded.targets)
    seconds = dict(clock.seconds)
    return Result(
        model=model,
        cost=after.cost,
        baseline_cost=before.cost,
        bound=summary.bound,
        stop_reason=summary.stop_reason,
        seconds=seconds,
        summary=replace(summary, seconds=seconds, verification=switched_off("nothing was rewritten")),
        plan=Plan(names, tuple(costs.dispatch(d) for d in range(len(names))), (), (), (), {}, {}, {}),
        choices={},
        operators=loaded.operators,
        sizes=loaded.sizes,
        origins=origins_of_input(model),
        opset=options.opset,
    )


def _on_host(cost: float, count: int) -> Totals:
    return Totals(cost, count, 0, 0, count)
