"""The third stage: the cost of every e-node on every target, as a problem for the solvers."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.extract.from_egraph import MappedProblem, Pricing, formulate
from eqsat.extract.old_enough import require_old_enough
from eqsat.schema.chosen_sizes import where_costed
from eqsat.stages.clock import Clock
from eqsat.stages.load import LoadedInput
from eqsat.stages.saturate import Saturated
from eqsat.targets.kernel_cost import CostModel


@dataclass(frozen=True, slots=True)
class PricedGraph:
    """An e-graph with its costs, and the extraction problem of its outputs."""

    saturated: Saturated
    pricing: Pricing
    formulation: MappedProblem
    outputs: tuple[ir.Value, ...]

    def without(self, forbidden: Container[int]) -> MappedProblem:
        """The extraction problem without some e-nodes."""
        return _formulation(self.saturated, self.pricing, self.outputs, forbidden)


def costs_of(loaded: LoadedInput) -> CostModel:
    """The costs on the targets of a search, at the sizes at which they are taken."""
    return CostModel(loaded.targets, bindable=False, sizes=where_costed(loaded.sizes))


def price(
    saturated: Saturated,
    pricing: Pricing,
    outputs: Sequence[ir.Value],
    clock: Clock,
    forbidden: Container[int] = (),
) -> PricedGraph:
    """Prices an e-graph.

    Args:
        saturated: The e-graph.
        pricing: The costs of e-nodes.
        outputs: Values of the model that a program has to compute.
        clock: Clock of the composition.
        forbidden: E-nodes that no program may use.

    Raises:
        OptimizationError: Something has no cost because its size is unknown.
        TooNewError: Operators need a newer opset than the file may have, and no rule has another form.
    """
    with clock.stage("price"):
        formulation = _formulation(saturated, pricing, outputs, forbidden)
        require_old_enough(formulation, pricing, saturated.saturation.encoding)
        return PricedGraph(saturated, pricing, formulation, tuple(outputs))


def _formulation(
    saturated: Saturated, pricing: Pricing, outputs: Sequence[ir.Value], forbidden: Container[int]
) -> MappedProblem:
    return formulate(saturated.snapshot, saturated.saturation.encoding, list(outputs), pricing, forbidden)
