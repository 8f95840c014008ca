"""Implementations that judge the value of an operator. Any implementation can be used; eqsat's is always available."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import operator
from eqsat.schema.body import Body
from eqsat.schema.declared_operators import find_function
from eqsat.schema.types import Attrs, OpKey, OptionalArrays


class Unsupported(Exception):
    """The oracle has no implementation for these types, and so cannot judge the rule."""


class Oracle(Protocol):
    """Evaluates one operator.

    Raises:
        Unsupported, Undefined: See there.
        Exception: Anything else means that the node is invalid.
    """

    def __call__(
        self, op: OpKey, attrs: Attrs, inputs: OptionalArrays, outputs: int
    ) -> Sequence[np.ndarray | None]: ...


def own_kernels(op: OpKey, attrs: Attrs, inputs: OptionalArrays, outputs: int) -> Sequence[np.ndarray | None]:
    """eqsat's kernels and ``onnx.reference``."""
    return evaluate(op, attrs, inputs, outputs)


def require_defined(op: OpKey, attrs: Attrs, inputs: OptionalArrays) -> None:
    """Refuses data on which the operator's standard leaves the result open.

    Raises:
        Undefined: It does.
    """
    refuse = operator(op).undefined
    if refuse is not None:
        refuse(dict(attrs), inputs)
    function = find_function(op)
    if function is not None and function.place:
        _require_defined_within(function.body(dict(function.complete(attrs))), inputs)


def _require_defined_within(body: Body, inputs: OptionalArrays) -> None:
    values = [*inputs, *[None] * (body.inputs - len(inputs))]
    for node in body.nodes:
        operands = [None if i is None else values[i] for i in node.inputs]
        require_defined(node.op, node.attrs, operands)
        with np.errstate(all="ignore"):
            values.extend(evaluate(node.op, node.attrs, operands, node.outputs))
