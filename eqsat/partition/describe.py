"""The contents of a partitioned program as plain data for reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat.ops.functions import ANNOTATIONS, LAYOUTS
from eqsat.partition.names import value_names
from eqsat.partition.plan import Plan, PlanNode, Region
from eqsat.schema.types import OpKey

_CONSTANT = OpKey("", "Constant")
_NO_WORK = ANNOTATIONS | LAYOUTS
"""Identities that say something about a value, or where it lies."""


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor that enters or leaves a region.

    Attributes:
        type: Such as ``float32[1, 64, 56, 56]``, empty where unknown.
        bytes: None unless the shape is static.
    """

    name: str
    type: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class KernelDescription:
    """One launch: a plain operator or a composite.

    Attributes:
        name: Its first output tensor, as in the partitioned model.
        op: The operator or composite, such as ``dnnl.conv_relu``.
        operators: The standard operators it computes; one for a plain operator.
        cost: Seconds.
        rule: The rule that made it; empty for an operator of the input model.
    """

    name: str
    op: str
    operators: tuple[str, ...]
    cost: float
    rule: str


@dataclass(frozen=True, slots=True)
class RegionDescription:
    """A region.

    Attributes:
        kernels: Its launches in execution order; a composite counts once.
        inputs: Tensors it reads from outside, without constants.
        outputs: Tensors that are read outside.
        constant_bytes: Size of the constants it reads.
        dispatch: Seconds to start it.
        cost: Seconds of its kernels and its start; copies are not part of a plan.
    """

    name: str
    target: str
    kernels: tuple[KernelDescription, ...]
    inputs: tuple[TensorRow, ...]
    outputs: tuple[TensorRow, ...]
    constant_bytes: int
    dispatch: float
    cost: float

    @property
    def operators(self) -> int:
        """Standard operators in it, including those inside composites."""
        return sum(len(kernel.operators) for kernel in self.kernels)


def describe(plan: Plan, regions: Sequence[Region]) -> list[RegionDescription]:
    """Regions in execution order, with the names that the partitioned model has."""
    names = value_names(plan).of

    def tensors(ids: Iterable[int]) -> tuple[TensorRow, ...]:
        known = ((v, plan.types.get(v)) for v in ids)
        return tuple(TensorRow(names[v], "" if t is None else str(t), None if t is None else t.bytes) for v, t in known)

    result = []
    for region in regions:
        nodes = [plan.nodes[i] for i in region.nodes]
        constants = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v in plan.constants)
        kernels = tuple(
            KernelDescription(
                next((names[v] for v in node.outputs if v is not None), ""),
                str(node.op),
                operators(node),
                node.cost,
                node.rule,
            )
            for node in nodes
        )
        dispatch = plan.dispatch[region.target]
        result.append(
            RegionDescription(
                region.name,
                plan.targets[region.target],
                kernels,
                tensors(region.inputs),
                tensors(region.outputs),
                sum(plan.constants[v].nbytes for v in constants),
                dispatch,
                sum(kernel.cost for kernel in kernels) + dispatch,
            )
        )
    return result


def operators(node: PlanNode) -> tuple[str, ...]:
    """The operators that a kernel computes; annotations and layouts compute nothing."""
    if node.body is None:
        return () if node.op in _NO_WORK else (str(node.op),)
    return tuple(str(inner.op) for inner in node.body.nodes if inner.op != _CONSTANT and inner.op not in _NO_WORK)
