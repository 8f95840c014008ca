"""Approximations in the e-graph: a program may use the rounded form of a tensor instead of the tensor.

``x ≈ DequantizeLinear(QuantizeLinear(x, s, z), s, z)`` is not an equation, and only extraction makes it sound. Exactly
the programs that round x need the class of ``QuantizeLinear(x, s, z)``, so the loss of accuracy can be charged there.
With one producer per class, ``x := DequantizeLinear(QuantizeLinear(x))`` would be a cycle. The integers are therefore
usable where the rules derived an integer computation of them, or where x is computed in floats and rounded.

A constant also keeps its own value; its integers are a constant expression, or given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.bindings import bindings
from eqsat.egraph.encode import Encoding
from eqsat.egraph.engine import SPAN, Engine, call, integer
from eqsat.egraph.intern import Tables
from eqsat.egraph.language import Constructor
from eqsat.errors import OptimizationError
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey

QUANTIZE = Constructor(OpKey("", "QuantizeLinear"), 3)
DEQUANTIZE = Constructor(OpKey("", "DequantizeLinear"), 3)
NAME = "quantization"
"""Name of the approximations, in place of a rule's name, as the origin of e-nodes."""


@dataclass(frozen=True, eq=False)
class Approximation:
    """Integers for one tensor of the model.

    Attributes:
        value: Name of the tensor.
        scale: float32, a scalar or one value per index of ``axis``.
        zero: Of the same shape and of the integers' type.
        axis: None if one scale serves all.
        integers: For a constant, if they are not those of ``QuantizeLinear``.
    """

    value: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int | None = None
    integers: np.ndarray | None = None


def write_approximations(
    engine: Engine, tables: Tables, encoding: Encoding, approximations: Sequence[Approximation], rule: int
) -> None:
    """Unites tensors with their rounded forms; both constructors must have been declared.

    The integers of the k-th become ``(ref (values + k))``, where ``values`` are those of the encoding.

    Args:
        rule: Rule number of the new e-nodes.

    Raises:
        OptimizationError: A tensor does not exist.
    """
    numbers = {value.name: k for k, value in enumerate(encoding.values)}
    actions: list[Any] = []
    for index, approximation in enumerate(approximations):
        if approximation.value not in numbers:
            raise OptimizationError("the name of a tensor is required", actual=repr(approximation.value))
        axis = 1 if approximation.axis is None else approximation.axis
        attrs = {c: tables.attrs.id(make_attrs(c.op, {"axis": axis})) for c in (QUANTIZE, DEQUANTIZE)}
        x = call("ref", integer(numbers[approximation.value]))
        scale, zero = _constant(tables, approximation.scale), _constant(tables, approximation.zero)
        given = approximation.integers
        name = f"q{index}"
        for constructor, operand in ((QUANTIZE, x), (DEQUANTIZE, bindings.Var(SPAN, name))):
            args = [integer(attrs[constructor]), operand, scale, zero]
            expression = call(constructor.name, *args)
            if constructor is QUANTIZE:
                actions.append(bindings.Let(SPAN, name, expression if given is None else _constant(tables, given)))
                number = len(encoding.values) + index
                actions.append(bindings.Union(SPAN, call("ref", integer(number)), bindings.Var(SPAN, name)))
            else:
                actions.append(bindings.Union(SPAN, x, expression))
            if constructor is DEQUANTIZE or given is None:
                actions.append(bindings.Set(SPAN, f"made_{constructor.name}", args, integer(rule)))
    if actions:
        engine.run_once(actions)


def _constant(tables: Tables, array: np.ndarray) -> Any:
    return call("Const", integer(tables.constants.of_array(array, ir.DataType.from_numpy(array.dtype))))
