"""The cost of If, Loop and Scan from the costs of their bodies, which are programs of their own.

An If costs its dearer branch, a Loop its body as often as it runs, a Scan its body for each step. How often a loop runs
is known if its trip count is constant and no stand-in for none; otherwise it is assumed, and the same number counts
before and after. Each round of a loop is launched like a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.attributes import attr
from eqsat.schema.types import Attrs, GraphAttr, OpKey
from eqsat.targets.kernel_cost import CostModel

ASSUMED_ROUNDS = 10
"""How often a Loop is assumed to run whose trip count is not constant."""
ENDLESS = 2**31 - 1
"""A trip count from which a Loop runs until its condition ends it: exporters write the greatest integer then."""


@dataclass(frozen=True, slots=True)
class BodyCost:
    """Seconds of one run of a body.

    Attributes:
        before: Cost of the input's body on the host.
        after: Cost of the program that replaces it, with its copies and the dispatch of its regions.
        bound: No program in its e-graph costs less.
    """

    before: float
    after: float
    bound: float


@dataclass(frozen=True)
class BodyCosts:
    """The costs of the bodies that have been optimized, by the graph in the input model."""

    of: Mapping[ir.Graph, BodyCost] = field(default_factory=dict)

    def knows(self, attrs: Attrs) -> bool:
        """Whether a node has bodies, and all their costs are known."""
        graphs = _graphs(attrs)
        return bool(graphs) and all(graph in self.of for graph in graphs)

    def seconds(
        self, op: OpKey, attrs: Attrs, operands: Sequence[TensorFacts | None], launch: float, which: str = "after"
    ) -> float:
        """Seconds of a node: of all runs of its bodies, each of which is launched like a kernel.

        Args:
            op: The operator.
            attrs: With the bodies.
            operands: At the sizes at which costs are taken; values that the bodies capture come last.
            launch: Seconds to start a kernel.
            which: The field of :class:`BodyCost`.
        """
        once = max(getattr(self.of[graph], which) for graph in _graphs(attrs))
        return launch + rounds(op, attrs, operands) * (once if op.name == "If" else launch + once)


def rounds(op: OpKey, attrs: Attrs, operands: Sequence[TensorFacts | None]) -> int:
    """How often a body runs, as far as that is known."""
    if op.name == "Loop":
        limit = operands[0] if operands else None
        if limit is None or limit.value is None or not limit.value.size:
            return ASSUMED_ROUNDS
        count = max(0, int(limit.value.reshape(-1)[0]))
        return count if count < ENDLESS else ASSUMED_ROUNDS
    if op.name == "Scan":
        scanned = attr(attrs, "num_scan_inputs", 0)
        axes = attr(attrs, "scan_input_axes", ()) or (0,)
        first = len(operands) - len(_captured(attrs)) - scanned
        kind = None if not scanned or (facts := operands[first]) is None else facts.type
        size = None if kind is None or kind.shape is None else kind.shape[axes[0]]
        return size if isinstance(size, int) else ASSUMED_ROUNDS
    return 1


def _graphs(attrs: Attrs) -> list[ir.Graph]:
    return [value.graph for _, value in attrs if isinstance(value, GraphAttr)]


def _captured(attrs: Attrs) -> set[str]:
    return {name for _, value in attrs if isinstance(value, GraphAttr) for name in value.captured}


def mean_seconds(
    costs: CostModel,
    bodies: BodyCosts,
    op: OpKey,
    attrs: Attrs,
    operands: Sequence[TensorFacts | None],
    which: str = "after",
) -> float:
    """Seconds of an If, Loop or Scan on the host: the mean over the sizes at which costs are taken.

    Args:
        operands: Its facts, with free sizes.
        which: The field of :class:`BodyCost`.
    """
    launch = costs.launch(0)
    return costs.mean(lambda sizes: bodies.seconds(op, attrs, costs.sized(operands, str(op), sizes), launch, which))
