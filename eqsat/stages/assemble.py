"""The last stage: turns the chosen program into a plan with regions, and that into an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.extract.problem import Solution
from eqsat.partition.make_plan import Assembled
from eqsat.partition.make_plan import assemble as assemble_plan
from eqsat.partition.partition_functions import PartitionFunction, annotate_composites
from eqsat.partition.plan import Plan, PlanRegion
from eqsat.partition.regions import regions
from eqsat.partition.subgraphs import with_bodies
from eqsat.partition.write_plan import to_model
from eqsat.rules.ast import Target
from eqsat.stages.price import PricedGraph


@dataclass(frozen=True, slots=True)
class ExtractedProgram:
    """A chosen program.

    Attributes:
        assembled: The plan and its e-nodes.
        regions: Regions in execution order, including those of the host.
    """

    assembled: Assembled
    regions: tuple[PlanRegion, ...]

    @property
    def plan(self) -> Plan:
        return self.assembled.plan

    def renamed(self, names: Mapping[int, str]) -> ExtractedProgram:
        """The same program with other names of values."""
        return replace(self, assembled=replace(self.assembled, plan=replace(self.plan, names=dict(names))))


def assemble(
    priced: PricedGraph,
    solution: Solution,
    targets: Sequence[Target] = (),
    functions: Mapping[str, PartitionFunction] | None = None,
    counts: dict[str, int] | None = None,
) -> ExtractedProgram:
    """Makes a plan of an extraction's choices.

    Args:
        priced: The problem.
        solution: The solution.
        targets: The targets whose ``annotate`` clauses count.
        functions: Partition functions by the name of their composite.
        counts: Number of the last named region by target.

    Raises:
        OptimizationError: A partition function does more than annotate.
    """
    formulation = priced.formulation
    # After the classes of the e-graph there may be some that only carry weights.
    choices = {c: choice for c, choice in solution.choices.items() if c < len(formulation.eclass)}
    encoding = priced.saturated.saturation.encoding
    assembled = assemble_plan(formulation, choices, encoding, list(priced.outputs), priced.pricing)
    assembled = annotate_composites(assembled, targets, functions or {})
    return ExtractedProgram(assembled, tuple(regions(assembled.plan, counts)))


def export(
    program: ExtractedProgram, original: ir.Model, bodies: Mapping[ir.Graph, ir.Graph] | None = None
) -> ir.Model:
    """Writes a program as an ONNX model; the original supplies what the program does not contain.

    Args:
        program: The chosen program.
        original: The input model.
        bodies: Replacements for the bodies of control flow that the host executes.
    """
    return to_model(with_bodies(program.plan, bodies or {}), program.regions, original)
