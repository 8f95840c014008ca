"""Costs, reports and verifications of a model together with those of its bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from eqsat.control.nested import Inner
from eqsat.extract.body_costs import BodyCosts
from eqsat.extract.from_egraph import Pricing
from eqsat.extract.problem import Solution
from eqsat.report.summary import RuleRow, Summary, Totals, Verification
from eqsat.result import Result
from eqsat.schema.types import GraphAttr
from eqsat.simplify.site import sites
from eqsat.stages.assemble import ExtractedProgram


def solution_with_bodies(solution: Solution, program: ExtractedProgram, pricing: Pricing, costs: BodyCosts) -> Solution:
    """The solution with the costs of these programs of its bodies, and a bound that holds for all of them.

    Args:
        solution: Solution of the problem, in which bodies have the cost of the best known programs.
        program: The chosen program.
        pricing: Pricing of the problem.
        costs: Costs of the programs of the bodies.
    """
    if not costs.of:
        return solution
    nodes = [
        enode
        for node, enode in zip(program.plan.nodes, program.assembled.enodes, strict=True)
        if node.target == 0 and costs.knows(node.attrs)
    ]
    cost = solution.cost + sum(pricing.control(node, "after", costs) - pricing.control(node, "after") for node in nodes)
    slack = sum(pricing.control(node, "after") - pricing.control(node, "bound") for node in nodes)
    return replace(solution, cost=cost, bound=min(cost, max(0.0, solution.bound - slack)))


def within_program(inner: Sequence[Inner], program: ExtractedProgram) -> tuple[Inner, ...]:
    """The bodies that a program contains: an unrolled loop has none."""
    graphs = {v.graph for node in program.plan.nodes for _, v in node.attrs if isinstance(v, GraphAttr)}
    return tuple(one for one in inner if one.site.graph in graphs)


def bodies_of_input(inner: Sequence[Inner], model: ir.Model) -> list[Inner]:
    """The bodies that the input contains: other programs of its loops may have bodies as well."""
    own = {site.graph for site in sites(model.graph)}
    return [one for one in inner if one.site.graph in own]


def summary_with_bodies(summary: Summary, inner: Sequence[Inner], given: Sequence[Inner]) -> Summary:
    """The summary with the operators, regions and kernels of all bodies, each marked with its body.

    A body's rows give the cost of one run of it.

    Args:
        summary: Summary of the main graph.
        inner: The bodies that the result contains.
        given: The bodies of the input.
    """
    for one in given:
        summary = replace(summary, before=_sum(summary.before, one.found.result.summary.before))
    for one in inner:
        own = one.found.result.summary
        body = str(one.site)
        summary = replace(
            summary,
            after=_sum(summary.after, own.after),
            kernels=(*summary.kernels, *(replace(row, body=row.body or body) for row in own.kernels)),
            regions=(*summary.regions, *(replace(row, body=row.body or body) for row in own.regions)),
            host_operators=(*summary.host_operators, *own.host_operators),
            rules=tuple(_rule_sum(row, own.rules) for row in summary.rules),
            graphs=(*summary.graphs, *(replace(g, body=g.body or body) for g in own.graphs)),
        )
    return summary


def verification_with_bodies(seen: Verification, inner: Sequence[Inner]) -> Verification:
    """The verification of a whole with the pieces of its bodies; each body has been executed by itself as well."""
    for one in inner:
        own = one.found.result.summary.verification
        if own is not None:
            seen = replace(
                seen,
                pieces=seen.pieces + own.pieces,
                executed=seen.executed + own.executed,
                max_piece_error=max(seen.max_piece_error, own.max_piece_error),
                notes=(*seen.notes, *(f"in the {one.site}: {note}" for note in own.notes)),
                skipped=(*seen.skipped, *(f"in the {one.site}: {reason}" for reason in own.skipped)),
            )
    return seen


def verified(result: Result, seen: Verification, seconds: Mapping[str, float]) -> Result:
    """The result with its verification, and the seconds of all stages up to that."""
    seconds = dict(seconds)
    return replace(result, seconds=seconds, summary=replace(result.summary, seconds=seconds, verification=seen))


def _sum(whole: Totals, part: Totals) -> Totals:
    """Totals with the operators of a body; its cost counts in that of its operator."""
    return replace(
        whole,
        operators=whole.operators + part.operators,
        composites=whole.composites + part.composites,
        regions=whole.regions + part.regions,
        host_operators=whole.host_operators + part.host_operators,
    )


def _rule_sum(row: RuleRow, others: Sequence[RuleRow]) -> RuleRow:
    for other in others:
        if (other.name, other.place) == (row.name, row.place):
            return replace(
                row,
                matches=row.matches + other.matches,
                applied=row.applied + other.applied,
                chosen=row.chosen + other.chosen,
                seconds=row.seconds + other.seconds,
            )
    return row
