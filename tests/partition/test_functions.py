"""Partitioned models run: in ONNX Runtime and in onnx.reference they give what the flat program gives, to the bit."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from eqsat.errors import OptimizationError
from eqsat.model import opset
from eqsat.model.body import Body, BodyNode
from eqsat.model.types import OpKey
from eqsat.partition.functions import to_model
from eqsat.partition.plan import Plan, PlanNode
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline
from tests.partition.plans import Builder, body, constant, plan_of, random_feeds, run_ort
from tests.partition.random_plans import random_plan


def same(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if isinstance(a, list):
            same(a, b)
            continue
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def partition(plan: Plan, flat: onnx.ModelProto) -> tuple[ir.Model, onnx.ModelProto]:
    """The partitioned model after every check that does not depend on values."""
    original = ir.from_proto(flat)
    before = ir.to_proto(original).SerializeToString(deterministic=True)
    model = to_model(plan, regions(plan), original)
    proto = ir.to_proto(model)
    assert ir.to_proto(original).SerializeToString(deterministic=True) == before, "the original was changed"
    onnx.checker.check_model(proto, full_check=True)
    assert [v.name for v in proto.graph.input] == [v.name for v in flat.graph.input]
    assert [v.type for v in proto.graph.input] == [v.type for v in flat.graph.input]
    assert [v.name for v in proto.graph.output] == [v.name for v in flat.graph.output]
    again = ir.to_proto(ir.from_proto(proto))
    for written, read in zip(proto.functions, again.functions, strict=True):
        # onnx_ir does not read the types of a function's inputs back.
        del read.value_info[:]
        read.value_info.extend(written.value_info)
    assert again.SerializeToString(deterministic=True) == proto.SerializeToString(deterministic=True)
    return model, proto


def check(plan: Plan, flat: onnx.ModelProto, *, seed: int = 0, reference: bool = True) -> ir.Model:
    """Compares a partitioned program with the flat one in both runtimes, with and without ONNX Runtime's optimizer."""
    model, proto = partition(plan, flat)
    feeds = random_feeds(flat, seed)
    expected = run_ort(flat, feeds)
    same(run_ort(proto, feeds), expected)
    same(run_ort(proto, feeds, optimize=True), run_ort(flat, feeds, optimize=True))
    plain = ir.to_proto(inline(model))
    onnx.checker.check_model(plain, full_check=True)
    same(run_ort(plain, feeds), expected)
    same(run_ort(onnx.inliner.inline_local_functions(proto), feeds), expected)
    if reference:
        stated = ReferenceEvaluator(flat).run(None, feeds)
        same(ReferenceEvaluator(proto).run(None, feeds), stated)
        same(ReferenceEvaluator(plain).run(None, feeds), stated)
    return model


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 13, opset_import: ["" : 26]>\n{text}')


def accelerate(*ops: str):
    """Puts the named operators on the first accelerator."""
    return lambda node: int(node.op_type in ops)


@pytest.mark.parametrize("seed", range(40))
def test_random_plans(seed):
    plan, flat = random_plan(seed)
    onnx.checker.check_model(flat, full_check=True)
    model = check(plan, flat, seed=seed)
    written = {v.name for scope in (model.graph, *model.functions.values()) for n in scope for v in n.outputs}
    outputs = {v for v, _ in plan.outputs}
    assert {plan.names[v] for n in plan.nodes for v in n.outputs if v in plan.names and v not in outputs} <= written


def test_random_plans_cover_what_they_should():
    """The generator makes regions of several kernels, shared functions, aliases and absent operands."""
    regions_of_several = aliases = shared = absent = embedded = 0
    for seed in range(40):
        plan, flat = random_plan(seed)
        model = to_model(plan, regions(plan), ir.from_proto(flat))
        aliases += sum(n.op_type == "Identity" for n in model.graph)
        absent += sum(None in n.inputs for n in plan.nodes)
        calls = [n.op_identifier() for f in model.functions.values() for n in f]
        for f in model.functions.values():
            shared += calls.count(f.identifier()) > 1
            if "composite" not in f.domain:
                regions_of_several += len(f) > 2
                embedded += any(n.op_type == "Constant" for n in f)
    assert min(regions_of_several, aliases, shared, absent, embedded) > 10


# ---- outputs ----------------------------------------------------------------------------------------


def test_outputs_that_are_inputs_constants_and_each_other():
    b = Builder()
    x = b.input("x", (2, 3))
    c = b.constant(np.arange(6, dtype=np.float32).reshape(2, 3), "table")
    y = b.node("Relu", x, target=1, name="hidden")
    b.output(x, "x")
    b.output(x, "same")
    b.output(c, "table")
    b.output(c, "table_again")
    b.output(y, "y")
    b.output(y, "hidden")
    model = check(*b.build())
    assert [n.op_type for n in model.graph].count("Identity") == 4
    assert model.graph.outputs[0] is model.graph.inputs[0]
    assert len(model.graph.initializers) == 1


def test_program_without_nodes():
    b = Builder()
    x = b.input("x", (2, 3))
    b.output(x, "y")
    model = check(*b.build())
    assert [n.op_type for n in model.graph] == ["Identity"]
    assert not model.functions


def test_output_listed_twice():
    flat = parsed("g (float[2] x) => (float[2] y, float[2] y) { y = Relu (x) }")
    # onnx.reference gives each output once.
    model = check(plan_of(ir.from_proto(flat), accelerate("Relu")), flat, reference=False)
    assert len(model.graph.outputs) == 2


def test_region_outputs_read_by_several():
    b = Builder()
    x = b.input("x", (2, 3))
    y = b.node("Exp", x, target=1)
    host = b.node("Tanh", y, target=0)
    other = b.node("Neg", y, target=2)
    late = b.node("Add", b.node("Abs", host, target=1), other, target=1)
    b.output(y, "y")
    b.output(late, "z")
    plan, flat = b.build()
    model = check(plan, flat)
    assert [(n.domain, n.op_type) for n in model.graph] == [
        ("eqsat.dnnl", "dnnl_0"),
        ("", "Tanh"),
        ("eqsat.npu", "npu_0"),
        ("eqsat.dnnl", "dnnl_1"),
    ]


# ---- constants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 100])
def test_region_that_reads_constants_only(size):
    b = Builder()
    b.input("x", (1,))
    c = b.constant(np.arange(size, dtype=np.float32), "c")
    b.output(b.node("Neg", c, target=1), "y")
    model = check(*b.build())
    function = model.functions["eqsat.dnnl", "dnnl_0", ""]
    assert [v.name for v in function.inputs] == ([] if size == 4 else ["c"])
    assert list(model.graph.initializers) == ([] if size == 4 else ["c"])


def test_constant_read_by_host_and_regions_is_one_initialiser():
    b = Builder()
    x = b.input("x", (50,))
    c = b.constant(np.arange(50, dtype=np.float32), "c")
    for target in (0, 1, 2):
        x = b.node("Add", x, c, target=target)
    b.output(x, "y")
    model = check(*b.build())
    assert list(model.graph.initializers) == ["c"]
    assert [[v.name for v in n.inputs] for n in model.graph] == [["x", "c"], ["Add_0", "c"], ["Add_1", "c"]]


@pytest.mark.parametrize(
    "dtype", ["FLOAT16", "BFLOAT16", "INT4", "UINT4", "FLOAT8E4M3FN", "BOOL", "INT64", "STRING", "DOUBLE"]
)
@pytest.mark.parametrize("size", [3, 40])
def test_constants_of_any_type_survive(dtype, size):
    kind = ir.DataType[dtype]
    if dtype == "STRING":
        tensor: ir.TensorProtocol = ir.StringTensor([f"ä{i}".encode() for i in range(size)], shape=ir.Shape([size]))
    else:
        tensor = ir.tensor((np.arange(size) % 7).astype(kind.numpy()), dtype=kind)
    c = ir.Value(name="c", const_value=tensor, type=ir.TensorType(kind), shape=ir.Shape([size]))
    to = ir.DataType.STRING if kind == ir.DataType.STRING else ir.DataType.FLOAT
    y = ir.Value(name="y", type=ir.TensorType(to), shape=ir.Shape([size]))
    node = ir.Node("", "Cast", [c], [ir.AttrInt64("to", to)], outputs=[y])
    graph = ir.Graph([], [y], nodes=[node], initializers=[c], opset_imports={"": 26}, name="g")
    original = ir.Model(graph, ir_version=13)
    plan = plan_of(original, lambda _: 1)
    proto = ir.to_proto(to_model(plan, regions(plan), original))
    onnx.checker.check_model(proto, full_check=True)
    assert bool(proto.graph.initializer) == (size > 16)
    same(ReferenceEvaluator(proto).run(None, {}), ReferenceEvaluator(ir.to_proto(original)).run(None, {}))
    same(run_ort(proto, {}), run_ort(ir.to_proto(original), {}))


# ---- control flow -----------------------------------------------------------------------------------

CONTROL_FLOW = """
g (bool cond, float[4] x, int64 n) => (float[4] y, float[4] z)
<float[4] big = {1, 2, 3, 4}>
{
   early = Exp (x)
   taken = Neg (early)
   y = If (cond) <
      then_branch = then_body () => (float[4] t) { inner = Add (early, big) t = Mul (inner, x) },
      else_branch = else_body () => (float[4] e) {
         nested = If (cond) <
            then_branch = deep () => (float[4] d) { inner = Sub (taken, big) d = Abs (inner) },
            else_branch = deeper () => (float[4] d) { inner = Sub (big, taken) d = Identity (inner) }
         >
         e = Add (nested, early)
      }
   >
   z = Loop (n, cond, x) <
      body = loop_body (int64 i, bool go, float[4] state) => (bool go_on, float[4] next) {
         go_on = Identity (go)
         step = Add (state, early)
         next = Mul (step, big)
      }
   >
}
"""


@pytest.mark.parametrize(
    "where", [(), ("Exp",), ("Exp", "Neg"), ("If",), ("If", "Exp"), ("Loop", "Neg"), ("If", "Loop", "Exp", "Neg")]
)
def test_subgraphs_read_what_they_capture(where):
    flat = parsed(CONTROL_FLOW)
    original = onnx.shape_inference.infer_shapes(flat)
    for seed in (0, 1, 2):
        check(plan_of(ir.from_proto(original), accelerate(*where)), original, seed=seed)


def test_captured_values_have_moved_and_inner_names_are_taken():
    """What a body captures has become another value, and the names it defines itself now belong to outer values."""
    b = Builder()
    cond = b.input("cond", (), onnx.TensorProto.BOOL)
    x = b.input("x", (3,))
    first = b.node("Exp", x, target=1)
    second = b.node("Neg", first, target=1)
    third = b.node("Abs", x, target=0)
    c = b.constant(np.arange(3, dtype=np.float32))
    b.subgraph_names = {"gone": second, "weight": c, "x_before": third}
    host = ir.from_proto(
        parsed(
            """g (bool cond, float[3] gone, float[3] weight, float[3] x_before) => (float[3] y) {
                 y = If (cond) <
                   then_branch = a () => (float[3] r) { h = Add (gone, weight) r = Relu (h) },
                   else_branch = b () => (float[3] r) { h = Mul (x_before, weight) k = Sub (h, gone) r = Abs (k) }
                 > }"""
        )
    )
    attributes = host.graph.node(0).attributes
    y = b.node(
        "If", cond, then_branch=attributes["then_branch"].as_graph(), else_branch=attributes["else_branch"].as_graph()
    )
    b.output(y, "y")
    b.output(first, "f")
    b.names[second] = "h"
    b.names[first] = "k"
    b.names[third] = "r"
    b.names[c] = "h_1"
    plan, flat = b.build()
    captured_as = {"gone": "h", "weight": "h_1", "x_before": "r"}
    model = check(plan, flat, seed=1)
    check(plan, flat, seed=2)
    node = next(n for n in model.graph if n.op_type == "If")
    read = {v.name for g in ("then_branch", "else_branch") for n in node.attributes[g].as_graph() for v in n.inputs}
    defined = {v.name for g in ("then_branch", "else_branch") for n in node.attributes[g].as_graph() for v in n.outputs}
    assert set(captured_as.values()) <= read
    assert not defined & (set(captured_as.values()) | {"f"})
    # The bodies that were given are as they were.
    assert [n.outputs[0].name for n in attributes["then_branch"].as_graph()] == ["h", "r"]


def test_captured_value_that_is_nowhere():
    flat = parsed(CONTROL_FLOW)
    plan = plan_of(ir.from_proto(flat))
    lost = {k: v for k, v in plan.subgraph_names.items() if k != "early"}
    broken = dataclasses.replace(plan, subgraph_names=lost)
    with pytest.raises(OptimizationError, match=r"subgraph captures.*'early'"):
        regions(broken)


# ---- names ------------------------------------------------------------------------------------------


def test_odd_and_colliding_names():
    b = Builder()
    x = b.input("in put/0:ü\n", (2, 3))
    c = b.constant(np.ones((30, 3), np.float32)[:2], "dnnl_0")
    big = b.constant(np.arange(60, dtype=np.float32).reshape(20, 3), "Relu_0")
    y = b.node("Relu", x, target=1)  # unnamed: would be Relu_0
    z = b.node("Relu", y, target=0)
    w = b.node("Add", z, c, target=1, name="in put/0:ü\n")  # an input has that name
    v = b.node("Concat", w, big, target=2, name="{}", axis=0)
    u = b.node("Neg", v, target=0, name="{}")  # twice
    b.output(b.node("Abs", u, target=1, name='"quoted"'), "cpu_0")
    model = check(*b.build())
    names = [v.name for n in model.graph for v in n.outputs]
    assert "{}" in names and "{}_1" in names and "Relu_1" in names
    assert "Relu_0" in model.graph.initializers


def test_names_of_functions():
    """One definition bears the composite's name; several are named after their operators, whatever the order."""
    attrs = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}
    plain = body(2, ("Conv", (0, 1), attrs), ("Relu", (2,)))
    strided = body(2, ("Conv", (0, 1), attrs | {"strides": [2, 2]}), ("Relu", (2,)))
    biased = body(3, ("Conv", (0, 1, 2), attrs), ("Relu", (3,)))
    summed = body(3, ("Conv", (0, 1), attrs), ("Add", (3, 2)), ("Relu", (4,)))

    def names(*uses):
        b = Builder()
        x = b.input("x", (1, 2, 4, 4))
        w = b.constant(np.ones((2, 2, 1, 1), np.float32))
        extra = b.constant(np.ones(2, np.float32))
        for k, (name, definition) in enumerate(uses):
            operands = (x, w, extra)[: definition.inputs] if definition is not summed else (x, w, x)
            b.output(b.composite(name, definition, *operands), f"y{k}")
        model = check(*b.build())
        return {f.name for f in model.functions.values() if f.domain == "eqsat.dnnl.composite"}

    assert names(("conv", plain), ("conv", strided)) == {"conv"}
    assert names(("conv", plain), ("conv", biased)) == {"conv_relu", "conv_bias_relu"}
    assert names(("conv", biased), ("conv", strided), ("conv", plain)) == {"conv_relu", "conv_bias_relu"}
    # Another composite is really called so; its name is not touched.
    taken = names(("conv", plain), ("conv", biased), ("conv_relu", summed))
    assert taken == {"conv_relu", "conv_relu_1", "conv_bias_relu"}


def test_attributes_of_the_same_name_stay_apart():
    definition = body(
        1, ("ReduceSum", (0,), {"keepdims": 1}), ("Concat", (0, 0), {"axis": 0}), ("Concat", (2, 2), {"axis": 1})
    )
    b = Builder()
    x = b.input("x", (2, 3))
    b.output(b.composite("two", definition, x), "y")
    other = body(
        1, ("ReduceSum", (0,), {"keepdims": 0}), ("Concat", (0, 0), {"axis": 1}), ("Concat", (2, 2), {"axis": 0})
    )
    b.output(b.composite("two", other, x), "z")
    model = check(*b.build())
    function = model.functions["eqsat.dnnl.composite", "two", ""]
    assert set(function.attributes) == {"keepdims", "noop_with_empty_axes", "axis", "concat_axis"}


# ---- attributes, types, optional things ----------------------------------------------------------------


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


# ---- functions of others ----------------------------------------------------------------------------

WITH_FUNCTIONS = """<ir_version: 13, opset_import: ["" : 26, "mine" : 1]>
g (float[2, 4] x) => (float[2, 4] y) { a = mine.outer <k = 2> (x) y = Relu (a) }
<domain: "mine", opset_import: ["" : 26]>
unused (a) => (b) { b = Neg (a) }
<domain: "mine", opset_import: ["" : 26, "mine" : 1]>
outer <k> (a) => (b) { c = mine.inner <axis : int = @k> (a) b = Exp (c) }
<domain: "mine", opset_import: ["" : 26]>
inner <axis> (a) => (b) { b = Neg (a) }
"""


@pytest.mark.parametrize("where", [(), ("outer",), ("outer", "Relu")])
def test_functions_of_the_input_model_are_kept_where_called(where):
    flat = onnx.parser.parse_model(WITH_FUNCTIONS)
    plan = plan_of(ir.from_proto(flat), accelerate(*where))
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    names = [f.name for f in model.functions.values()]
    assert "unused" not in names
    assert names.index("inner") < names.index("outer")
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    feeds = random_feeds(flat, 0)
    same(run_ort(proto, feeds), run_ort(flat, feeds))
    assert {f.name for f in inline(model).functions.values()} == {"inner", "outer"}


def test_functions_of_eqsat_are_added():
    op = OpKey(f"{opset.EQSAT}.test", "HalfRelu")
    opset.register_function(op, body(1, ("Constant", (), constant(0.5)), ("Mul", (0, 1)), ("Relu", (2,))), ("x",))
    original = parsed("g (float[2, 3] x) => (float[2, 3] y) { y = Identity (x) }")
    plan = plan_of(ir.from_proto(original))
    twice = Body(1, (BodyNode(op, (), (0,)), BodyNode(OpKey("", "Neg"), (), (1,))), (2,))
    nodes = (
        PlanNode(op, (), (0,), (2,), 0),
        PlanNode(op, (), (2,), (3,), 1),
        PlanNode(OpKey("dnnl", "half"), (), (3,), (1,), 1, twice),
    )
    plan = dataclasses.replace(plan, nodes=nodes)
    model = to_model(plan, regions(plan), ir.from_proto(original))
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    feeds = random_feeds(original, 0)
    expected = -np.maximum(feeds["x"], 0) / 8
    for got in (run_ort(proto, feeds), ReferenceEvaluator(proto).run(None, feeds)):
        np.testing.assert_array_equal(got[0], expected)
    plain = inline(model)
    assert not plain.functions and list(plain.opset_imports) == [""]
    same(run_ort(ir.to_proto(plain), feeds), [expected])


def test_function_names_of_the_input_model_that_are_ours():
    text = """<ir_version: 13, opset_import: ["" : 26, "eqsat.dnnl" : 1]>
        g (float[2] x) => (float[2] y) { h = eqsat.dnnl.dnnl_0 (x) y = Exp (h) }
        <domain: "eqsat.dnnl", opset_import: ["" : 26]>
        dnnl_0 (a) => (b) { b = Neg (a) }"""
    original = ir.from_proto(onnx.parser.parse_model(text))
    plan = plan_of(original, accelerate("Exp"))
    with pytest.raises(OptimizationError, match=r"eqsat\.dnnl\.dnnl_0\n.*inline"):
        to_model(plan, regions(plan), original)


def test_another_opset_is_refused():
    flat = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Exp (x) }'
    )
    plan = plan_of(ir.from_proto(flat))
    with pytest.raises(OptimizationError, match="opset 26 is required; got 17"):
        to_model(plan, regions(plan), ir.from_proto(flat))


def test_model_documentation_is_kept():
    flat = parsed("g (float[2] x) => (float[2] y) { y = Exp (x) }")
    flat.doc_string = "doc"
    flat.model_version = 7
    flat.graph.doc_string = "graph doc"
    flat.graph.input[0].doc_string = "an input"
    onnx.helper.set_model_props(flat, {"author": "me"})
    original = ir.from_proto(flat)
    plan = plan_of(original)
    proto = ir.to_proto(to_model(plan, regions(plan), original))
    assert (proto.doc_string, proto.model_version, proto.graph.name) == ("doc", 7, "g")
    assert (proto.graph.doc_string, proto.graph.input[0].doc_string) == ("graph doc", "an input")
    assert {p.key: p.value for p in proto.metadata_props} == {"author": "me", "eqsat.targets": "cpu,dnnl,npu"}


# ---- determinism ------------------------------------------------------------------------------------

_PRINT = """
import hashlib, onnx_ir as ir
from eqsat.partition.functions import to_model
from eqsat.partition.regions import regions
from tests.partition.random_plans import random_plan
for seed in range(5):
    plan, flat = random_plan(seed)
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    print(hashlib.sha256(ir.to_proto(model).SerializeToString()).hexdigest())
"""


def test_same_bytes_whatever_the_hash_seed():
    root = Path(__file__).parents[2]
    outputs = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", _PRINT], env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] and len(outputs[0].splitlines()) == 5
