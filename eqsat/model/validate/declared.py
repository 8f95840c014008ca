"""Checks a node, or the types of its operands, against the declaration of its operator."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from eqsat.errors import ModelError
from eqsat.schema.attributes import declared_kinds
from eqsat.schema.declared_operators import DeclaredOperator, result_count
from eqsat.schema.opset import did_you_mean
from eqsat.schema.types import TensorType


def check_declared(node: onnx.NodeProto, operator: DeclaredOperator, place: str) -> None:
    """Checks the number of operands and results and the attributes of a node.

    Raises:
        ModelError: They do not match the declaration.
    """
    op, names = operator.op, ", ".join(operator.inputs)
    given = list(node.input)
    if len(given) != len(operator.inputs) or "" in given:
        hint = f"its operands: {names}; {_where(operator)}" if names else _where(operator)
        absent = " with an empty name" if "" in given else ""
        raise ModelError(
            f"{len(operator.inputs)} operand{' of ' if len(operator.inputs) == 1 else 's of '}{op} "
            f"{'is' if len(operator.inputs) == 1 else 'are'} required",
            place=place,
            actual=f"{len(given)}{absent}",
            hint=hint,
        )
    most = result_count(op)
    if not 1 <= len(node.output) <= most:
        what = "1 result" if most == 1 else f"1 to {most} results"
        raise ModelError(
            f"{what} of {op} is required", place=place, actual=f"{len(node.output)}", hint=_where(operator)
        )
    kinds = declared_kinds(operator)
    known = [name for name, _ in operator.attributes]
    for attribute in node.attribute:
        if attribute.name not in known:
            hint = did_you_mean(attribute.name, known) or f"its attributes: {', '.join(known) or 'none'}"
            raise ModelError(
                f"an attribute of {op} is required",
                place=place,
                actual=f"`{attribute.name}`",
                hint=f"{hint}; {_where(operator)}",
            )
        kind = kinds.get(attribute.name)
        if kind is not None and attribute.type not in (kind.value, onnx.AttributeProto.UNDEFINED):
            raise ModelError(
                f"attribute `{attribute.name}` of type {kind.name} is required",
                place=place,
                actual=onnx.AttributeProto.AttributeType.Name(attribute.type),
                hint=_where(operator),
            )


def check_operands(operator: DeclaredOperator, inputs: Sequence[TensorType | None], place: str) -> None:
    """Checks the element types of the operands.

    Raises:
        ModelError: One has another type than the declaration allows.
    """
    for name, allowed, known in zip(operator.inputs, operator.dtypes, inputs, strict=False):
        if known is not None and allowed and known.dtype not in allowed:
            types = ", ".join(sorted(d.name.lower() for d in allowed))
            raise ModelError(
                f"operand `{name}` of {operator.op} must be one of {types}",
                place=place,
                actual=str(known),
                hint=_where(operator),
            )


def _where(operator: DeclaredOperator) -> str:
    return f"it is declared at {operator.place}"
