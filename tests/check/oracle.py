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

from eqsat.check.oracle import Unsupported
from eqsat.model.write.concise import concise
from eqsat.ops.operators import standard
from eqsat.ops.reference import ReferenceNode
from eqsat.ops.traits import UNARY
from eqsat.schema import opset
from eqsat.schema.attributes import to_protos
from eqsat.schema.body import Body
from eqsat.schema.declared_operators import function_body
from eqsat.schema.types import Attrs, OpKey, TensorType
from eqsat.verify.oracle import fault_of_reference

onnxruntime.set_default_logger_severity(4)

LANES = 64
"""A multiple of the elements that ONNX Runtime computes at once."""
ELEMENTWISE = {operator.op for operator in standard() if UNARY in operator.traits}


def onnx_runtime(
    op: OpKey, attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: int
) -> Sequence[np.ndarray | None]:
    """Evaluates one operator.

    Raises:
        Unsupported: Neither implementation can be trusted here.
    """
    _require_trusted(op, inputs)
    body = function_body(op, attrs)
    if body is not None:
        return _run_body(body, inputs)
    if len(inputs) == 1 and outputs == 1 and op in ELEMENTWISE and inputs[0] is not None and inputs[0].size % LANES:
        return _in_whole_vectors(op, attrs, inputs[0])
    # ONNX's shape inference wants to know how many sizes a Resize is given.
    static = op == OpKey("", "Resize")
    signature = tuple(None if x is None else (x.dtype, x.shape if static else (None,) * x.ndim) for x in inputs)
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
    fault = fault_of_reference(op, attrs, inputs)
    if fault:
        raise Unsupported(f"the reference is wrong {fault}")
    try:
        return _reference(op, attrs, inputs, outputs, version)
    except (NotImplementedError, RuntimeError, TypeError) as error:  # types that the reference does not know
        raise Unsupported(str(error)) from error


def _in_whole_vectors(op: OpKey, attrs: Attrs, x: np.ndarray) -> list[np.ndarray | None]:
    """An operator on each element. ONNX Runtime computes what is left of a vector in another way, to other bits."""
    padded = np.resize(x, -(-x.size // LANES) * LANES)
    (y,) = onnx_runtime(op, attrs, [padded], 1)
    return [None if y is None else y[: x.size].reshape(x.shape)]


def has_kernel(op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None], outputs: int) -> bool:
    """Whether ONNX Runtime runs the operator for operands of these element types and ranks."""
    static = op == OpKey("", "Resize")
    signature = tuple(
        None if t is None else (t.dtype.numpy(), t.shape if static else (None,) * len(t.shape or ())) for t in inputs
    )
    return _session(op, attrs, signature, outputs) is not None


def _run_body(body: Body, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray | None]:
    values: list[np.ndarray | None] = list(inputs)
    for node in body.nodes:
        operands = [None if i is None else values[i] for i in node.inputs]
        values += onnx_runtime(node.op, node.attrs, operands, node.outputs)
    return [values[i] for i in body.results]


def _require_trusted(op: OpKey, inputs: Sequence[np.ndarray | None]) -> None:
    first = inputs[0] if inputs else None
    if op == OpKey("", "Pow") and first is not None and first.dtype.kind in "iu" and inputs[1] is not None:
        # ONNX Runtime computes integer powers in float64.
        with np.errstate(all="ignore"):
            power = np.power(first.astype(np.float64), inputs[1].astype(np.float64))
        if not np.all(np.abs(power) < 2**53):
            raise Unsupported("an integer power that float64 does not hold")
    if op.name in ("MaxPool", "GlobalMaxPool") and first is not None and np.isnan(first).any():
        raise Unsupported("a NaN among what is compared, of which ONNX says nothing")
    if op.name in ("MaxPool", "Clip") and first is not None and first.dtype.kind == "f" and np.isinf(first).any():
        # ONNX Runtime begins with the lowest finite number.
        raise Unsupported("an infinity among what is compared")
    if op == OpKey("", "Where") and any(_has_negative_zero(x) for x in inputs[1:]):
        # ONNX Runtime adds a zero to what is chosen.
        raise Unsupported("a negative zero, which ONNX Runtime makes positive")
    if op.name in ("Elu", "Selu", "Celu") and first is not None and ((first > -1e-5) & (first < 0)).any():
        raise Unsupported("numbers below zero so small that ONNX Runtime's exp(x) - 1 has no correct digit")
    if op.name == "QLinearSoftmax" and first is not None and not first.size:
        raise Unsupported("an empty tensor, for which ONNX Runtime gives nothing")
    if op.name == "PRelu" and first is not None and not first.size:
        raise Unsupported("an empty tensor, on which ONNX Runtime ends the process")
    if op.name in ("GlobalAveragePool", "GlobalMaxPool") and first is not None and not first.size:
        raise Unsupported("an image without pixels")


def _has_negative_zero(x: np.ndarray | None) -> bool:
    return x is not None and x.dtype.kind in "fV" and bool(((x == 0) & np.signbit(x)).any())


def _reference(
    op: OpKey, attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: int, version: int
) -> Sequence[np.ndarray | None]:
    """``onnx.reference`` but for what onnx 1.23 has wrong."""
    if op == OpKey("", "GlobalMaxPool"):
        # It takes the maximum over the wrong axes unless there are two spatial ones.
        (x,) = inputs
        assert x is not None
        return [x.max(axis=tuple(range(2, x.ndim)), keepdims=True)]
    if op == OpKey("", "ConvTranspose") and str(dict(attrs).get("auto_pad", "")).startswith("SAME"):
        raise Unsupported("of a kernel smaller than its stride, ONNX Runtime and ONNX make different sizes")
    if op == OpKey("", "ConvTranspose") and len(inputs) > 2 and inputs[2] is not None:
        # It adds the biases of the first group to every group.
        (y,) = ReferenceNode(op, version, to_protos(attrs, op), 1, version)(inputs[:2])
        return [y + inputs[2].reshape(-1, *(1,) * (y.ndim - 2))]
    return list(ReferenceNode(op, version, to_protos(attrs, op), outputs, version)(inputs))


@lru_cache(maxsize=4096)
def _session(op: OpKey, attrs: Attrs, signature: tuple[Any, ...], outputs: int) -> Any:
    """A session of one node for any shapes of these ranks, None where ONNX Runtime has no kernel for the types."""
    names = ["" if s is None else f"i{k}" for k, s in enumerate(signature)]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op.name, names, results, domain=op.domain)
    node.attribute.extend(to_protos(concise(op, attrs), op))
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(s[0]), s[1])
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
