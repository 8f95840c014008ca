"""Softmax, LogSoftmax, LayerNormalization and RMSNormalization of float32: passes over contiguous rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import NestLoop
from eqsat.codegen.kernels.vectors import short_rows, softmax_of_columns
from eqsat.codegen.kernels.vectors.epilogue import SLACK, VectorEpilogue, is_vector_epilogue, load, preceded, store
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size_questions import is_free
from eqsat.schema.types import OpKey, Shape

_FLOAT = ir.DataType.FLOAT
_SHORT = 4
"""Vectors of a row that stay in registers."""


@dataclass(frozen=True, slots=True)
class RowVectors:
    """Whole vectors of a row, or what remains: the expressions that a template asks for."""

    first: int
    count: int
    live: int
    isa: Isa
    weights: tuple[str, ...]
    epilogue: VectorEpilogue

    def _at(self, name: str, stride: int = 1) -> str:
        each = f" + i * {self.isa.lanes() * stride}" if stride and self.count != 1 else ""
        return f"{name}{each}{f' + {self.first * stride}' if self.first * stride else ''}"

    @property
    def load(self) -> str:
        return load(self._at("x0p"), 1, self.live, self.isa)

    def load_or(self, other: str) -> str:
        """The vector, with unused lanes taken from ``other``."""
        whole = self.live == self.isa.lanes()
        return f"LD@({self._at('x0p')})" if whole else f"load_part_or@({self._at('x0p')}, {self.live}, {other})"

    def masked(self, value: str) -> str:
        """The vector, with 0 in unused lanes."""
        return value if self.live == self.isa.lanes() else f"first_lanes@({value}, {self.live})"

    def put(self, value: str) -> str:
        return store(self._at("y0p"), value, 1, self.live, self.isa)

    def keep(self, name: str, value: str) -> str:
        """Store in working memory with one element a column."""
        return store(self._at(name), value, 1, self.live, self.isa)

    def neighbours(self, name: str, count: int) -> str:
        """Sum of so many elements of working memory from the column on; all lanes may be read."""
        return " + ".join(f"LD@({self._at(name)} + {k})" for k in range(count))

    @property
    def get(self) -> str:
        return load(self._at("y0p"), 1, self.live, self.isa)

    def weight(self, index: int) -> str:
        """A constant with one element a column, readable beyond its end."""
        return f"LD@({self._at(self.weights[index])})"

    @property
    def finish(self) -> str:
        """The epilogue of ``t``, and its store."""
        strides = self.epilogue.strides
        lines, result = self.epilogue.write(
            "t", lambda name: self._at(f"{name}p", strides[name][self.epilogue.axis]), self.live
        )
        return "\n".join([*lines, self.put(result)])


def is_float_row(task: Task) -> bool:
    """Float32 with one result and an epilogue of vectors."""
    x = task.inputs[0]
    if not isinstance(x, View) or x.dtype != _FLOAT or task.output.dtype != _FLOAT or x.elements == 0 or x.rank == 0:
        return False
    return is_vector_epilogue(task.epilogue) and all(output is None for output in task.outputs[1:])


def _axis(task: Task) -> int:
    return int(task.attributes.get("axis", -1)) % task.view(0).rank


def _rows(order: tuple[int, ...], *, dense: bool) -> Wants:
    """Rows in memory; the result may use the input's memory, but not that of operands, because softmax writes rows
    twice.
    """
    want = Want(order=order, strict=True, dense=dense)
    return Wants((want,), (want,), ((0, 0),))


def row_kernel(
    template: str,
    task: Task,
    columns: int,
    axis: int,
    isa: Isa,
    weights: tuple[np.ndarray, ...],
    *,
    scratch: int = 0,
    names: Mapping[int, str] | None = None,
    most: int = 0,
    **values: object,
) -> GeneratedKernel:
    """A kernel over rows of so many elements along an axis, contiguous in input and output.

    Rows of up to ``most`` vectors are ``short``: each vector is a part.
    """
    x, y = task.view(0), task.output
    epilogue = VectorEpilogue(task.epilogue, y.shape, axis, isa, first_constant=len(weights), names=names)
    made: dict[str, Shape] = {"x0": x.strides, **epilogue.strides, "y0": y.strides}
    kept = [a for a in range(y.rank) if a != axis]
    loops = [NestLoop(f"n{a}", y.shape[a]) for a in kept]
    pointers = [
        (name, "".join(f" + n{a} * {strides[a]}" for a in kept if strides[a])) for name, strides in made.items()
    ]
    lanes = isa.lanes()
    arrays = tuple(f"w{i}" for i in range(len(weights)))
    whole, rest = (0, columns // lanes, lanes), (columns // lanes * lanes, 1, columns % lanes)
    pieces, short = [whole, rest], not is_free(columns) and columns <= most * lanes
    if short:
        pieces = [*((k * lanes, 1, lanes) for k in range(columns // lanes)), rest]
    parts = [RowVectors(first, count, live, isa, arrays, epilogue) for first, count, live in pieces if count and live]
    text = render(template, loops=loops, pointers=pointers, parts=parts, short=short, **values)
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, (*weights, *epilogue.constants), scratch, (*epilogue.helpers, *helpers))


def _softmax_wants(task: Task) -> Wants:
    axis = _axis(task)
    if softmax_of_columns.are_apart(task.output.shape, axis):
        return Wants((Want(),), (Want(follows=0),), ((0, 0),))
    return _rows((*(a for a in range(task.view(0).rank) if a != axis), axis), dense=False)


def _softmax(task: Task, isa: Isa) -> GeneratedKernel:
    axis = _axis(task)
    apart = softmax_of_columns.are_apart(task.output.shape, axis) and not all(
        view.strides[axis] == 1 for view in (task.view(0), task.output)
    )
    if short_rows.are_short(task, axis, isa) and not (apart and short_rows.are_spread(task, axis)):
        return short_rows.softmax(task, axis, isa)
    if apart:
        return softmax_of_columns.softmax(task, axis, isa)
    log = task.operator.name == "LogSoftmax"
    columns, lanes = task.view(0).shape[axis], isa.lanes()
    return row_kernel("vectors/softmax.c.jinja", task, columns, axis, isa, (), most=_SHORT, log=log, lanes=lanes)


def _accepts_normalization(task: Task) -> bool:
    if not is_float_row(task) or task.attributes.get("stash_type", 1) != 1:
        return False
    axis, given = _axis(task), task.inputs[1:]
    types = [to_dtype(v.dtype) for v in given if v is not None]
    if any(t != _FLOAT for t in types) or any(v is not None and len(v.shape) > task.view(0).rank - axis for v in given):
        return False
    # Operands of steps need not be contiguous over several axes.
    computed = any(isinstance(v, View) for v in given)
    return axis == task.view(0).rank - 1 or not (computed or task.epilogue.operands)


def _normalization_wants(task: Task) -> Wants:
    return _rows(tuple(range(task.view(0).rank)), dense=_axis(task) != task.view(0).rank - 1)


def _normalization(task: Task, isa: Isa) -> GeneratedKernel:
    x, axis = task.view(0), _axis(task)
    shape = x.shape[axis:]
    columns = math.prod(shape)
    scale, bias = [*task.inputs[1:], None, None][:2]
    fixed = [v for v in (scale, bias) if isinstance(v, np.ndarray)]
    if len(fixed) != len([v for v in (scale, bias) if v is not None]):
        return _normalization_of_computed(task, isa, [("Mul", scale, "x1"), ("Add", bias, "x2")])
    weights = tuple(
        np.append(np.broadcast_to(v, shape).astype(np.float32).ravel(), np.zeros(SLACK, np.float32)) for v in fixed
    )
    merged = x
    if len(shape) > 1:
        merged, task = _merged(task, axis, columns)
    return row_kernel(
        "vectors/layer_normalization.c.jinja",
        task,
        columns,
        merged.rank - 1,
        isa,
        weights,
        centered=task.operator.name == "LayerNormalization",
        scaled=True,
        biased=len(fixed) > 1,
        share=c_types.literal(1.0 / columns, _FLOAT),
        epsilon=c_types.literal(task.attributes.get("epsilon", 1e-5), _FLOAT),
    )


def _normalization_of_computed(
    task: Task, isa: Isa, given: Sequence[tuple[str, View | np.ndarray | None, str]]
) -> GeneratedKernel:
    """Scale and bias as the first steps of the epilogue, at least one of them a tensor."""
    own, shape = len(task.epilogue.operands), task.output.shape
    present = [(name, v, pointer) for name, v, pointer in given if v is not None]
    steps = [(name, v.broadcast(shape) if isinstance(v, View) else v) for name, v, _ in present]
    names = {own + k: pointer for k, (_, v, pointer) in enumerate(present) if isinstance(v, View)}
    return row_kernel(
        "vectors/layer_normalization.c.jinja",
        replace(task, epilogue=preceded(task.epilogue, steps)),
        shape[-1],
        len(shape) - 1,
        isa,
        (),
        names=names,
        centered=task.operator.name == "LayerNormalization",
        scaled=False,
        biased=False,
        share=c_types.literal(1.0 / shape[-1], _FLOAT),
        epsilon=c_types.literal(task.attributes.get("epsilon", 1e-5), _FLOAT),
    )


def _merged(task: Task, axis: int, columns: int) -> tuple[View, Task]:
    """The same rows as one axis."""

    def merge(view: View) -> View:
        return replace(view, shape=(*view.shape[:axis], columns), strides=(*view.strides[:axis], 1), halo=())

    x = merge(task.view(0))
    return x, replace(task, inputs=(x, *task.inputs[1:]), outputs=(merge(task.output), *task.outputs[1:]))


def _register(
    name: str,
    operators: tuple[str, ...],
    accepts: Callable[[Task], bool],
    generate: Callable[[Task, Isa], GeneratedKernel],
    wants: Callable[[Task], Wants],
) -> None:
    register(Family(name, tuple(OpKey("", o) for o in operators), accepts, generate, wants, rank=10))


_register("softmax of rows", ("Softmax", "LogSoftmax"), is_float_row, _softmax, _softmax_wants)
_register(
    "normalization of rows",
    ("LayerNormalization", "RMSNormalization"),
    _accepts_normalization,
    _normalization,
    _normalization_wants,
)
