"""What the e-graph holds of a model before any rule: sharing, types, constants, tuples, opaque nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.egraph.snapshot import snapshot
from tests.egraph.helpers import model, operators, read, saturated


def test_equal_nodes_are_one_class():
    graph = model("a = Relu(x)\nb = Relu(x)\nout = Add(a, b)")
    snap = read(graph)
    assert sum(str(n.op) == "Relu" for n in snap.nodes) == 1


def test_attributes_tell_nodes_apart_and_defaults_do_not():
    graph = model(
        "a = LeakyRelu <alpha = 0.01> (x)\nb = LeakyRelu (x)\nc = LeakyRelu <alpha = 0.5> (x)\nout = Sum(a, b, c)"
    )
    snap = read(graph)
    assert sum(str(n.op) == "LeakyRelu" for n in snap.nodes) == 2


def test_operand_order_of_commutative_operators_is_matched_but_listed_once():
    graph = model("a = Add(x, y)\nb = Add(y, x)\nout = Mul(a, b)")
    snap = read(graph, "rule r : exact\n  x * x => Relu(x)")
    assert operators(snap, graph) == {"Mul", "Relu"}
    assert sum(str(n.op) == "Add" for n in snap.nodes) == 1


def test_types_of_all_values_are_known():
    graph = model(
        "s = Constant <value = int64[2] {3, 4}> ()\na = Reshape(x, s)\nout = Flatten <axis = 0> (a)",
        "float[2,6] x",
        "float[1,12] out",
    )
    snap = read(graph)
    kinds = {str(t) for t in snap.types if t is not None}
    assert {"float[2, 6]", "float[3, 4]", "float[1, 12]"} <= kinds
    assert all(t is not None for t in snap.types)


def test_small_constant_expressions_are_folded():
    graph = model(
        "c = Constant <value = float[4] {1, 2, 3, 4}> ()\nd = Mul(c, c)\ne = Sqrt(d)\nout = Add(x, e)", "float[4] x"
    )
    snap = read(graph)
    add = next(n for n in snap.nodes if str(n.op) == "Add")
    values = [snap.value[c] for c in add.children if c is not None and snap.value[c] is not None]
    assert len(values) == 1
    np.testing.assert_array_equal(values[0].numpy(), np.array([1, 2, 3, 4], np.float32))


def test_large_constant_expressions_are_constant_but_not_folded():
    graph = model(
        "s = Constant <value = int64[1] {5000}> ()\nc = ConstantOfShape(s)\nd = Exp(c)\nout = Add(x, d)",
        "float[5000] x",
        "float[5000] out",
    )
    snap = read(graph)
    exp = next(n for n in snap.nodes if str(n.op) == "Exp")
    assert snap.constant[exp.eclass]
    assert snap.value[exp.eclass] is None


def test_shapes_of_static_tensors_are_constants():
    graph = model(
        "s = Shape(x)\ni = Constant <value = int64[1] {0}> ()\nn = Gather(s, i)\n"
        "m = Constant <value = int64[1] {-1}> ()\nt = Concat <axis = 0> (n, m)\nout = Reshape(x, t)",
        "float[2,3,4] x",
        "float[2,12] out",
    )
    snap = read(graph)
    reshape = next(n for n in snap.nodes if str(n.op) == "Reshape")
    shape = snap.value[reshape.children[1]]
    assert shape is not None
    assert shape.numpy().tolist() == [2, -1]
    assert str(snap.types[reshape.eclass]) == "float[2, 12]"


def test_outputs_of_one_node_are_parts_of_one_tuple():
    graph = model("a, b = Split <axis = 0, num_outputs = 2> (x)\nout = Concat <axis = 0> (b, a)")
    snap = read(graph)
    parts = [n for n in snap.nodes if n.kind == "part"]
    assert sorted(p.number for p in parts) == [0, 1]
    assert len({p.children[0] for p in parts}) == 1
    assert {str(snap.types[p.eclass]) for p in parts} == {"float[2]"}


def test_first_output_of_a_node_with_optional_ones_stands_alone_too():
    graph = model(
        "a, i = MaxPool <kernel_shape = [2]> (x)\nb = Cast <to = 1> (i)\nout = Add(a, b)",
        "float[1,1,4] x",
        "float[1,1,3] out",
    )
    snap = read(graph, "rule r : exact\n  MaxPool(x) => Relu(MaxPool(x, kernel_shape=[2], strides=[1]))")
    assert {n.outputs for n in snap.nodes if str(n.op) == "MaxPool"} == {0, 2}


def test_random_nodes_are_never_shared():
    graph = model("a = RandomNormalLike(x)\nb = RandomNormalLike(x)\nout = Sub(a, b)")
    snap = read(graph, "rule r : real\n  x - x => 0")
    assert sum(str(n.op) == "RandomNormalLike" for n in snap.nodes) == 2
    assert operators(snap, graph) == {"Sub"}


def test_control_flow_is_one_opaque_node_that_reads_what_it_captures():
    graph = model(
        "z = Relu(x)\nout = If (c) <then_branch = t () => (float[4] p) { p = Neg(z) }, "
        "else_branch = e () => (float[4] q) { q = Abs(z) }>",
        "bool c, float[4] x",
    )
    snap = read(graph)
    node = next(n for n in snap.nodes if str(n.op) == "If")
    relu = next(n for n in snap.nodes if str(n.op) == "Relu")
    assert relu.eclass in node.children
    assert str(snap.types[snap.refs[graph.graph.outputs[0]]]) == "float[4]"


def test_absent_operands_are_absent():
    graph = model("h = Constant <value = float {6.0}> ()\nout = Clip(x, , h)", "float[4] x")
    node = next(n for n in read(graph).nodes if str(n.op) == "Clip")
    assert node.children[1] is None
    assert len(node.children) == 3


def test_the_same_model_gives_the_same_snapshot():
    def once():
        graph = model("a = Add(x, y)\nb = Mul(a, x)\nc = Add(b, a)\nout = Relu(c)")
        rules = "rule f : real\n  x * z + y * z => (x + y) * z\nrule g : real\n  x * y + x => x * (y + 1)"
        snap = snapshot(saturated(graph, rules))
        return [(n.kind, n.op, n.children, n.eclass, n.rule) for n in snap.nodes]

    assert once() == once()


def test_types_the_model_declares_serve_where_inference_cannot():
    graph = model("i = NonZero(x)\nout = Cast <to = 1> (i)", "float[4] x", "float[1, n] out")
    snap = read(graph)
    kind = snap.types[snap.refs[graph.graph.outputs[0]]]
    assert kind is not None
    assert kind.dtype == ir.DataType.FLOAT
    assert kind.rank == 2
