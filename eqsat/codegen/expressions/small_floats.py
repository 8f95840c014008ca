"""Small floats to and from ``float``: the C functions that loads and stores of these types call.

All types have the same form with different numbers (IEEE 754-2019; OFP8, Open Compute Project 2023, and its FNUZ
variants as in ``ml_dtypes``): sign, exponent, fraction. They differ in the meaning of the highest exponent and of
negative zero. Rounding is to nearest, ties to even. Overflow gives infinity if the type has one, otherwise NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.kernel_text import render


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format of at most 16 bits.

    Attributes:
        name: As in C names.
        bits: Number of bits in all.
        fraction: Bits of the fraction.
        bias: Of the exponent.
        special: Meaning of the highest exponent: ``ieee`` infinity and NaN, ``fn`` NaN only with all fraction bits,
            ``fnuz`` nothing special: NaN is the pattern of negative zero.
    """

    name: str
    bits: int
    fraction: int
    bias: int
    special: str

    @property
    def c(self) -> str:
        return "uint16_t" if self.bits == 16 else "uint8_t"


_FORMATS = {
    ir.DataType.FLOAT16: Format("f16", 16, 10, 15, "ieee"),
    ir.DataType.BFLOAT16: Format("bf16", 16, 7, 127, "ieee"),
    ir.DataType.FLOAT8E4M3FN: Format("f8e4m3fn", 8, 3, 7, "fn"),
    ir.DataType.FLOAT8E4M3FNUZ: Format("f8e4m3fnuz", 8, 3, 8, "fnuz"),
    ir.DataType.FLOAT8E5M2: Format("f8e5m2", 8, 2, 15, "ieee"),
    ir.DataType.FLOAT8E5M2FNUZ: Format("f8e5m2fnuz", 8, 2, 16, "fnuz"),
}


def to_float(dtype: ir.DataType) -> tuple[str, ...]:
    """Declarations that define ``<name>_to_float``; none for types that need no conversion."""
    return _declared(dtype, "to_float")


def from_float(dtype: ir.DataType) -> tuple[str, ...]:
    """Declarations that define ``float_to_<name>``."""
    return _declared(dtype, "from_float")


def _declared(dtype: ir.DataType, direction: str) -> tuple[str, ...]:
    found = _FORMATS.get(dtype)
    if found is None:
        assert c_types.converted(dtype) is None
        return ()
    return (render("shared/small_floats.h.jinja", format=found, direction=direction),)
