"""Sliding windows: the geometry that convolutions and poolings share, and strided views of an array's windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.size_questions import is_free
from eqsat.schema.types import Attributes


@dataclass(frozen=True, slots=True)
class Windows:
    """Positions of windows, with one entry per spatial axis.

    Attributes:
        kernel: Elements of a window.
        strides: Steps between windows.
        dilations: Steps between the elements of a window.
        begin: Padding before the first element.
        end: Padding after the last element.
        out: Number of windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Elements that a window spans, dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def overhangs(self, spatial: Sequence[int]) -> bool:
        """Whether some window reaches beyond an unpadded array of this shape."""
        return any(
            (n - 1) * s + (k - 1) * d >= size
            for n, s, k, d, size in zip(self.out, self.strides, self.kernel, self.dilations, spatial, strict=True)
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether each window is a single element inside the array."""
        return all(k == 1 for k in self.kernel) and not any(self.begin) and not any(self.end)


def integers(attrs: Attributes, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """An attribute of integers, or its default where it is absent or empty."""
    value = attrs.get(name)
    return tuple(value) if isinstance(value, tuple | list) and len(value) else tuple(default)


def windows(attrs: Attributes, spatial: Sequence[int], kernel: Sequence[int], *, ceil: bool = False) -> Windows:
    """Resolve ``strides``, ``dilations``, ``pads`` and ``auto_pad`` for an input's spatial shape.

    Raises:
        ValueError: Lengths differ, or no window fits.
    """
    rank = len(spatial)
    return _resolved(
        tuple(spatial),
        tuple(kernel),
        integers(attrs, "strides", (1,) * rank),
        integers(attrs, "dilations", (1,) * rank),
        integers(attrs, "pads", (0,) * (2 * rank)),
        str(attrs.get("auto_pad", "NOTSET")),
        ceil,
    )


@lru_cache(maxsize=1024)
def _resolved(
    spatial: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    mode: str,
    ceil: bool,
) -> Windows:
    rank = len(spatial)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ValueError(f"kernel_shape, strides, dilations and pads must have {rank} spatial axes")
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    begin, end, out = list(pads[:rank]), list(pads[rank:]), []
    for i, (size, stride, span) in enumerate(zip(spatial, strides, extent, strict=True)):
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            count = (size + stride - 1) // stride
            total = largest((count - 1) * stride + span - size, 0)
            small, large = total // 2, total - total // 2
            begin[i], end[i] = (small, large) if mode == "SAME_UPPER" else (large, small)
        else:
            if mode == "VALID":
                begin[i] = end[i] = 0
            room = size + begin[i] + end[i] - span
            count = (room + (stride - 1 if ceil else 0)) // stride + 1
            # The last window must begin inside the input or the padding before it.
            if ceil and span < end[i] + stride:
                most = (size + begin[i] + stride - 1) // stride
                count = smallest(count, most if end[i] <= span else largest(most, count - 1))
        if not is_free(count) and count < 1 and size > 0:
            raise ValueError(f"a window of {span} does not fit into {size} elements with padding {begin[i]}, {end[i]}")
        out.append(largest(count, 0))
    return Windows(kernel, strides, dilations, tuple(begin), tuple(end), tuple(out))


def padded(x: np.ndarray, w: Windows, fill: float | int = 0) -> np.ndarray:
    """``x`` with its spatial axes padded, as far as the windows reach; the input itself where nothing is added.

    Padding may be negative, which crops.
    """
    rank = len(w.kernel)
    spatial = x.shape[-rank:]
    # With ceil_mode the last window may reach beyond the padding.
    if not any(w.begin) and not any(w.end) and not w.overhangs(spatial):
        return x
    reach = [(n - 1) * s + e for n, s, e in zip(w.out, w.strides, w.extent, strict=True)]
    total = [max(size + b + max(e, 0), r) for size, b, e, r in zip(spatial, w.begin, w.end, reach, strict=True)]
    result = np.full((*x.shape[:-rank], *total), fill, x.dtype)
    source = tuple(slice(max(-b, 0), None) for b in w.begin)
    target = tuple(slice(max(b, 0), max(b, 0) + size - max(-b, 0)) for b, size in zip(w.begin, spatial, strict=True))
    result[(..., *target)] = x[(..., *source)]
    return result


def window_view(x: np.ndarray, w: Windows) -> np.ndarray:
    """All windows of a padded array, without a copy: shape (*leading, *kernel, *out)."""
    rank = len(w.kernel)
    steps = x.strides[-rank:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:-rank], *w.kernel, *w.out),
        (
            *x.strides[:-rank],
            *(s * d for s, d in zip(steps, w.dilations, strict=True)),
            *(s * t for s, t in zip(steps, w.strides, strict=True)),
        ),
        writeable=False,
    )


def taps(w: Windows, axis: int) -> list[slice]:
    """For each element of a window, the slice of the padded axis with that element of all windows in order."""
    stride, dilation, count = w.strides[axis], w.dilations[axis], w.out[axis]
    return [slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride) for k in range(w.kernel[axis])]
