"""Types of the elements of sequences and optionals, as far as these declare them."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.model.map_types import is_map
from eqsat.schema.types import OpKey, TensorType

TAKES_ELEMENT = frozenset({OpKey("", "SequenceAt"), OpKey("", "OptionalGetElement")})
"""Operators whose result is an element of their first operand."""


def element_type(value: ir.Value | None) -> TensorType | None:
    """Type of the elements of a sequence or an optional; None if it is not declared.

    A symbol in the shape of a sequence may mean a different size in each element, so it is dropped.
    """
    kind = None if value is None else value.type
    if value is None or not isinstance(kind, ir.SequenceType | ir.OptionalType) or is_map(value):
        return None
    if not isinstance(kind.elem_type, ir.TensorType):
        return None
    shape = value.shape
    one = isinstance(kind, ir.OptionalType)
    dims = None if shape is None else tuple(d if isinstance(d, int) else d.value if one else None for d in shape)
    return TensorType(kind.elem_type.dtype, dims)
