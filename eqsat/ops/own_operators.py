"""Operators that ONNX lacks, declared as functions with a body of standard operators.

The body is the whole definition: type rule, meaning, MAC count and portable form follow from it, and any ONNX tool
can inline it. A declaration is a name, inputs, attributes with defaults, and a body as a function of the attributes.
Importing this module makes the declared operators known to loading, checking and type inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from eqsat.ops.registry import declare
from eqsat.ops.sampling import qlinear as sample
from eqsat.ops.traits import MOVES
from eqsat.ops.undefined import requantization
from eqsat.schema import opset
from eqsat.schema.attributes import make_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import Function, declare_function
from eqsat.schema.opset import EQSAT
from eqsat.schema.types import AttrValue, OpKey


def straight_line(inputs: int, *nodes: tuple[str, tuple[int, ...], dict[str, Any]]) -> Body:
    """A body of standard operators with one output each, which returns the last.

    Args:
        inputs: Number of inputs of the body.
        nodes: Operator, value numbers of its operands, attributes.
    """
    made = []
    for name, operands, attrs in nodes:
        op = OpKey("", name)
        made.append(BodyNode(op, make_attrs(op, attrs), operands))
    return Body(inputs, tuple(made), (inputs + len(nodes) - 1,))


CAST_HINT = declare_function(
    Function(
        OpKey(opset.EQSAT, "CastHint"),
        ("x",),
        (("dtype", int(ir.DataType.INT8)),),
        lambda attrs: straight_line(1, ("Identity", (0,), {})),
        "An identity that gives the integer type a value should get: quantizing the model uses it where it can.",
    )
)

STOP_FUSION = declare_function(
    Function(
        OpKey(opset.EQSAT, "StopFusion"),
        ("x",),
        (),
        lambda attrs: straight_line(1, ("Identity", (0,), {})),
        "An identity that no composite may contain: the operators before it and after it stay apart.",
    )
)

CHANNELS_LAST = declare_function(
    Function(
        OpKey(opset.EQSAT, "ChannelsLast"),
        ("x",),
        (),
        lambda attrs: straight_line(1, ("Identity", (0,), {})),
        "An identity whose result lies in memory with its channels, axis 1, innermost: N, spatial axes, C. The shape "
        "stays [N, C, ...]. It exists only while C is generated.",
    )
)

CHANNELS_FIRST = declare_function(
    Function(
        OpKey(opset.EQSAT, "ChannelsFirst"),
        ("x",),
        (),
        lambda attrs: straight_line(1, ("Identity", (0,), {})),
        "An identity whose result lies in memory row by row, as ONNX's tensors do; the way back from ChannelsLast.",
    )
)

LAYOUTS = frozenset({CHANNELS_LAST.op, CHANNELS_FIRST.op})
"""Identities that record how their result lies in memory; where kernels of generated code have both layouts, rules move
them.
"""

ANNOTATIONS = frozenset({CAST_HINT.op, STOP_FUSION.op})
"""Identities that annotate a value. They are not work and cost nothing on any target. No
shipped rule looks through them, so that the values before and after one are different to every rule
and composite; a rule may still rewrite either side."""


def _requantize(attrs: Mapping[str, AttrValue]) -> Body:
    real = (
        ("Cast", (0,), {"to": int(ir.DataType.INT32)}),
        ("Cast", (2,), {"to": int(ir.DataType.INT32)}),
        ("Sub", (5, 6), {}),
        ("DequantizeLinear", (7, 1), {"axis": attrs["axis"]}),
    )
    if attrs["dtype"] != ir.DataType.INT32:
        return straight_line(5, *real, ("Cast", (4,), {"to": attrs["dtype"]}), ("QuantizeLinear", (8, 3, 9), {}))
    # QuantizeLinear gives at most 16 bits. float64 holds every int32, so this saturates exactly as well.
    wide = int(ir.DataType.DOUBLE)
    low, high = -(2**31), 2**31 - 1
    return straight_line(
        5,
        *real,
        ("Div", (8, 3), {}),
        ("Round", (9,), {}),
        ("Cast", (10,), {"to": wide}),
        ("Cast", (4,), {"to": wide}),
        ("Add", (11, 12), {}),
        ("Constant", (), {"value_int": low}),
        ("Cast", (14,), {"to": wide}),
        ("Constant", (), {"value_int": high}),
        ("Cast", (16,), {"to": wide}),
        ("Clip", (13, 15, 17), {}),
        ("Cast", (18,), {"to": int(ir.DataType.INT32)}),
    )


REQUANTIZE = declare_function(
    Function(
        OpKey(opset.EQSAT, "Requantize"),
        ("x", "in_scale", "in_zero", "out_scale", "out_zero"),
        (("axis", 1), ("dtype", int(ir.DataType.INT8))),
        _requantize,
        "Integers of one scale and zero point as integers of another: (x - in_zero) * in_scale / out_scale, rounded "
        "half to even, plus out_zero, saturated to dtype, which has 16 bits at most or is int32. in_scale is a "
        "scalar or one value per index of axis; the others are scalars, zero points of any integer type. The "
        "subtraction is in "
        "int32, the product and the quotient in float32.",
    )
)


# ---- declarations ----------------------------------------------------------------------------------

declare("CastHint", "StopFusion", domain=EQSAT, traits=MOVES)
declare("Requantize", domain=EQSAT, sampling=sample.requantize, undefined=requantization)
