"""Decides which regions of a model stay whole on their way to C.

A region stays whole if a backend or plain C executes it, and so does a single kernel if a target file gives its C call.
The search for kernels and layouts sees these as opaque functions. All other regions are taken apart: their kernels and
layouts are chosen together with the host's.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.registry import names
from eqsat.codegen.call_text import RegionCallText, trusted_call
from eqsat.codegen.control.forms import finds
from eqsat.codegen.program import Program
from eqsat.codegen.select import choices
from eqsat.partition.emit import CALL, TARGET, composite_domain
from eqsat.partition.plan import PlanNode
from eqsat.partition.read_plan import SavedFunction, SavedPlan, SavedScope
from eqsat.rules.ast import Target
from eqsat.schema.attributes import op_key, subgraphs
from eqsat.schema.types import OpKey


@dataclass(frozen=True)
class Pieces:
    """The regions of a model, and what becomes of them.

    Attributes:
        regions: All of them, by the operator that calls them.
        whole: Those that stay whole; with the backend that executes them, None for plain C.
        alone: Kernels with a C call, each with its target, by the operator that stands for it in the model that is
            searched.
    """

    regions: Mapping[OpKey, SavedFunction]
    whole: Mapping[OpKey, Backend | None]
    alone: Mapping[OpKey, tuple[str, PlanNode]]

    @property
    def taken_apart(self) -> bool:
        """Whether a region is."""
        return not self.regions.keys() <= self.whole.keys()


def decide_pieces(saved: SavedPlan, backends: Mapping[str, Backend], host: Target | None) -> Pieces:
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
    for node, origin in _pairs(saved.main):
        region = saved.regions.get(node.op)
        if region is None:
            continue
        target, kernels = region.target, region.scope.plan.nodes
        backend = backends.get(target)
        if backend is None and CALL in origin.metadata_props:
            texts.setdefault(target, {})[region.name] = trusted_call(origin, target, region=True)
            backend = RegionCallText(target, texts[target])
        has_calls = any(CALL in inner.metadata_props for inner in region.scope.nodes)
        is_plain = target not in known and not has_calls and chosen.isdisjoint(_operators(kernels))
        if backend is not None or is_plain:
            whole[node.op] = backend
    alone: dict[OpKey, tuple[str, PlanNode]] = {}
    for node, origin in _called(saved, whole):
        target = saved.main.plan.targets[node.target]
        trusted_call(origin, target)
        alone[OpKey(composite_domain(target), f"{origin.op_type}__{len(alone)}")] = target, node
    return Pieces(saved.regions, whole, alone)


def searchable(model: ir.Model, saved: SavedPlan, pieces: Pieces) -> ir.Model:
    """The model in which all that stays whole is an opaque function.

    Args:
        model: The one that was read; it is not changed.
        saved: The same as a plan.
        pieces: What stays whole.
    """
    if not pieces.whole and not pieces.alone:
        return model
    copy = model.clone()
    scopes = [(model.graph, copy.graph), *((f, copy.functions[i]) for i, f in model.functions.items())]
    copies = {old: (new, inside) for one, inside in scopes for old, new in zip(one, inside, strict=True)}
    for op, (_, origin) in zip(pieces.alone, _called(saved, pieces.whole), strict=True):
        own = _alone(*copies[origin], op)
        copy.functions[own.identifier()] = own
    opaque = {*pieces.whole, *pieces.alone}
    for node in copy.graph:
        function = copy.functions.get(node.op_identifier())
        if function is not None and op_key(node) in opaque:
            function.metadata_props.pop(TARGET, None)  # What has no target is not inlined,
            for inner in function:  # but composites in it are.
                composite = copy.functions.get(inner.op_identifier())
                for domain, version in () if composite is None else composite.opset_imports.items():
                    function.opset_imports.setdefault(domain, version)
    return copy


def restored(node: PlanNode, alone: PlanNode) -> PlanNode:
    """The kernel that an opaque operator stands for, on the operands that it is called with."""
    given = iter(node.inputs)
    inputs = tuple(None if v is None else next(given) for v in alone.inputs)
    return replace(alone, inputs=inputs, outputs=node.outputs)


def _pairs(scope: SavedScope) -> Iterator[tuple[PlanNode, ir.Node]]:
    return zip(scope.plan.nodes, scope.nodes, strict=True)


def _called(saved: SavedPlan, whole: Container[OpKey]) -> Iterator[tuple[PlanNode, ir.Node]]:
    """The kernels with a C call, outside of regions that stay whole."""
    apart = [f.scope for op, f in saved.regions.items() if op not in whole]
    for scope in (*apart, saved.main):
        for node, origin in _pairs(scope):
            if (
                CALL in origin.metadata_props
                and node.op not in saved.regions
                and not any(True for _ in subgraphs(origin))
            ):
                yield node, origin


def _operators(kernels: tuple[PlanNode, ...]) -> Iterator[OpKey]:
    for kernel in kernels:
        yield kernel.op
        yield from () if kernel.body is None else (inner.op for inner in kernel.body.nodes)


def _alone(node: ir.Node, scope: ir.Graph | ir.Function, op: OpKey) -> ir.Function:
    """Turns a node into the call of a function that contains it."""
    formal = [None if v is None or v.name == "" else _copy(v, f"operand_{i}") for i, v in enumerate(node.inputs)]
    results = [_copy(value, f"result_{i}") for i, value in enumerate(node.outputs)]
    inner = ir.Node(
        node.domain,
        node.op_type,
        formal,
        list(node.attributes.values()),
        overload=node.overload,
        outputs=results,
        name=node.name,
    )
    present = [v for v in formal if v is not None]
    graph = ir.Graph(present, results, nodes=[inner], opset_imports=dict(scope.opset_imports), name=op.name)
    given = [v for v in node.inputs if v is not None and v.name != ""]
    for i, value in enumerate(given):
        node.replace_input_with(i, value)
    node.resize_inputs(len(given))
    node.domain, node.op_type, node.overload = op.domain, op.name, ""
    node.attributes.clear()
    scope.opset_imports.setdefault(op.domain, 1)
    return ir.Function(op.domain, op.name, graph=graph, attributes=())


def _copy(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape)


def keep_known_regions(program: Program) -> None:
    """Takes regions apart in which data decides sizes: a function of C that stays whole does not hand these on."""
    found = set(program.found)
    apart = {
        node.kernel[0]
        for node in program.nodes
        if node.kernel is not None and (node.reads_sizes or finds(node) or not found.isdisjoint(node.depends_on()))
    }
    for node in program.nodes:
        if node.kernel is not None and node.kernel[0] in apart:
            node.kernel = None
