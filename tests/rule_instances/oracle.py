"""ONNX Runtime as the judge of single operators, ``onnx.reference`` where it has no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from eqsat.check import Unsupported
from eqsat.model import opset
from eqsat.model.attributes import to_protos
from eqsat.model.types import Attrs, OpKey
from eqsat.ops.reference import ReferenceNode

onnxruntime.set_default_logger_severity(4)

_MISSING = (ort_errors.NotImplemented,)


def onnx_runtime(
    op: OpKey, attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: int
) -> Sequence[np.ndarray | None]:
    """Evaluates one operator."""
    signature = tuple(None if x is None else (x.dtype, x.ndim) for x in inputs)
    session = _session(op, attrs, signature, outputs)
    if session is not None:
        feed = {f"i{k}": np.asarray(x, order="C") for k, x in enumerate(inputs) if x is not None}
        try:
            return session.run(None, feed)
        except ort_errors.NotImplemented:
            pass
    version = opset.opset_version(op.domain)
    if op.domain:
        raise Unsupported(f"{op} has no other judge")
    try:
        return list(ReferenceNode(op, version, to_protos(attrs, op), outputs, version)(inputs))
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise Unsupported(str(error)) from error


@lru_cache(maxsize=4096)
def _session(op: OpKey, attrs: Attrs, signature: tuple[Any, ...], outputs: int) -> Any:
    """A session of one node for any shapes of these ranks, None where ONNX Runtime has no kernel for the types."""
    names = ["" if s is None else f"i{k}" for k, s in enumerate(signature)]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op.name, names, results, domain=op.domain)
    node.attribute.extend(to_protos(attrs, op))
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(s[0]), [None] * s[1])
            for n, s in zip(names, signature, strict=True)
            if s is not None
        ],
        [helper.make_value_info(name, onnx.TypeProto()) for name in results],
    )
    imports = [helper.make_opsetid("", opset.PINNED_OPSET)]
    if op.domain:
        imports.append(helper.make_opsetid(op.domain, opset.opset_version(op.domain)))
    model = helper.make_model(graph, opset_imports=imports, ir_version=opset.IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except ort_errors.NotImplemented:
        return None
