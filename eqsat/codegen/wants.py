"""Whether a view satisfies what a kernel wants."""

from __future__ import annotations

from eqsat.codegen.buffers import memory_order
from eqsat.codegen.kernel import View, Want
from eqsat.codegen.program import ProgramTensor
from eqsat.schema.size import Undecided


def satisfies(view: View, want: Want) -> bool:
    """Whether order and density are as wanted; halos are ignored."""
    if want.dense:
        return view.is_dense(want.order) if want.strict or want.order else view.is_dense(memory_order(view))
    if not want.strict:
        return True
    order = want.order or tuple(range(view.rank))
    axes = [a for a in order if view.shape[a] != 1]
    strides = [view.strides[a] for a in axes]
    if not strides:
        return True
    inner = [view.shape[a] for a in axes[1:]]
    try:
        nested = all(s >= t * n for s, t, n in zip(strides, strides[1:], inner, strict=False))
    except Undecided:
        return False
    return nested and strides[-1] == 1


def same_order(a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether two orders of axes store the elements of a shape alike; axes of one element may be anywhere."""
    return [axis for axis in a if shape[axis] != 1] == [axis for axis in b if shape[axis] != 1]


def usual_orders(tensor: ProgramTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The orders of a tensor's axes in memory: row by row, and with channels innermost."""
    rank = len(tensor.shape)
    rows = tuple(range(rank))
    return rows, (0, *range(2, rank), 1) if rank > 2 else rows


def converted_order(tensor: ProgramTensor, *, innermost: bool) -> tuple[int, ...] | None:
    """The order of axes after a conversion; None if nothing moves."""
    rows, channels = usual_orders(tensor)
    if same_order(channels, rows, tensor.shape):
        return None
    return channels if innermost else rows
