"""A transposed convolution as ordinary ones: the phases of its stride.

The taps of a window that reach an output have distances of whole strides. Outputs at equal positions modulo the stride
are therefore an ordinary convolution of stride 1 with some of the taps, and each of them computes every ``stride``-th
output. Phases whose taps read the same elements form a band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.codegen.kernel import Halo, Task
from eqsat.ops.families.convolution import transposed_padding
from eqsat.ops.windows import integers
from eqsat.schema.size_questions import is_free


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring phases of one axis that read the same elements.

    Attributes:
        first: The first output.
        phases: How many outputs, one after the other, begin phases of the band.
        count: Outputs of each phase.
        start: The input that the first tap of the first output reads.
        step: Inputs from one tap to the next.
        taps: For each phase the taps of the window, in the order of the inputs that they read.
    """

    first: int
    phases: int
    count: int
    start: int
    step: int
    taps: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Transposed:
    """The geometry of a transposed convolution.

    Attributes:
        strides: Outputs from the window of one input to that of the next, for each spatial axis.
        bands: Those of each spatial axis, which together are all its outputs.
    """

    strides: tuple[int, ...]
    bands: tuple[tuple[Band, ...], ...]

    def halo(self, spatial: Sequence[int]) -> Halo:
        """What the taps read before the first and after the last element, for each axis of the input."""
        around = [(0, 0), (0, 0)]
        for size, bands in zip(spatial, self.bands, strict=True):
            before, after = 0, 0
            for band in bands:
                if not band.taps[0]:
                    continue
                before = max(before, -band.start)
                reach = band.start + (len(band.taps[0]) - 1) * band.step + band.count - size
                after = reach if reach > after else after
            around.append((before, after))
        return tuple(around)


def geometry(task: Task) -> Transposed:
    """The phases of a task's windows."""
    w = task.inputs[1]
    assert w is not None
    spatial, kernel = task.view(0).shape[2:], w.shape[2:]
    ones = (1,) * len(spatial)
    strides = integers(task.attributes, "strides", ones)
    dilations = integers(task.attributes, "dilations", ones)
    begin, out = transposed_padding(task.attributes, spatial, kernel, strides, dilations)
    strides = tuple(map(_apart, spatial, kernel, strides, dilations, begin, out))
    return Transposed(
        strides, tuple(_bands(*axis) for axis in zip(kernel, strides, dilations, begin, out, strict=True))
    )


def _apart(size: int, kernel: int, stride: int, dilation: int, begin: int, out: int) -> int:
    """The stride; for a single window one with the same result, so large that no phase reads padding."""
    if is_free(size) or is_free(out) or size > 1:
        return stride
    return max(stride, (kernel - 1) * dilation + 1, begin + out)


def _bands(kernel: int, stride: int, dilation: int, begin: int, out: int) -> tuple[Band, ...]:
    found: list[Band] = []
    for first in range(stride if is_free(out) else min(stride, out)):
        reached = [k for k in reversed(range(kernel)) if (first + begin - k * dilation) % stride == 0]
        inputs = [(first + begin - k * dilation) // stride for k in reached]
        start = inputs[0] if inputs else 0
        step = inputs[1] - inputs[0] if len(inputs) > 1 else 1
        band = Band(first, 1, (out - first + stride - 1) // stride, start, step, (tuple(reached),))
        last = found[-1] if found else None
        if last is not None and _read_alike(last, band):
            found[-1] = Band(last.first, last.phases + 1, last.count, start, step, (*last.taps, *band.taps))
        else:
            found.append(band)
    return tuple(found)


def _read_alike(one: Band, other: Band) -> bool:
    taken = [(band.count, band.start, band.step, len(band.taps[0])) for band in (one, other)]
    return taken[0] == taken[1]
