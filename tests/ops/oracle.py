"""Independent judges of a single operator: ONNX Runtime, and ``onnx.reference`` where it has no kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from eqsat.ops.evaluate import operation
from eqsat.ops.reference import ReferenceNode
from eqsat.schema import opset
from eqsat.schema.types import OpKey

onnxruntime.set_default_logger_severity(4)

Arrays = Sequence[np.ndarray | None]


def protos(op: OpKey, attrs: Mapping[str, Any]) -> list[onnx.AttributeProto]:
    kinds = opset.attribute_types(op) if opset.find_schema(op) is not None else {}
    made = []
    for name, value in attrs.items():
        kind = kinds.get(name)
        if isinstance(value, tuple) and not value and kind is not None:
            made.append(helper.make_attribute(name, value, attr_type=int(kind)))
        else:
            made.append(helper.make_attribute(name, value))
    return made


def canonical(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as bundles hold them: tuples, and floats that float32 can hold."""

    def value(v: Any) -> Any:
        if isinstance(v, list | tuple):
            return tuple(value(item) for item in v)
        return float(np.float32(v)) if isinstance(v, float) else v

    return {name: value(v) for name, v in attrs.items()}


def run_ours(
    op: OpKey, attrs: Mapping[str, Any], inputs: Arrays, outputs: int = 1, version: int | None = None
) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        return operation(op, canonical(attrs), version, outputs, lambda: protos(op, attrs))(inputs)[:outputs]


def run_ort(
    op: OpKey, attrs: Mapping[str, Any], inputs: Arrays, outputs: int = 1, version: int | None = None
) -> list[Any]:
    names = ["" if x is None else f"input_{i}" for i, x in enumerate(inputs)]
    results = [f"output_{i}" for i in range(outputs)]
    node = helper.make_node(op.name, names, results, domain=op.domain)
    node.attribute.extend(protos(op, attrs))
    number = version if version is not None else opset.PINNED_OPSET
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in zip(names, inputs, strict=True)
            if x is not None
        ],
        [helper.make_value_info(name, onnx.TypeProto()) for name in results],
    )
    imports = [helper.make_opsetid("", number if not op.domain else 21)]
    if op.domain:
        imports.append(helper.make_opsetid(op.domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10 if number < 25 else 13)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {n: x for n, x in zip(names, inputs, strict=True) if x is not None})


def run_reference(
    op: OpKey, attrs: Mapping[str, Any], inputs: Arrays, outputs: int = 1, version: int | None = None
) -> list[Any]:
    number = version if version is not None else opset.opset_version(op.domain)
    with np.errstate(all="ignore"):
        return list(ReferenceNode(op, number, protos(op, attrs), outputs, None if op.domain else number)(inputs))


def expected(
    op: OpKey, attrs: Mapping[str, Any], inputs: Arrays, outputs: int = 1, version: int | None = None
) -> list[Any]:
    """What ONNX Runtime computes, or onnx.reference for types that it has no kernel for."""
    try:
        return run_ort(op, attrs, inputs, outputs, version)
    except ort_errors.NotImplemented:
        return run_reference(op, attrs, inputs, outputs, version)


def check(
    name: str,
    inputs: Arrays,
    attrs: Mapping[str, Any] | None = None,
    *,
    outputs: int = 1,
    domain: str = "",
    version: int | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    judge: Any = expected,
) -> tuple[Any, ...]:
    """Compare our kernel with a judge; exactly unless a tolerance is given."""
    op = OpKey(domain, name)
    attrs = attrs or {}
    ours = run_ours(op, attrs, inputs, outputs, version)
    theirs = judge(op, attrs, inputs, outputs, version)
    assert len(ours) == len(theirs) == outputs
    for a, b in zip(ours, theirs, strict=True):
        same(a, b, rtol, atol, f"{op} {dict(attrs)} on {[None if x is None else (x.dtype, x.shape) for x in inputs]}")
    return ours


def same(a: np.ndarray, b: np.ndarray, rtol: float = 0.0, atol: float = 0.0, message: str = "") -> None:
    assert isinstance(a, np.ndarray), message
    assert a.dtype == b.dtype, f"{message}: {a.dtype} instead of {b.dtype}"
    assert a.shape == b.shape, f"{message}: {a.shape} instead of {b.shape}"
    if a.dtype.kind not in "biufc":
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True, err_msg=message)


def values(rng: np.random.Generator, shape: Sequence[int], dtype: Any, low: float = -4, high: float = 4) -> np.ndarray:
    """Random values: integers over their small or the given range, floats in the given range, fair booleans."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        first, last = max(int(low), int(limits.min)), min(int(high), int(limits.max))
        return rng.integers(first, last, shape, endpoint=True).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)
