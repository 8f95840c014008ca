"""Applying an operator to tensors of a graph under construction: checks, types, normal form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from eqsat.errors import ModelError
from eqsat.model.construction.operands import as_tensors
from eqsat.model.construction.subgraphs import infer_branches, make_branches
from eqsat.model.expression import Branch, PendingNode, Tensor, made_so_far
from eqsat.model.inference.infer import infer_types
from eqsat.model.inference.shape_values import propagate
from eqsat.model.normalize import complete
from eqsat.schema import opset
from eqsat.schema.attributes import make_attrs
from eqsat.schema.declared_operators import find_declared, result_count
from eqsat.schema.free_sizes import received, within
from eqsat.schema.types import Attrs, OpKey, TensorType


def apply(
    op: OpKey,
    operands: Sequence[Any],
    attributes: dict[str, Any] | None = None,
    outputs: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """Applies an operator.

    Args:
        op: The operator.
        operands: Tensors, numbers, arrays; None leaves an optional operand out.
        attributes: As Python values.
        outputs: Number of outputs; by default as many as the operator requires.
        name: Name of the node.

    Raises:
        ModelError: The operator does not accept the operands or attributes.
    """
    place = f"{op} {name!r}" if name else str(op)
    _check_arity(op, operands, place)
    tensors = as_tensors(op, operands, place)
    while tensors and tensors[-1] is None:
        tensors.pop()
    given = dict(attributes or {})
    branches = make_branches(op, tensors, given, place)
    attrs = make_attrs(op, given, place=place) if not branches else ()
    types = [None if t is None else t.type for t in tensors]
    values = [None if t is None else t.value for t in tensors]
    count = outputs if outputs is not None else _default_outputs(op, attrs, values, branches)
    if opset.find_schema(op) is not None:
        least, most = opset.output_arity(op)
        if not least <= count <= most:
            raise ModelError(f"{least} to {most} outputs of {op} are required", place=place, actual=str(count))
    found: tuple[TensorType | None, ...] = (None,) * count
    results: tuple[np.ndarray | None, ...] = (None,) * count
    unknown = any(t is not None and t.type is None for t in tensors)
    if branches:
        attrs, found = infer_branches(op, given, branches, tensors, count, place)
    elif not unknown:
        attrs = complete(op, attrs, types, count)
        with within(received(d for t in types if t is not None for d in t.shape or ())):
            found = infer_types(op, attrs, types, values, count, place=place)
            results = propagate(op, attrs, types, values, found)
    step = PendingNode(op, attrs, tuple(tensors), count, name, made_so_far(), branches)
    return tuple(
        Tensor(known, step=step, index=i, value=value)
        for i, (known, value) in enumerate(zip_longest(found, results[: len(found)]))
    )


# ---- details -------------------------------------------------------------------------------------


def _check_arity(op: OpKey, operands: Sequence[Any], place: str) -> None:
    function = find_declared(op)
    if function is not None:
        names = function.inputs
        if len(operands) != len(names):
            raise ModelError(f"the inputs {', '.join(names)} are required", place=place, actual=f"{len(operands)}")
        return
    if opset.find_schema(op) is None:
        if op.domain in opset.OPSETS:
            raise opset.unknown_operator(op)
        return
    least, most = opset.input_arity(op)
    if not least <= len(operands) <= most:
        many = f"at least {least}" if most > 1000 else f"{least}" if least == most else f"{least} to {most}"
        names = ", ".join(opset.input_names(op))
        raise ModelError(
            f"{many} input{' is' if many.endswith(' 1') or many == '1' else 's are'} required",
            place=place,
            actual=str(len(operands)),
            hint=f"its inputs: {names}",
        )
    for i, (operand, formal) in enumerate(zip(operands, opset.schema(op).inputs, strict=False)):
        if operand is None and formal.option != opset.Schema.FormalParameterOption.Optional:
            raise ModelError(f"input `{formal.name}` is required", place=place, actual=f"None as input {i + 1}")


def _default_outputs(
    op: OpKey, attrs: Attrs, values: Sequence[np.ndarray | None], branches: tuple[tuple[str, Branch], ...]
) -> int:
    if branches:
        # The body of a Loop also returns whether to continue.
        return len(branches[0][1].outputs) - (1 if op.name == "Loop" else 0)
    if results := result_count(op):
        return results
    if opset.find_schema(op) is None:
        return 1
    if op == OpKey("", "Split"):
        if len(values) > 1 and (split := values[1]) is not None:
            return len(split)
        parts = dict(attrs).get("num_outputs")
        if not isinstance(parts, int):
            raise ModelError("`num_outputs` or the input `split` is required", place="Split", actual="neither")
        return parts
    least, most = opset.output_arity(op)
    return most if least == 0 and most <= 16 else max(least, 1)


Tensor.operate = apply
