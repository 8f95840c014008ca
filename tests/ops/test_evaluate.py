"""Evaluation of single operators, bodies and the functions of eqsat."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import ExecutionError
from eqsat.model.inference.infer import infer_types
from eqsat.ops.evaluate import describe, evaluate, evaluate_body
from eqsat.ops.operators import operator
from eqsat.ops.own_operators import CAST_HINT, REQUANTIZE, STOP_FUSION, straight_line
from eqsat.schema import opset
from eqsat.schema.attributes import to_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import Function, declare_function, find_function, function_body, functions
from eqsat.schema.types import OpKey, TensorAttr, TensorType
from tests.ops.oracle import same, values

X = values(np.random.default_rng(0), (2, 3, 4), np.float32)


def test_defaults_are_filled_in():
    same(evaluate(OpKey("", "Flatten"), (), [X])[0], X.reshape(2, 12))
    (y,) = evaluate(OpKey("", "LeakyRelu"), (), [X])
    same(y, np.where(X < 0, X * np.float32(0.01), X))


def test_results_are_arrays_also_without_axes():
    for result in (
        *evaluate(OpKey("", "ReduceSum"), (("keepdims", 0),), [X, None]),
        *evaluate(OpKey("", "Add"), (), [np.array(1.0), np.array(2.0)]),
        *evaluate(OpKey("", "Det"), (), [np.eye(3, dtype=np.float32)]),
    ):
        assert isinstance(result, np.ndarray) and result.shape == ()


@pytest.mark.parametrize("name", ["AffineGrid", "Unique", "RotaryEmbedding", "Col2Im", "Det"])
def test_what_the_reference_evaluates(name: str):
    assert not operator(OpKey("", name)).kernels
    cases = {
        "AffineGrid": ([np.zeros((1, 2, 3), np.float32), np.array([1, 1, 4, 5])], (), (1, 4, 5, 2)),
        "Unique": ([np.array([3, 1, 3])], (), (2,)),
        "RotaryEmbedding": (
            [np.ones((1, 2, 3, 4), np.float32), *(np.ones((1, 3, 2), np.float32) for _ in "cs")],
            (),
            (1, 2, 3, 4),
        ),
        "Col2Im": (
            [np.ones((1, 4, 4), np.float32), np.array([4, 4]), np.array([2, 2])],
            (("strides", (2, 2)),),
            (1, 1, 4, 4),
        ),
        "Det": ([np.eye(3, dtype=np.float32) * 2], (), ()),
    }
    inputs, attrs, shape = cases[name]
    (result,) = evaluate(OpKey("", name), attrs, inputs)
    assert result is not None and result.shape == shape


@pytest.mark.parametrize(
    ("attrs", "value"),
    [
        ((("value", TensorAttr(X, ir.DataType.FLOAT)),), X),
        ((("value_float", 0.5),), np.array(0.5, np.float32)),
        ((("value_floats", (0.5, 2.0)),), np.array([0.5, 2], np.float32)),
        ((("value_int", 3),), np.array(3)),
        ((("value_ints", (3, 4)),), np.array([3, 4])),
    ],
)
def test_constants(attrs: tuple, value: np.ndarray):
    same(evaluate(OpKey("", "Constant"), attrs, [])[0], value)


def test_string_constants():
    (words,) = evaluate(OpKey("", "Constant"), (("value_strings", ("a", "b")),), [])
    assert words is not None and words.tolist() == ["a", "b"]
    with pytest.raises(ExecutionError, match="dense value"):
        evaluate(OpKey("", "Constant"), (), [])


def test_subgraphs_take_captured_values_behind_their_own():
    text = """<ir_version: 10, opset_import: ["": 21]> g (bool c, float[3] a, float[3] b) => (float[3] y) {
        y = If (c) <then_branch = t () => (float[3] p) { p = Add(a, b) },
                    else_branch = e () => (float[3] q) { q = Sub(b, a) }> }"""
    node = ir.from_proto(onnx.parser.parse_model(text)).graph.node(0)
    attrs = to_attrs(node)
    captured = [name for _, value in attrs for name in value.captured]
    by_name = {"a": np.array([1, 2, 3], np.float32), "b": np.array([5, 5, 5], np.float32)}
    for flag, wanted in ((True, by_name["a"] + by_name["b"]), (False, by_name["b"] - by_name["a"])):
        (y,) = evaluate(OpKey("", "If"), attrs, [np.array(flag), *(by_name[name] for name in captured)])
        same(y, wanted)


def test_errors_name_operator_inputs_and_reason():
    with pytest.raises(ExecutionError) as caught:
        evaluate(OpKey("", "MatMul"), (), [X, X])
    assert "MatMul: inputs that the operator is defined for are required; got float32[2, 3, 4]" in str(caught.value)
    assert "hint: matmul" in str(caught.value)
    with pytest.raises(ExecutionError, match=r"com\.microsoft\.Attention"):
        evaluate(OpKey("com.microsoft", "Attention"), (("num_heads", 2),), [X, X])
    with pytest.raises(ExecutionError, match="an operator that ONNX, eqsat or a declaration defines is required"):
        evaluate(OpKey("vendor", "Thing"), (), [X])
    assert describe(None) == "absent" and describe([X]) == "sequence of 1" and describe(X) == "float32[2, 3, 4]"


def test_no_warnings(recwarn: pytest.WarningsRecorder):
    evaluate(OpKey("", "Log"), (), [np.array([-1.0, 0.0], np.float32)])
    evaluate(OpKey("", "Exp"), (), [np.array([1e9], np.float32)])
    evaluate(OpKey("", "Div"), (), [np.array([1, 0]), np.array([0, 0])])
    evaluate(OpKey("", "Cast"), (("to", 6),), [np.array([np.nan, 1e30], np.float32)])
    assert not recwarn.list


def test_inputs_are_left_alone():
    every = np.random.default_rng(1)
    cases: list[tuple[str, list[np.ndarray], tuple]] = [
        ("ScatterElements", [X.copy(), np.zeros((1, 3, 4), np.int64), np.ones((1, 3, 4), np.float32)], ()),
        ("Softmax", [X.copy()], ()),
        ("Clip", [X.copy(), np.array(0, np.float32)], ()),
        ("QuantizeLinear", [X.copy(), np.array(0.1, np.float32), np.array(3, np.int8)], ()),
        ("LayerNormalization", [X.copy(), np.ones(4, np.float32)], ()),
        ("BatchNormalization", [X.copy(), *(np.ones(3, np.float32) for _ in range(4))], ()),
        ("Conv", [X.copy(), values(every, (2, 3, 1), np.float32), np.ones(2, np.float32)], ()),
        ("CumSum", [X.copy(), np.array(1)], ()),
        ("GatherND", [X.copy(), np.array([[0]])], ()),
    ]
    for name, inputs, attrs in cases:
        before = [x.copy() for x in inputs]
        for x in inputs:
            x.flags.writeable = False
        evaluate(OpKey("", name), attrs, inputs)
        for x, y in zip(inputs, before, strict=True):
            assert x.tobytes() == y.tobytes(), name


# ---- bodies and functions ------------------------------------------------------------------------


def test_bodies():
    body = Body(
        2,
        (
            BodyNode(OpKey("", "Split"), (("axis", 1), ("num_outputs", 3)), (0,), 3),
            BodyNode(OpKey("", "Add"), (), (2, 4)),
            BodyNode(OpKey("", "Clip"), (), (5, None, 1)),
        ),
        (6, 3),
    )
    high = np.array(0.5, np.float32)
    result = evaluate_body(body, [X, high])
    same(result[0], np.minimum(X[:, :1] + X[:, 2:], high))
    same(result[1], X[:, 1:2].copy())
    without = evaluate_body(body, [X])
    same(without[0], X[:, :1] + X[:, 2:])
    with pytest.raises(ExecutionError, match="at most 2 inputs"):
        evaluate_body(body, [X, X, X])


def test_annotations_are_identities():
    for function in (CAST_HINT, STOP_FUSION):
        same(evaluate(function.op, (), [X])[0], X)
    assert infer_types(CAST_HINT.op, (("dtype", 3),), [TensorType(ir.DataType.FLOAT, (2, "N"))]) == (
        TensorType(ir.DataType.FLOAT, (2, "N")),
    )


@pytest.mark.parametrize("dtype", [ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16])
@pytest.mark.parametrize("per_axis", [False, True])
def test_requantize(dtype: ir.DataType, per_axis: bool):
    rng = np.random.default_rng(2)
    x = rng.integers(-(10**6), 10**6, (2, 3, 4)).astype(np.int32)
    scale = np.asarray(rng.uniform(1e-4, 1e-3, (3,) if per_axis else ()), np.float32)
    in_zero, out_scale, out_zero = np.array(7, np.int32), np.array(1.7, np.float32), np.array(5, np.int64)
    attrs = (("axis", 1), ("dtype", int(dtype)))
    (y,) = evaluate(REQUANTIZE.op, attrs, [x, scale, in_zero, out_scale, out_zero])
    real = (x - 7).astype(np.float32) * (scale[:, None] if per_axis else scale)
    limits = np.iinfo(dtype.numpy())
    wanted = np.clip(np.rint(real / out_scale) + 5, limits.min, limits.max).astype(dtype.numpy())
    same(y, wanted)
    types = [TensorType(ir.DataType.from_numpy(v.dtype), v.shape) for v in (x, scale, in_zero, out_scale, out_zero)]
    assert infer_types(REQUANTIZE.op, attrs, types) == (TensorType(dtype, (2, 3, 4)),)


def test_declared_functions_are_registered():
    ours = [op for op in functions() if op.domain == opset.EQSAT]
    assert {REQUANTIZE.op, CAST_HINT.op, STOP_FUSION.op} <= set(ours)
    for op in ours:
        function = find_function(op)
        assert function is not None and function.doc
        assert function_body(op) == function.body(dict(function.attributes))
    assert function_body(OpKey("", "Add")) is None


def test_functions_registered_elsewhere_are_evaluated():
    op = OpKey("eqsat.test", "TwicePlus")
    declare_function(
        Function(
            op,
            ("x",),
            (("bias", 1.0),),
            lambda attrs: straight_line(
                1, ("Constant", (), {"value_float": attrs["bias"]}), ("Add", (0, 0), {}), ("Add", (2, 1), {})
            ),
        )
    )
    same(evaluate(op, (), [X])[0], X + X + np.float32(1))
    same(evaluate(op, (("bias", 2.0),), [X])[0], X + X + np.float32(2))


@pytest.mark.parametrize(
    "name", ["Conv", "MaxPool", "Softmax", "Reshape", "Concat", "Gather", "MatMul", "QLinearSigmoid"]
)
def test_any_memory_layout_is_fine(name: str):
    rng = np.random.default_rng(3)
    x = values(rng, (2, 4, 6, 6), np.float32)
    scale, zero = np.array(0.1, np.float32), np.array(3, np.uint8)
    cases: dict[str, tuple[str, list[np.ndarray], tuple]] = {
        "Conv": ("", [x, values(rng, (3, 4, 3, 3), np.float32)], ()),
        "MaxPool": ("", [x], (("kernel_shape", (2, 2)),)),
        "Softmax": ("", [x], (("axis", 1),)),
        "Reshape": ("", [x, np.array([8, -1])], ()),
        "Concat": ("", [x, x + 1], (("axis", 1),)),
        "Gather": ("", [x, np.array([[0, 1], [1, 0]])], ()),
        "MatMul": ("", [x, values(rng, (6, 5), np.float32)], ()),
        "QLinearSigmoid": ("com.microsoft", [values(rng, (4, 6), np.uint8, 0, 255), scale, zero, scale, zero], ()),
    }
    domain, inputs, attrs = cases[name]
    (wanted,) = evaluate(OpKey(domain, name), attrs, inputs)
    for rearranged in (
        np.asfortranarray,
        lambda v: v.repeat(2, -1)[..., ::2],
        lambda v: v[..., ::-1].copy()[..., ::-1],
    ):
        given = [rearranged(v) if v.ndim > 1 else v for v in inputs]
        (ours,) = evaluate(OpKey(domain, name), attrs, given)
        same(ours, wanted, 1e-6, 1e-6)


def test_no_more_results_than_are_wanted():
    x, w, r = np.ones((2, 1, 3), np.float32), np.ones((1, 4, 3), np.float32), np.ones((1, 4, 4), np.float32)
    assert [len(evaluate(OpKey("", "RNN"), (("hidden_size", 4),), [x, w, r], n)) for n in (1, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("op", "attrs", "shapes", "expected"),
    [
        ("Conv", (), [(0, 4, 6, 5), (8, 4, 3, 3)], (0, 8, 4, 3)),
        ("Conv", (("strides", (2, 1)),), [(0, 4, 6, 5), (8, 4, 1, 1)], (0, 8, 3, 5)),
        ("Conv", (("group", 2),), [(0, 4, 6, 5), (8, 2, 3, 3)], (0, 8, 4, 3)),
        ("Conv", (("group", 4),), [(0, 4, 6, 5), (4, 1, 3, 3)], (0, 4, 4, 3)),
        ("ConvTranspose", (), [(0, 4, 6, 5), (4, 8, 3, 3)], (0, 8, 8, 7)),
        ("GroupNormalization", (("num_groups", 2),), [(0, 4, 6, 5), (4,), (4,)], (0, 4, 6, 5)),
        ("NonMaxSuppression", (), [(1, 0, 4), (1, 2, 0)], (0, 3)),
    ],
)
def test_of_nothing_comes_nothing(
    op: str, attrs: tuple[tuple[str, int], ...], shapes: list[tuple[int, ...]], expected: tuple[int, ...]
):
    # Detectors find nothing in some images, and go on with a batch of no regions.
    inputs = [np.ones(shape, np.float32) for shape in shapes]
    limit = [np.array([5])] if op == "NonMaxSuppression" else []
    (result,) = evaluate(OpKey("", op), attrs, [*inputs, *limit])
    assert result is not None and result.shape == expected
