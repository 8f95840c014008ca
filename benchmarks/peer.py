"""ONNX Runtime as all comparisons run it: on the CPU, with one thread where nothing else is said."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime

ALL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
NONE = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def session(
    model: onnx.ModelProto | Path,
    *,
    level: onnxruntime.GraphOptimizationLevel = ALL,
    optimized: Path | None = None,
    threads: int = 1,
) -> onnxruntime.InferenceSession:
    """A session that warns of nothing.

    Args:
        model: Or its file.
        level: Of ONNX Runtime's own optimizations.
        optimized: Where it writes what they make of the model.
        threads: That share an operator.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    options.graph_optimization_level = level
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
