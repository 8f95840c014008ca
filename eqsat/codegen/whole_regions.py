"""Decides which regions of a model stay whole on their way to C.

A region stays whole if a backend or plain C executes it, and so does a single kernel if a target file gives its C call.
The search for kernels and layouts sees these as opaque operators. All other regions are taken apart: their kernels and
layouts are chosen together with the host's.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.coverage import Tally
from eqsat.backends.find_backends import names
from eqsat.codegen.assign import not_fixed
from eqsat.codegen.call_text import RegionCallText, trusted_call
from eqsat.codegen.control.control_node import finds
from eqsat.codegen.program import Program, ProgramNode
from eqsat.codegen.select import choices
from eqsat.partition.call_sizes import holes
from eqsat.partition.onnx_nodes import composite_domain, has_subgraphs
from eqsat.partition.plan import Plan, PlanNode
from eqsat.partition.read_plan import SavedFunction, SavedPlan, SavedScope, called_regions
from eqsat.rules.ast import Target
from eqsat.schema.attributes import op_key
from eqsat.schema.types import OpKey

_BY_DATA = "sizes in its region depend on data"
_NO_C = "the backend writes no C (it does not override emit)"


@dataclass(frozen=True)
class UnplacedKernel:
    """A kernel of a region that its backend does not get.

    Attributes:
        backend: The backend.
        region: Name of the region.
        name: Of the kernel.
        operator: As the backend would see it.
        reason: Why not.
    """

    backend: Backend
    region: str
    name: str
    operator: str
    reason: str


@dataclass(frozen=True)
class LoneKernel:
    """A kernel with a C call, outside of regions that stay whole.

    Attributes:
        target: Its target.
        node: The kernel.
        origin: The node of the model.
    """

    target: str
    node: PlanNode
    origin: ir.Node

    def called(self, opaque: PlanNode) -> PlanNode:
        """The kernel on the operands of the opaque operator that represents it."""
        given = iter(opaque.inputs)
        inputs = tuple(None if v is None else next(given) for v in self.node.inputs)
        return replace(self.node, inputs=inputs, outputs=opaque.outputs)


@dataclass(frozen=True)
class ModelRegions:
    """The regions of a model, and what becomes of them.

    Attributes:
        regions: All of them, by the operator that calls them.
        whole: The regions that stay whole, with the backend that executes them, None for plain C.
        alone: Kernels with a C call, by the opaque operator that represents each of them in a search.
        left: The kernels of regions that no backend receives.
    """

    regions: Mapping[OpKey, SavedFunction]
    whole: Mapping[OpKey, Backend | None]
    alone: Mapping[OpKey, LoneKernel]
    left: tuple[UnplacedKernel, ...] = ()

    @property
    def taken_apart(self) -> bool:
        """Whether a region is."""
        return not self.regions.keys() <= self.whole.keys()


def decide_pieces(saved: SavedPlan, backends: Mapping[str, Backend], host: Target | None) -> ModelRegions:
    """Decides which regions stay whole.

    Args:
        saved: The model as a plan.
        backends: By target.
        host: The host whose kernels and layouts are chosen. A region of a target without a library becomes a function
            of plain C, unless some of its operators have several kernels: then it is part of that choice.

    Raises:
        CodegenError: A call that comes from a file is more than a call of the target's function.
    """
    known = names()
    chosen = choices(() if host is None else host.composites)
    whole: dict[OpKey, Backend | None] = {}
    texts: dict[str, dict[str, str]] = {}
    left: list[UnplacedKernel] = []
    for node, origin in _pairs(saved.main):
        region = saved.regions.get(node.op)
        if region is None:
            continue
        target, kernels = region.target, region.scope.plan.nodes
        given: list[Backend] = [backends[target]] if target in backends else []
        if node.call is not None:
            texts.setdefault(target, {})[region.name] = trusted_call(node.call, origin, target)
            given.append(RegionCallText(target, texts[target]))
        reasons = [(candidate, _left(candidate, region, saved.main.plan, node)) for candidate in given]
        backend = next((candidate for candidate, reason in reasons if not reason), None)
        if backend is None:
            # A kernel with a call of its own is called all the same.
            apart = [(k, n) for k, n in _pairs(region.scope) if k.call is None]
            left += [
                UnplacedKernel(candidate, region.name, k.name or n.op_type, str(k.op), reason)
                for candidate, reason in reasons
                for k, n in apart
            ]
        has_calls = any(kernel.call is not None for kernel in kernels)
        is_plain = target not in known and not has_calls and chosen.isdisjoint(_operators(kernels))
        if backend is not None or is_plain:
            whole[node.op] = backend
    alone: dict[OpKey, LoneKernel] = {}
    for node, origin, call in _called(saved, whole):
        target = saved.main.plan.targets[node.target]
        trusted_call(call, origin, target)
        alone[OpKey(composite_domain(target), f"{origin.op_type}__{len(alone)}")] = LoneKernel(target, node, origin)
    return ModelRegions(saved.regions, whole, alone, tuple(left))


def _left(backend: Backend, region: SavedFunction, plan: Plan, call: PlanNode) -> str:
    """Why a backend does not get a region; empty if it does."""
    if not backend.emits:
        return _NO_C
    types = [plan.types.get(v) for v in (*call.inputs, *call.outputs) if v is not None and v not in plan.constants]
    if all(known is not None and known.is_static for known in types):
        return ""
    if isinstance(backend, RegionCallText):
        return (
            "" if holes(backend.texts[region.name]) else "its sizes are not fixed, and its call does not receive them"
        )
    return "" if backend.free_sizes else not_fixed(backend)


def opaque_operators(model: ir.Model, pieces: ModelRegions) -> dict[ir.Node, OpKey]:
    """The nodes of a model that stay whole, with the operators that a search sees in their place.

    They are calls of regions and kernels with a C call. Regions inside of control flow stay as well, because bodies are
    models of their own later.
    """
    calls = {node: op_key(node) for node, _ in called_regions(model)}
    stay = {node: op for node, op in calls.items() if op in pieces.whole or op not in pieces.regions}
    return {**stay, **{kernel.origin: op for op, kernel in pieces.alone.items()}}


def _pairs(scope: SavedScope) -> Iterator[tuple[PlanNode, ir.Node]]:
    return zip(scope.plan.nodes, scope.nodes, strict=True)


def _called(saved: SavedPlan, whole: Container[OpKey]) -> Iterator[tuple[PlanNode, ir.Node, str]]:
    """The kernels with a C call, and the call, outside of regions that stay whole."""
    apart = [f.scope for op, f in saved.regions.items() if op not in whole]
    for scope in (*apart, saved.main):
        for node, origin in _pairs(scope):
            if node.call is not None and node.op not in saved.regions and not has_subgraphs(node.attrs):
                yield node, origin, node.call


def _operators(kernels: tuple[PlanNode, ...]) -> Iterator[OpKey]:
    for kernel in kernels:
        yield kernel.op
        yield from () if kernel.body is None else (inner.op for inner in kernel.body.nodes)


def keep_known_regions(program: Program, tally: Tally) -> None:
    """Takes regions apart in which data decides sizes: a function of C that stays whole does not hand these on.

    A backend for free sizes receives sizes that were found before, like all others.
    """
    found = set(program.found)

    def is_apart(node: ProgramNode, backend: Backend | None) -> bool:
        receives = backend is not None and backend.free_sizes
        return node.reads_sizes or finds(node) or not (receives or found.isdisjoint(node.depends_on()))

    apart = {
        node.kernel[0]
        for node in program.nodes
        if node.kernel is not None and is_apart(node, program.regions[node.kernel[0]].backend)
    }
    for region in (program.regions[number] for number in sorted(apart)):
        if region.backend is not None:
            for kernel in region.kernels:
                tally.add(region.backend, (region.name, kernel.name), kernel.name, kernel.operator, _BY_DATA)
    for node in program.nodes:
        if node.kernel is not None and node.kernel[0] in apart:
            node.kernel = None
