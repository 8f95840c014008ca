"""Lowers If, Loop and Scan: a node whose bodies are programs, with the operands and results of all of them."""

from __future__ import annotations

from eqsat.codegen.canonical import Made
from eqsat.codegen.control.branches import BranchLowering
from eqsat.codegen.control.loop_rounds import LoopLowering
from eqsat.codegen.control.lowering import BodyPlanner, ControlNode
from eqsat.codegen.found_sizes import FoundSizes
from eqsat.codegen.problems import Problems
from eqsat.schema.types import OpKey

_LOWERINGS = {"If": BranchLowering, "Loop": LoopLowering, "Scan": LoopLowering}
SUPPORTED = frozenset(OpKey("", name) for name in _LOWERINGS)
"""Control flow that can become C."""


def lower_control(node: ControlNode, bodies: BodyPlanner, problems: Problems, found: FoundSizes) -> Made:
    """The nodes that replace a node of control flow, and its results; None for results that were refused."""
    if node.op not in SUPPORTED:
        problems.add(f"control flow ({node.op.name})", node.name)
        return [], [None] * len(node.used)
    lowering = _LOWERINGS[node.op.name](node, bodies, problems, found)
    if all(x is not None for x in node.captured.values()):
        lowering.lower()
    return lowering.nodes, lowering.results
