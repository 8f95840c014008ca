"""The steps that integer kernels can write after an anchor; ``epilogue.py`` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen.expressions import vector
from eqsat.codegen.isa import AVX2
from eqsat.codegen.kernel import Epilogue, Step
from eqsat.schema.dtypes import BYTES

_KNOWN = (*BYTES, ir.DataType.INT32, ir.DataType.FLOAT)
_EXACT = frozenset(
    {
        "Abs",
        "Add",
        "Cast",
        "Clip",
        "DequantizeLinear",
        "Div",
        "Identity",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Relu",
        "Sub",
        "Sum",
    }
)
"""Operators on floats whose vectors have the executor's bits."""


def is_supported(epilogue: Epilogue) -> bool:
    """Whether every step is known for its types; for a family's ``accepts``."""
    types = epilogue.dtypes()
    if any(t not in _KNOWN for t in types):
        return False
    constants = single_constants(epilogue)
    # Values that vectors only approximate must not be rounded to integers: the executor might round the other way.
    names = [step.operator.name for step in epilogue.steps]
    last = max((i for i, name in enumerate(names) if name == "QuantizeLinear"), default=0)
    if any(step.dtype == ir.DataType.FLOAT and step.operator.name not in _EXACT for step in epilogue.steps[:last]):
        return False
    return all(_is_known(step, types, constants) for step in epilogue.steps)


def single_constants(epilogue: Epilogue) -> dict[int, np.ndarray]:
    """Operands of one element that are constant, by number."""
    return {1 + k: x.reshape(()) for k, x in enumerate(epilogue.operands) if isinstance(x, np.ndarray) and x.size == 1}


def _is_known(step: Step, types: list[ir.DataType], constants: Mapping[int, np.ndarray]) -> bool:
    given = [None if i is None else types[i] for i in step.inputs]

    def numbers(*places: int) -> bool:
        return all(p >= len(step.inputs) or (i := step.inputs[p]) is None or i in constants for p in places)

    name, result = step.operator.name, step.dtype
    if name in ("QLinearAdd", "QLinearMul"):
        same = given[0] == given[3] == result
        return same and result in BYTES and numbers(1, 2, 4, 5, 6, 7)
    if name == "QuantizeLinear":
        plain = step.attributes.get("precision") in (None, 0, int(ir.DataType.FLOAT))
        return plain and given[0] == given[1] == ir.DataType.FLOAT and result in BYTES and _ranges(step, given)
    if name == "DequantizeLinear":
        return given[0] in BYTES and given[1] == result == ir.DataType.FLOAT and _ranges(step, given)
    if name == "Requantize":
        return given[0] in BYTES and result in BYTES and numbers(1, 2, 3, 4)
    if name in ("Clip", "Relu", "Max", "Min") and result in BYTES:
        return numbers(*range(1, len(step.inputs))) and (name in ("Clip", "Relu") or len(step.inputs) == 2)
    if name == "Cast":
        return given[0] in (*BYTES, ir.DataType.INT32, ir.DataType.FLOAT) and (
            result == ir.DataType.FLOAT or (result == ir.DataType.INT32 and given[0] in (*BYTES, ir.DataType.INT32))
        )
    if any(g not in (None, ir.DataType.FLOAT) for g in (*given, result)):
        return False
    return vector(step.operator, step.attributes, ["v" if g else None for g in given], AVX2) is not None


def _ranges(step: Step, given: Sequence[ir.DataType | None]) -> bool:
    """Whether the zero point, if there is one, has 8 bits."""
    return len(given) < 3 or given[2] is None or given[2] in BYTES
