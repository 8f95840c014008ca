"""MAC counts: against loops that count, and against what decompositions cost."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import OptimizationError
from eqsat.model.macs import body_macs, macs
from eqsat.ops.evaluate import evaluate
from eqsat.ops.own_operators import REQUANTIZE
from eqsat.ops.properties import is_data_movement
from eqsat.schema.opset import operator_names
from eqsat.schema.types import GraphAttr, OpKey, TensorType

FLOAT = ir.DataType.FLOAT


def of(*shape: Any) -> TensorType:
    return TensorType(FLOAT, shape)


def count(name: str, inputs: list[TensorType | None], output: TensorType | None, domain: str = "", **attrs: Any) -> int:
    return macs(OpKey(domain, name), tuple(sorted(attrs.items())), inputs, [output])


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_counts_every_product(group: int, stride: int):
    """With all-one operands and no padding, an output element is the number of its products."""
    x, w = np.ones((2, 4, 9, 8), np.float32), np.ones((8, 4 // group, 3, 2), np.float32)
    attrs = (("group", group), ("strides", (stride, stride)))
    (y,) = evaluate(OpKey("", "Conv"), attrs, [x, w])
    assert y is not None
    types: list[TensorType | None] = [of(*x.shape), of(*w.shape)]
    assert macs(OpKey("", "Conv"), attrs, types, [of(*y.shape)]) == y.sum()
    assert macs(OpKey("com.microsoft", "FusedConv"), attrs, types, [of(*y.shape)]) == y.sum()
    (back,) = evaluate(OpKey("", "ConvTranspose"), (("group", group),), [np.ones((1, 8, 3, 3), np.float32), w])
    assert back is not None
    assert count("ConvTranspose", [of(1, 8, 3, 3), of(*w.shape)], of(*back.shape), group=group) == back.sum()


def test_convolution_of_resnet():
    assert count("Conv", [of(1, 64, 56, 56), of(64, 64, 3, 3)], of(1, 64, 56, 56)) == 115_605_504
    scale, zero = of(), of()
    inputs = [of(1, 64, 56, 56), scale, zero, of(64, 64, 3, 3), scale, zero, scale, zero]
    assert count("QLinearConv", inputs, of(1, 64, 56, 56)) == 115_605_504


@pytest.mark.parametrize(
    ("a", "b", "y", "products"),
    [
        ((3, 4), (4, 5), (3, 5), 60),
        ((4,), (4, 5), (5,), 20),
        ((3, 4), (4,), (3,), 12),
        ((4,), (4,), (), 4),
        ((2, 1, 3, 4), (7, 4, 5), (2, 7, 3, 5), 840),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...], products: int):
    assert count("MatMul", [of(*a), of(*b)], of(*y)) == products
    assert np.matmul(np.ones(a), np.ones(b)).sum() == products


def test_gemm_by_transposition():
    for trans_a, trans_b in itertools.product((0, 1), repeat=2):
        a, b = (4, 3) if trans_a else (3, 4), (5, 4) if trans_b else (4, 5)
        assert count("Gemm", [of(*a), of(*b), of(5)], of(3, 5), transA=trans_a, transB=trans_b) == 60
        assert count("QGemm", [of(*a), of(), of(), of(*b)], of(3, 5), "com.microsoft", transA=trans_a) == 60


@pytest.mark.parametrize(
    ("equation", "shapes", "result", "products"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)], (3, 5), 60),
        ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), 120),
        ("...ij,jk", [(7, 3, 4), (4, 5)], (7, 3, 5), 420),
        ("i,j->ij", [(3,), (4,)], (3, 4), 12),
        ("ij->ji", [(3, 4)], (4, 3), 0),
        ("ij->i", [(3, 4)], (3,), 12),
        ("ii->i", [(3, 3)], (3,), 3),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)], (3, 2), 60 + 30),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], products: int):
    assert count("Einsum", [of(*s) for s in shapes], of(*result), equation=equation) == products


def test_attention_is_two_products_and_a_softmax():
    query, key, value = of(2, 8, 10, 64), of(2, 8, 12, 64), of(2, 8, 12, 32)
    scores = count("MatMul", [query, of(2, 8, 64, 12)], of(2, 8, 10, 12))
    softmax = count("Softmax", [of(2, 8, 10, 12)], of(2, 8, 10, 12))
    mixed = count("MatMul", [of(2, 8, 10, 12), value], of(2, 8, 10, 32))
    assert count("Attention", [query, key, value], of(2, 8, 10, 32)) == scores + softmax + mixed
    flat = [of(2, 10, 512), of(2, 12, 512), of(2, 12, 256)]
    assert count("Attention", flat, of(2, 10, 256), q_num_heads=8, kv_num_heads=8) == scores + softmax + mixed
    past = [query, of(2, 8, 4, 64), of(2, 8, 4, 32), None, of(2, 8, 8, 64), of(2, 8, 8, 32)]
    assert count("Attention", past, of(2, 8, 10, 32)) == scores + softmax + mixed


def test_recurrent_networks_are_their_products():
    time, batch, features, hidden = 5, 3, 4, 6
    for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        x, w, r = of(time, batch, features), of(2, gates * hidden, features), of(2, gates * hidden, hidden)
        each = gates * hidden * (features + hidden)
        assert count(name, [x, w, r], of(time, 2, batch, hidden)) == time * batch * 2 * each


def test_pooling_reductions_and_the_rest():
    x, y = of(1, 8, 10, 10), of(1, 8, 5, 5)
    assert count("MaxPool", [x], y, kernel_shape=(3, 2)) == 8 * 25 * 6
    assert count("QLinearAveragePool", [x], y, "com.microsoft", kernel_shape=(3, 2)) == 8 * 25 * 6
    assert count("GlobalAveragePool", [x], of(1, 8, 1, 1)) == 800
    assert count("ReduceMean", [x, None], of(1, 8, 1, 1)) == 800
    assert count("Softmax", [x], x) == count("BatchNormalization", [x], x) == count("Relu", [x], x) == 800
    assert count("LRN", [x], x, size=5) == 4000
    assert count("Sum", [x, x, x], x) == 1600
    assert count("Add", [x, of(1)], x) == 800
    assert count("Resize", [y], x, mode="linear") == 800 * 4
    assert count("Resize", [y], x, mode="nearest") == 0
    assert count("ScatterND", [x, of(3, 1), of(3, 8, 10, 10)], x, reduction="none") == 0
    assert count("ScatterND", [x, of(3, 1), of(3, 8, 10, 10)], x, reduction="add") == 2400
    assert count("DeformConv", [x, of(4, 8, 3, 3)], of(1, 4, 8, 8)) == 64 * 4 * 72 + 8 * 64 * 9 * 4


def test_data_movement_is_free_whatever_the_shapes():
    for op in (OpKey("", name) for name in operator_names()):
        if is_data_movement(op):
            assert macs(op, (), [TensorType(FLOAT, None)], [None]) == 0


def test_every_operator_counts_something():
    x = of(2, 4, 6, 6)
    for op in (OpKey("", name) for name in operator_names()):
        total = (
            macs(op, (("equation", "abcd->a"), ("kernel_shape", (2, 2)), ("size", 3)), [x] * 8, [x] * 3)
            if (op.name not in ("RNN", "GRU", "LSTM", "If", "Loop", "Scan"))
            else 1
        )
        assert isinstance(total, int) and total >= 0, op


def test_symbolic_shapes_are_refused():
    with pytest.raises(OptimizationError, match=r"Relu: the shape of output 0 must be known.*\n.*--dim"):
        count("Relu", [of("N", 3)], of("N", 3))
    with pytest.raises(OptimizationError, match="no such value"):
        count("Conv", [of(1, 2, 3, 3)], of(1, 2, 3, 3))


def test_control_flow():
    text = """<ir_version: 10, opset_import: ["": 21]> g (bool c, float[4,5] a, float[5,6] b) => (float[4,6] y) {
        y = If (c) <then_branch = t () => (float[4,6] p) { p = MatMul(a, b) },
                    else_branch = e () => (float[4,6] q) { r = MatMul(a, b)  q = Relu(r) }> }"""
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    node = ir.from_proto(model).graph.node(0)
    attrs = tuple((k, GraphAttr(a.as_graph(), ("a", "b"))) for k, a in sorted(node.attributes.items()))
    assert macs(OpKey("", "If"), attrs, [of()], [of(4, 6)]) == 4 * 5 * 6 + 24
    body = dict(attrs)["else_branch"]
    scan = (("body", body), ("num_scan_inputs", 1))
    assert macs(OpKey("", "Scan"), scan, [of(3), of(7, 2), of(4, 5), of(5, 6)], [of(3)]) == 7 * (120 + 24)


def test_functions_cost_their_bodies():
    types: list[TensorType | None] = [
        TensorType(ir.DataType.INT32, (2, 3, 4)),
        of(3),
        TensorType(ir.DataType.INT32, ()),
        of(),
        TensorType(ir.DataType.INT8, ()),
    ]
    elements = math.prod((2, 3, 4))
    # Cast, subtraction, dequantization, quantization; and two casts of scalars.
    assert macs(REQUANTIZE.op, (), types, [None]) == 4 * elements + 2
    assert body_macs(REQUANTIZE.body({"axis": 1, "dtype": 3}), types) == 4 * elements + 2
    assert macs(OpKey("eqsat", "StopFusion"), (), [of(5)], [of(5)]) == 0


def test_attention_of_onnx_runtime():
    """That of ONNX, with the projections where there are any."""
    q, k, v, y = of(2, 5, 16), of(2, 7, 16), of(2, 7, 8), of(2, 5, 8)
    plain = count("Attention", [q, k, v], y, q_num_heads=4, kv_num_heads=4)
    assert count("MultiHeadAttention", [q, k, v], y, "com.microsoft", num_heads=4) == plain
    alone = count("Attention", [q, q, q], q, q_num_heads=4, kv_num_heads=4)
    projected = count("MatMul", [q, of(16, 48)], of(2, 5, 48))
    inputs: list[TensorType | None] = [q, of(16, 48), of(48)]
    assert count("Attention", inputs, q, "com.microsoft", num_heads=4) == alone + projected
    scales = [of(), of()]
    assert count("QAttention", [*inputs, *scales], q, "com.microsoft", num_heads=4) == alone + projected
    past = of(2, 2, 4, 3, 4)
    longer = count("Attention", [q, of(2, 8, 16), of(2, 8, 16)], q, q_num_heads=4, kv_num_heads=4)
    assert count("Attention", [*inputs, None, past], q, "com.microsoft", num_heads=4) == longer + projected
    late = [*inputs, *scales, None, None, None, past]
    assert count("QAttention", late, q, "com.microsoft", num_heads=4) == longer + projected


def test_quantized_recurrence_counts_as_the_float_one():
    x, y = of(6, 2, 8), of(6, 2, 2, 16)
    plain = count("LSTM", [x, of(2, 64, 8), of(2, 64, 16)], y, hidden_size=16)
    assert count("DynamicQuantizeLSTM", [x, of(2, 8, 64), of(2, 16, 64)], y, "com.microsoft", hidden_size=16) == plain


def test_products_of_unpacked_weights():
    weights = [of(8, 2, 8), of(16)]
    y, products = of(3, 5, 8), 3 * 5 * 32 * 8
    assert count("MatMulNBits", [of(3, 5, 32), *weights], y, "com.microsoft", K=32, N=8, block_size=16) == products
    assert count("CDist", [of(4, 6), of(5, 6)], of(4, 5), "com.microsoft") == (20 + 4 + 5) * 6
