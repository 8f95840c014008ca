"""Marks the regions of a partitioned model, so that lowering finds them after selection and inlining.

Kernels that are executed as a whole become a function of their own, which selection leaves alone: a whole region if a
backend or plain C executes it, a single kernel if a target file gives its C call. The nodes of that function have the
numbers of region and kernel, and an ``Identity`` stands for each operand and result of a kernel. All other regions are
taken apart: their kernels and layouts are chosen together with the host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.read import (
    attributes_of,
    called_regions,
    composite_of,
    constant_of,
    kernel_nodes,
    known_constants,
    known_type,
    operator_of,
    places_of,
)
from eqsat.backends.registry import names
from eqsat.backends.values import Operand
from eqsat.codegen.call_text import CallText, RegionCallText, trusted_call
from eqsat.codegen.select import choices
from eqsat.partition.emit import CALL, REGION, TARGET, composite_domain
from eqsat.partition.names import Namer
from eqsat.rules.ast import Target
from eqsat.schema.attributes import op_key, subgraphs
from eqsat.schema.types import TensorType

REGION_MARK = "codegen.region"
"""Metadata key: number of the region that a node belongs to."""
KERNEL_MARK = "codegen.kernel"
"""Metadata key: number of the kernel within the region."""
ROLE = "codegen.role"
"""Metadata key of an ``Identity``: ``operand`` or ``result`` of the kernel, and which."""


@dataclass(eq=False)
class MarkedKernel:
    """A kernel whose nodes are marked.

    Attributes:
        name: Of its node.
        operator: See :class:`~eqsat.backends.values.Kernel`.
        attributes: Likewise.
        call: Likewise.
        count: How many operands it has, absent ones included.
        operands: Known for constants when it is marked, for the others when it is lowered.
        results: Known when it is lowered.
        types: Of those results of a composite whose types are known.
    """

    name: str
    operator: str
    attributes: Mapping[str, Any]
    call: str = ""
    count: int = 0
    operands: dict[int, Operand] = field(default_factory=dict)
    results: dict[int, Operand] = field(default_factory=dict)
    types: dict[int, TensorType] = field(default_factory=dict)


@dataclass(eq=False)
class MarkedRegion:
    """A region whose nodes are marked.

    Attributes:
        name: Such as ``dnnl_0``.
        target: Name of the target.
        backend: The backend that executes its kernels; None for plain C.
        kernels: In order.
    """

    name: str
    target: str
    backend: Backend | None
    kernels: list[MarkedKernel] = field(default_factory=list)


def mark_regions(
    model: ir.Model, backends: Mapping[str, Backend], plain: frozenset[str] = frozenset()
) -> tuple[ir.Model, list[MarkedRegion]]:
    """A copy of a model with marks on the regions that stay whole, and these regions.

    Args:
        model: Partitioned or not; it is not changed.
        backends: By target.
        plain: Regions by name that become functions of plain C.

    Raises:
        CodegenError: A call that comes from a file is more than a call of the target's function.
    """
    if not any(TARGET in function.metadata_props for function in model.functions.values()):
        return model, []
    marking = _Marking(model.clone(), backends, plain)
    return (marking.model, marking.regions) if marking.run() else (model, [])


def plain_regions(model: ir.Model, host: Target | None) -> frozenset[str]:
    """Names of the regions that become functions of plain C: those of targets without a library.

    Args:
        model: Partitioned or not.
        host: The host whose kernels and layouts are chosen. A region with operators that have several kernels is part
        of
            that choice, and therefore taken apart.
    """
    known = names()
    chosen = choices(() if host is None else host.composites)
    found = set()
    for _, function in called_regions(model):
        kernels = kernel_nodes(function)
        composites = [composite_of(node, model.functions) for node in kernels]
        inner = [*kernels, *(node for c in composites if c is not None for node in c)]
        if function.metadata_props.get(TARGET, "") not in known and chosen.isdisjoint(map(op_key, inner)):
            found.add(function.metadata_props[REGION])
    return frozenset(found)


class _Marking:
    def __init__(self, model: ir.Model, backends: Mapping[str, Backend], plain: frozenset[str]) -> None:
        self.model = model
        self.backends = backends
        self.plain = plain
        self.regions: list[MarkedRegion] = []
        self.texts: dict[str, dict[str, str]] = {}
        self.whole: set[ir.OperatorIdentifier] = set()

    def run(self) -> bool:
        model = self.model
        called = list(called_regions(model))
        for node, function in called:
            name, target = function.metadata_props[REGION], function.metadata_props.get(TARGET, "")
            backend = self.backends.get(target)
            if backend is None and CALL in node.metadata_props:
                self.texts.setdefault(target, {})[name] = trusted_call(node, target, region=True)
                backend = RegionCallText(target, self.texts[target])
            node.metadata_props.pop(CALL, None)
            called_by_text = any(CALL in inner.metadata_props for inner in function)
            if backend is not None or (name in self.plain and not called_by_text):
                self._region(node, function, MarkedRegion(name, target, backend))
            else:
                self._calls(function, known_constants(node, function))
        self._calls(model.graph, {})
        for identifier in self.whole:
            # Inlining of regions and composites leaves these whole.
            model.functions[identifier].metadata_props.pop(TARGET, None)
        return bool(self.regions)

    def _region(self, node: ir.Node, function: ir.Function, region: MarkedRegion) -> None:
        """Give the call of a region a function of its own, in which each kernel is marked."""
        own = function.clone()
        own.name = f"{function.name}__{len(self.regions)}"
        own.metadata_props.pop(TARGET, None)
        self.model.functions[own.identifier()] = own
        node.op_type = own.name
        constants = known_constants(node, own)
        namer = Namer(v.name or "" for v in (*own.inputs, *(v for inner in own for v in inner.outputs)))
        for inner in kernel_nodes(own):
            self._kernel(own, inner, constants, region, namer)
        self.regions.append(region)

    def _calls(self, scope: ir.Graph | ir.Function, constants: Mapping[ir.Value, np.ndarray]) -> None:
        """The kernels of a scope that have a C call: each is a region by itself."""
        for node in list(scope):
            if CALL not in node.metadata_props or any(True for _ in subgraphs(node)):
                continue
            function = composite_of(node, self.model.functions)
            owner = scope if function is None else function
            target = owner.metadata_props.get(TARGET) or node.metadata_props.get(TARGET, "vendor")
            region = MarkedRegion(node.name or "", target, CallText(target))
            call = trusted_call(node, target)
            own = _alone(node, composite_domain(target), f"{node.op_type}__{len(self.regions)}", scope)
            known: dict[ir.Value, np.ndarray] = {}
            for outer, formal in zip(node.inputs, own.inputs, strict=True):
                array = constants[outer] if outer is not None and outer in constants else constant_of(outer)
                if array is not None:
                    known[formal] = array
            self._kernel(own, next(iter(own)), known, region, Namer(), call)
            self.model.functions[own.identifier()] = own
            node.domain, node.op_type = own.domain, own.name
            node.attributes.clear()
            scope.opset_imports.setdefault(own.domain, 1)
            self.regions.append(region)

    def _kernel(
        self,
        scope: ir.Function,
        node: ir.Node,
        constants: Mapping[ir.Value, np.ndarray],
        region: MarkedRegion,
        namer: Namer,
        call: str = "",
    ) -> None:
        marks = {REGION_MARK: str(len(self.regions)), KERNEL_MARK: str(len(region.kernels))}
        composite = composite_of(node, self.model.functions)
        if composite is not None:
            self.whole.add(composite.identifier())
        places = places_of(node, composite)
        kernel = MarkedKernel(
            node.name or node.op_type, operator_of(node, region.target), attributes_of(node), call,
            max(places, default=-1) + 1,
        )  # fmt: skip
        node.metadata_props.update(marks)
        for at, (place, value) in enumerate(zip(places, list(node.inputs), strict=False)):
            if value is None or value.name == "":
                continue
            if value in constants:
                kernel.operands[place] = constants[value]
                continue
            mark = _identity(value, namer, marks | {ROLE: f"operand {place}"})
            scope.insert_before(node, mark)
            node.replace_input_with(at, mark.outputs[0])
        for at, value in enumerate(node.outputs):
            if value.name == "":
                continue
            known = known_type(value)
            if composite is not None and known is not None and known.is_static:
                kernel.types[at] = known
            users = list(value.uses())
            mark = _identity(value, namer, marks | {ROLE: f"result {at}"})
            # The name of the layer goes to the value that is read outside; lowering gives it to the tensor.
            value.name, mark.outputs[0].name = mark.outputs[0].name, value.name
            scope.insert_after(node, mark)
            for user, index in users:
                user.replace_input_with(index, mark.outputs[0])
            for i, output in enumerate(scope.outputs):
                if output is value:
                    scope.outputs[i] = mark.outputs[0]
        region.kernels.append(kernel)


def _alone(node: ir.Node, domain: str, name: str, scope: ir.Graph | ir.Function) -> ir.Function:
    """A function that contains one node, with the same inputs and outputs."""
    formal = [_copy(value, f"operand_{i}") for i, value in enumerate(node.inputs)]
    results = [_copy(value, f"result_{i}") for i, value in enumerate(node.outputs)]
    inner = ir.Node(
        node.domain,
        node.op_type,
        [None if outer is None else own for outer, own in zip(node.inputs, formal, strict=True)],
        list(node.attributes.values()),
        overload=node.overload,
        outputs=results,
        name=node.name,
        metadata_props=dict(node.metadata_props),
    )
    graph = ir.Graph(formal, results, nodes=[inner], opset_imports=dict(scope.opset_imports), name=name)
    return ir.Function(domain, name, graph=graph, attributes=())


def _copy(value: ir.Value | None, name: str) -> ir.Value:
    return ir.Value(name=name) if value is None else ir.Value(name=name, type=value.type, shape=value.shape)


def _identity(value: ir.Value, namer: Namer, metadata: dict[str, str]) -> ir.Node:
    name = namer.keep(f"{value.name}_{metadata[ROLE].replace(' ', '_')}")
    output = ir.Value(name=name, type=value.type, shape=value.shape)
    return ir.Node("", "Identity", [value], outputs=[output], metadata_props=metadata, name=output.name)
