"""Graphs by hand: types at once, values as numpy computes them, names, sharing, and errors where the mistake is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat.errors import ModelError
from eqsat.model.builder import Tensor, UnknownOperator, constant
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import Function, declare_function
from eqsat.schema.opset import operator_names
from eqsat.schema.types import OpKey
from tests.model.running import run_ort, run_reference

op = eqsat.op
F = np.float32


def _inputs(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(eqsat.input(f"x{i}", shape) for i, shape in enumerate(shapes))


def _run(outputs: Any, **feed: np.ndarray) -> list[np.ndarray]:
    model = eqsat.graph(outputs)
    results = run_ort(model, feed)
    for a, b in zip(results, run_reference(model, feed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return results


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "neg": lambda a, b: -a + b * 0,
    "abs": lambda a, b: abs(a) + b * 0,
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), (3,)), ((4, 1), (1, 5)), ((), (2,))])
def test_operators_compute_as_numpy_does(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(F) for s in shapes)
    function = OPERATORS[name]
    x = _inputs(*shapes)
    y = function(*x)
    expected = function(a, b)
    assert y.shape == expected.shape
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(_run(y, x0=a, x1=b)[0], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 2 * x,
        lambda x: x * 2.5,
        lambda x: 1 - x,
        lambda x: x - 1,
        lambda x: 3 / x,
        lambda x: x / 4,
        lambda x: x**2,
        lambda x: np.array([1, 2, 3], F) * x,
        lambda x: x + np.array([[1], [2]], F),
        lambda x: np.array([1, 2, 3], F) - x,
        lambda x: np.float32(2) * x,
        lambda x: x @ np.arange(12, dtype=F).reshape(3, 4),
        lambda x: np.arange(8, dtype=F).reshape(4, 2) @ x,
    ],
)
def test_numbers_and_arrays_are_constants(function: Callable[[Any], Any]) -> None:
    a = np.array([[1, -2, 3], [4, 5, -6]], F)
    y = function(eqsat.input("x", (2, 3)))
    assert isinstance(y, Tensor)
    expected = function(a)
    assert y.shape == expected.shape
    np.testing.assert_allclose(_run(y, x=a)[0], expected.astype(F), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8", "uint8", "int64"])
def test_numbers_take_the_element_type(dtype: str) -> None:
    x = eqsat.input("x", (3,), dtype)
    y = x * 2 + 1
    assert y.dtype == np.dtype(dtype)
    a = np.array([1, 2, 3], dtype)
    (result,) = run_reference(eqsat.graph(y), {"x": a})
    np.testing.assert_array_equal(result, a * 2 + 1)


def test_the_example_of_the_design() -> None:
    x, y = eqsat.input("x", (10,)), eqsat.input("y", (10,))
    model = eqsat.graph((x + y) * (x - y))
    assert [n.op_type for n in model.graph] == ["Add", "Sub", "Mul"]
    a, b = np.arange(10, dtype=F), np.ones(10, F)
    np.testing.assert_array_equal(run_ort(model, {"x": a, "y": b})[0], a * a - 1)


def test_a_convolutional_network() -> None:
    rng = np.random.default_rng(0)
    x = eqsat.input("x", (1, 3, 8, 8))
    w = rng.standard_normal((4, 3, 3, 3)).astype(F)
    h = op.Conv(x, w, np.zeros(4, F), strides=[2, 2], pads=[1, 1, 1, 1], name="conv")
    h = op.Relu(h, name="act")
    left, right = op.Split(h, axis=1, num_outputs=2)
    y = op.Reshape(op.Concat(left, right + 1, axis=1), [0, -1])
    y = op.Clip(op.Gemm(y, rng.standard_normal((64, 5)).astype(F)), max=1.0)
    assert (h.shape, left.shape, y.shape) == ((1, 4, 4, 4), (1, 2, 4, 4), (1, 5))
    model = eqsat.graph({"y": y, "features": h})
    assert [v.name for v in model.graph.outputs] == ["y", "features"]
    assert model.graph[0].name == "conv" and model.graph[0].outputs[0].name == "conv"
    _run({"y": y, "features": h}, x=rng.standard_normal((1, 3, 8, 8)).astype(F))


def test_inputs_by_name_and_absent() -> None:
    x = eqsat.input("x", (4,))
    model = eqsat.graph(op.Clip(x, max=0.5))
    (node,) = model.graph
    assert node.inputs[1] is None
    a = np.array([-1, 0, 0.7, 2], F)
    np.testing.assert_array_equal(run_ort(model, {"x": a})[0], np.minimum(a, F(0.5)))
    np.testing.assert_array_equal(_run(op.Clip(x, -0.5, 0.5), x=a)[0], np.clip(a, F(-0.5), F(0.5)))


def test_optional_outputs() -> None:
    x = eqsat.input("x", (1, 1, 4, 4))
    assert isinstance(op.MaxPool(x, kernel_shape=[2, 2]), Tensor)
    y, indices = op.MaxPool(x, kernel_shape=[2, 2], outputs=2)
    assert (y.dtype, indices.dtype) == (F, np.int64)
    values, places = op.TopK(eqsat.input("v", (5,)), [2])
    assert values.shape == places.shape == (2,)
    assert len(op.LSTM(eqsat.input("s", (5, 1, 3)), np.ones((1, 16, 3), F), np.ones((1, 16, 4), F))) == 3


def test_sharing_is_by_identity() -> None:
    x = eqsat.input("x", (3,))
    h = op.Exp(x)
    assert len(list(eqsat.graph(h * h + h).graph)) == 3
    assert len(list(eqsat.graph(op.Exp(x) * op.Exp(x)).graph)) == 3


def test_names_do_not_depend_on_what_was_built_before() -> None:
    def build() -> bytes:
        x = eqsat.input("x", (3,))
        y = op.Relu(op.Exp(x) + 1, name="act")
        return ir.to_proto(eqsat.graph([y, op.Exp(y), y])).SerializeToString()

    first = build()
    eqsat.graph(eqsat.input("z", (2,)) + 3)
    assert build() == first


def test_outputs_of_every_kind() -> None:
    x = eqsat.input("x", (3,))
    y = op.Relu(x)
    a = np.array([1, -1, 2], F)
    results = _run({"a": y, "b": y, "c": x, "d": constant(np.array([5.0], F))}, x=a)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[2], a)
    np.testing.assert_array_equal(results[3], [5])
    assert [v.name for v in eqsat.graph([y, x]).graph.outputs] == ["output_0", "output_1"]
    assert [v.name for v in eqsat.graph(y).graph.outputs] == ["output"]
    assert [v.name for v in eqsat.graph(y * 1, name="net").graph.outputs] == ["output"]


def test_order_of_inputs() -> None:
    b, a, unused = eqsat.input("b", (2,)), eqsat.input("a", (2,)), eqsat.input("unused", (2,))
    assert [v.name for v in eqsat.graph(a - b).graph.inputs] == ["b", "a"]
    assert [v.name for v in eqsat.graph(a - b, inputs=[a, unused, b]).graph.inputs] == ["a", "unused", "b"]


def test_big_constants_are_shared_not_copied_into_text() -> None:
    w = np.random.default_rng(0).standard_normal((300, 300)).astype(F)
    x = eqsat.input("x", (1, 300))
    model = eqsat.graph(x @ w @ w)
    a = np.ones((1, 300), F)
    np.testing.assert_allclose(run_ort(model, {"x": a})[0], a @ w @ w, rtol=1e-3)


def test_constants_do_not_follow_their_arrays() -> None:
    w = np.ones(3, F)
    y = eqsat.input("x", (3,)) * w
    w[:] = 7
    np.testing.assert_array_equal(_run(y, x=np.ones(3, F))[0], np.ones(3))


def test_symbols() -> None:
    x = eqsat.input("x", ("N", 3, None))
    y = op.Relu(x) * 2
    assert y.shape == ("N", 3, None)
    model = eqsat.graph(y)
    assert [str(d) for d in model.graph.inputs[0].shape or ()] == ["N", "3", "x_2"]
    assert op.Reshape(op.Relu(eqsat.input("z", ("N", 3, 4))), [0, -1]).shape == ("N", 12)


def test_control_flow() -> None:
    c, x = eqsat.input("c", (), "bool"), eqsat.input("x", (3,))
    h = x * 2
    branch = op.If(c, then_branch=lambda: op.Relu(h) + 1, else_branch=lambda: h - x)
    total, steps = op.Loop(4, True, x, body=lambda i, go, v: (go, v + h, v * 2))
    state, rows = op.Scan(x, eqsat.input("s", (5, 3)), num_scan_inputs=1, body=lambda acc, row: (acc + row, acc * row))
    assert branch.shape == (3,)
    outputs = {"branch": branch, "total": total, "steps": steps, "state": state, "rows": rows}
    a, s = np.array([1, -2, 3], F), np.arange(15, dtype=F).reshape(5, 3)
    for flag in (True, False):
        found = _run(outputs, c=np.array(flag), x=a, s=s)
        np.testing.assert_array_equal(found[0], np.maximum(2 * a, 0) + 1 if flag else a)
        np.testing.assert_array_equal(found[1], a + 4 * 2 * a)
        np.testing.assert_array_equal(found[3], a + s.sum(0))
    first = ir.to_proto(eqsat.graph(outputs)).SerializeToString()
    assert ir.to_proto(eqsat.graph(outputs)).SerializeToString() == first


def test_nested_control_flow() -> None:
    c, x = eqsat.input("c", (), "bool"), eqsat.input("x", (2,))
    y = op.If(
        c,
        then_branch=lambda: op.If(c, then_branch=lambda: x * 3, else_branch=lambda: x),
        else_branch=lambda: op.Loop(2, True, x, body=lambda i, go, v: (go, v + x)),
    )
    a = np.array([1, 2], F)
    np.testing.assert_array_equal(_run(y, c=np.array(True), x=a)[0], 3 * a)
    np.testing.assert_array_equal(_run(y, c=np.array(False), x=a)[0], 3 * a)


def test_domains() -> None:
    x = eqsat.input("x", (3,))
    y = op("com.microsoft").Gelu(x)
    assert y.shape == (3,)
    model = eqsat.graph(y)
    assert model.opset_imports["com.microsoft"] == 1
    other = op("vendor.npu").Blend(x, mode="fast")
    assert other.type is None and other.shape is None
    (node,) = eqsat.graph(other).graph
    assert (node.domain, node.attributes["mode"].value) == ("vendor.npu", "fast")


def test_registered_functions() -> None:
    key = OpKey("eqsat.test", "Double")
    twice = Body(1, (BodyNode(OpKey("", "Add"), (), (0, 0)),), (1,))
    declare_function(Function(key, ("x",), (), lambda _: twice))
    y = op("eqsat.test").Double(eqsat.input("x", (2, 3)))
    assert y.shape == (2, 3)
    assert "Double" in dir(op("eqsat.test"))
    with pytest.raises(ModelError, match="the inputs x are required; got 2"):
        op("eqsat.test").Double(y, y)


def test_every_operator_is_there() -> None:
    assert set(operator_names()) <= set(dir(op))
    assert op.Conv.__name__ == "Conv"
    assert not hasattr(op, "__wrapped__")
    assert getattr(op, "NoSuchOperator", None) is None


X = eqsat.input("x", (2, 3))
CONV_IN = eqsat.input("image", (1, 3, 8, 8))
ERRORS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "unknown operator": (lambda: op.Convv(X), ("op.Convv", "got `Convv`", "did you mean `Conv`?")),
    "case": (lambda: op.relu(X), ("did you mean `Relu`?",)),
    "other domain": (lambda: op("com.microsoft").Relu(X), ("domain 'com.microsoft'", "did you mean")),
    "misspelt domain": (lambda: op("com.microsft"), ("did you mean `com.microsoft`?",)),
    "too few": (lambda: op.Conv(CONV_IN), ("Conv: 2 to 3 inputs are required; got 1", "its inputs: X, W, B")),
    "too many": (lambda: op.Relu(X, X), ("Relu: 1 input is required; got 2",)),
    "too few of many": (lambda: op.Concat(axis=0), ("at least 1 input is required; got 0",)),
    "absent": (lambda: op.Conv(None, CONV_IN), ("input `X` is required; got None",)),
    "unknown attribute": (
        lambda: op.Conv(CONV_IN, np.ones((4, 3, 3, 3), F), stride=[1, 1]),
        ("Conv: an attribute of Conv is required; got `stride`", "did you mean `strides`?"),
    ),
    "attribute of no operator": (lambda: op.Relu(X, alpha=1), ("got `alpha`", "its attributes: none")),
    "attribute type": (
        lambda: op.Concat(X, axis="last"),
        ("a value of type INT is required for attribute `axis`; got 'last'",),
    ),
    "attribute fraction": (lambda: op.Concat(X, axis=0.5), ("got 0.5",)),
    "required attribute": (lambda: op.Concat(X, X), ("every required attribute must be given; got no `axis`",)),
    "shapes": (
        lambda: X + np.ones((4, 3), F),
        ("Add: inputs and attributes that fit together", "float[2, 3], float[4, 3]"),
    ),
    "channels": (lambda: op.Conv(CONV_IN, np.ones((4, 2, 3, 3), F)), ("the input has 3 channels, the weight takes 2",)),
    "element types": (lambda: X + np.ones(3), ("float[2, 3], double[3]", "op.Cast")),
    "fraction for integers": (
        lambda: eqsat.input("i", (2,), "int32") + 0.5,
        ("a value of type int32 is required; got 0.5",),
    ),
    "too large": (lambda: eqsat.input("i", (2,), "uint8") + 300, ("a value that fits uint8 is required; got 300",)),
    "no tensor": (lambda: op.Relu(object()), ("a tensor, a number or an array is required; got object",)),
    "ragged": (lambda: op.Relu([[1, 2], [3]]), ("a number or an array of numbers is required",)),
    "truth": (lambda: bool(X), ("has no truth value",)),
    "index": (lambda: X[0], ("cannot be indexed", "op.Slice")),
    "text": (lambda: X + "a", ("numbers of type float32 are required; got 'a'",)),
    "iteration": (lambda: list(X), ("cannot be iterated over", "op.Split")),
    "parts": (lambda: op.Split(X, axis=1), ("`num_outputs` or the input `split` is required",)),
    "outputs": (lambda: op.Relu(X, outputs=2), ("1 to 1 outputs of Relu are required; got 2",)),
    "twice": (lambda: op.Clip(X, 0.0, min=1.0), ("input `min` may be given once",)),
    "name of an input": (lambda: eqsat.input("", (2,)), ("a name is required",)),
    "shape of an input": (lambda: eqsat.input("q", 5), ("a sequence of dimensions is required; got 5",)),
    "dimension": (lambda: eqsat.input("q", (2, -1)), ("sizes, symbols or None are required; got -1",)),
    "element type of an input": (lambda: eqsat.input("q", (2,), "flot32"), ("did you mean `float32`",)),
    "no outputs": (lambda: eqsat.graph([]), ("at least one output is required",)),
    "no tensors": (lambda: eqsat.graph([3]), ("tensors as outputs are required; got int",)),
    "nothing": (lambda: eqsat.graph(None), ("tensors as outputs are required; got NoneType",)),
    "two inputs of one name": (
        lambda: eqsat.graph(X @ eqsat.input("x", (3, 2))),
        ("input 'x': every input needs a unique name",),
    ),
    "output named as an input": (
        lambda: eqsat.graph({"x": X + 1}),
        ("output 'x': every output needs a unique name", "an input has it"),
    ),
    "input not listed": (
        lambda: eqsat.graph(X + 1, inputs=[]),
        ("all inputs that are read must be listed; got no 'x'",),
    ),
    "not an input": (lambda: eqsat.graph(X + 1, inputs=[X, X + 1]), ("inputs made by eqsat.input are required",)),
    "branch arguments": (
        lambda: op.If(eqsat.input("c", (), "bool"), then_branch=lambda a: a, else_branch=lambda: X),
        ("a function of 0 inputs is required as `then_branch`",),
    ),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_errors(kind: str) -> None:
    build, parts = ERRORS[kind]
    with pytest.raises(ModelError) as caught:
        build()
    for part in parts:
        assert part in str(caught.value)


def test_unknown_operators_are_attribute_errors_too() -> None:
    with pytest.raises(AttributeError):
        _ = op.NoSuchThing
    assert issubclass(UnknownOperator, ModelError)


def test_repr() -> None:
    assert repr(X) == "<eqsat input 'x' float[2, 3]>"
    assert repr(X + 1) == "<eqsat Add float[2, 3]>"
    assert repr(op) == "<operators of ai.onnx>"


def test_attributes_on_which_inference_would_end_the_process() -> None:
    x, i = eqsat.input("x", (4, 1, 3)), eqsat.input("i", (1,), "int64")
    with pytest.raises(ModelError, match="`batch_dims` of 0 or more is required; got -6"):
        op.GatherND(x, i, batch_dims=-6)


@pytest.mark.parametrize("name", ["int32", "INT32", np.int32, np.dtype("int32"), ir.DataType.INT32, 6])
def test_attributes_that_are_element_types_have_any_of_their_names(name: Any) -> None:
    x = eqsat.input("x", (2, 3))
    assert [op.Cast(x, to=name).dtype, op.EyeLike(x, dtype=name).dtype] == [np.int32, np.int32]
    assert op.RandomNormalLike(x, dtype="float64").dtype == np.float64
    with pytest.raises(ModelError, match="Cast, attribute `to`: an element type of ONNX is required; got 'int33'"):
        op.Cast(x, to="int33")
