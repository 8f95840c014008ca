"""Compares what two models compute, and finds where they first differ.

Both are executed on one input. If an output differs, every tensor that has the same name in both models is compared as
well, also those inside regions; the first one in execution order that differs shows where to look.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import ExecutionError
from eqsat.execute.difference import Difference, NumericsName, compare_values
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs, input_names
from eqsat.model.inlining import inline_calls
from eqsat.model.read.given_sizes import Bound
from eqsat.schema.metadata import is_region
from eqsat.schema.types import type_of

SAME_INPUTS = "inputs are paired by name, and the rest by position: rename inputs that belong together"
"""The advice if the inputs of two models do not correspond."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on two models.

    Attributes:
        outputs: One entry per output, in the first model's order.
        first: The first tensor in execution order that differs, among those named in both models; None if the
            outputs agree.
        shared: Number of such tensors that were compared; 0 if the outputs agree.
        seed: Seed of the drawn inputs.
    """

    outputs: tuple[Difference, ...]
    first: Difference | None
    shared: int
    seed: int

    @property
    def agrees(self) -> bool:
        """Whether every output is within the tolerance."""
        return all(d.agrees for d in self.outputs)

    @property
    def max_abs_error(self) -> float:
        """Over all outputs."""
        return max((d.max_abs_error for d in self.outputs), default=0.0)

    @property
    def max_rel_error(self) -> float:
        """Over all outputs."""
        return max((d.max_rel_error for d in self.outputs), default=0.0)


def compare(
    a: ir.Model,
    b: ir.Model,
    inputs: Mapping[str, Any] | None = None,
    *,
    numerics: NumericsName = "real",
    rtol: float | None = None,
    atol: float | None = None,
    dims: Mapping[str, Bound] | None = None,
    seed: int = 0,
) -> Comparison:
    """Executes two models on the same input and compares their outputs.

    Inputs and outputs correspond by name, and those without a namesake by position.

    Args:
        a: The model that serves as the reference.
        b: The model to compare with it.
        inputs: Arrays by input name of ``a``; missing ones are drawn at random.
        numerics: ``"exact"``: equal to the bit; else within the tolerance of the element type.
        rtol: Tolerance relative to the largest magnitude in the tensor, instead of the element type's.
        atol: Absolute tolerance, added to that.
        dims: Sizes of symbolic dimensions, and the expressions with which ``a`` was loaded.
        seed: Seed of the drawn inputs.

    Raises:
        ExecutionError: The models differ in number or types of inputs, or in number of outputs, or cannot be executed.
    """
    for place, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and not 0 <= tolerance < math.inf:
            raise ExecutionError("a tolerance of 0 or more is required", place=place, actual=repr(tolerance))
    renamed = _pair(input_names(a), input_names(b), "inputs")
    paired = _pair(_output_names(a), _output_names(b), "outputs")
    _require_like_inputs(a, b, renamed)
    arrays = complete_inputs(a, inputs, dims=dims, seed=seed)
    for_b = {renamed[name]: value for name, value in arrays.items()}

    steps = _steps(a)

    def differ(name: str, left: Any, right: Any) -> Difference:
        return compare_values(name, left, right, numerics=numerics, rtol=rtol, atol=atol, step=steps.get(name, 0.0))

    left, right = Executor(a).run(arrays), Executor(b).run(for_b)
    outputs = tuple(differ(name, left[name], right[other]) for name, other in paired.items())
    if all(d.agrees for d in outputs):
        return Comparison(outputs, None, 0, seed)

    inner_a, inner_b = _without_regions(a), _without_regions(b)
    known = set(_inner_names(inner_b))
    shared = [name for name in _inner_names(inner_a) if name in known]
    left = Executor(inner_a).run(arrays, shared)
    right = Executor(inner_b).run(for_b, shared)
    inner = (differ(name, left[name], right[name]) for name in shared)
    first = next((d for d in inner if not d.agrees), None)
    return Comparison(outputs, first or next(d for d in outputs if not d.agrees), len(shared), seed)


def _steps(model: ir.Model) -> dict[str, float]:
    """The step between two values of each tensor that is computed, an integer of up to 16 bits, and dequantized.

    Tensors with several scales are left out: the largest would hide errors next to the others.
    """
    found: dict[str, float] = {}
    for node in model.graph:
        if node.op_type != "DequantizeLinear" or node.domain not in ("", "com.microsoft"):
            continue
        quantized, scale, *zero = node.inputs
        # The zero point is of the same type, also where shapes were not inferred.
        dtype = next((v.dtype for v in (quantized, *zero) if v is not None and v.dtype is not None), None)
        is_weight = quantized is None or quantized.const_value is not None
        if is_weight or dtype is None or dtype.itemsize > 2 or scale is None or scale.const_value is None:
            continue
        steps = np.abs(scale.const_value.numpy().astype(np.float64))
        if steps.size == 1 and np.isfinite(steps).all():
            found[node.outputs[0].name or ""] = steps.item()
    return found


def _output_names(model: ir.Model) -> list[str]:
    return [value.name or "" for value in model.graph.outputs]


def _pair(a: list[str], b: list[str], what: str) -> dict[str, str]:
    """Name in ``a`` -> name in ``b``."""
    if len(a) != len(b):
        raise ExecutionError(
            f"two models with equally many {what} are required",
            actual=f"{len(a)} ({', '.join(a)}) and {len(b)} ({', '.join(b)})",
        )
    return pair_names(a, b)


def pair_names(a: Sequence[str], b: Sequence[str]) -> dict[str, str]:
    """By name, and those without a namesake by position; both have equally many."""
    rest = iter([name for name in b if name not in a])
    return {name: name if name in b else next(rest) for name in a}


def _require_like_inputs(a: ir.Model, b: ir.Model, pairs: Mapping[str, str]) -> None:
    """Requires that the second model can take the inputs of the first."""
    left, right = ({v.name or "": type_of(v) for v in model.graph.inputs} for model in (a, b))
    for name, other in pairs.items():
        one, two = left[name], right[other]
        if one is None or two is None:  # Neither is a tensor, or only when it runs its kind is known.
            continue
        if one.dtype != two.dtype or _contradict(one.shape, two.shape):
            raise ExecutionError(
                "two models with inputs of equal types are required",
                place=f"input {name!r}" + (f", in the second model {other!r}" if name != other else ""),
                actual=f"{one} and {two}",
                hint=SAME_INPUTS,
            )


def _contradict(a: Sequence[int | str | None] | None, b: Sequence[int | str | None] | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return a is not None and b is not None
    return any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a, b, strict=True))


def _without_regions(model: ir.Model) -> ir.Model:
    """The model with its regions' functions inlined, so that the tensors inside can be returned.

    Composites stay: names inside them are not the model's.
    """
    copy = model.clone()
    inline_calls(copy, lambda function: is_region(function.metadata_props))
    return copy


def _inner_names(model: ir.Model) -> list[str]:
    """Tensors that nodes of the main graph compute, in execution order."""
    return [value.name for node in model.graph for value in node.outputs if value.name]
