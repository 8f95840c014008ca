"""The table of ONNX Runtime's kernels against ONNX Runtime itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from eqsat.model.onnx_definitions import has_definition
from eqsat.model.write import onnxruntime_kernels
from eqsat.model.write.onnxruntime_kernels import has_kernel
from eqsat.model.write.runnable import runs_alone
from eqsat.schema.opset import PINNED_OPSET
from eqsat.schema.types import OpKey, TensorType
from tests.conformance import loads
from tests.model.write.kernel_table import text

_NOT_FOR_TYPES = frozenset({"RegexFullMatch"})  # wants an attribute that its schema calls optional


def test_the_table_is_that_of_onnxruntime() -> None:
    table = Path(onnxruntime_kernels.__file__).with_suffix(".json")
    assert table.read_text(encoding="utf-8") == text()


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float", "double", "bool", "int16", "int64", "uint32"])
def test_what_is_said_to_run_loads(element: str) -> None:
    wrong = []
    for case in loads.operator_cases():
        _, name, kind, opset = case.split("/")
        if int(opset) != PINNED_OPSET or kind != element or name in _NOT_FOR_TYPES:
            continue
        try:
            model = loads.operator_model(name, kind, PINNED_OPSET)
        except (InferenceError, ValidationError):  # no model of this kind
            continue
        inputs, outputs = _types(model.graph.input), _types(model.graph.output)
        op = OpKey("", name)
        said, loads_there = runs_alone(op, (), inputs, outputs), _loads(model.SerializeToString())
        # Some definitions it takes though parts of them have changed since; these are written out all the same.
        if said != loads_there and (said or not has_definition(op)):
            wrong.append(case)
    assert wrong == []


def _types(values: Iterable[onnx.ValueInfoProto]) -> list[TensorType | None]:
    numbers = [v.type.tensor_type.elem_type for v in values]
    return [TensorType(ir.DataType(n), (2, 3)) if n else None for n in numbers]


def _loads(model: bytes) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except (errors.NotImplemented, errors.InvalidGraph):
        return False
    return True


def test_kernels_by_type() -> None:
    leaky = OpKey("", "LeakyRelu")
    types = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
    assert [has_kernel(leaky, [TensorType(d, (2,))]) for d in types] == [True, False, True]
    assert not has_kernel(OpKey("", "Swish"), [TensorType(ir.DataType.FLOAT, (2,))])
