"""The scheme that a quantization starts from; with ``method="auto"`` the most accurate of all methods' schemes.

No method of finding ranges is best for all models: outliers that matter in one are noise in another. But the samples
tell which one suits a model, before anything is decided about integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir

from eqsat.quantization.balance import balanced
from eqsat.quantization.calibrate import Calibration, CalibrationProgress
from eqsat.quantization.calibration_data import CalibrationData
from eqsat.quantization.insert import apply_scheme
from eqsat.quantization.methods import METHODS
from eqsat.quantization.noise import measure_sqnr
from eqsat.quantization.options import Options
from eqsat.quantization.ranges import ranges
from eqsat.quantization.scheme import Scheme, make_scheme


def scheme_of(model: ir.Model, calibration: Calibration, options: Options) -> Scheme:
    """The scheme by the options' method, its weights balanced if requested."""
    scheme = make_scheme(model, ranges(calibration, options), options)
    return balanced(model, scheme, calibration) if options.balance else scheme


def most_accurate(
    model: ir.Model,
    calibration: Calibration,
    options: Options,
    data: CalibrationData,
    *,
    limit: int | None = None,
    progress: Callable[[CalibrationProgress], None] | None = None,
) -> Scheme:
    """The scheme, among those of all methods, whose simulation has the best SQNR at its worst output.

    Args:
        model: The calibrated model.
        calibration: Its statistics.
        options: All options except the method. Among equally good methods the first of ``METHODS`` is taken.
        data: Samples to simulate on.
        limit: Samples to use at most.
        progress: Called after each method.

    Raises:
        QuantizationError: The data do not fit the model.
    """
    best, found = -math.inf, None
    for done, method in enumerate(METHODS, 1):
        scheme = scheme_of(model, calibration, replace(options, method=method))
        sqnr = min(measure_sqnr(model, apply_scheme(model, scheme), data, limit=limit).values(), default=math.inf)
        if found is None or sqnr > best:
            best, found = sqnr, scheme
        if progress is not None:
            progress(CalibrationProgress("choose", done, len(METHODS)))
    assert found is not None
    return found
