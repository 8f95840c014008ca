"""The normal form, rule by rule, each on a model in text and by executing it before and after."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import ModelError
from eqsat.model.load import load
from tests.model.running import random_inputs, run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'


def _loaded(text: str, *, head: str = HEAD) -> ir.Model:
    """The model, after it has been seen to compute the same as its source."""
    original = onnx.parser.parse_model(head + text)
    model = load(original)
    feed = random_inputs(original)
    kept = {v.name for v in model.graph.inputs}
    expected = run_ort(original, feed)
    found = run_ort(model, {n: a for n, a in feed.items() if n in kept})
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    return model


def _attribute(model: ir.Model, op: str, name: str) -> object:
    node = next(n for n in model.graph if n.op_type == op)
    return node.attributes[name].value


def _constant(model: ir.Model, op: str, position: int) -> list[int]:
    value = next(n for n in model.graph if n.op_type == op).inputs[position]
    assert value is not None and value.is_initializer() and value.const_value is not None
    return value.const_value.numpy().tolist()


def test_negative_axes_of_attributes() -> None:
    model = _loaded(
        """g (float[2,3,4] x) => (float[2,3,4] a, float[2,3,8] b, int64[2,1,4] c, float[2,12] d, float[2,3,4] e) {
            a = Softmax<axis=-2>(x)
            b = Concat<axis=-1>(x, x)
            c = ArgMax<axis=-2>(x)
            d = Flatten<axis=-2>(x)
            e = LogSoftmax(x)
        }"""
    )
    axes = [_attribute(model, op, "axis") for op in ("Softmax", "Concat", "ArgMax", "Flatten", "LogSoftmax")]
    assert axes == [1, 2, 1, 1, 2]


def test_negative_axes_of_constant_inputs() -> None:
    model = _loaded(
        """g (float[2,1,4] x) => (float[2,4] a, float[2,1,1,4,1] b, float[1,1,4] c, float[2,1,2] d, float[2,1,4] e)
        <int64[1] sq = {-2}, int64[2] un = {-1, -3}, int64[1] st = {1}, int64[1] en = {3}, int64[1] ax = {-1},
         int64 cu = {-1}> {
            a = Squeeze(x, sq)
            b = Unsqueeze(x, un)
            c = ReduceMean<axes=[-3]>(x)
            d = Slice(x, st, en, ax)
            e = CumSum(x, cu)
        }"""
    )
    assert _constant(model, "Squeeze", 1) == [1]
    assert _constant(model, "Unsqueeze", 1) == [2, 4]
    assert _constant(model, "ReduceMean", 1) == [0]
    assert _constant(model, "Slice", 3) == [2]
    assert _constant(model, "CumSum", 1) == 2


def test_a_constant_that_others_read_is_not_changed_for_them() -> None:
    model = _loaded(
        """g (float[2,1,4] x, float[1,5] y) => (float[2,4] a, float[5] b, int64[1] c) <int64[1] axes = {-2}> {
            a = Squeeze(x, axes)
            b = Squeeze(y, axes)
            c = Identity(axes)
        }"""
    )
    squeezes = [n for n in model.graph if n.op_type == "Squeeze"]
    values = [n.inputs[1] for n in squeezes]
    contents = [v.const_value.numpy().tolist() for v in values if v is not None and v.const_value is not None]
    assert contents == [[1], [0]]


def test_windows_say_everything() -> None:
    model = _loaded(
        """g (float[1,3,8,8] x, float[4,3,3,2] w) => (float[1,4,3,4] y) {
            c = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)
            y = MaxPool<kernel_shape=[2,1]>(c)
        }"""
    )
    assert _attribute(model, "Conv", "pads") == (0, 0, 1, 0)
    assert _attribute(model, "Conv", "kernel_shape") == (3, 2)
    assert _attribute(model, "Conv", "dilations") == (1, 1)
    assert _attribute(model, "Conv", "auto_pad") == "NOTSET"
    assert _attribute(model, "MaxPool", "strides") == (1, 1)


def test_constants_become_initializers_and_keep_their_names() -> None:
    model = _loaded(
        """g (float[2] x) => (float[2] y, int64[2] z, float[2] w) {
            k = Constant<value = float[2] {1, 2}>()
            y = Add(x, k)
            z = Constant<value_ints=[3, 4]>()
            f = Constant<value_float=0.5>()
            w = Mul(x, f)
        }"""
    )
    assert [n.op_type for n in model.graph] == ["Add", "Mul"]
    assert sorted(model.graph.initializers) == ["f", "k", "z"]
    assert [v.name for v in model.graph.outputs] == ["y", "z", "w"]


def test_initializers_are_no_inputs() -> None:
    text = """g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""
    for head in ('<ir_version: 3, opset_import: ["": 9]>\n', HEAD):
        model = _loaded(text, head=head)
        assert [v.name for v in model.graph.inputs] == ["x"]


def test_dropout_has_nothing_of_training() -> None:
    model = _loaded(
        """g (float[2] x) => (float[2] y) <float r = {0.5}, bool t = {0}> {
            y, mask = Dropout<seed=7>(x, r, t)
        }"""
    )
    (node,) = model.graph
    assert len(node.inputs) == 1
    assert len([v for v in node.outputs if v.name]) == 1
    assert "seed" not in node.attributes
    assert not model.graph.initializers


def test_dropout_in_training_stays() -> None:
    original = onnx.parser.parse_model(
        HEAD + "g (float[2] x) => (float[2] y) <float r = {0.5}, bool t = {1}> { y = Dropout<seed=7>(x, r, t) }"
    )
    (node,) = load(original).graph
    assert len(node.inputs) == 3
    assert node.attributes["seed"].value == 7


def test_unused_outputs_and_nodes_are_gone() -> None:
    model = _loaded(
        """g (float[1,1,4,4] x) => (float[1,1,2,2] y) <float unused = {1}> {
            y, indices = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)
            dead = Relu(x)
            deader = Exp(dead)
        }"""
    )
    (node,) = model.graph
    assert [v.name for v in node.outputs] == ["y"]
    assert not model.graph.initializers


def test_absent_inputs_in_between_stay() -> None:
    model = _loaded("""g (float[2] x) => (float[2] y) <float hi = {0.5}> { y = Clip(x, "", hi) }""")
    (node,) = model.graph
    assert [None if v is None else v.name for v in node.inputs] == ["x", None, "hi"]


def test_subgraphs_stay_whole() -> None:
    model = _loaded(
        """g (bool c, float[2,3] x) => (float[2,3] y) {
            z = Relu(x)
            y = If(c) <
                then_branch = t () => (float[2,3] a) { k = Constant<value = float {2}>() a = Mul(z, k) },
                else_branch = e () => (float[2,3] b) { b = Softmax<axis=-1>(z) }
            >
        }"""
    )
    (relu, branch) = model.graph
    assert relu.outputs[0].name == "z"
    then = branch.attributes["then_branch"].as_graph()
    assert [n.op_type for n in then] == ["Constant", "Mul"]
    assert [v.name for v in model.graph.outputs] == ["y"]


def test_shapes_follow_what_exporters_compute_from_shapes() -> None:
    text = """g (float[N,3,4] x) => (y) {
        s = Shape(x)
        zero = Constant<value_int=0>()
        n = Gather<axis=0>(s, zero)
        ax = Constant<value_ints=[0]>()
        n1 = Unsqueeze(n, ax)
        rest = Constant<value_ints=[-1]>()
        shape = Concat<axis=0>(n1, rest)
        y = Reshape(x, shape)
    }"""
    source = onnx.parser.parse_model(HEAD + text.replace("=> (y)", "=> (float[A,B] y)"))
    bound = load(source, dims={"N": 5}).graph.outputs[0].shape
    assert bound is not None and bound.numpy() == (5, 12)
    unbound = load(source).graph.outputs[0].shape
    assert unbound is not None and [str(d) for d in unbound] == ["N", "12"]
    assert isinstance(unbound[1], int)


def test_declared_symbols_name_what_depends_on_data() -> None:
    model = load(
        HEAD
        + "g (float[N] x) => (int64[1,found] y, float[found,1] f) { y = NonZero(x) t = Transpose(y) f = Cast<to=1>(t) }"
    )
    assert [[str(d) for d in v.shape or ()] for v in model.graph.outputs] == [["1", "found"], ["found", "1"]]


def test_topological_order_is_made() -> None:
    source = onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Add(b, a)  b = Exp(a)  a = Relu(x) }")
    model = load(source)
    assert [n.op_type for n in model.graph] == ["Relu", "Exp", "Add"]
    assert [n.op_type for n in source.graph.node] == ["Add", "Exp", "Relu"]
    x = np.array([1.0, -2.0], np.float32)
    np.testing.assert_allclose(run_ort(model, {"x": x})[0], np.exp(np.maximum(x, 0)) + np.maximum(x, 0), rtol=1e-6)


def test_unknown_domains_are_left_alone() -> None:
    model = load(
        """<ir_version: 8, opset_import: ["": 17, "vendor.npu": 3]>
        g (float[2,3] x) => (float[2,5] y) <float[2,4] h> {
            h = vendor.npu.Blend<mode="fast">(x)
            y = vendor.npu.Mix(h)
        }"""
    )
    first, second = model.graph
    assert (first.domain, first.op_type, first.attributes["mode"].value) == ("vendor.npu", "Blend", "fast")
    assert first.outputs[0].shape is not None and first.outputs[0].shape.numpy() == (2, 4)
    assert second.outputs[0].shape is not None and second.outputs[0].shape.numpy() == (2, 5)
    assert model.opset_imports["vendor.npu"] == 3


class TestDims:
    TEXT = (
        HEAD
        + """g (float[N,T,4] x, float[T,4] y) => (float[N,T,4] z, float[N,M] f) {
        z = Add(x, y)
        f = Flatten<axis=1>(z)
    }"""
    )

    def test_symbols_are_kept(self) -> None:
        model = load(self.TEXT)
        assert [str(d) for d in model.graph.inputs[0].shape or ()] == ["N", "T", "4"]
        assert [str(d) for d in model.graph.outputs[0].shape or ()] == ["N", "T", "4"]
        flat = model.graph.outputs[1].shape
        assert flat is not None and flat[0] == "N"

    def test_all_bound(self) -> None:
        model = load(self.TEXT, dims={"N": 2, "T": 3})
        assert [v.shape.numpy() for v in model.graph.outputs if v.shape is not None] == [(2, 3, 4), (2, 12)]

    def test_some_bound(self) -> None:
        model = load(self.TEXT, dims={"T": 3})
        assert [str(d) for d in model.graph.outputs[0].shape or ()] == ["N", "3", "4"]
        assert [str(d) for d in model.graph.outputs[1].shape or ()] == ["N", "12"]

    def test_unknown_symbol(self) -> None:
        with pytest.raises(ModelError) as caught:
            load(self.TEXT, dims={"B": 2})
        assert "`B`" in str(caught.value)
        assert "its symbols: N, T" in str(caught.value)

    def test_no_size(self) -> None:
        for size in (-1, 1.5, "2 +", True):
            with pytest.raises(ModelError, match="a size for the dimension `N` is required"):
                load(self.TEXT, dims={"N": size})

    def test_unnamed_dimensions_get_names(self) -> None:
        info = onnx.helper.make_tensor_value_info("in/x:0", 1, [None, 3])
        out = onnx.helper.make_tensor_value_info("y", 1, [None, 3])
        node = onnx.helper.make_node("Relu", ["in/x:0"], ["y"])
        source = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [info], [out]))
        assert [str(d) for d in load(source).graph.outputs[0].shape or ()] == ["in_x_0_0", "3"]
        bound = load(source, dims={"in_x_0_0": 7}).graph.outputs[0].shape
        assert bound is not None and bound.numpy() == (7, 3)

    @pytest.mark.parametrize(
        ("written", "read"),
        [("batch size", "batch_size"), ("0", "dim_0"), ("a.b:0", "a_b_0"), ("D.0", "D_0")],
    )
    def test_symbols_that_are_no_names(self, written: str, read: str) -> None:
        infos = [onnx.helper.make_tensor_value_info(n, 1, [written, 3]) for n in ("x", "w", "y")]
        node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
        source = onnx.helper.make_model(onnx.helper.make_graph([node], "g", infos[:2], infos[2:]))
        assert [str(d) for d in load(source).graph.outputs[0].shape or ()] == [read, "3"]
        for name in (written, read):
            bound = load(source, dims={name: 7}).graph.outputs[0].shape
            assert bound is not None and bound.numpy() == (7, 3)

    def test_symbols_in_expressions_that_are_no_names(self) -> None:
        shapes = {"x": ["D.1", "D.10"], "y": ["D.10 + 2*D.1"]}
        infos = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
        nodes = [onnx.helper.make_node("Anything", ["x"], ["y"], domain="unknown")]
        source = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:]))
        source.opset_import.add(domain="unknown", version=1)
        shape = load(source).graph.outputs[0].shape
        assert shape is not None
        size = shape[0]
        assert isinstance(size, ir.SymbolicDim) and size.evaluate({"D_1": 3, "D_10": 4}) == 10

    @pytest.mark.parametrize("pair", [("batch size", "batch_size"), ("a.0", "a_0"), ("a.0", "a:0")])
    def test_different_symbols_stay_different(self, pair: tuple[str, str]) -> None:
        infos = [onnx.helper.make_tensor_value_info(n, 1, [s]) for n, s in zip("xwy", (*pair, ""), strict=True)]
        source = onnx.helper.make_model(
            onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", infos[:2], infos[2:])
        )
        first, second = (str(i.shape[0]) for i in load(source).graph.inputs if i.shape is not None)
        assert first.isidentifier() and second.isidentifier() and first != second

    def test_question_marks_are_distinct(self) -> None:
        infos = [onnx.helper.make_tensor_value_info(n, 1, ["?", "?"]) for n in ("x", "y")]
        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        source = onnx.helper.make_model(onnx.helper.make_graph([node], "g", infos[:1], infos[1:]))
        assert [str(d) for d in load(source).graph.outputs[0].shape or ()] == ["x_0", "x_1"]

    def test_bound_dimensions_reach_subgraphs(self) -> None:
        model = load(
            HEAD
            + """g (bool c, float[N,3] x) => (float[N,3] y) {
                y = If(c) <
                    then_branch = t () => (float[N,3] a) { a = Relu(x) },
                    else_branch = e () => (float[N,3] b) { b = Exp(x) }
                >
            }""",
            dims={"N": 4},
        )
        assert model.graph.outputs[0].shape is not None and model.graph.outputs[0].shape.numpy() == (4, 3)
        (node,) = model.graph
        inner = node.attributes["then_branch"].as_graph().outputs[0].shape
        assert inner is not None and inner.numpy() == (4, 3)

    def test_declared_output_sizes_give_way_to_bound_ones(self) -> None:
        source = HEAD + "g (float[N,2] x) => (float[1,2] y) { y = Relu(x) }"
        shape = load(source, dims={"N": 3}).graph.outputs[0].shape
        assert shape is not None and shape.numpy() == (3, 2)

    def test_distinct_symbols_do_not_become_one(self) -> None:
        """[N] + [M] is an [M] where N is 1."""
        model = load(HEAD + "g (float[N] x, float[M] y) => (float[K] z, float[L] w) { z = Add(x, y) w = Add(y, x) }")
        for value in model.graph.outputs:
            assert value.shape is not None and str(value.shape[0]) not in ("N", "M")


@pytest.mark.parametrize(
    ("node", "kept"),
    [
        ("Cast <to = 17, saturate = 0> (x)", 0),
        ("Cast <to = 6, saturate = 0> (x)", 1),
        ("CastLike <saturate = 0> (x, f8)", 0),
        ("CastLike <saturate = 0> (x, i8)", 1),
        ("QuantizeLinear <saturate = 0> (x, s, f8)", 0),
    ],
)
def test_saturation_matters_to_float8_alone(node: str, kept: int):
    given = "float[4] x, float s, float8e4m3fn f8, int8 i8"
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({given}) => (y) {{ y = {node} }}'
    model = load(onnx.parser.parse_model(text))
    assert next(iter(model.graph)).attributes["saturate"].value == kept
