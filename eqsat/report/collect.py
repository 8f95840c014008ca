"""Gathers the contents of a report from the parts of the pipeline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from eqsat.egraph.judge_match import Judge
from eqsat.egraph.limits import RuleStatistics
from eqsat.explain.near_misses import NearMisses
from eqsat.explain.origin import Origin
from eqsat.extract.from_egraph import MappedProblem
from eqsat.extract.problem import Solution
from eqsat.extract.program_cost import readers
from eqsat.ops.operators import operator
from eqsat.ops.own_operators import ANNOTATIONS, LAYOUTS
from eqsat.ops.traits import MOVES
from eqsat.partition.make_plan import Assembled
from eqsat.partition.plan import PlanRegion
from eqsat.partition.value_names import value_names
from eqsat.report import summary as report
from eqsat.report.memory_map import memory_of_plan
from eqsat.report.region_rows import kernel_rows, operators, region_rows
from eqsat.report.rule_growth import growth
from eqsat.report.trust import trust_in
from eqsat.report.two_graphs import compare
from eqsat.rules.ast import Target
from eqsat.rules.expand import operators as operators_of
from eqsat.rules.listing import short_place
from eqsat.schema.body import Body
from eqsat.schema.chosen_sizes import typical_sizes
from eqsat.stages.assemble import ExtractedProgram
from eqsat.stages.load import LoadedInput
from eqsat.stages.price import PricedGraph


def collect(
    loaded: LoadedInput,
    priced: PricedGraph,
    solution: Solution,
    program: ExtractedProgram,
    origins: Mapping[str, Origin],
    run: report.SearchRun,
) -> report.Summary:
    """The summary of one optimization."""
    assembled, pieces = program.assembled, program.regions
    formulation, saturation = priced.formulation, priced.saturated.saturation
    statistics = (*saturation.statistics, *loaded.placed)
    plan = assembled.plan
    on_host = [n for n in plan.nodes if n.target == 0]
    own = [n for n in (formulation.snapshot.nodes[i] for i in formulation.original_nodes) if n.op not in ANNOTATIONS]
    before = report.Totals(formulation.baseline, len(own), 0, 0, len(own))
    after = report.Totals(
        cost=solution.cost,
        operators=sum(len(operators(n)) for n in plan.nodes),
        composites=sum(n.body is not None for n in plan.nodes),
        regions=sum(r.target != 0 for r in pieces),
        host_operators=sum(len(operators(n)) for n in on_host),
    )
    places = {s.name: short_place(s.place) for s in statistics}
    comparison = compare(loaded, priced, program, origins)
    work = [node.work for node in comparison.after.nodes if node.kind not in ("input", "output")]
    kernels = kernel_rows(plan, pieces, places, work)
    chosen = Counter(k.rule for k in kernels)
    return report.Summary(
        model=loaded.model.graph.name or "model",
        targets=tuple(t.name for t in loaded.targets),
        objective=run.objective,
        numerics=run.numerics,
        before=before,
        after=after,
        bound=solution.bound,
        gap=solution.gap,
        stop_reason=solution.stop_reason,
        saturation=report.SaturationSummary(
            iterations=saturation.iterations,
            enodes=len(formulation.snapshot.nodes),
            classes=sum(map(bool, formulation.snapshot.classes)),
            stop_reason=saturation.stop_reason,
            growth=growth(saturation, formulation.snapshot, places),
        ),
        seconds=dict(run.seconds),
        kernels=kernels,
        regions=region_rows(plan, pieces, _copy_costs(formulation, solution, pieces)),
        host_operators=_host_rows(assembled, priced),
        rules=tuple(_rule_row(s, chosen[s.name]) for s in statistics),
        notes=tuple(run.notes),
        trust=trust_in(origins, (*loaded.every_rule, *loaded.claims)),
        memory=memory_of_plan(plan, pieces, typical_sizes(loaded.sizes)),
        graphs=(comparison,),
    )


def _rule_row(statistics: RuleStatistics, chosen: int) -> report.RuleRow:
    return report.RuleRow(
        name=statistics.name,
        place=short_place(statistics.place),
        matches=statistics.matches,
        applied=statistics.applied,
        chosen=chosen,
        held_back=statistics.held_back,
        mismatches=statistics.mismatches,
        mismatch=statistics.mismatch,
        misfits=statistics.misfits,
        misfit=statistics.misfit,
        undecided=statistics.undecided,
        undecided_condition=statistics.undecided_condition,
        seconds=statistics.seconds,
    )


def _copy_costs(formulation: MappedProblem, solution: Solution, pieces: Sequence[PlanRegion]) -> list[float]:
    """Per region the seconds of copies: in for the first region that reads a value, out of the one that makes it."""
    problem = formulation.problem
    memories = readers(problem, solution.choices)
    costs = [0.0] * len(pieces)
    paid: set[tuple[int, int]] = set()
    for i, region in enumerate(pieces):
        if region.target == 0:
            continue
        for eclass in region.inputs:
            position = formulation.position.get(eclass)
            if position is None or (position, region.target) in paid:
                continue
            if solution.choices[position].target != region.target:
                paid.add((position, region.target))
                costs[i] += float(problem.copy_in[position, region.target])
        for eclass in region.outputs:
            position = formulation.position.get(eclass)
            if position is not None and any(t != region.target for t in memories.get(position, ())):
                costs[i] += float(problem.copy_out[position, region.target])
    return costs


def _why_not_the_parts(target: Target, body: Body) -> str:
    """Why operators run together, in one kernel of the host: an accelerator may have one of them in no way."""
    known = {op for entry in target.supports for op in entry.ops}
    known.update(operators_of(*(pattern for composite in target.composites for pattern in composite.patterns)))
    parts = [part.op for part in body.nodes if part.op not in LAYOUTS and MOVES not in operator(part.op).traits]
    foreign = [op for op in parts if op not in known]
    if foreign and all(entry.ops for entry in target.supports):
        return f"{foreign[0]} not supported by {target.name}"
    return "the host runs it with others in one kernel"


def _host_rows(assembled: Assembled, priced: PricedGraph) -> tuple[report.HostRow, ...]:
    names = value_names(assembled.plan).of
    pricing = priced.pricing
    near_misses = NearMisses(Judge(priced.saturated.saturation, pricing.snapshot, pricing.facts))
    rows = []
    for node, enode in zip(assembled.plan.nodes, assembled.enodes, strict=True):
        if node.target != 0 or node.op in ANNOTATIONS:
            continue
        name = next((names[v] for v in node.outputs if v is not None), "")
        refusals = []
        for d, target in enumerate(pricing.costs.targets):
            if d == 0:
                continue
            if node.body is not None:
                refusals.append(report.RefusalRow(target.name, _why_not_the_parts(target, node.body)))
                continue
            operands, results = pricing.operands(enode), pricing.outputs(enode)
            reason = pricing.costs.why_not(d, node.op, node.attrs, operands, results)
            if reason and not any(node.op in entry.ops for entry in target.supports):
                reason = near_misses.reason(target, enode, reason)
            # If it can run there, it is cheaper here only because of dispatch and copies.
            there = pricing.cost(enode, d)
            own = there if not reason and math.isfinite(there) else None
            why = reason or "cheaper on the host, including copies and dispatch"
            refusals.append(report.RefusalRow(target.name, why, own))
        rows.append(report.HostRow(name, str(node.op), node.cost, tuple(refusals)))
    return tuple(rows)
