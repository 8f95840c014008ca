"""The table of elementwise operators in C: the computation on one element, or on a vector of floats.

The meaning is that of ``eqsat/ops/families``: integers wrap around, division by zero is defined, NaN goes where numpy
sends it, halves round to even. A *scalar* entry is C11. Its arguments are names of variables (or literals) of the type
that an element is computed in (:func:`eqsat.codegen.c_types.computed`), so they may stand several times. bool is 0 or 1
in ``uint8_t``. The result has the computed type of the result's element type; half precision is rounded by the caller.

A *vector* entry is for float32 with the vector extensions; its arguments are variables of the vector type that
``vectors.h.jinja`` defines for the instruction set. If there is no entry, families that work in vectors refuse the
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.schema.registration import registering
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True)
class Expression:
    """A C expression and the declarations at file scope that it needs (one a string)."""

    text: str
    helpers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Argument:
    """An operand: C text without side effects, and its element type."""

    text: str
    dtype: ir.DataType

    def __str__(self) -> str:
        return self.text


GivenArguments = Sequence[Argument | None]
"""Arguments of an operator; None for an absent one."""


Scalar = Callable[[Mapping[str, Any], Sequence[Argument | None], ir.DataType], Expression | str | None]
"""(attributes, arguments, element type of the result) -> expression; None if these types are not supported."""
VectorExpression = Callable[[Mapping[str, Any], Sequence[str | None], Isa], Expression | str | None]
"""(attributes, arguments, instruction set) -> expression over float vectors; None if not supported."""

_SCALAR: dict[OpKey, Scalar] = {}
_VECTOR: dict[OpKey, VectorExpression] = {}


def expression(*names: str, domain: str = "") -> Callable[[Scalar], Scalar]:
    """Register the decorated function as the scalar expression of operators."""
    return registering(_SCALAR, names, domain, "has two expressions")


def vector_expression(*names: str, domain: str = "") -> Callable[[VectorExpression], VectorExpression]:
    """Register the decorated function as the float vector expression of operators."""
    return registering(_VECTOR, names, domain, "has two vector expressions")


def is_elementwise(operator: OpKey) -> bool:
    """Whether an operator has a scalar expression."""
    return operator in _SCALAR


def scalar(
    operator: OpKey, attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType
) -> Expression | None:
    """The expression of an operator for one element, None if there is none for these types."""
    entry = _SCALAR.get(operator)
    return _wrapped(entry(attributes, arguments, result)) if entry is not None else None


def vector(
    operator: OpKey, attributes: Mapping[str, Any], arguments: Sequence[str | None], isa: Isa
) -> Expression | None:
    """The expression of an operator over float vectors, None if there is none."""
    entry = _VECTOR.get(operator)
    return _wrapped(entry(attributes, arguments, isa)) if entry is not None else None


def _wrapped(found: Expression | str | None) -> Expression | None:
    return Expression(found) if isinstance(found, str) else found
