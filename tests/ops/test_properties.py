"""Tables of properties: true of the operators' behaviour, and complete over the schemas."""

from __future__ import annotations

import numpy as np
import onnx.defs
import onnx_ir as ir
import pytest
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from eqsat.errors import ExecutionError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.own_operators import straight_line
from eqsat.ops.properties import (
    is_commutative,
    is_data_movement,
    is_deterministic,
    value_inputs,
)
from eqsat.schema.declared_operators import Function, declare_function
from eqsat.schema.opset import operator_names
from eqsat.schema.types import GraphAttr, OpKey
from tests.ops.oracle import same, values

ALL = tuple(OpKey("", name) for name in operator_names())
RNG = np.random.default_rng(0)


def test_all_operators_of_the_opset():
    assert len(ALL) == 198
    assert OpKey("", "Upsample") not in ALL


@pytest.mark.parametrize("op", [op for op in ALL if is_commutative(op)], ids=str)
def test_commutative_operators_commute(op: OpKey):
    dtype = bool if op.name in ("And", "Or", "Xor") else np.int32 if op.name.startswith("Bitwise") else np.float32
    a, b = values(RNG, (5, 1), dtype), values(RNG, (4,), dtype)
    same(evaluate(op, (), [a, b])[0], evaluate(op, (), [b, a])[0])


def test_no_other_elementwise_operator_commutes():
    """Two operands of the same type, no attributes: whatever is symmetric there must be in the table."""
    a, b = np.array([[2.0, 3], [0.5, -1]], np.float32), np.array([[3.0, -2], [0.25, 5]], np.float32)
    for op in ALL:
        schema = onnx.defs.get_schema(op.name, 26, "")
        # Limits of Clip are scalars.
        if op.name == "Clip" or is_commutative(op) or schema.min_input > 2 or schema.max_input < 2 or schema.attributes:
            continue
        try:
            left, right = evaluate(op, (), [a, b])[0], evaluate(op, (), [b, a])[0]
        except ExecutionError:  # it takes no floats
            continue
        assert left is None or right is None or not np.array_equal(left, right), op


# For an operator whose output shape depends on values: two sets of inputs of equal types and their attributes.
SHAPE_CASES: dict[str, tuple[list[np.ndarray | None], int, np.ndarray, tuple[tuple[str, object], ...]]] = {
    "Reshape": ([np.zeros((2, 6)), np.array([3, 4])], 1, np.array([4, 3]), ()),
    "Expand": ([np.zeros((1, 3)), np.array([2, 3])], 1, np.array([5, 3]), ()),
    "Slice": ([np.zeros(9), np.array([1]), np.array([4])], 2, np.array([6]), ()),
    "Pad": ([np.zeros(4), np.array([1, 1])], 1, np.array([2, 3]), ()),
    "Tile": ([np.zeros((2, 3)), np.array([1, 2])], 1, np.array([2, 2]), ()),
    "Resize": ([np.zeros((1, 1, 4)), None, np.array([1, 1, 2], np.float32)], 2, np.array([1, 1, 3], np.float32), ()),
    "TopK": ([np.arange(6.0), np.array([2])], 1, np.array([3]), ()),
    "Range": ([np.array(0), np.array(5), np.array(1)], 1, np.array(7), ()),
    "ConstantOfShape": ([np.array([2])], 0, np.array([3]), ()),
    "Unsqueeze": ([np.zeros((2, 3)), np.array([0])], 1, np.array([1]), ()),
    "Squeeze": ([np.zeros((1, 1, 3)), np.array([0])], 1, np.array([0, 1]), ()),
    "ReduceSum": ([np.zeros((2, 3)), np.array([0])], 1, np.array([1]), ()),
    "OneHot": ([np.array([1]), np.array(3), np.array([0, 1])], 1, np.array(5), ()),
    "CenterCropPad": ([np.zeros((4, 4)), np.array([2, 2])], 1, np.array([3, 3]), ()),
    "NonZero": ([np.array([1, 0, 1])], 0, np.array([1, 0, 0]), ()),
    "Compress": ([np.arange(3), np.array([True, False, True])], 1, np.array([True, False, False]), ()),
    "Unique": ([np.array([1, 1, 2])], 0, np.array([1, 1, 1]), ()),
    "HannWindow": ([np.array(4)], 0, np.array(6), ()),
    "Split": ([np.zeros(6), np.array([2, 4])], 1, np.array([3, 3]), ()),
}


@pytest.mark.parametrize("name", sorted(SHAPE_CASES))
def test_value_inputs_change_the_shape(name: str):
    inputs, index, other, attrs = SHAPE_CASES[name]
    op = OpKey("", name)
    outputs = 2 if name == "Split" else 1
    changed = [*inputs[:index], other, *inputs[index + 1 :]]
    before = evaluate(op, attrs, inputs, outputs)[0]
    after = evaluate(op, attrs, changed, outputs)[0]
    assert before is not None and after is not None
    assert before.shape != after.shape
    assert index in value_inputs(op)


def test_value_inputs_exist_in_the_schemas():
    for op in ALL:
        for index in value_inputs(op):
            assert index < onnx.defs.get_schema(op.name, 26, "").max_input, op


def test_inputs_that_inference_reads_are_in_the_table():
    """Inference that learns a shape from a constant shows that the constant's value matters."""
    float_type = onnx.helper.make_tensor_type_proto(1, (2, 3))
    for op in ALL:
        schema = onnx.defs.get_schema(op.name, 26, "")
        for i, formal in enumerate(schema.inputs):
            if "tensor(int64)" not in formal.types or i in value_inputs(op) or i == 0:
                continue
            node = onnx.helper.make_node(op.name, [f"x{k}" for k in range(i + 1)], ["y"])
            types = {f"x{k}": float_type for k in range(i)}
            types[f"x{i}"] = onnx.helper.make_tensor_type_proto(7, (2,))
            data = {f"x{i}": onnx.numpy_helper.from_array(np.array([4, 5]))}
            try:
                without = onnx.shape_inference.infer_node_outputs(schema, node, types, {})
                known = onnx.shape_inference.infer_node_outputs(schema, node, types, data)
            except (InferenceError, ValidationError):  # these inputs do not fit it
                continue
            assert {k: v.SerializeToString() for k, v in without.items()} == {
                k: v.SerializeToString() for k, v in known.items()
            }, (op, i)


def test_determinism():
    for op in ALL:
        random = op.name.startswith("Random") or op.name in ("Bernoulli", "Multinomial", "Dropout")
        assert is_deterministic(op) != random, op
    assert is_deterministic(OpKey("", "Dropout"), training=False)
    assert not is_deterministic(OpKey("", "RandomUniform"), (("seed", 1.0),))
    assert not is_deterministic(OpKey("vendor", "Thing"))
    noise, same = straight_line(0, ("RandomNormal", (), {"shape": [2]})), straight_line(1, ("Identity", (0,), {}))
    declare_function(Function(OpKey("eqsat.test", "Noise"), (), (), lambda _: noise))
    declare_function(Function(OpKey("eqsat.test", "Same"), ("x",), (), lambda _: same))
    assert not is_deterministic(OpKey("eqsat.test", "Noise"))
    assert is_deterministic(OpKey("eqsat.test", "Same"))
    assert is_deterministic(OpKey("com.microsoft", "QLinearAdd"))
    assert is_deterministic(OpKey("eqsat", "Requantize"))


def test_determinism_of_bodies():
    for name in ("RandomNormal", "Identity"):
        inner = ir.Graph([], [], nodes=[ir.Node("", name, [])], name="inner")
        outer = ir.Graph([], [], nodes=[ir.Node("", "If", [], [ir.AttrGraph("then_branch", inner)])], name="outer")
        for graph in (inner, outer):
            attrs = (("body", GraphAttr(graph, ())),)
            assert is_deterministic(OpKey("", "Loop"), attrs) == (name == "Identity")


def test_views_keep_the_bytes():
    x = values(RNG, (2, 1, 3), np.float32)
    cases = {
        "Reshape": ([x, np.array([6])], ()),
        "Flatten": ([x], ()),
        "Squeeze": ([x], ()),
        "Unsqueeze": ([x, np.array([0])], ()),
        "Identity": ([x], ()),
        "BitCast": ([x], (("to", 6),)),
    }
    for name, (inputs, attrs) in cases.items():
        result = evaluate(OpKey("", name), attrs, inputs)[0]
        assert result is not None and result.tobytes() == x.tobytes()
        assert is_data_movement(OpKey("", name))


def test_data_movement_makes_no_new_values():
    """Distinct inputs stay the inputs, apart from fill values."""
    x = np.arange(100, 124, dtype=np.float32).reshape(1, 4, 2, 3)
    cases = {
        "Transpose": ([x], ()),
        "DepthToSpace": ([x], (("blocksize", 2),)),
        "Gather": ([x, np.array([0])], ()),
        "Pad": ([x, np.array([0, 0, 0, 0, 1, 0, 2, 0])], ()),
        "Tile": ([x, np.array([1, 2, 1, 1])], ()),
        "Concat": ([x, x], (("axis", 0),)),
    }
    for name, (inputs, attrs) in cases.items():
        assert is_data_movement(OpKey("", name))
        result = evaluate(OpKey("", name), attrs, inputs)[0]
        assert result is not None and set(result.ravel().tolist()) <= {0.0, *x.ravel().tolist()}
    for name in ("Add", "Conv", "Cast", "Softmax", "Where", "QuantizeLinear"):
        assert not is_data_movement(OpKey("", name))
