"""Marks in a partitioned model, so that the kernels of a region are still known when functions are inlined.

Metadata of a call goes over to the nodes of the function that is inlined for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from eqsat.partition.emit import COMPOSITE, REGION, TARGET

REGION_MARK = "codegen.region"
"""Metadata key: number of the call of a region."""
KERNEL_MARK = "codegen.kernel"
"""Metadata key: number of the kernel within the region."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a region.

    Attributes:
        region: Number of the call.
        number: Place in the region.
        name: Of its node.
        operator: Of its node: a composite or a plain operator.
    """

    region: int
    number: int
    name: str
    operator: str


def mark_kernels(model: ir.Model, target: str) -> tuple[ir.Model, list[Kernel]]:
    """A copy of a model with the marks of a target's regions, and all kernels in these."""
    kernels: list[Kernel] = []
    functions = [f for f in model.functions.values() if REGION in f.metadata_props and _target(f) == target]
    if not functions:
        return model, kernels
    copy = model.clone()
    regions = 0
    for node in copy.graph:
        function = copy.functions.get(node.op_identifier())
        if function is None or REGION not in function.metadata_props or _target(function) != target:
            continue
        own = function.clone()
        own.name = f"{function.name}__{regions}"
        for number, inner in enumerate(own):
            inner.metadata_props.update({REGION_MARK: str(regions), KERNEL_MARK: str(number)})
            composite = inner.metadata_props.get(COMPOSITE)
            operator = f"{target}.{composite.rpartition('.')[2]}" if composite else inner.op_type
            kernels.append(Kernel(regions, number, inner.name or inner.op_type, operator))
        copy.functions[own.identifier()] = own
        node.op_type = own.name
        regions += 1
    for function in copy.functions.values():
        if _target(function) == target:
            del function.metadata_props[TARGET]  # What takes regions and composites apart leaves these whole.
    return copy, kernels


def mark_of(node: ir.Node) -> tuple[int, int] | None:
    """Region and kernel that a node belongs to."""
    region, kernel = node.metadata_props.get(REGION_MARK), node.metadata_props.get(KERNEL_MARK)
    return None if region is None or kernel is None else (int(region), int(kernel))


def _target(function: ir.Function) -> str:
    return function.metadata_props.get(TARGET, "")
