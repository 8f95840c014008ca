"""Names of a program's values: users' names of tensors stay, other values get readable new names.

People find their layers by name, in Netron and in their own scripts. Inputs and outputs therefore always keep their
names, tensors that still exist keep theirs unless those are taken, and new values are named after the operator that
computes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.shadowing import defined_names
from eqsat.model.unused_names import Namer
from eqsat.partition.plan import Plan
from eqsat.schema.types import GraphAttr


@dataclass(frozen=True)
class ValueNames:
    """Names for a plan.

    Attributes:
        of: Value id -> name, for every value of the plan; no two alike.
        aliases: Positions in ``Plan.outputs`` that need a value of their own, computed by Identity, because
            their value has another name: it is an input, a constant, or serves an earlier output as well.
        namer: For further names in the same graph.
    """

    of: dict[int, str]
    aliases: tuple[int, ...]
    namer: Namer


def value_names(plan: Plan) -> ValueNames:
    """Names every value of a plan, deterministically."""
    of: dict[int, str] = {vid: value.name or f"input_{i}" for i, (vid, value) in enumerate(plan.inputs)}
    input_names = set(of.values())
    taken = set(input_names)
    aliases = []
    for i, (vid, _) in enumerate(plan.outputs):
        name = output_name(plan, i)
        if name in input_names or of.get(vid) == name:
            # The model's output is that input, or is listed twice.
            continue
        if vid in of or vid in plan.constants or name in taken:
            aliases.append(i)
        else:
            of[vid] = name
        taken.add(name)

    producers = {out: node.op for node in plan.nodes for out in node.outputs if out is not None}
    values = [vid for vid in (*producers, *plan.constants) if vid not in of]
    for vid in values:
        name = plan.names.get(vid)
        if name and name not in taken:
            of[vid] = name
            taken.add(name)
    inner = {
        name
        for node in plan.nodes
        for _, value in node.attrs
        if isinstance(value, GraphAttr)
        for name in defined_names(value.graph)
    }
    namer = Namer(taken | inner)
    for vid in values:
        if vid not in of:
            name = plan.names.get(vid)
            base = producers[vid].name if vid in producers else "constant"
            of[vid] = namer.keep(name) if name else namer.number(base)
    return ValueNames(of, tuple(aliases), namer)


def output_name(plan: Plan, index: int) -> str:
    """Name of the graph output at a position."""
    return plan.outputs[index][1].name or f"output_{index}"
