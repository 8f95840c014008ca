"""Pooling of float32 in NHWC: vectors are channels, so that windows are sums and maxima of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import NestLoop
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, is_vector_epilogue, load, store
from eqsat.ops.families.pooling import window_counts
from eqsat.ops.windows import Windows, integers, windows
from eqsat.schema.size import Undecided
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import OpKey, Shape

_UNROLLED = 25
_TOGETHER = 4
"""Vectors of channels that a loop over taps sums side by side, to hide the latency of sums."""


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """A spatial axis: geometry of the windows and the input's stride."""

    size: int
    kernel: int
    step: int
    dilation: int
    begin: int
    extent: int
    stride: int


@dataclass(frozen=True, slots=True)
class PooledChannels:
    """Vectors of channels that are processed in the same way."""

    first: int
    step: int
    count: int
    vectors: int
    pointers: list[tuple[str, str]]
    load: Callable[[str, int, int], str]
    stores: list[str]


def geometry(task: Task) -> Windows:
    """The windows; of a global operator one over everything."""
    x = task.view(0)
    if task.operator.name.startswith("Global"):
        rank = x.rank - 2
        return Windows(x.shape[2:], (1,) * rank, (1,) * rank, (0,) * rank, (0,) * rank, (1,) * rank)
    kernel = integers(task.attributes, "kernel_shape", ())
    return windows(task.attributes, x.shape[2:], kernel, ceil=bool(task.attributes.get("ceil_mode", 0)))


def _accepts(task: Task) -> bool:
    x = task.inputs[0]
    if (
        not isinstance(x, View)
        or not 3 <= x.rank <= 5
        or x.dtype != convolution.FLOAT
        or task.attributes.get("channels_last")
    ):
        return False
    if any(output is not None for output in task.outputs[1:]) or 0 in x.shape or 0 in task.output.shape:
        return False
    return is_vector_epilogue(task.epilogue)


def _shares(task: Task, at: Windows) -> np.ndarray:
    """The factor of a sum, for each window."""
    counts = window_counts(at, task.view(0).shape[2:], bool(task.attributes.get("count_include_pad", 0)))
    with np.errstate(divide="ignore"):
        return (1.0 / counts).astype(np.float32)


def _share(task: Task, at: Windows, *, counted: bool) -> str:
    """The factor, in C, of a sum over an axis of a free size.

    Args:
        task: The task.
        at: Its windows.
        counted: Whether the program has the taps of each window that are inside.
    """
    if task.attributes.get("count_include_pad", 0) and task.attributes.get("ceil_mode", 0):
        raise Undecided("which windows reach beyond the padding depends on the sizes")
    if counted and not task.attributes.get("count_include_pad", 0):
        return f"1.0f / (float)({' * '.join(f'(j{i} - i{i})' for i in range(len(at.kernel)))})"
    return f"1.0f / (float){math.prod(at.kernel)}"


def _is_inside(reach: int, size: int) -> bool:
    """Whether no window reaches beyond an axis, for all sizes."""
    try:
        return reach <= size
    except Undecided:
        return False


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, y, at = task.view(0), task.output, geometry(task)
    kind = "max" if "Max" in task.operator.name else "average"
    free = any_free(x.shape[2:])
    shares = _shares(task, at) if kind == "average" and not free else np.ones(1, np.float32)
    uniform = bool((shares == shares.flat[0]).all())
    constants = () if uniform else (shares.ravel(),)
    epilogue = VectorEpilogue(task.epilogue, y.shape, 1, isa, first_constant=len(constants))
    made: dict[str, Shape] = {"y0": y.strides, **epilogue.strides}
    axes = [
        WindowAxis(*values)
        for values in zip(
            x.shape[2:], at.kernel, at.strides, at.dilations, at.begin, at.extent, x.strides[2:], strict=True
        )
    ]
    outer = [NestLoop("n0", y.shape[0])] + [NestLoop(f"p{i}", n) for i, n in enumerate(y.shape[2:])]
    sides = [0, *range(2, y.rank)]
    pointers = [
        (name, "".join(f" + {loop.name} * {strides[a]}" for loop, a in zip(outer, sides, strict=True) if strides[a]))
        for name, strides in made.items()
    ]
    share, weight = f"{float(shares.flat[0])!r}f", 1
    if not uniform:
        terms = []
        for loop in reversed(outer[1:]):
            terms.append(f"{loop.name} * {weight}")
            weight *= loop.extent
        share = f"w0[{' + '.join(terms)}]"
    unrolled = not any_free(at.kernel) and math.prod(at.kernel) <= _UNROLLED
    taps = [[t * a.dilation * a.stride for t in range(a.kernel)] for a in axes] if unrolled else []
    window = [sum(index) for index in product(*taps)] if unrolled else []
    always = all(
        a.begin <= 0 and _is_inside((n - 1) * a.step - a.begin + a.extent, a.size)
        for a, n in zip(axes, y.shape[2:], strict=True)
    )
    if free and kind == "average":
        share = _share(task, at, counted=not (window and always))

    def block(first: int, count: int, vectors: int, live: int) -> PooledChannels:
        step = vectors * isa.lanes()
        moved = [
            (name, "".join(f" {sign} {k}" for sign, k in (("+", first * s[1]), ("+ c *", step * s[1])) if k))
            for name, s in made.items()
        ]
        stores = []
        for v in range(vectors):

            def address(name: str, v: int = v) -> str:
                return f"{name}p + {v * isa.lanes() * made[name][1]}"

            value = f"c{v} * share" if kind == "average" else f"c{v}"
            lines, result = epilogue.write("t", address, live)
            end = store(address("y0"), result, made["y0"][1], live, isa)
            stores.append(" ".join(["{", f"const vf@ t = {value};", *lines, end, "}"]))
        return PooledChannels(
            first,
            step,
            count,
            vectors,
            moved,
            lambda p, o, v: load(f"{p} + {o + v * isa.lanes()}", 1, live, isa),
            stores,
        )

    def blocks(together: int) -> list[PooledChannels]:
        full, rest = divmod(x.shape[1], isa.lanes())
        found = [block(s * isa.lanes(), n, v, isa.lanes()) for s, v, n in _by(full, together)]
        return found + ([block(full * isa.lanes(), 1, 1, rest)] if rest else [])

    text = render(
        "vectors/pool.c.jinja",
        kind=kind,
        outer=outer,
        axes=axes,
        batch=x.strides[0],
        pointers=pointers,
        share=share,
        window=window,
        always=always,
        unrolled=blocks(1),
        looped=blocks(_TOGETHER),
    )
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, (*constants, *epilogue.constants), 0, (*epilogue.helpers, *helpers))


def _by(vectors: int, together: int) -> list[tuple[int, int, int]]:
    """(first, size, count): groups of vectors, then the rest one by one."""
    whole = vectors // together * together
    single = [(whole, 1, vectors - whole)] if vectors > whole else []
    return [part for part in split(whole, together) if part[2]] + single


def _wants(task: Task) -> Wants:
    return convolution.nhwc(task)


for _kind in ("Max", "Average"):
    register(
        Family(
            f"{_kind.lower()} pooling of channel vectors",
            (OpKey("", f"{_kind}Pool"), OpKey("", f"Global{_kind}Pool")),
            _accepts,
            _generate,
            _wants,
            rank=10,
        )
    )
