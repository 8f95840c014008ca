"""Calibration: a model is run on samples, and statistics of every float tensor are gathered on the way.

One pass is enough, as the histograms grow. Memory is that of one run (a tensor is released after its last reader) and
64 KB for each tensor, for any number of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.execute.trace import Trace
from eqsat.quantization.calibration_data import CalibrationData, DataSource, first_samples
from eqsat.quantization.histogram import Histogram
from eqsat.quantization.moments import Gatherer, Moments


@dataclass(frozen=True, slots=True)
class CalibrationProgress:
    """One step of a long computation.

    Attributes:
        stage: ``"calibrate"`` counts samples, ``"choose"`` methods, ``"measure"`` runs.
        done: Number of finished steps.
        total: Greatest number of steps, None if unknown.
    """

    stage: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class Calibration:
    """The observed statistics.

    Attributes:
        tensors: Statistics by tensor name, in execution order: inputs and everything floating-point computed from them.
        constants: Value by name of the floating-point tensors that no input changes.
        samples: Number of samples.
        moments: Mean and power of the operands of constant weights, by position of the node that reads them.
    """

    tensors: dict[str, Histogram] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    samples: int = 0
    moments: dict[int, Moments] = field(default_factory=dict)


def calibrate(
    model: ir.Model,
    data: DataSource | CalibrationData,
    *,
    limit: int | None = None,
    progress: Callable[[CalibrationProgress], None] | None = None,
) -> Calibration:
    """Run a model on samples and gather statistics of its float tensors.

    Args:
        model: A loaded model (:func:`eqsat.model.load.load`).
        data: Samples; see :class:`~eqsat.quantization.calibration_data.CalibrationData`.
        limit: Samples to use at most.
        progress: Called after each sample.

    Raises:
        QuantizationError: The data do not fit the model, or there are none.
        ExecutionError: The model cannot be executed.
    """
    samples = first_samples(data, model, limit)
    trace = Trace(model)
    constants = {name: array for name, array in trace.constants.items() if is_float(array)}
    found = Calibration(constants=constants)
    gatherer = Gatherer(model, constants)
    count = 0

    def see(name: str, value: Any) -> None:
        if is_float(value):
            if name not in found.tensors:
                found.tensors[name] = Histogram()
            found.tensors[name].add(value)
            gatherer.see(name, value)

    for sample in samples:
        trace.observe(sample, see)
        count += 1
        if progress is not None:
            progress(CalibrationProgress("calibrate", count, limit))
    return Calibration(found.tensors, constants, count, gatherer.found)


def is_float(value: Any) -> bool:
    """Whether a value is a floating-point array, of any width."""
    return isinstance(value, np.ndarray) and value.dtype.kind != "O" and _is_floating(value.dtype)


def _is_floating(dtype: np.dtype) -> bool:
    if dtype.kind in "fiub":
        return dtype.kind == "f"
    try:
        return ir.DataType.from_numpy(dtype).is_floating_point()
    except TypeError:
        return False
