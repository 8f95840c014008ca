"""Implementations that judge the value of an operator. Any implementation can be used; eqsat's is always available."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from eqsat.ops.evaluate import evaluate
from eqsat.schema.body import Body
from eqsat.schema.functions import find_function
from eqsat.schema.types import Attrs, OpKey

Arrays = Sequence[np.ndarray | None]


class Unsupported(Exception):
    """The oracle has no implementation for these types: nothing is said for or against the rule."""


class Undefined(Exception):
    """The operator has no defined result on this data (an integer division by zero)."""


class Unrepresentable(Undefined):
    """A float is converted to an integer type that cannot hold it."""


class NotANumber(Undefined):
    """A NaN where the operator must return an integer: no rule is to blame for the result."""


class Oracle(Protocol):
    """Evaluates one operator.

    Raises:
        Unsupported, Undefined: See there.
        Exception: Anything else means that the node is invalid.
    """

    def __call__(self, op: OpKey, attrs: Attrs, inputs: Arrays, outputs: int) -> Sequence[np.ndarray | None]: ...


def own_kernels(op: OpKey, attrs: Attrs, inputs: Arrays, outputs: int) -> Sequence[np.ndarray | None]:
    """eqsat's kernels and ``onnx.reference``."""
    return evaluate(op, attrs, inputs, outputs)


_SCALES = {"QuantizeLinear": (1,), "Requantize": (1, 3)}
"""Operands that are divided by, or that others are divided by."""


def require_defined(op: OpKey, attrs: Attrs, inputs: Arrays) -> None:
    """Refuses data on which the operator's standard leaves the result open.

    Raises:
        Undefined: It does.
    """
    if op.name == "QuantizeLinear" and any(v is not None and np.isnan(v).any() for v in inputs[:2]):
        raise NotANumber("a NaN to be quantized")
    for scale in (inputs[k] for k in _SCALES.get(op.name, ())):
        if scale is not None and np.any(scale == 0):
            raise Undefined("a scale of zero")
    function = find_function(op)
    if function is not None and function.place:
        _require_defined_within(function.body(dict(function.complete(attrs))), inputs)
    if op.domain:
        return
    if op.name in ("Div", "Mod"):
        divisor, dividend = inputs[1], inputs[0]
        assert divisor is not None and dividend is not None
        if divisor.dtype.kind in "iu" and np.any(divisor == 0):
            raise Undefined("an integer division by zero")
        if divisor.dtype.kind == "i" and np.any(divisor == -1) and np.any(dividend == np.iinfo(dividend.dtype).min):
            raise Undefined("an integer division that overflows")
    elif op.name in ("Cast", "CastLike"):
        _require_castable(dict(attrs).get("to"), inputs)


def _require_defined_within(body: Body, inputs: Arrays) -> None:
    values = [*inputs, *[None] * (body.inputs - len(inputs))]
    for node in body.nodes:
        operands = [None if i is None else values[i] for i in node.inputs]
        require_defined(node.op, node.attrs, operands)
        with np.errstate(all="ignore"):
            values.extend(evaluate(node.op, node.attrs, operands, node.outputs))


def _require_castable(to: object, inputs: Arrays) -> None:
    import onnx_ir as ir

    from eqsat.rules.element_types import limits

    source = inputs[0]
    assert source is not None
    target = ir.DataType(to) if isinstance(to, int) else None
    if target is None and len(inputs) > 1 and inputs[1] is not None:
        target = ir.DataType.from_numpy(inputs[1].dtype)
    if target is None or not target.is_integer() or source.dtype.kind != "f" or not source.size:
        return
    low, high = limits(target)
    wide = source.astype(np.float64)
    if not np.isfinite(wide).all() or wide.min() <= low - 1 or wide.max() >= high + 1:
        raise Unrepresentable("a float that the integer type cannot hold")
