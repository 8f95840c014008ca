"""Attributes of every kind, element types, optional and absent things, operators of other domains."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest

from eqsat.partition.regions import regions
from eqsat.partition.write_plan import to_model
from tests.partition.checks import accelerate, check, parsed, same
from tests.partition.plans import Builder, body, constant, plan_of, random_feeds, run_ort


@pytest.mark.parametrize(
    ("op", "attrs", "shape", "other"),
    [
        ("Einsum", {"equation": "ij,kj->ik"}, (2, 3), (4, 3)),  # STRING
        ("Transpose", {"perm": [1, 0]}, (2, 3), None),  # INTS
        ("Transpose", {"perm": []}, (), None),  # no INTS at all
        ("LeakyRelu", {"alpha": 0.1}, (2, 3), None),  # FLOAT, fixed
        ("Celu", {"alpha": 0.3}, (2, 3), None),
        ("Gemm", {"alpha": 0.5, "transB": 1}, (2, 3), (4, 3)),  # FLOAT
        ("Cast", {"to": 7}, (2, 3), None),  # the output's type
        ("Gelu", {"approximate": "tanh"}, (2, 3), None),
        ("ReduceMax", {"keepdims": 0}, (2, 3), None),
        ("CumSum", {"reverse": 1}, (2, 3), "axis"),
        ("RMSNormalization", {"axis": -1}, (2, 3), (3,)),
    ],
)
def test_attribute_kinds(op, attrs, shape, other):
    b = Builder()
    x = b.input("x", shape)
    operands = [x]
    if other == "axis":
        operands.append(b.constant(np.array(1, np.int64)))
    elif other is not None:
        operands.append(b.constant(np.linspace(-1, 1, int(np.prod(other)), dtype=np.float32).reshape(other)))
    n = len(operands)
    b.output(b.composite("c", body(n, (op, tuple(range(n)), attrs)), *operands), "y")
    b.output(b.node(op, *operands, target=1, **attrs), "z")
    check(*b.build(), reference=op not in ("Gelu", "RMSNormalization"))


def test_attributes_without_value_in_some_calls():
    """An attribute that one call leaves away makes another function, with another meaning."""
    some = body(1, ("ArgMax", (0,), {"axis": 1}), ("Squeeze", (1,)))
    b = Builder()
    x = b.input("x", (2, 3, 2))
    b.output(b.composite("arg", some, x), "y")
    split = body(1, ("Split", (0,), {"axis": 1, "num_outputs": 2}, 2), results=(1, 2))
    sizes = body(1, ("Constant", (), constant([1, 2], np.int64)), ("Split", (0, 1), {"axis": 1}, 2), results=(2, 3))
    for k, definition in enumerate((split, sizes)):
        for i, part in enumerate(b.composite("parts", definition, x)):
            b.output(part, f"p{k}{i}")
    model = check(*b.build())
    assert {f.name for f in model.functions.values()} == {"arg", "split", "split_1", "dnnl_0", "dnnl_1", "dnnl_2"}


def test_quantized_composite():
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", (1, 3, 5, 5), onnx.TensorProto.UINT8)
    w = b.constant(rng.integers(-9, 9, (4, 3, 3, 3)).astype(np.int8), "weights")
    scale = [b.constant(np.float32(s)) for s in (0.05, 0.02, 0.1)]
    zero = [b.constant(np.uint8(3)), b.constant(np.int8(0)), b.constant(np.uint8(128))]
    bias = b.constant(rng.integers(-50, 50, 4).astype(np.int32))
    attrs = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1]}
    definition = body(
        9,
        ("QLinearConv", (0, 1, 2, 3, 4, 5, 6, 7, 8), attrs),
        ("DequantizeLinear", (9, 6, 7)),
        ("Relu", (10,)),
        ("QuantizeLinear", (11, 6, 7)),
    )
    operands = (x, scale[0], zero[0], w, scale[1], zero[1], scale[2], zero[2], bias)
    b.output(b.composite("qconv_relu", definition, *operands), "y")
    b.output(b.composite("qconv_relu", definition, *operands[:8], None, target=1), "z")
    model = check(*b.build(), reference=False)
    assert {f.name for f in model.functions.values() if f.domain.endswith("composite")} == {
        "qlinearconv_bias_dequantizelinear_relu_quantizelinear",
        "qlinearconv_dequantizelinear_relu_quantizelinear",
    }


def test_outputs_that_nobody_reads():
    b = Builder()
    x = b.input("x", (1, 1, 4, 4))
    s = b.input("s", (2, 1, 3))
    rng = np.random.default_rng(0)
    w = b.constant(rng.standard_normal((1, 20, 3)).astype(np.float32))
    r = b.constant(rng.standard_normal((1, 20, 5)).astype(np.float32))
    k = b.constant(np.array([2], np.int64))
    for target in (0, 1):
        _, indices = b.node(
            "MaxPool", x, target=target, outputs=2, unused=(0,), kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4,
            dilations=[1, 1],
        )  # fmt: skip
        b.output(indices, f"i{target}")
        _, hidden, _ = b.node("LSTM", s, w, r, target=target, outputs=3, unused=(0, 2), hidden_size=5)
        b.output(hidden, f"h{target}")
        _, where = b.node("TopK", x, k, target=target, outputs=2, unused=(0,))
        b.output(where, f"w{target}")
    model = check(*b.build(), reference=False)
    for nodes in (model.graph, model.functions["eqsat.dnnl", "dnnl_1", ""]):
        lstm = [n for n in nodes if n.op_type == "LSTM"]
        assert all([bool(v.name) for v in n.outputs] == [False, True] for n in lstm)


def test_symbolic_dimensions_are_kept():
    b = Builder()
    x = b.input("x", ("N", 3, "H"))
    b.output(b.node("Relu", b.node("Neg", x, target=1)), "y")
    plan, flat = b.build()
    model = check(plan, flat)
    assert [str(d) for d in model.graph.inputs[0].shape] == ["N", "3", "H"]
    assert [str(d) for d in model.graph.outputs[0].shape] == ["N", "3", "H"]
    feeds = {"x": np.ones((5, 3, 7), np.float32)}
    same(run_ort(ir.to_proto(model), feeds), run_ort(flat, feeds))


def test_values_that_are_no_tensors():
    flat = parsed(
        """g (float[6, 2] x) => (float[2, 2] y, seq(float[2, 2]) all) <int64 two = {2}, int64 one = {1}> {
             e = Exp (x)
             all = SplitToSequence <axis = 0> (e, two)
             y = SequenceAt (all, one)
           }"""
    )
    check(plan_of(ir.from_proto(flat), accelerate("Exp")), flat, reference=False)


def test_operators_of_other_domains():
    text = """<ir_version: 13, opset_import: ["" : 26, "com.microsoft" : 1, "ai.onnx.ml" : 3]>
        g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) {
          e = com.microsoft.QuickGelu <alpha = 1.5> (x)
          y = Neg (e)
          z = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (e)
        }"""
    flat = onnx.parser.parse_model(text)
    plan = plan_of(ir.from_proto(flat), lambda n: int(n.op_type != "Neg"))
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    feeds = random_feeds(flat, 0)
    same(run_ort(proto, feeds), run_ort(flat, feeds))
    assert model.opset_imports["ai.onnx.ml"] == 3
