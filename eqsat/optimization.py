"""An optimization from end to end: one search, one program, and what was asked for to believe it."""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.load import GivenModel
from eqsat.report.provenance import provenance
from eqsat.result import Result
from eqsat.search import Search
from eqsat.stages.event import Progress
from eqsat.stages.options import Objective, SearchOptions


def optimized(
    source: GivenModel,
    options: SearchOptions,
    objective: Objective = "best",
    *,
    seed: int = 0,
    progress: Progress | None = None,
    audit: bool = False,
    verify: bool = True,
    prove: bool = False,
) -> Result:
    """The program, audited, verified and proven as far as that was asked for; see :func:`eqsat.optimize`."""
    search = Search.run(source, options, progress=progress)
    report = search.audit() if audit else None
    if report is not None:
        report.require(search.model.graph.name or "")
    result = search.extract(objective, seed, verify=verify)
    proof = None
    if prove:
        from eqsat.equivalence.translation import prove_result

        proof = prove_result(source, result.model, options, seed=seed, progress=progress)
    made = provenance(source, search.loaded.given, search.loaded)
    return replace(result, summary=replace(result.summary, audit=report, proof=proof, made=made))
