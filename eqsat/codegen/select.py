"""Chooses kernels and layouts by the search of ``optimize`` on the host for generated C, with the host's rules only.

``ChannelsLast`` and ``ChannelsFirst`` are identities that record how a tensor lies in memory, so that each rule about
layouts is a rule about equal values (``rules/kernels``). The e-graph contains both layouts of a tensor, the kernels
that compute one from the other, and conversions, which cost a pass over memory; the cheapest program has the kernels
and the conversions that pay. Lowering follows its plan. A model that was optimized for this host has been searched
already, and its plan is used unchanged.

Anderson and Gregg, "Optimal DNN primitive selection with partitioned boolean quadratic programming", CGO 2018, choose
kernels and layouts of a fixed graph in this way; here elementwise operators may also move across conversions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.extract.from_egraph import MappedProblem, Pricing
from eqsat.extract.problem import Solution
from eqsat.model.read.given_sizes import GivenSize
from eqsat.ops.own_operators import CHANNELS_FIRST, CHANNELS_LAST, LAYOUTS
from eqsat.partition.plan import Plan
from eqsat.rules.ast import Alternatives, Composite, Match, Pattern, Target
from eqsat.rules.selection import NumericsClass
from eqsat.schema.attributes import op_key
from eqsat.schema.free_sizes import within
from eqsat.schema.types import OpKey
from eqsat.stages.assemble import assemble
from eqsat.stages.clock import Clock
from eqsat.stages.extract import extract
from eqsat.stages.load import prepare
from eqsat.stages.options import SearchOptions
from eqsat.stages.price import costs_of, price
from eqsat.stages.saturate import saturate

TIME_LIMIT = 60.0
"""Seconds for a search; networks of the usual sizes take one or two, so that the result does not depend on it."""


@dataclass(frozen=True)
class KernelSelection:
    """The chosen kernels and layouts.

    Attributes:
        kernels: How often each composite of the host is used, by name.
        conversions: How many tensors are converted from one layout to the other, by a pass over memory each.
        cost: Seconds by the host's file, of all that runs on it.
        bound: No program in the e-graph costs less; 0 where the model came with the choice.
        stop_reason: ``"optimal"``, ``"work limit"``, ``"time limit"``, or ``"given"``: the model was optimized
            for this host.
    """

    kernels: Mapping[str, int]
    conversions: int
    cost: float
    bound: float
    stop_reason: str


def select_kernels(
    model: ir.Model,
    opaque: Mapping[ir.Node, OpKey],
    host: Target,
    *,
    numerics: NumericsClass = "real",
    time_limit: float = TIME_LIMIT,
    dims: Mapping[str, GivenSize] | None = None,
) -> tuple[Plan, KernelSelection] | None:
    """Chooses kernels and layouts.

    Args:
        model: As loaded; it is not changed.
        opaque: Nodes of the model that stay whole (:mod:`eqsat.codegen.whole_regions`), with the operators by which the
            plan names them.
        host: The host whose composites are available.
        numerics: How far rules and kernels of the host may change values.
        time_limit: Seconds.
        dims: Ranges of the sizes that the program receives.

    Returns:
        The plan, and a summary of it. None if there is no choice: the host has no rules and no operator of the model
        has kernels in several layouts, or some size is unknown, so that nothing has a cost.
    """
    options = SearchOptions(host=host, default_rules=False, numerics=numerics, time_limit=time_limit, dims=dims)
    options = replace(options, free_sizes=bool(dims))
    try:
        loaded = prepare(model, options, opaque)
        if not loaded.rewriting and choices(host.composites).isdisjoint(op_key(node) for node in loaded.model.graph):
            return None
        clock = Clock(time_limit)
        with within(loaded.sizes):
            saturated = saturate(loaded.model, loaded.rewriting, loaded.targets, clock)
            priced = price(saturated, Pricing(saturated.snapshot, costs_of(loaded)), loaded.outputs, clock)
            solution = extract(priced.formulation, clock)
            program = assemble(priced, solution)
    except OptimizationError:
        return None
    ordered = tuple(program.plan.nodes[i] for region in program.regions for i in region.nodes)
    return replace(program.plan, nodes=ordered), _selection(priced.formulation, solution)


def given_kernels(plan: Plan, host: Target) -> KernelSelection | None:
    """A summary of the choice that a plan brings along because its model was optimized for a host.

    Args:
        plan: The plan, read from the model.
        host: The host on which generated C runs.

    Returns:
        None if nothing was chosen for this host.
    """
    if plan.targets[0] != host.name or not any(node.cost for node in plan.nodes):
        return None
    names = Counter(node.op.name for node in plan.nodes if plan.is_composite(node))
    conversions = sum(node.op in LAYOUTS and node.cost > 0 for node in plan.nodes)
    cost = sum(node.cost for node in plan.nodes)
    return KernelSelection(dict(sorted(names.items())), conversions, cost, 0.0, "given")


def choices(composites: Iterable[Composite]) -> set[OpKey]:
    """Operators that one of a host's composites computes with channels innermost, in both operand and result."""
    return {op for entry in composites for pattern in entry.patterns for op in _anchored(pattern)}


def _anchored(pattern: Pattern | None, *, between: bool = False) -> Iterator[OpKey]:
    """The operators of a pattern directly inside ``ChannelsLast``, if they read ``ChannelsFirst``."""
    if isinstance(pattern, Alternatives):
        for option in pattern.options:
            yield from _anchored(option, between=between)
    elif isinstance(pattern, Match):
        if between and any(isinstance(a, Match) and CHANNELS_FIRST.op in a.ops for a in pattern.args):
            yield from pattern.ops
        for arg in pattern.args:
            yield from _anchored(arg, between=CHANNELS_LAST.op in pattern.ops)


def _selection(formulation: MappedProblem, solution: Solution) -> KernelSelection:
    kernels: dict[str, int] = {}
    conversions = 0
    for choice in solution.choices.values():
        node = formulation.snapshot.nodes[formulation.node[choice.node]]
        if node.composite is not None:
            kernels[node.op.name] = kernels.get(node.op.name, 0) + 1
        elif node.op in LAYOUTS and formulation.problem.cost[choice.node, 0] > 0:
            conversions += 1
    return KernelSelection(
        dict(sorted(kernels.items())), conversions, solution.cost, solution.bound, solution.stop_reason
    )
