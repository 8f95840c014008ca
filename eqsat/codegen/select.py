"""Which kernels, in which layout: an extraction over the host's ``kernel`` entries, while C is generated.

``ChannelsLast`` and ``ChannelsFirst`` are identities that say how a tensor lies in memory, so that each rule about
layout is one about equal values (``rules/kernels``). The e-graph holds both layouts of a tensor, the kernels that
compute one from the other, and conversions, which cost a pass over memory; the cheapest program has the kernels and
the conversions that pay. It is written into the model as marks (:mod:`eqsat.codegen.marks`), which lowering obeys.

Anderson and Gregg, "Optimal DNN primitive selection with partitioned boolean quadratic programming", CGO 2018, choose
kernels and layouts of a fixed graph in this way; here elementwise operators may move over conversions as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.codegen.marks import mark
from eqsat.codegen.prices import GeneratedPricing
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import OptimizationError
from eqsat.extract.from_egraph import Formulation, require_static_types
from eqsat.extract.problem import Choice, Solution
from eqsat.model.load import load
from eqsat.ops.functions import CHANNELS_FIRST, CHANNELS_LAST
from eqsat.partition.saved import inline
from eqsat.rules.ast import Alternatives, Match, Pattern, Target
from eqsat.rules.location import rules_dir
from eqsat.rules.select import allowed, select_rules
from eqsat.schema.attributes import op_key
from eqsat.schema.types import OpKey
from eqsat.stages.assemble import assemble, export
from eqsat.stages.clock import Clock
from eqsat.stages.extract import extract
from eqsat.stages.price import price
from eqsat.stages.saturate import saturate
from eqsat.targets.cost import CostModel

TIME_LIMIT = 60.0
"""Seconds for a search; networks of the usual sizes take one or two, so that the result does not depend on it."""

_LAYOUTS = frozenset({CHANNELS_LAST.op, CHANNELS_FIRST.op})


@dataclass(frozen=True)
class Selection:
    """What was chosen.

    Attributes:
        kernels: How often each ``kernel`` entry of the host is used, by name.
        conversions: How many tensors are converted from one layout to the other, by a pass over memory each.
        cost: Seconds by the host's file, of all that runs on it.
        bound: No program in the e-graph costs less.
        stop_reason: ``"optimal"``, ``"time limit"``.
    """

    kernels: Mapping[str, int]
    conversions: int
    cost: float
    bound: float
    stop_reason: str


def select_kernels(
    model: ir.Model,
    host: Target,
    *,
    dims: Mapping[str, int] | None = None,
    winograd: bool = False,
    time_limit: float = TIME_LIMIT,
) -> tuple[ir.Model, Selection] | None:
    """Chooses kernels and layouts.

    Args:
        model: As loaded; what a backend executes is a function of its own (:mod:`eqsat.codegen.regions`) and stays. The
            model is left as it is.
        host: Whose ``kernel`` entries are chosen from.
        dims: Sizes of symbolic dimensions.
        winograd: Whether kernels that are only equal over the reals may be chosen.
        time_limit: Seconds.

    Returns:
        The model with marks, and what they say. None where there is nothing to choose: no operator of the model has
        kernels in several layouts, or some size is not known, so that nothing has a cost.
    """
    entries = tuple(k for k in host.kernels if allowed(k.numerics, "real" if winograd else "exact"))
    anchors = {op for k in entries for op in anchored(k.pattern)}
    plain = load(inline(model, operators=False), dims=dims)
    if anchors.isdisjoint(op_key(node) for node in plain.graph):
        return None
    generated = replace(host, composites=entries, kernels=())
    rules = select_rules(sorted((rules_dir() / "kernels").glob("*.rules")), "exact").rules
    clock = Clock(time_limit)
    saturated = saturate(plain, rules, [generated], clock)
    found = saturated.snapshot
    try:
        require_static_types(saturated.saturation.encoding.inputs)
        pricing = GeneratedPricing(found, CostModel([generated], bindable=False))
        instead = _replaced(found)
        priced = price(saturated, pricing, plain.graph.outputs, clock, instead)
    except OptimizationError:
        return None
    solution = extract(priced.formulation, clock, original=_original(priced.formulation, instead))
    program = assemble(priced, solution)
    chosen = export(program.renamed(_names(program.plan.names, found)), plain)
    mark(chosen, host.name)
    return chosen, _selection(priced.formulation, solution)


def anchored(pattern: Pattern | None, *, between: bool = False) -> Iterator[OpKey]:
    """Operators that a pattern computes from channels that lie innermost to such: what makes a layout worth choosing.

    Args:
        pattern: Of a ``kernel`` entry.
        between: Whether it stands right inside ``ChannelsLast``.
    """
    if isinstance(pattern, Alternatives):
        for option in pattern.options:
            yield from anchored(option, between=between)
    elif isinstance(pattern, Match):
        if between and any(isinstance(a, Match) and CHANNELS_FIRST.op in a.ops for a in pattern.args):
            yield from pattern.ops
        for arg in pattern.args:
            yield from anchored(arg, between=CHANNELS_LAST.op in pattern.ops)


def _names(names: Mapping[int, str], found: Snapshot) -> dict[int, str]:
    """Names of values, a tensor's in both of its layouts: people find their layers by name."""
    result = dict(names)
    for node in found.nodes:
        child = node.children[0] if node.op in _LAYOUTS else None
        if child is None:
            continue
        for one, other in ((child, node.eclass), (node.eclass, child)):
            if one in names:
                result.setdefault(other, names[one])
    return result


def _replaced(found: Snapshot) -> dict[int, int]:
    """Plain operators that a kernel of one operator stands for -> that kernel."""
    instead: dict[int, int] = {}
    for members in found.classes:
        kernels = [n for n in members if found.nodes[n].composite is not None]
        for n in members if kernels else ():
            stand_in = next((k for k in kernels if _is_alone(found.nodes[k], found.nodes[n])), None)
            if stand_in is not None:
                instead[n] = stand_in
    return instead


def _is_alone(kernel: ENode, node: ENode) -> bool:
    """Whether a kernel consists of one operator and that is the given one."""
    assert kernel.composite is not None
    body = kernel.composite.body
    if node.kind != "op" or len(body.nodes) != 1 or body.nodes[0].op != node.op or body.nodes[0].attrs != node.attrs:
        return False
    return tuple(None if i is None else kernel.children[i] for i in body.nodes[0].inputs) == node.children


def _original(formulation: Formulation, instead: Mapping[int, int]) -> dict[int, Choice]:
    """The model as it stands, the program to beat."""
    index = {n: i for i, n in enumerate(formulation.node)}
    choices = dict(formulation.original)
    for n in formulation.original_nodes:
        position = formulation.position.get(formulation.snapshot.nodes[n].eclass)
        if position is not None and position not in choices and instead.get(n) in index:
            choices[position] = Choice(index[instead[n]], 0)
    return choices


def _selection(formulation: Formulation, solution: Solution) -> Selection:
    kernels: dict[str, int] = {}
    conversions = 0
    for choice in solution.choices.values():
        node = formulation.snapshot.nodes[formulation.node[choice.node]]
        if node.composite is not None:
            kernels[node.op.name] = kernels.get(node.op.name, 0) + 1
        elif node.op in _LAYOUTS and formulation.problem.cost[choice.node, 0] > 0:
            conversions += 1
    return Selection(dict(sorted(kernels.items())), conversions, solution.cost, solution.bound, solution.stop_reason)
