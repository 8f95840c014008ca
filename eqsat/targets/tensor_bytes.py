"""Sizes of tensors in bytes, also of those whose shapes data decides."""

from __future__ import annotations

import math
import re

from eqsat.errors import OptimizationError
from eqsat.schema.types import TensorType

UNKNOWN_ELEMENTS = 1 << 16
"""Elements assumed of a tensor whose shape depends on data, where the caller has no better bound."""

_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_INVENTED = re.compile(r"_d\d+|unk__\d+")
"""Symbols that shape inference makes up for a dimension that data decide (onnx-shape-inference, onnx)."""


def static(kind: TensorType, unknown_elements: int, *, what: str, place: str, bindable: bool = True) -> TensorType:
    """The type with numbers for all dimensions, to be priced.

    A dimension that depends on data (``NonZero``, ``NonMaxSuppression``) takes what makes the tensor
    ``unknown_elements`` large, at least 1: such operators select from an existing tensor, so the elements of the
    model's largest tensor are an upper bound.

    Args:
        what: Which tensor it is, for the message.
        place: Whose tensor it is, for the message.
        bindable: Whether symbols of the model can be bound; else they depend on data like those without a name.

    Raises:
        OptimizationError: A dimension is a symbol of the model's, which can be bound.
    """
    if kind.is_static:
        return kind
    if kind.shape is None:
        return TensorType(kind.dtype, (unknown_elements,))
    for dim in kind.shape if bindable else ():
        symbols = _SYMBOL.findall(dim) if isinstance(dim, str) else []
        named = [s for s in symbols if not _INVENTED.fullmatch(s)]
        if named:
            raise OptimizationError(
                f"the size of {what} must be known to compare costs",
                place=place,
                actual=str(kind),
                hint=f'bind it with dims={{"{named[0]}": 1}}, on the command line --dim {named[0]}=1',
            )
    known = math.prod(d for d in kind.shape if isinstance(d, int))
    open_size = max(1, unknown_elements // known) if known else 1
    shape: list[int] = []
    for dim in kind.shape:
        shape.append(dim if isinstance(dim, int) else open_size)
        if not isinstance(dim, int):
            open_size = 1
    return TensorType(kind.dtype, tuple(shape))


def size_in_bytes(kind: TensorType) -> int:
    """Bytes of a static type."""
    return kind.bytes or 0
