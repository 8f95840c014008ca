"""ONNX Runtime's quantizer as the peer of ``quantize``, and what its runtime makes of a quantized file."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks import peer

Samples = Mapping[str, np.ndarray]
"""Array by input name, samples along the first axis."""

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}
"""The peer's methods by our names."""

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "Cast", "Constant")
MOVES = ("Concat", "Flatten", "Gather", "Identity", "MaxPool", "QLinearConcat", "Reshape", "Slice", "Split", "Squeeze",
          "Transpose", "Unsqueeze")  # fmt: skip


class _Reader(CalibrationDataReader):
    def __init__(self, samples: Samples) -> None:
        self._rows = rows(samples)

    def get_next(self) -> dict[str, np.ndarray]:
        # None ends the data; the base class is annotated as if it never did.
        return cast(dict[str, np.ndarray], next(self._rows, None))


def rows(samples: Samples) -> Iterator[dict[str, np.ndarray]]:
    """The samples one by one."""
    for row in zip(*samples.values(), strict=True):
        yield dict(zip(samples, row, strict=True))


def quantized_by_peer(model: onnx.ModelProto, samples: Samples, method: str) -> onnx.ModelProto:
    """The model as ``quantize_static`` quantizes it, prepared as its documentation advises.

    Args:
        model: float32, of an opset that the quantizer knows.
        samples: Calibration data.
        method: One of :data:`METHODS`.
    """
    with tempfile.TemporaryDirectory() as folder, _silence():
        source, prepared, result = (Path(folder) / f"{name}.onnx" for name in ("float", "prepared", "quantized"))
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            result,
            _Reader(samples),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            calibrate_method=METHODS[method],
        )
        return onnx.load(result)


@contextmanager
def _silence() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def outputs(model: onnx.ModelProto, samples: Samples) -> np.ndarray:
    """The first output for each sample. Pairs are computed as they stand, in floats: no kernel saturates in between."""
    session = peer.session(model, level=peer.NONE)
    return np.stack([np.asarray(session.run(None, row)[0]) for row in rows(samples)])


def operators_in_runtime(model: onnx.ModelProto) -> tuple[Counter[str], Counter[str]]:
    """Integer and float operators of the graph that ONNX Runtime executes, without conversions and data movement."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "optimized.onnx"
        peer.session(model, level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, optimized=file)
        graph = onnx.load(file).graph
    # The file does not say all types; that of an operator's result follows from that of its operands.
    floats = {value.name for value in graph.input}
    integer: Counter[str] = Counter()
    floating: Counter[str] = Counter()
    for node in graph.node:
        reads = any(name in floats for name in node.input)
        bare = node.op_type == "QGemm" and len(node.input) < 9  # without a scale for its result
        if node.op_type == "DequantizeLinear" or bare or (reads and node.op_type != "QuantizeLinear"):
            floats.update(node.output)
        if node.op_type not in (*_CONVERSIONS, *MOVES):
            (floating if reads else integer)[node.op_type] += 1
    return integer, floating


def sqnr(exact: np.ndarray, rounded: np.ndarray) -> float:
    """Signal to quantization noise in dB."""
    error = rounded.astype(np.float64) - exact
    noise = float(np.sum(error**2))
    return float(10 * np.log10(np.sum(exact.astype(np.float64) ** 2) / noise)) if noise else float("inf")
