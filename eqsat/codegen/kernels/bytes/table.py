"""Functions of one byte as tables: the 256 results of a chain are computed in advance.

The numpy executor computes them, so that they equal its own results to the bit, whatever the chain does. On x86,
registers look up 16 entries at a time; a byte outside of them gives zeros, or bits that later entries cancel.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Epilogue, Family, GeneratedKernel, Step, Task, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.byte_names import finish
from eqsat.codegen.kernels.bytes.elementwise import IDENTITY
from eqsat.codegen.kernels.loops.elementwise import flattened, wants_of_chain
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.program import Program, ProgramNode, ProgramTensor
from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.schema.attributes import make_attrs
from eqsat.schema.dtypes import BYTES
from eqsat.schema.types import OpKey

TABLE = OpKey("eqsat", "ByteTable")
"""A step that looks bytes up; its attribute ``table`` has 256 results by the bits of the operand."""
_GATHER = OpKey("", "Gather")
_PIECE = 4096
"""Bytes."""
_CHEAP = frozenset({"Abs", "BitwiseNot", "Clip", "Max", "Min", "Neg", "Relu", "Requantize"})
"""Single operators that vectors compute as fast as a table is read."""


def table_of(epilogue: Epilogue) -> np.ndarray | None:
    """Results for each byte, as bits; None if the chain reads anything but one byte and numbers, or is cheap."""
    if epilogue.dtype not in BYTES or not epilogue.steps or epilogue.dtypes()[-1] not in BYTES:
        return None
    if all(step.operator.name in _CHEAP for step in epilogue.steps):
        return None
    if any(isinstance(o, View) or o.size != 1 for o in epilogue.operands):
        return None
    every = np.arange(256, dtype=np.uint8).view(epilogue.dtype.numpy())
    values: list[np.ndarray] = [every, *(np.asarray(o).reshape(()) for o in epilogue.operands)]
    for step in epilogue.steps:
        found = _result(step, [None if i is None else values[i] for i in step.inputs])
        if found is None or found.shape not in ((), (256,)) or found.dtype != step.dtype.numpy():
            return None
        values.append(found)
    return np.ascontiguousarray(np.broadcast_to(values[-1], (256,)))


def _result(step: Step, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    if step.operator == TABLE:
        return None if inputs[0] is None else step.attributes["table"][inputs[0].view(np.uint8)]
    try:
        (found,) = evaluate(step.operator, make_attrs(step.operator, step.attributes), inputs, 1)
    except EqsatError:
        return None
    return None if found is None else np.asarray(found)


@lru_cache(maxsize=256)
def _known(task: Task) -> np.ndarray | None:
    # Tasks are compared as objects; the same one is asked about and then generated for each instruction set.
    return table_of(task.epilogue)


def accepts(task: Task) -> bool:
    """A chain of one byte."""
    x = task.inputs[0] if len(task.inputs) == 1 else None
    return isinstance(x, View) and task.outputs[0] is not None and _known(task) is not None


def generate(task: Task, isa: Isa) -> GeneratedKernel:
    """Rows in vectors, or a load, a look-up and a store for each element."""
    table = table_of(task.epilogue)
    assert table is not None
    plain = Epilogue(ir.DataType.UINT8)
    flat = flattened(replace(task, epilogue=plain))
    x, y = flat.view(0), flat.output
    axes = [(f"n{a}", n, x.strides[a], y.strides[a]) for a, n in enumerate(y.shape)]
    c = c_types.storage(task.output.dtype)
    adjoin = bool(axes) and axes[-1][2] == axes[-1][3] == 1
    bits = table.view(np.uint8)
    is_copy = np.array_equal(bits, np.arange(256))
    if not adjoin or (not isa.x86 and not is_copy):
        return GeneratedKernel(render("bytes/table.c.jinja", axes=axes, c=c, row=""), (table,), specialised=False)
    *outer, (_, length, *_) = axes
    if not outer:
        # One row in pieces, which threads can share.
        outer = [("n", f"({length} + {_PIECE - 1}) / {_PIECE}", _PIECE, _PIECE)]
        rest = f"({length} - n * {_PIECE})"
        length = f"({rest} < {_PIECE} ? {rest} : {_PIECE})"
    row = "copy" if is_copy else "look up"
    body, helpers = finish(render("bytes/table.c.jinja", axes=outer, row=row, length=length), isa)
    return GeneratedKernel(body, () if is_copy else (table, _steps(bits)), helpers=helpers, specialised=not is_copy)


def _steps(table: np.ndarray) -> np.ndarray:
    """The first 16 bytes of each half of the table, and then by which bits the next 16 differ."""
    halves = table.reshape(2, 8, 16)
    return np.concatenate([halves[:, :1], halves[:, 1:] ^ halves[:, :-1]], axis=1).ravel()


FAMILY = register(Family("table of bytes", (IDENTITY,), accepts, generate, wants_of_chain, rank=30))


# ---- spelling ------------------------------------------------------------------------------------------


def look_up_bytes(program: Program) -> None:
    """Turns a ``Gather`` that looks up bytes in a table into a step on bytes, in place.

    The indices are then never written out as integers of 32 or 64 bits.
    """
    producers = program.producers()
    looked_up = {node: made for node in program.nodes if (made := _look_up(node, producers)) is not None}
    program.nodes = [looked_up.get(node, node) for node in program.nodes]
    program.remove_dead()


def _look_up(node: ProgramNode, producers: dict[ProgramTensor, ProgramNode]) -> ProgramNode | None:
    """A chain that looks bytes up, for ``Gather(table, Cast(bytes))``; None for anything else."""
    if node.operator != _GATHER or node.steps:
        return None
    table, indices = node.inputs[0], node.inputs[1]
    if not isinstance(table, np.ndarray) or table.ndim != 1 or not isinstance(indices, ProgramTensor):
        return None
    cast = producers.get(indices)
    if cast is None or not cast.is_chain or [s.operator for s in cast.steps] != [OpKey("", "Cast")]:
        return None
    x = cast.inputs[0]
    if not isinstance(x, ProgramTensor) or x.dtype not in BYTES or x.shape != node.output.shape:
        return None
    if node.output.dtype not in BYTES or indices.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return None
    every = np.arange(256, dtype=np.uint8).view(x.dtype.numpy()).astype(np.int64)
    if every.min() < -table.size or every.max() >= table.size:
        return None
    step = Step(TABLE, {"table": table[every]}, (0,), node.output.dtype)
    return ProgramNode(node.name, IDENTITY, {}, [x], list(node.outputs), x.dtype, [], [step])
