"""How much of a program computes with integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.errors import EqsatError
from eqsat.model.macs import body_macs, macs
from eqsat.partition.plan import Plan, PlanNode
from eqsat.schema.free_sizes import at_sizes
from eqsat.schema.types import TensorType

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "Cast")


@dataclass(frozen=True, slots=True)
class IntegerShare:
    """Attributes:
    integer: Kernels that read no float at run time, without conversions. floating: Kernels that read floats, without
    conversions. conversions: ``QuantizeLinear``, ``DequantizeLinear``, ``Cast``. integer_macs: Multiplications and
    additions in integers. macs: All multiplications and additions.
    """

    integer: int
    floating: int
    conversions: int
    integer_macs: int
    macs: int

    @property
    def operators(self) -> float:
        """Part of the kernels that are integer."""
        total = self.integer + self.floating
        return self.integer / total if total else 0.0

    @property
    def work(self) -> float:
        """Part of the MACs that are integer."""
        return self.integer_macs / self.macs if self.macs else 0.0


def is_conversion(node: PlanNode) -> bool:
    """Whether a kernel only changes how numbers are represented."""
    return node.body is None and node.op.name in _CONVERSIONS


def is_integer(plan: Plan, node: PlanNode) -> bool:
    """Whether a kernel reads no floating-point values at run time."""
    read = [plan.types.get(v) for v in node.inputs if v is not None and v not in plan.constants]
    return all(t is not None and not t.dtype.is_floating_point() for t in read)


def integer_share(plan: Plan, sizes: Mapping[str, int]) -> IntegerShare:
    """Counts the kernels of a plan and their work at some sizes of the symbols."""
    integer = floating = conversions = integer_work = work = 0
    for node in plan.nodes:
        if is_conversion(node):
            conversions += 1
            continue
        own = kernel_macs(plan, node, sizes)
        work += own
        if is_integer(plan, node):
            integer += 1
            integer_work += own
        else:
            floating += 1
    return IntegerShare(integer, floating, conversions, integer_work, work)


def kernel_macs(plan: Plan, node: PlanNode, sizes: Mapping[str, int]) -> int:
    """Multiply-accumulates of a kernel at some sizes of the symbols, 0 where sizes are unknown."""

    def types(values: Sequence[int | None]) -> list[TensorType | None]:
        found = [None if v is None else plan.types.get(v) for v in values]
        return [None if t is None else at_sizes(t, sizes) for t in found]

    given, made = types(node.inputs), types(node.outputs)
    try:
        if node.body is not None:
            return body_macs(node.body, given)
        return macs(node.op, node.attrs, given, made)
    except EqsatError:
        return 0
