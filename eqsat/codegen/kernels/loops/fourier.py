"""Fourier transforms; mirrors ``eqsat/ops/families/signal.py``.

A transform of n elements is made of one pass for each prime factor of n, from one buffer to another, in the order in
which the result needs no permutation (Stockham's form of the algorithm; Van Loan, *Computational Frameworks for the
Fast Fourier Transform*, 1992, section 1.7). It is computed in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, along
from eqsat.codegen.kernels.loops.family import are, ints, loops, shape_of
from eqsat.codegen.kernels.loops.scans import lines
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import is_free


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: ``radix`` values at a distance become as many, ``groups`` times for each of ``stride`` neighbours."""

    radix: int
    groups: int
    stride: int


def passes(size: int) -> list[Pass]:
    """The passes of a transform of ``size`` elements."""
    # Programs without transforms do not need it.
    from sympy.ntheory import factorint

    found, stride = [], 1
    for radix, times in sorted(factorint(size).items()):
        for _ in range(times):
            found.append(Pass(radix, size // stride // radix, stride))
            stride *= radix
    return found


def roots(size: int, inverse: bool) -> np.ndarray:
    """Powers of the root of unity, real and imaginary parts in turn."""
    angles = (2 if inverse else -2) * np.pi * np.arange(size) / size
    return np.stack((np.cos(angles), np.sin(angles)), -1).ravel()


def _size(task: Task) -> tuple[int, int] | None:
    """Axis and length of a DFT, None if C cannot know them."""
    shape = shape_of(task, 0)
    axis, length = ([-2] if not task.has(2) else ints(task.constant(2))), ints(task.constant(1))
    if axis is None or (task.has(1) and length is None):
        return None
    place = axis[0] % len(shape)
    half = task.attributes.get("inverse") and task.attributes.get("onesided")
    size = length[0] if length is not None else 2 * (shape[place] - 1) if half else shape[place]
    return None if is_free(size) or is_free(shape[place]) or size < 1 else (place, size)


@loops("fourier transforms", "DFT", accepts=lambda task: are(task, FLOATS, 0) and _size(task) is not None)
def transform(task: Task) -> GeneratedKernel:
    """The transform of each line along an axis."""
    template = Template(task)
    x, y, found = template.operand(0), template.result(), _size(task)
    assert found is not None
    axis, size = found
    inverse = bool(task.attributes.get("inverse"))
    return template.fill(
        "loops/fourier.c.jinja",
        lines=lines(x.shape[:-1], axis),
        element=lambda i, k, part: x.load(*along(i, axis, k), part),
        put=lambda value, i, k, part: y.store(f"({y.c})({value})", *along(i, axis, k), part),
        given=min(size, x.shape[axis]),
        count=y.shape[axis],
        mirrored=inverse and bool(task.attributes.get("onesided")),
        complex=x.shape[-1] == 2,
        divisor=size if inverse else 1,
        size=size,
        passes=passes(size),
        roots=template.table(roots(size, inverse)),
        scratch=32 * size,
        specialised=True,
    )


def _frame(task: Task) -> int | None:
    """Elements of a frame of an STFT, None if C cannot know them."""
    length = ints(task.constant(3))
    if task.constant(1) is None or (task.has(3) and length is None):
        return None
    size = length[0] if length is not None else shape_of(task, 2)[0] if task.has(2) else 0
    return None if is_free(size) or size < 1 else size


@loops("fourier transforms", "STFT", accepts=lambda task: are(task, FLOATS, 0, 2) and _frame(task) is not None)
def short_transforms(task: Task) -> GeneratedKernel:
    """The transform of each frame of a signal, times a window."""
    template = Template(task)
    x, y, size, steps = template.operand(0), template.result(), _frame(task), ints(task.constant(1))
    assert size is not None and steps is not None
    window = template.x[2] if task.has(2) else None

    def element(i: tuple[str, ...], k: str, part: int) -> str:
        value = x.load(i[0], f"{i[1]} * {steps[0]} + {k}", *((part,) if x.rank == 3 else ()))
        return value if window is None else f"{value} * {window.load(k)}"

    return template.fill(
        "loops/fourier.c.jinja",
        lines=y.shape[:2],
        element=element,
        put=lambda value, i, k, part: y.store(f"({y.c})({value})", i[0], i[1], k, part),
        given=size if window is None else min(size, window.shape[0]),
        count=y.shape[2],
        mirrored=False,
        complex=x.rank == 3 and x.shape[-1] == 2,
        divisor=1,
        size=size,
        passes=passes(size),
        roots=template.table(roots(size, inverse=False)),
        scratch=32 * size,
        specialised=True,
    )
