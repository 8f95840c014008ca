"""The operators for which ONNX Runtime has kernels, by element types.

An operator without one runs through its definition in terms of others, and only while these are the same at the
model's opset: at the pinned opset most definitions are out of date. ``onnxruntime_kernels.json`` lists the kernels of
the CPU (``tests/model/write/kernel_table.py`` writes it); ONNX Runtime itself is never imported.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import onnx_ir as ir

from eqsat.schema import opset
from eqsat.schema.types import CONSTANT, OpKey, TensorTypes

_Kernel = dict[str, frozenset[ir.DataType]]
_SHORT = {"float": ir.DataType.FLOAT, "double": ir.DataType.DOUBLE}
_HALF = ir.DataType.FLOAT16
_NOTHING_OF_NOTHING = frozenset({OpKey("com.microsoft", "QLinearSoftmax")})
"""Operators whose kernels give no result where their operand has no elements (ONNX Runtime 1.31)."""


def has_kernel(op: OpKey, inputs: TensorTypes, outputs: TensorTypes = ()) -> bool:
    """Whether ONNX Runtime has a kernel for an operator at the opset that eqsat writes.

    Around an operator without a kernel for float16 it casts to float32 and back.

    Args:
        op: The operator.
        inputs: Types of its inputs, None for an absent or unknown one, which any kernel accepts.
        outputs: Types of its outputs.
    """
    if op in _NOTHING_OF_NOTHING and any(t is not None and t.elements == 0 for t in (*inputs, *outputs)):
        return False
    given, made = tuple(t and t.dtype for t in inputs), tuple(t and t.dtype for t in outputs)
    return _has_kernel(op, given, made)


@cache
def _has_kernel(op: OpKey, inputs: tuple[ir.DataType | None, ...], outputs: tuple[ir.DataType | None, ...]) -> bool:
    if op == CONSTANT:  # ONNX Runtime makes an initializer of it when it loads a model.
        return True
    kernels = _kernels().get(str(op), ())
    if any(_takes(op, kernel, inputs, outputs) for kernel in kernels):
        return True
    if _HALF not in inputs:
        return False
    wide = [tuple(ir.DataType.FLOAT if t == _HALF else t for t in types) for types in (inputs, outputs)]
    return any(_takes(op, kernel, wide[0], wide[1]) for kernel in kernels)


def _takes(
    op: OpKey, kernel: _Kernel, inputs: tuple[ir.DataType | None, ...], outputs: tuple[ir.DataType | None, ...]
) -> bool:
    """Whether a kernel's constraints, on type variables or on single parameters, hold."""
    schema = opset.schema(op)
    for formal, actual in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for i, dtype in enumerate(actual):
            parameter: Any = formal[min(i, len(formal) - 1)]
            for name in (parameter.type_str, parameter.name):
                if dtype is not None and dtype not in kernel.get(name, (dtype,)):
                    return False
    return True


@cache
def _kernels() -> dict[str, tuple[_Kernel, ...]]:
    """Per operator the kernels at its version at the pinned opset."""
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    return {
        name: tuple({c: frozenset(map(_dtype, types.split())) for c, types in row[2].items()} for row in rows)
        for name, rows in json.loads(text)["kernels"].items()
    }


def _dtype(name: str) -> ir.DataType:
    return _SHORT.get(name) or ir.DataType[name.upper()]
