"""The summary of a model that is left unchanged: it is too large for an e-graph, or the time was over.

It has no lists by operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.report import summary as report
from eqsat.rules.ast import Target


def summarize_untouched(
    model: ir.Model,
    targets: Sequence[Target],
    before: report.Totals,
    after: report.Totals,
    reason: str,
    run: report.SearchRun,
) -> report.Summary:
    """The summary of a model that is executed unchanged on the host.

    Args:
        targets: The host first.
        before: Of the input.
        after: Of the model.
        reason: Why the search ended, as ``stop_reason`` of saturation and extraction.
        run: The notes say the same in sentences.
    """
    cost, running = after.cost, after.operators
    graph = model.graph
    host = targets[0].name
    region = report.RegionRow(
        f"{host}_0",
        host,
        running,
        running,
        tuple(v.name or "" for v in graph.inputs),
        tuple(v.name or "" for v in graph.outputs),
        cost,
    )
    return report.Summary(
        model=graph.name or "model",
        targets=tuple(t.name for t in targets),
        objective=run.objective,
        numerics=run.numerics,
        before=before,
        after=after,
        bound=0.0,
        gap=1.0 if cost > 0 else 0.0,
        stop_reason=reason,
        saturation=report.SaturationSummary(0, 0, 0, reason),
        seconds=dict(run.seconds),
        kernels=(),
        regions=(region,) if running else (),
        host_operators=(),
        rules=(),
        notes=tuple(run.notes),
    )
