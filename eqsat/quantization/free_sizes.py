"""Sizes that stay free in a quantized model: calibration data decide at which sizes costs are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import onnx_ir as ir

from eqsat.errors import QuantizationError
from eqsat.model.read.dims import free_sizes, sizes_of
from eqsat.quantization.calibration_data import CalibrationSample
from eqsat.schema.free_sizes import FreeSize


def calibrated_sizes(
    model: ir.Model, ranges: Mapping[str, FreeSize], samples: Iterable[CalibrationSample]
) -> dict[str, FreeSize]:
    """The free sizes of a model; one without a typical size takes the median of the samples.

    Args:
        model: The loaded model.
        ranges: The ranges that the caller gives.
        samples: Samples of its inputs, read only if there are free sizes.

    Raises:
        QuantizationError: A sample lies outside of a range.
        ModelError: A range is given for a name that is not a symbol of the inputs.
    """
    found = free_sizes(model, ranges)
    if not found:
        return {}
    seen: dict[str, list[int]] = {name: [] for name in found}
    for number, sample in enumerate(samples):
        for name, size in sizes_of(model, sample).items():
            if name not in found:
                continue  # A polynomial in the symbols.
            least, most = found[name].least, found[name].most
            if size < least or (most is not None and size > most):
                raise QuantizationError(
                    f"sizes within the range {least}..{'' if most is None else most} of `{name}` are required",
                    place=f"calibration data, sample {number}",
                    actual=str(size),
                    hint=f"leave the sample out, or widen the range: dims={{{name!r}: ({min(least, size)}, "
                    f"{most if most is None else max(most, size)})}}",
                )
            seen[name].append(size)
    return {
        name: size if _is_given(name, ranges) or not seen[name] else replace(size, typical=_median(seen[name]))
        for name, size in found.items()
    }


def _is_given(name: str, ranges: Mapping[str, FreeSize]) -> bool:
    return name in ranges and bool(ranges[name].typical)


def _median(sizes: list[int]) -> int:
    return sorted(sizes)[(len(sizes) - 1) // 2]
