"""ONNX Runtime as an oracle, and its own quantizer as a peer."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static


class _Reader(CalibrationDataReader):
    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self._samples = iter([dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)])

    def get_next(self):
        return next(self._samples, None)


@cache
def has_exact_products() -> bool:
    """Whether ONNX Runtime's products of unsigned with signed bytes are exact: without VNNI, sums saturate."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (uint8[1, 64] x) => (int32[1, 64] y) { y = MatMulInteger(x, w) }"""
    proto = onnx.parser.parse_model(text)
    weights = np.full((64, 64), 127, np.int8)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    (found,) = session(proto, optimized=True).run(None, {"x": np.full((1, 64), 255, np.uint8)})
    return bool(np.all(found == 64 * 127 * 255))


def session(model: ir.Model | onnx.ModelProto, *, optimized: bool) -> onnxruntime.InferenceSession:
    """A session; unoptimized, it computes QDQ pairs as they stand, in floats."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: ir.Model | onnx.ModelProto, data: dict[str, np.ndarray], *, optimized: bool = False) -> np.ndarray:
    """The first output for each sample."""
    runtime = session(model, optimized=optimized)
    rows = zip(*data.values(), strict=True)
    return np.stack([runtime.run(None, dict(zip(data, row, strict=True)))[0] for row in rows])


def quantized_by_peer(
    model: ir.Model, data: dict[str, np.ndarray], folder: Path, *, activation: QuantType = QuantType.QUInt8, **extra
) -> onnx.ModelProto:
    """What ``quantize_static`` makes of a model: QDQ, int8 weights by channel, ranges from least to greatest."""
    source, result = folder / "float.onnx", folder / "quantized.onnx"
    # The peer knows operators up to opset 21 or so.
    proto = onnx.version_converter.convert_version(ir.to_proto(model), 21)
    proto.ir_version = 10
    for node in proto.graph.node:
        if node.op_type == "AveragePool":
            # The runtime's own integer operator does not have it.
            kept = [a for a in node.attribute if a.name != "dilations"]
            del node.attribute[:]
            node.attribute.extend(kept)
    onnx.save(proto, source)
    logging.disable(logging.WARNING)
    try:
        quantize_static(
            source,
            result,
            _Reader(data),
            quant_format=QuantFormat.QDQ,
            activation_type=activation,
            weight_type=QuantType.QInt8,
            per_channel=True,
            calibrate_method=CalibrationMethod.MinMax,
            **extra,
        )
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load(result)


def sqnr(exact: np.ndarray, rounded: np.ndarray) -> float:
    """Signal to quantization noise in dB."""
    error = rounded.astype(np.float64) - exact
    return float(10 * np.log10(np.sum(exact.astype(np.float64) ** 2) / np.sum(error**2)))


INEXACT = "ONNX Runtime's 8-bit products saturate on this processor: it has no VNNI"
needs_exact_products = pytest.mark.skipif(not has_exact_products(), reason=INEXACT)
