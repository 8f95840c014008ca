"""The size of the result of Resize where sizes are free or data says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.found_sizes import FoundSizes
from eqsat.codegen.program import FINDING, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import elements, is_sizes
from eqsat.codegen.shapes import operand_type
from eqsat.schema.size import bounds
from eqsat.schema.size_questions import any_free, as_dim, greatest, is_free
from eqsat.schema.symbol import LARGEST
from eqsat.schema.types import OpKey, TensorType

_EXACT = 1 << 24
"""Up to here float32, in which sizes are computed, has all whole numbers."""


def resized_type(
    name: str,
    attributes: Mapping[str, Any],
    operands: Sequence[ProgramOperand | None],
    declared: TensorType | None,
    found: FoundSizes,
    nodes: list[ProgramNode],
) -> TensorType | None:
    """The type of the result.

    Args:
        name: Of the node.
        attributes: All attributes.
        operands: Of the node.
        declared: The type that the model declares.
        found: Makes sizes of data.
        nodes: Receives the kernel that computes sizes.

    Raises:
        Unbounded: A size has no greatest value.
    """
    x, _, scales, sizes = (*operands, None, None, None)[:4]
    known = operand_type(x)
    if x is None or known is None:
        return declared
    says = sizes if sizes is not None and sizes.shape != (0,) else scales
    if says is None or (not any_free(x.shape) and isinstance(says, np.ndarray) and not is_sizes(says)):
        return declared
    axes = [a % len(x.shape) for a in attributes.get("axes") or range(len(x.shape))]
    before = [x.shape[a] for a in axes]
    policy = attributes.get("keep_aspect_ratio_policy", "stretch") if says is sizes else "scales"
    wanted: list[int | None] = [None] * len(axes)
    if policy == "stretch":
        limits = [LARGEST if n is None else n for n in _numbers(declared, axes)]
        wanted = [*elements(found.as_sizes(says, name, limits))]
    elif policy == "scales" and isinstance(says, np.ndarray):
        wanted = [_scaled(n, float(f)) for n, f in zip(before, says, strict=True)]
    if None in wanted:
        most = _most(policy, says, before, found, name)
        numbers = _numbers(declared, axes)
        given = found.written(f"{name}_says", says) if isinstance(says, np.ndarray) and is_sizes(says) else says
        asked = [k for k, n in enumerate(wanted) if n is None]
        count = ProgramTensor(f"{name}_sizes", ir.DataType.INT64, (len(asked),))
        form = {"before": tuple(before), "asked": tuple(asked), "policy": policy}
        nodes.append(ProgramNode(count.name, OpKey(FINDING, "ResizeSizes"), form, [given], [count], count.dtype))
        for k in asked:
            number = numbers[k]
            wanted[k] = found.size(name, (0, most[k])) if number is None else number
        found.reading(count, [n for k in asked if (n := wanted[k]) is not None], nodes)
    shape = list(x.shape)
    for a, n in zip(axes, wanted, strict=True):
        assert n is not None
        shape[a] = n
    return TensorType(known.dtype, tuple(map(as_dim, shape)))


def _scaled(n: int, factor: float) -> int | None:
    """A size times a scale, rounded down in float32; None if no expression of sizes gives that."""
    if not is_free(n):
        return int(np.floor(np.float32(factor) * np.float32(n)))
    exact = Fraction(factor)
    if exact.numerator * greatest(n) >= _EXACT or exact.denominator > _EXACT:
        return None
    return n * exact.numerator // exact.denominator


def _most(policy: str, says: ProgramOperand, before: Sequence[int], found: FoundSizes, name: str) -> list[int]:
    """Upper bounds of the sizes."""
    high = [greatest(n) for n in before]
    if policy == "scales":
        if isinstance(says, ProgramTensor):
            return [LARGEST] * len(high)
        return [int(float(f) * n) + 1 for f, n in zip(says, high, strict=True)]
    asked = [greatest(n) for n in elements(found.as_sizes(says, name))]
    if policy == "not_larger":
        return [n + 1 for n in asked]
    factor = max(a / max(bounds(n)[0], 1) for a, n in zip(asked, before, strict=True))
    return [int(factor * n) + 1 for n in high]


def _numbers(declared: TensorType | None, axes: Sequence[int]) -> list[int | None]:
    """The sizes that the model declares, as far as they are numbers."""
    shape = None if declared is None else declared.shape
    if shape is None:
        return [None] * len(axes)
    return [n if isinstance(n := shape[a], int) else None for a in axes]
