"""The kernels that ONNX Runtime has for a model: one for each operator and fused operator in the host's e-graph.

A kernel is a model of its own, with the expression that prices it and the values over which that is evaluated. The
e-graph contains the operators of the model, what rules make of them, and the composites of the host. So all kernels
among which a search would choose are measured, in the sizes of this model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.from_egraph import Pricing
from eqsat.extract.runtime_operators import Runtime
from eqsat.ops.operators import has
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.ops.traits import Trait
from eqsat.partition.onnx_nodes import has_subgraphs, make_attributes, make_node, make_value
from eqsat.partition.plan import PlanNode
from eqsat.partition.written_operators import written_operator
from eqsat.rules.ast import Expr, Target
from eqsat.schema import opset
from eqsat.schema.attributes import tensor_of
from eqsat.schema.declared_operators import find_function
from eqsat.schema.dtypes import BYTES
from eqsat.schema.types import TensorType, tensor_type
from eqsat.schema.versions import SOURCE_OPSET
from eqsat.stages.clock import Clock
from eqsat.stages.load import prepare
from eqsat.stages.options import SearchOptions
from eqsat.stages.saturate import saturate
from eqsat.targets.kernel_cost import CostModel

TIME_LIMIT = 20.0
_DRAWN = (
    ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32,
    ir.DataType.INT64, ir.DataType.BOOL,
)  # fmt: skip
_SOURCE = "17,8"
"""The opset and the IR version to write where the operator exists there: ONNX Runtime's optimizations know it."""
_LARGEST = 1 << 26
"""Bytes of the tensors of one kernel; a larger one is not measured."""


@dataclass(frozen=True)
class RuntimeKernel:
    """A kernel by itself.

    Attributes:
        name: The operator as the file names it.
        cost: The expression that prices it.
        env: The values over which the expression is evaluated.
        model: A graph of the kernel alone, with the kernel's inputs and outputs.
    """

    name: str
    cost: Expr
    env: Mapping[str, Any]
    model: ir.Model


class _Recording(CostModel):
    """A cost model that remembers the expression that it evaluated last, and the values used."""

    _seen: tuple[Expr, Mapping[str, object]] | None = None

    def take(self) -> tuple[Expr, Mapping[str, object]] | None:
        """The last evaluation since the previous call; None if there was none."""
        found, self._seen = self._seen, None
        return found

    def evaluated(self, cost: Expr, env: Mapping[str, object], what: str) -> float:
        self._seen = (cost, env)
        return super().evaluated(cost, env, what)


def kernels_of(model: ir.Model, host: Target) -> list[RuntimeKernel]:
    """The kernels that a host has for a model, each combination of operator, attributes and sizes once.

    Args:
        model: As loaded, with all sizes known.
        host: A runtime.
    """
    loaded = prepare(model, SearchOptions(host=host, time_limit=TIME_LIMIT))
    clock = Clock(TIME_LIMIT)
    saturated = saturate(loaded.model, loaded.rewriting, loaded.targets, clock)
    found = saturated.snapshot
    costs = _Recording(loaded.targets, bindable=False)
    pricing = Pricing(found, costs, Runtime(found, saturated.saturation.encoding))
    kernels: dict[object, RuntimeKernel] = {}
    parts = _parts(found)
    for node in found.nodes:
        if node.kind not in ("op", "composite") or found.constant[node.eclass]:
            continue
        written = _written(node, found, pricing, parts.get(node.eclass, {}))
        if written is None or not _is_measurable(written, found):
            continue
        key = (written.op, written.attrs, *(_operand(c, found) for c in written.inputs), len(written.outputs))
        costs.take()
        # Kernels that differ only in the values of constants have equal costs: nothing is evaluated again.
        if key in kernels or not np.isfinite(pricing.cost(node, 0)) or (evaluated := costs.take()) is None:
            continue
        cost, env = evaluated
        kernels[key] = RuntimeKernel(str(written.op), cost, env, _alone(written, found))
    return list(kernels.values())


def _parts(found: Snapshot) -> dict[int, dict[int, int]]:
    """For each tuple the classes of its projections, by number."""
    parts: dict[int, dict[int, int]] = {}
    for node in found.nodes:
        if node.kind == "part" and node.children[0] is not None:
            parts.setdefault(node.children[0], {})[node.number] = node.eclass
    return parts


def _written(node: ENode, found: Snapshot, pricing: Pricing, parts: Mapping[int, int]) -> PlanNode | None:
    """A kernel as an operator of a file; None for a composite that is written as a function."""
    produced = tuple(parts.get(k) for k in range(node.outputs)) if node.outputs else (node.eclass,)
    if node.composite is not None:
        return written_operator(node, found, pricing.outputs(node), produced)
    return PlanNode(node.op, node.attrs, node.children, produced, 0)


def _is_measurable(node: PlanNode, found: Snapshot) -> bool:
    """Whether the kernel by itself takes as long as within a network, on operands that are drawn."""
    if node.op in ANNOTATIONS or has_subgraphs(node.attrs) or find_function(node.op) is not None:
        return False
    # Operators that move no data inside a network; alone, ONNX Runtime would copy.
    if node.op.name == "Constant" or has(node.op, Trait.FORWARDS) or has(node.op, Trait.RANDOM):
        return False
    size = 0
    for eclass in (*node.inputs, *node.outputs):
        kind = None if eclass is None else found.types[eclass]
        if eclass is None:
            continue
        if kind is None or not kind.is_static or not kind.elements or kind.dtype not in _DRAWN:
            return False
        size += kind.elements * kind.dtype.bitwidth // 8
    return size <= _LARGEST and any(c is not None and not found.constant[c] for c in node.inputs)


def _operand(eclass: int | None, found: Snapshot) -> object:
    """The properties of an operand that the time depends on."""
    return None if eclass is None else (found.types[eclass], found.constant[eclass])


def _alone(node: PlanNode, found: Snapshot) -> ir.Model:
    rng = np.random.default_rng(0)
    values: dict[int, ir.Value] = {}
    inputs: list[ir.Value] = []
    weights: list[ir.Value] = []
    for eclass in dict.fromkeys(c for c in node.inputs if c is not None):
        kind, known = found.types[eclass], found.value[eclass]
        assert kind is not None
        value = values[eclass] = make_value(f"x{len(values)}", kind)
        if found.constant[eclass] or known is not None:
            small = None if known is None else known.numpy()
            array = _drawn(kind, rng) if small is None else np.broadcast_to(small, _shape(kind))
            value.const_value = tensor_of(np.ascontiguousarray(array), kind.dtype, value.name)
            weights.append(value)
        else:
            inputs.append(value)
    outputs = [make_value("" if c is None else f"y{i}", None if c is None else found.types[c])
               for i, c in enumerate(node.outputs)]  # fmt: skip
    operands = [None if c is None else values[c] for c in node.inputs]
    made = make_node(node.op, make_attributes(node.op, node.attrs), operands, outputs, name="kernel")
    imports = {domain: opset.opset_version(domain) for domain in ("", node.op.domain)}
    graph = ir.Graph(
        inputs, [v for v in outputs if v.name], nodes=[made], initializers=weights, opset_imports=imports, name="kernel"
    )
    return ir.Model(graph, ir_version=opset.IR_VERSION, metadata_props={SOURCE_OPSET: _SOURCE})


def drawn(model: ir.Model) -> dict[str, np.ndarray]:
    """Operands of a kernel: zeros for integers, which may be positions."""
    rng = np.random.default_rng(1)
    found: dict[str, np.ndarray] = {}
    for value in model.graph.inputs:
        kind = tensor_type(value)
        assert kind is not None
        found[value.name or ""] = _drawn(kind, rng)
    return found


def _drawn(kind: TensorType, rng: np.random.Generator) -> np.ndarray:
    if kind.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16):
        return (rng.random(_shape(kind)) + 0.1).astype(kind.dtype.numpy())
    if kind.dtype in BYTES:
        return rng.integers(0, 100, _shape(kind)).astype(kind.dtype.numpy())
    return np.zeros(_shape(kind), kind.dtype.numpy())


def _shape(kind: TensorType) -> tuple[int, ...]:
    return tuple(d for d in kind.shape or () if isinstance(d, int))
