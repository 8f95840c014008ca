"""Regions: the largest pieces of a program that one target can execute in one go.

A piece can be launched as a whole exactly if no value leaves it and comes back (it is convex), and all pieces can run
one after the other exactly if the graph of pieces, the quotient, is acyclic. :mod:`eqsat.extract.regions.stages` groups
the nodes so that the launches are fewest; here the pieces get names, inputs and outputs.
"""

from __future__ import annotations

from eqsat.extract.regions.stages import stages
from eqsat.partition.plan import Plan, PlanRegion
from eqsat.partition.subgraphs import reads


def regions(plan: Plan, counts: dict[str, int] | None = None) -> list[PlanRegion]:
    """Regions of a program in execution order, pieces on the host included.

    Args:
        plan: The program.
        counts: Number of the last named region by target; the plan's regions are added.

    Every node belongs to one region. Regions are connected and convex, their quotient is acyclic, and no two
    neighbours on one target could be one region. Names are ``TARGET_k``, counted by target in execution order.
    """
    staging = stages(node_predecessors(plan), [node.target for node in plan.nodes], plan.dispatch)
    producer = _producers(plan)
    needed = {vid for vid, _ in plan.outputs}
    for i, node in enumerate(plan.nodes):
        needed.update(
            v for v in reads(plan, node) if v in producer and staging.region[producer[v]] != staging.region[i]
        )
    counts = {} if counts is None else counts
    result = []
    for at, nodes in enumerate(staging.regions):
        target = plan.nodes[nodes[0]].target
        operands = (v for i in nodes for v in reads(plan, plan.nodes[i]) if v not in plan.constants)
        inputs = dict.fromkeys(v for v in operands if v not in producer or staging.region[producer[v]] != at)
        outputs = (v for i in nodes for v in plan.nodes[i].outputs if v is not None and v in needed)
        number = counts[plan.targets[target]] = counts.get(plan.targets[target], -1) + 1
        name = f"{plan.targets[target]}_{number}"
        result.append(PlanRegion(name, target, tuple(nodes), tuple(inputs), tuple(outputs)))
    return result


def node_predecessors(plan: Plan) -> list[tuple[int, ...]]:
    """Per node the nodes whose outputs it reads, ascending."""
    producer = _producers(plan)
    return [tuple(sorted({producer[v] for v in reads(plan, node) if v in producer})) for node in plan.nodes]


def _producers(plan: Plan) -> dict[int, int]:
    return {vid: i for i, node in enumerate(plan.nodes) for vid in node.outputs if vid is not None}
