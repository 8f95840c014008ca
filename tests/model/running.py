"""Running models for comparison: ONNX Runtime and ``onnx.reference`` as independent oracles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx.reference import ReferenceEvaluator

Model = onnx.ModelProto | ir.Model


def proto_of(model: Model) -> onnx.ModelProto:
    return ir.to_proto(model) if isinstance(model, ir.Model) else model


def run_ort(model: Model, feed: Mapping[str, np.ndarray], *, optimize: bool = False) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    proto = proto_of(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, dict(feed))]


def run_reference(model: Model, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(y) for y in ReferenceEvaluator(proto_of(model)).run(None, dict(feed))]


def random_inputs(model: Model, seed: int = 0, dims: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Seeded inputs for a model; a symbolic dimension has 2 unless told otherwise. Initializers get none."""
    rng = np.random.default_rng(seed)
    proto = proto_of(model)
    constants = {t.name for t in proto.graph.initializer}
    feed = {}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        known = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else (dims or {}).get(d.dim_param, 2) for d in known.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(known.elem_type)
        if dtype.kind == "f":
            feed[value.name] = rng.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b":
            feed[value.name] = rng.integers(0, 2, shape).astype(dtype)
        else:
            feed[value.name] = rng.integers(0 if dtype.kind == "u" else -8, 8, shape).astype(dtype)
    return feed
