"""Chains of elementwise operators, and copies between layouts, in one loop nest over axes that the operands share.

Adjacent axes that lie without gaps in every operand are one loop, so that dense tensors are a single long one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.c_types import HALVES
from eqsat.codegen.elementwise_spelling import as_chain, spelled
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import GeneratedKernel, Step, Task, View, Want, Wants, dense_strides
from eqsat.codegen.kernel_templates import indented
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.loops.family import loops
from eqsat.codegen.kernels.shared.copies import copied
from eqsat.codegen.loop_writer import LoopWriter, broadcast_strides, offset
from eqsat.codegen.program import IDENTITY, ProgramNode, ProgramTensor
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import magnitude
from eqsat.schema.types import OpKey, Shape

_Operand = View | np.ndarray
_CAST = OpKey("", "Cast")
_MULTIPLY = OpKey("", "Mul")
_POWERS: dict[float, list[tuple[OpKey, tuple[int, ...]]]] = {
    -1.0: [(OpKey("", "Reciprocal"), (0,))],
    2.0: [(_MULTIPLY, (0, 0))],
    3.0: [(_MULTIPLY, (0, 0)), (_MULTIPLY, (1, 0))],
}
"""Steps that replace a constant exponent; value 0 is the base, value 1 the result of the first step."""
_WIDE = 32
"""Integers that are looked at together; gcc converts fewer of them one by one."""


def _wants(task: Task) -> Wants:
    """The order of axes of the anchor; each operand's memory may become the result's."""
    own = [(0, 0)] if isinstance(task.inputs[0], View) else []
    others = [(-1 - k, 0) for k, operand in enumerate(task.epilogue.operands) if isinstance(operand, View)]
    return Wants(outputs=(Want(follows=0),), in_place=(*own, *others))


def _strides(operand: _Operand, shape: Shape) -> Shape:
    found = operand.strides if isinstance(operand, View) else dense_strides(operand.shape)
    return broadcast_strides(operand.shape, found, shape)


def merged_axes(shape: Shape, strides: list[Shape], order: list[int]) -> list[list[int]]:
    """Groups of axes, outermost first, that all operands cross in one stride each; axes of one element are left out."""
    groups: list[list[int]] = []
    for axis in (a for a in order if shape[a] != 1):
        if groups and all(s[groups[-1][-1]] == s[axis] * shape[axis] for s in strides):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _flat(operand: _Operand, strides: Shape, groups: list[list[int]], shape: Shape) -> _Operand:
    """An operand with merged axes."""
    steps = tuple(strides[g[-1]] for g in groups)
    sizes = tuple(math.prod(shape[a] for a in g) for g in groups)
    if isinstance(operand, View):
        return replace(operand, shape=sizes, strides=steps, halo=())
    order = [a for g in groups for a in g]
    lead = len(shape) - operand.ndim
    full = operand.reshape((1,) * lead + operand.shape)
    rest = [a for a in range(len(shape)) if a not in order]
    return full.transpose(*rest, *order).reshape([1 if s == 0 else n for s, n in zip(steps, sizes, strict=True)])


def wants_of_chain(task: Task) -> Wants:
    """The order of axes of the anchor; each operand's memory may become the result's."""
    operands = [(-1 - k, 0) for k, operand in enumerate(task.epilogue.operands) if isinstance(operand, View)]
    return Wants(outputs=(Want(follows=0),), in_place=((0, 0), *operands))


def flattened(task: Task) -> Task:
    """The chain with as few axes as its operands allow, in the order of the output's memory."""
    y = task.output
    anchor = task.inputs[0]
    assert anchor is not None
    operands = [anchor, *task.epilogue.operands]
    strides = [_strides(operand, y.shape) for operand in operands]
    order = sorted(range(y.rank), key=lambda a: (-magnitude(y.strides[a]), a))
    groups = merged_axes(y.shape, [y.strides, *strides], order)
    flat = [_flat(operand, s, groups, y.shape) for operand, s in zip(operands, strides, strict=True)]
    out = _flat(y, y.strides, groups, y.shape)
    assert isinstance(out, View)
    return replace(task, inputs=(flat[0],), outputs=(out,), epilogue=replace(task.epilogue, operands=tuple(flat[1:])))


def _copied(task: Task, isa: Isa) -> GeneratedKernel | None:
    if task.epilogue.steps or not isinstance(task.inputs[0], View):
        return None
    flat = flattened(task)
    return copied(flat.view(0), flat.output, isa) if flat.output.rank else None


def _from_long(task: Task) -> GeneratedKernel | None:
    """A conversion of adjacent integers of 64 bits to floats, and nothing else."""
    steps, x, to = task.epilogue.steps, task.inputs[0], task.output.dtype
    if len(steps) != 1 or steps[0].operator != _CAST or not isinstance(x, View) or x.shape != task.output.shape:
        return None
    if x.dtype != ir.DataType.INT64 or to not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return None
    flat = flattened(task)
    if flat.output.rank != 1 or flat.output.strides != (1,) or flat.view(0).strides != (1,):
        return None
    count = flat.output.shape[0]
    text = render(
        "loops/long_to_float.c.jinja",
        wide=_WIDE,
        blocks=count // _WIDE,
        first=count // _WIDE * _WIDE,
        count=count,
        c=c_types.computed(to),
    )
    return GeneratedKernel("\n".join(indented(text)))


def _faster(task: Task, isa: Isa) -> GeneratedKernel | None:
    return _copied(task, isa) or _from_long(task)


@loops("elementwise loops", "Identity", accepts=lambda task: len(task.inputs) == 1, wants=_wants, faster=_faster)
def elementwise(task: Task) -> GeneratedKernel:
    """Load, compute, store; bits stay what they are where nothing is computed."""
    writer = LoopWriter(flattened(task))
    x = writer.required(0)
    shape = writer.task.output.shape
    x = replace(x, shape=shape, strides=broadcast_strides(x.shape, x.strides, shape))
    y = writer.task.output
    with writer.loops("i", shape, parallel=True) as index:
        if not task.epilogue.steps and x.dtype == y.dtype:
            writer.add(f"y0[{offset(y.strides, index)}] = {x.name}[{offset(x.strides, index)}];")
        else:
            writer.store(writer.load(x, index), index)
    return writer.kernel()


@spelled("CastLike")
def _cast_like(node: ProgramNode) -> list[ProgramNode]:
    """A ``Cast``, which does not read the operand whose type it takes."""
    attributes: dict[str, Any] = {"to": int(node.output.dtype), "saturate": node.attributes.get("saturate", 1)}
    if node.attributes.get("round_mode") is not None:
        attributes["round_mode"] = node.attributes["round_mode"]
    cast = ProgramNode(node.name, OpKey("", "Cast"), attributes, node.inputs[:1], list(node.outputs), node.dtype)
    return [as_chain(cast) or cast]


@spelled("Pow")
def _power(node: ProgramNode) -> list[ProgramNode]:
    """A usual exponent as products or a reciprocal; another one in the type of the base."""
    x, exponent = node.inputs
    plain = [as_chain(node) or node]
    if (
        not isinstance(exponent, np.ndarray)
        or exponent.size == 0
        or not isinstance(x, ProgramTensor)
        or x.dtype not in FLOATS
    ):
        return plain
    first = float(exponent.ravel()[0])
    wide, same_type = x.dtype not in HALVES, exponent.dtype == x.dtype.numpy()
    # Two products of half precision round in between.
    if (wide or first == 2) and _is_like(x, node.output) and bool((exponent == first).all()):
        steps = [Step(operator, {}, inputs, x.dtype) for operator, inputs in _POWERS.get(first, ())]
        if steps:
            return [ProgramNode(node.name, IDENTITY, {}, [x], [node.output], x.dtype, [], steps)]
    if wide and not same_type:
        same = exponent.astype(x.dtype.numpy())
        if bool((same.astype(exponent.dtype) == exponent).all()):
            given = replace(node, inputs=[x, same])
            return [as_chain(given) or given]
    return plain


def _is_like(x: ProgramTensor, y: ProgramTensor) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype
