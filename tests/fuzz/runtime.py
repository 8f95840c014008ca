"""ONNX Runtime as it is asked by tests: one thread, none of its own optimisations, bfloat16 by way of float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

ort.set_default_logger_severity(4)


class NoKernelError(Exception):
    """ONNX Runtime does not run the model."""


def ort_outputs(content: bytes, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs by ONNX Runtime without its own graph optimisations.

    Raises:
        NoKernelError: It has no kernel for some operator and type.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content, halves = _without_bfloat16(content)
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except ort_errors.NotImplemented as error:
        raise NoKernelError(str(error)) from None
    names = [o.name for o in session.get_outputs()]
    feeds = {n: a.astype(np.float32) if _is_bfloat16(a) else a for n, a in arrays.items()}
    try:
        with np.errstate(all="ignore"):
            found = session.run(None, feeds)
    except ort_errors.RuntimeException as error:
        # Some kernels are there for a type and say when they run that they do not know it.
        if "does not support" not in str(error):
            raise
        raise NoKernelError(str(error)) from None
    if any(x is None for x in found):
        raise NoKernelError("no result, as of QLinearSoftmax of an empty tensor")
    return {
        name: array.astype(ml_dtypes.bfloat16) if name in halves else array
        for name, array in zip(names, found, strict=True)
    }


def _is_bfloat16(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == ml_dtypes.bfloat16


def _without_bfloat16(content: bytes) -> tuple[bytes, set[str]]:
    """The model with casts around inputs and outputs in bfloat16, which ONNX Runtime's Python face does not know."""
    model = onnx.ModelProto.FromString(content)
    graph = model.graph
    tensors = {t.name for t in graph.initializer}
    kind = onnx.TensorProto.BFLOAT16
    inputs = [v for v in graph.input if v.type.tensor_type.elem_type == kind and v.name not in tensors]
    outputs = [v for v in graph.output if v.type.tensor_type.elem_type == kind]
    if not inputs and not outputs:
        return content, set()
    produced = {o for n in graph.node for o in n.output}
    given = {v.name for v in inputs}
    for value in outputs:
        inside = f"{value.name}__bfloat16"
        if value.name in produced:
            _rename(graph, value.name, inside)
        else:
            inside = f"{value.name}__inner" if value.name in given else value.name
        if value.name in tensors:
            raise NoKernelError("a constant in bfloat16 as an output")
        graph.node.append(helper.make_node("Cast", [inside], [value.name], to=onnx.TensorProto.FLOAT))
        if value.name in given:
            raise NoKernelError("an input in bfloat16 as an output")
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for value in inputs:
        inside = f"{value.name}__inner"
        _rename(graph, value.name, inside)
        graph.node.insert(0, helper.make_node("Cast", [value.name], [inside], to=kind))
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return model.SerializeToString(), {v.name for v in outputs}


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if i == old else i for i in node.input]
        node.output[:] = [new if o == old else o for o in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, old, new)
