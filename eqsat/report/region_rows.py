"""Rows of regions and of their kernels, with the names that the partitioned model has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.ops.own_operators import ANNOTATIONS, LAYOUTS
from eqsat.partition.plan import Plan, PlanNode, PlanRegion
from eqsat.partition.value_names import value_names
from eqsat.report.summary import KernelRow, RegionRow
from eqsat.schema.types import CONSTANT
from eqsat.targets.work import Work

_NO_WORK = ANNOTATIONS | LAYOUTS
"""Identities that say something about a value, or where it lies."""


def region_rows(plan: Plan, pieces: Sequence[PlanRegion], copies: Sequence[float]) -> tuple[RegionRow, ...]:
    """The regions in execution order.

    Args:
        plan: The program.
        pieces: Its regions.
        copies: Seconds of the copies that each of them needs.
    """
    names = value_names(plan).of
    rows = []
    for region, copied in zip(pieces, copies, strict=True):
        nodes = [plan.nodes[i] for i in region.nodes]
        dispatch = plan.dispatch[region.target]
        rows.append(
            RegionRow(
                region.name,
                plan.targets[region.target],
                len(nodes),
                sum(len(operators(node)) for node in nodes),
                tuple(names[v] for v in region.inputs),
                tuple(names[v] for v in region.outputs),
                sum(node.cost for node in nodes) + dispatch + copied,
                dispatch=dispatch,
                copies=copied,
                nodes=tuple(str(node.op) for node in nodes),
            )
        )
    return tuple(rows)


def kernel_rows(
    plan: Plan, pieces: Sequence[PlanRegion], places: Mapping[str, str], work: Sequence[Work | None]
) -> tuple[KernelRow, ...]:
    """The kernels in execution order: plain operators and composites.

    Args:
        plan: The program.
        pieces: Its regions.
        places: Where each rule is.
        work: Of each node of the plan.
    """
    names = value_names(plan).of
    return tuple(
        KernelRow(
            next((names[v] for v in node.outputs if v is not None), ""),
            str(node.op),
            plan.targets[region.target],
            region.name,
            operators(node),
            node.cost,
            node.rule,
            places.get(node.rule, ""),
            work=work[i],
        )
        for region in pieces
        for i, node in ((i, plan.nodes[i]) for i in region.nodes)
    )


def operators(node: PlanNode) -> tuple[str, ...]:
    """The operators that a kernel computes; annotations and layouts compute nothing."""
    if node.body is None:
        return () if node.op in _NO_WORK else (str(node.op),)
    return tuple(str(inner.op) for inner in node.body.nodes if inner.op != CONSTANT and inner.op not in _NO_WORK)
