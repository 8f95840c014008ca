"""InstanceNormalization and GroupNormalization of float32: channels of an image, each a row in memory.

Both take the mean and the variance of some neighbouring channels of a sample, and scale each channel by its own
factor. The rows are read three times: for the mean, for the variance about it, so that nothing cancels, and for the
result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, load, store
from eqsat.codegen.kernels.vectors.rows import is_float_row
from eqsat.codegen.kernels.vectors.shared_axes import SharedAxis, VectorLoop, merged, passes
from eqsat.schema.types import OpKey, Shape

_FLOAT = ir.DataType.FLOAT
_SUMS = 4
_LEAST_ROW = 8
"""Elements of a channel below which rows do not fill vectors."""


def _accepts(task: Task) -> bool:
    if not is_float_row(task) or task.view(0).rank < 3 or task.attributes.get("stash_type", 1) != 1:
        return False
    x = task.view(0)
    return all(map(_is_vector, task.inputs[1:3])) and math.prod(x.shape[2:]) >= _LEAST_ROW


def _is_vector(v: View | np.ndarray | None) -> bool:
    if isinstance(v, View):
        return v.dtype == _FLOAT
    return v is not None and v.dtype == np.float32


def _wants(task: Task) -> Wants:
    """Whole samples without gaps; the result may take the input's place, as a group is read before it is written."""
    want = Want(order=tuple(range(task.view(0).rank)), strict=True, dense=True)
    return Wants((want,), (want,), ((0, 0),))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, y = task.view(0), task.output
    batch, channels = x.shape[:2]
    row = math.prod(x.shape[2:])
    groups = int(task.attributes.get("num_groups", channels))
    constants: list[np.ndarray] = []
    factors: list[str] = []
    for number in (1, 2):
        given = task.inputs[number]
        if isinstance(given, View):
            factors.append(f"x{number}[c * {given.strides[0]}]")
        elif given is not None:
            factors.append(f"w{len(constants)}[c]")
            constants.append(np.ascontiguousarray(given, np.float32))
    epilogue, axes = _rows(task, isa, len(constants))
    made = {**epilogue.strides, "y0": y.strides}
    *outer, inner = axes
    lanes = isa.lanes()

    def element(name: str, part: VectorLoop, first: int, live: int) -> str:
        return load(f"{name} + i * {part.step} + {part.first + first}", 1, live, isa)

    def finished(part: VectorLoop, first: int, live: int) -> str:
        def address(name: str) -> str:
            step = inner.steps[name]
            return f"{name}p + i * {part.step * step} + {(part.first + first) * step}"

        lines, result = epilogue.write("t", address, live)
        return "\n".join([*lines, store(address("y0"), result, inner.steps["y0"], live, isa)])

    many = channels // groups
    text = render(
        "vectors/channel_normalization.c.jinja",
        batch=batch,
        channels=channels,
        groups=groups,
        many=many,
        row=row,
        outer=outer,
        statistics=passes(many * row, lanes, _SUMS),
        parts=passes(inner.size, lanes, _SUMS),
        sums=_SUMS,
        whole=lambda live: live == lanes,
        element=element,
        finished=finished,
        pointers=[
            (name, "".join(f" + {n} * {s}" for n, s in _moves(outer, name, strides)))
            for name, strides in {"x0": x.strides, **made}.items()
        ],
        factors=factors,
        count=c_types.literal(float(many * row), _FLOAT),
        epsilon=c_types.literal(task.attributes.get("epsilon", 1e-5), _FLOAT),
    )
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, (*constants, *epilogue.constants), helpers=(*epilogue.helpers, *helpers))


def _rows(task: Task, isa: Isa, first_constant: int) -> tuple[VectorEpilogue, list[SharedAxis]]:
    """The epilogue, and the axes of a channel, of which vectors run along the last one."""
    y = task.output
    last = max(a for a, n in enumerate(y.shape) if n != 1)
    epilogue = VectorEpilogue(task.epilogue, y.shape, last, isa, first_constant=first_constant)
    strides = {"x0": task.view(0).strides, **epilogue.strides, "y0": y.strides}
    axes = [SharedAxis(y.shape[a], {name: s[a] for name, s in strides.items()}, a) for a in range(2, y.rank)]
    return epilogue, merged(axes)


def _moves(outer: Sequence[SharedAxis], name: str, strides: Shape) -> list[tuple[str, int]]:
    """Loop variables and what they add to a pointer."""
    found = [("b", strides[0]), ("c", strides[1]), *((f"s{k}", a.steps[name]) for k, a in enumerate(outer))]
    return [(variable, step) for variable, step in found if step]


register(
    Family(
        "normalization of channels",
        tuple(OpKey("", name) for name in ("InstanceNormalization", "GroupNormalization")),
        _accepts,
        _generate,
        _wants,
        rank=10,
    )
)
