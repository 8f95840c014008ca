"""Operators of ``com.microsoft``: their schemas and types against ONNX Runtime itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.schema import opset
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey, TensorType
from tests.model.running import run_ort
from tests.schema.contrib_schemas import declared

ms = eqsat.op("com.microsoft")
F = np.float32


def test_schemas_are_those_of_onnxruntime() -> None:
    text = (Path(opset.__file__).parent / "contrib.json").read_text("utf-8")
    assert json.loads(text) == json.loads(json.dumps(declared()))


def test_every_schema_can_be_built() -> None:
    for name in opset.operator_names("com.microsoft"):
        schema = opset.schema(OpKey("com.microsoft", name))
        assert schema.name == name
        assert schema.max_input >= schema.min_input >= 0


def _u8(name: str, *shape: int) -> Any:
    return eqsat.input(name, shape, dtype="uint8")


Q: tuple[Any, Any] = (F(0.05), np.uint8(128))

CASES: dict[str, Any] = {
    "QLinearAdd": lambda: ms.QLinearAdd(_u8("a", 2, 3, 4), *Q, _u8("b", 3, 1), *Q, *Q),
    "QLinearMul": lambda: ms.QLinearMul(_u8("a", 1, 3), *Q, _u8("b", 5, 1), *Q, *Q),
    "QLinearConcat": lambda: ms.QLinearConcat(*Q, _u8("a", 2, 3), *Q, _u8("b", 2, 4), *Q, axis=-1),
    "QLinearSigmoid": lambda: ms.QLinearSigmoid(_u8("a", 2, 3), *Q, *Q),
    "QLinearLeakyRelu": lambda: ms.QLinearLeakyRelu(_u8("a", 2, 3), *Q, *Q, alpha=0.1),
    "QLinearSoftmax": lambda: ms.QLinearSoftmax(_u8("a", 2, 3), *Q, *Q, axis=-1, opset=13),
    "QLinearAveragePool": lambda: ms.QLinearAveragePool(
        _u8("a", 1, 3, 7, 6), *Q, *Q, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]
    ),
    "QLinearAveragePool last": lambda: ms.QLinearAveragePool(
        _u8("a", 1, 7, 6, 3), *Q, *Q, kernel_shape=[3, 2], strides=[2, 1], channels_last=1
    ),
    "QLinearAveragePool ceil": lambda: ms.QLinearAveragePool(
        _u8("a", 1, 3, 8, 8), *Q, *Q, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
    ),
    "QLinearAveragePool same": lambda: ms.QLinearAveragePool(
        _u8("a", 1, 3, 8, 7), *Q, *Q, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "QLinearGlobalAveragePool": lambda: ms.QLinearGlobalAveragePool(_u8("a", 1, 3, 7, 6), *Q, *Q),
    "QLinearGlobalAveragePool last": lambda: ms.QLinearGlobalAveragePool(_u8("a", 1, 7, 6, 3), *Q, *Q, channels_last=1),
    "QLinearWhere": lambda: ms.QLinearWhere(
        eqsat.input("c", (2, 1), "bool"), _u8("a", 1, 3), *Q, _u8("b", 2, 3), *Q, *Q
    ),
    "QGemm": lambda: ms.QGemm(
        _u8("a", 2, 3), *Q, np.ones((4, 3), np.int8), F(0.1), np.int8(0), np.zeros(4, np.int32), *Q, transB=1
    ),
    "QGemm to float": lambda: ms.QGemm(_u8("a", 2, 3), *Q, np.ones((3, 4), np.int8), F(0.1), np.int8(0)),
    "Gelu": lambda: ms.Gelu(eqsat.input("x", (2, 3))),
    "FastGelu": lambda: ms.FastGelu(eqsat.input("x", (2, 3)), np.ones(3, F)),
    "QuickGelu": lambda: ms.QuickGelu(eqsat.input("x", (2, 3)), alpha=1.7),
    "BiasGelu": lambda: ms.BiasGelu(eqsat.input("x", (2, 3)), np.ones(3, F)),
    "FusedConv": lambda: ms.FusedConv(
        eqsat.input("x", (1, 3, 8, 8)), np.ones((4, 3, 3, 3), F), np.ones(4, F), activation="Relu", strides=[2, 2]
    ),
    "FusedGemm": lambda: ms.FusedGemm(eqsat.input("x", (2, 3)), np.ones((3, 4), F), np.ones(4, F), activation="Relu"),
    "FusedMatMul": lambda: ms.FusedMatMul(
        eqsat.input("x", (2, 3, 5)), eqsat.input("b", (2, 4, 5)), transB=1, alpha=0.5
    ),
    "MatMulIntegerToFloat": lambda: ms.MatMulIntegerToFloat(
        _u8("a", 2, 3), np.ones((3, 4), np.int8), np.ones(1, F), np.ones(4, F)
    ),
    "DynamicQuantizeMatMul": lambda: ms.DynamicQuantizeMatMul(
        eqsat.input("x", (2, 3)), np.ones((3, 4), np.int8), np.ones(4, F)
    ),
    "QuantizeLinear": lambda: ms.QuantizeLinear(eqsat.input("x", (2, 3)), F(0.1), np.uint16(7)),
    "DequantizeLinear": lambda: ms.DequantizeLinear(eqsat.input("x", (2, 3), "uint16"), F(0.1), np.uint16(7)),
    "SkipLayerNormalization": lambda: ms.SkipLayerNormalization(
        eqsat.input("x", (1, 4, 8)), eqsat.input("s", (1, 4, 8)), np.ones(8, F), np.zeros(8, F)
    ),
    "Inverse": lambda: ms.Inverse(eqsat.input("x", (2, 3, 3))),
    "Trilu": lambda: ms.Trilu(eqsat.input("x", (3, 4)), 1),
    "ExpandDims": lambda: ms.ExpandDims(eqsat.input("x", (3, 4)), np.array(-1, np.int32)),
    "Pad": lambda: ms.Pad(eqsat.input("x", (3, 4)), np.array([1, 0, 0, 2])),
}


@pytest.mark.parametrize("name", CASES)
def test_inferred_type_is_what_onnxruntime_computes(name: str) -> None:
    y = CASES[name]()
    model = eqsat.graph({"y": y})
    rng = np.random.default_rng(0)
    feed = {}
    for value in model.graph.inputs:
        assert value.dtype is not None and value.shape is not None and value.name is not None
        dtype = value.dtype.numpy()
        shape = value.shape.numpy()
        drawn = (
            rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2 if dtype.kind == "b" else 200, shape)
        )
        feed[value.name] = drawn.astype(dtype)
    (result,) = run_ort(model, feed)
    assert result.shape == y.shape
    assert result.dtype == y.dtype
    output = model.graph.outputs[0]
    assert output.shape is not None and output.shape.numpy() == result.shape
    assert output.dtype is not None and output.dtype.numpy() == result.dtype


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: ms.QLinearAdd(_u8("a", 2, 3), *Q, _u8("b", 2, 4), *Q, *Q), ("QLinearAdd", "ncompatible")),
        (lambda: ms.QLinearConcat(*Q, _u8("a", 2, 3), *Q, _u8("b", 3, 3), *Q, axis=1), ("QLinearConcat",)),
        (
            lambda: ms.FusedConv(eqsat.input("x", (1, 3, 8, 8)), np.ones((4, 2, 3, 3), F)),
            ("FusedConv", "the input has 3 channels, the weight takes 2"),
        ),
        (
            lambda: ms.QGemm(_u8("a", 2, 3), *Q, np.ones((5, 4), np.int8), F(0.1), np.int8(0)),
            ("QGemm", "[2, 3]"),
        ),
        (lambda: ms.Gelu(eqsat.input("x", (2,), "int32")), ("X of com.microsoft.Gelu", "int32[2]")),
        (
            lambda: ms.QLinearAdd(_u8("a", 2), *Q, eqsat.input("b", (2,), "int8"), F(1), np.int8(0), *Q),
            ("QLinearAdd", "one element type"),
        ),
    ],
)
def test_contradictions_are_refused(build: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ModelError) as caught:
        build()
    for part in parts:
        assert part in str(caught.value)


def test_a_product_without_bias_has_a_type_at_free_sizes() -> None:
    """The standard operator has fewer operands, and as many values."""
    op = OpKey("com.microsoft", "QGemm")
    scale, zero = TensorType(ir.DataType.FLOAT, ()), TensorType(ir.DataType.UINT8, ())
    a, b = (TensorType(ir.DataType.UINT8, shape) for shape in (("N", 6), (5, 6)))
    inputs = [a, scale, zero, b, scale, zero, None, scale, zero]
    found = infer_types(op, make_attrs(op, {"transB": 1}), inputs, [None] * len(inputs), 1)
    assert found == (TensorType(ir.DataType.UINT8, ("N", 5)),)
