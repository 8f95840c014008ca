"""Inference against execution on shapes gone wrong: one operand of a valid case is changed at random.

What ONNX Runtime (or ``onnx.reference`` where that has no kernel) executes must be accepted, with the shapes it
computes; what it refuses must be refused.
"""

from __future__ import annotations

import zlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.schema.types import TensorType
from tests.model.node_cases import Case, as_array, cases

OPERATORS = [
    "Add",
    "And",
    "ArgMax",
    "AveragePool",
    "BatchNormalization",
    "Clip",
    "Concat",
    "ConstantOfShape",
    "Conv",
    "ConvTranspose",
    "CumSum",
    "Div",
    "Equal",
    "Expand",
    "Flatten",
    "GRU",
    "Gather",
    "GatherElements",
    "Gemm",
    "GlobalAveragePool",
    "GroupNormalization",
    "Hardmax",
    "InstanceNormalization",
    "LSTM",
    "LayerNormalization",
    "LeakyRelu",
    "LogSoftmax",
    "LpPool",
    "MatMul",
    "MatMulInteger",
    "MaxPool",
    "Min",
    "Mul",
    "PRelu",
    "Pad",
    "Pow",
    "QLinearConv",
    "RMSNormalization",
    "RNN",
    "ReduceMean",
    "ReduceSum",
    "Relu",
    "Reshape",
    "ScatterElements",
    "ScatterND",
    "Slice",
    "Softmax",
    "Squeeze",
    "Sub",
    "Sum",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
]

# The specification is stricter than ONNX Runtime: shapes it demands and the runtime reinterprets.
LENIENT = {
    "ConstantOfShape": "a shape of rank 2",
    "Expand": "a shape of rank 2",
    "GroupNormalization": "a scale of rank 2",
    "Gemm": "a vector as A",
    "Pad": "pads of rank 2",
    "ReduceMean": "an axis twice",
    "ReduceSum": "an axis beyond the rank where the input is empty",
    "Squeeze": "an axis twice",
    "TopK": "k of several elements",
}
# Refused when executed for what shapes do not say.
BY_VALUE = (
    "out of data bounds",
    "Out of range value",
    "invalid indice found",
    "is not defined for empty",
    "is not supported",
    "layout",
)


def _mutated(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shape = list(array.shape)
    kind = int(rng.integers(4))
    if kind < 3 and shape:
        axis = int(rng.integers(len(shape)))
        if kind == 0:
            shape[axis] += 1
        elif kind == 1:
            shape[axis] = shape[axis] - 1 if shape[axis] > 1 else 3
        else:
            del shape[axis]
    else:
        shape.insert(int(rng.integers(len(shape) + 1)), int(rng.integers(1, 3)))
    flat = array.ravel() if array.size else np.zeros(1, array.dtype)
    return np.resize(flat, int(np.prod(shape))).reshape(shape)


def _execute(case: Case, feed: dict[str, np.ndarray]) -> list[np.ndarray] | str:
    """The outputs, or why there are none. Declared shapes are left out."""
    graph = case.model.graph
    infos = [
        [onnx.helper.make_tensor_value_info(v.name, v.type.tensor_type.elem_type, None) for v in values]
        for values in (graph.input, graph.output)
    ]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(list(graph.node), "g", *infos), opset_imports=case.model.opset_import, ir_version=12
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(o) for o in session.run(None, feed)]
    except Exception as error:
        reason = str(error)
    if "NOT_IMPLEMENTED" not in reason and "not implemented" not in reason and "ype Error" not in reason:
        return reason
    try:
        return [np.asarray(o) for o in ReferenceEvaluator(model).run(None, feed)]
    except Exception as error:
        return str(error)


def _candidates(operator: str) -> list[Case]:
    found = []
    for case in cases():
        arrays = [as_array(v) for v in case.values.values()]
        plain = all(a is not None and a.dtype.kind in "biuf" and a.dtype.isbuiltin and a.size < 5000 for a in arrays)
        if case.op.name == operator and not case.op.domain and case.is_tensors and plain and all(case.outputs):
            found.append(case)
    return found


@pytest.mark.parametrize("operator", OPERATORS)
def test_accepts_what_executes_and_nothing_else(operator: str) -> None:
    candidates = _candidates(operator)
    assert candidates
    rng = np.random.default_rng(zlib.crc32(operator.encode()))
    for _ in range(12):
        case = candidates[int(rng.integers(len(candidates)))]
        feed = {name: a for name, v in case.values.items() if (a := as_array(v)) is not None}
        victim = list(feed)[int(rng.integers(len(feed)))]
        feed[victim] = _mutated(feed[victim], rng)
        types = []
        for name in case.inputs:
            declared = case.types[name] if name else None
            types.append(None if declared is None else TensorType(declared.dtype, feed[name].shape))
        values = [feed[n] if n else None for n in case.inputs]
        result = _execute(case, feed)
        what = f"{case.name} with {', '.join(map(str, types))}"
        try:
            found = infer_types(case.op, case.attrs, types, values, len(case.outputs))
        except ModelError as error:
            assert isinstance(result, str) or operator in LENIENT, f"{what}: {error}"
            continue
        if isinstance(result, str):
            assert any(reason in result for reason in BY_VALUE), f"{what}: accepted as {found}, but {result}"
            continue
        for known, array in zip(found, result, strict=True):
            assert known is not None and known.shape == array.shape, f"{what}: {known}, computed {array.shape}"
