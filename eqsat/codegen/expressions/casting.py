"""Conversions between element types; mirrors ``eqsat/ops/families/casting.py``.

Floats that an integer type cannot hold become the same as in numpy on x86: the lowest 32-bit (or 64-bit) integer, of
which narrower types keep the low bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.c_functions import needed
from eqsat.codegen.expressions.expression_table import Argument, Expression, expression
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.schema.dtypes import FLOATS

_T = ir.DataType
FLOAT8 = {
    _T.FLOAT8E4M3FN: 448.0,
    _T.FLOAT8E4M3FNUZ: 240.0,
    _T.FLOAT8E5M2: 57344.0,
    _T.FLOAT8E5M2FNUZ: 57344.0,
}
"""Float8 types and their greatest finite value."""
_NARROW = frozenset({_T.INT4, _T.UINT4, _T.INT2, _T.UINT2})


def conversion(text: str, source: ir.DataType, target: ir.DataType, saturate: bool = True) -> str | None:
    """C expression that converts a value from the computed type of ``source`` to that of ``target``; None if there is
    none.
    """
    if source == target:
        return text
    real = source in FLOATS or source in FLOAT8
    if not real and source not in INTEGERS | _NARROW | {_T.BOOL}:
        return None
    c = c_types.computed(target)
    to_integer = f"{c_types.computed(source)}_to_i32({text})"
    if target == _T.BOOL:
        return f"({text} != 0)"
    if target in FLOAT8:
        return _to_float8(text, target, saturate)
    if target in FLOATS:
        if source == _T.DOUBLE and target == _T.FLOAT16:
            return f"round_to_odd({text})"
        return f"(({c}){text})"
    if target in _NARROW:
        low = to_integer if real else f"(int32_t){text}"
        bits = target.bitwidth
        mask, sign = (1 << bits) - 1, 1 << (bits - 1)
        return f"((({low}) & {mask}) ^ {sign}) - {sign}" if target.is_signed() else f"(({low}) & {mask})"
    if not real or target not in INTEGERS:
        return f"(({c}){text})" if target in INTEGERS else None
    if target == _T.UINT64:
        return f"double_to_u64({text})"
    if target in (_T.INT64, _T.UINT32):
        return f"(({c})double_to_i64({text}))"
    return f"(({c}){to_integer})"


def _to_float8(text: str, target: ir.DataType, saturate: bool) -> str:
    """The value to round: clamped to what is finite where overflow saturates."""
    if not saturate:
        return f"((float){text})"
    limit = c_types.literal(FLOAT8[target], _T.FLOAT)
    return f"clamp_float((float){text}, -{limit}, {limit})"


def _cast(text: str, source: ir.DataType, target: ir.DataType, saturate: bool) -> Expression | None:
    found = conversion(text, source, target, saturate)
    return None if found is None else Expression(found, needed(found))


@expression("Cast", "CastLike")
def cast(attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType) -> Expression | None:
    """Convert the elements' type."""
    x = arguments[0]
    assert x is not None
    return _cast(x.text, x.dtype, result, bool(attributes.get("saturate", 1)))


@expression("CastHint", "StopFusion", domain="eqsat")
def annotation(attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType) -> str:
    """The operand: annotations compute nothing."""
    return str(arguments[0])
