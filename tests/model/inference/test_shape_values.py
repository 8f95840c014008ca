"""Values that follow from shapes against ``onnx.reference``, and types through bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_body, infer_types
from eqsat.model.inference.shape_values import propagate
from eqsat.schema.attributes import make_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import OpKey, TensorAttr, TensorType

I64, BOOL = np.int64, np.bool_
CASES: list[tuple[str, dict[str, Any], list[np.ndarray]]] = [
    ("Add", {}, [np.array([1, -2]), np.array([[3], [4]])]),
    ("Sub", {}, [np.array([1, -2]), np.array(5)]),
    ("Mul", {}, [np.array([7, -2]), np.array([3, 3])]),
    ("Div", {}, [np.array([7, -7, 7, -7, 6]), np.array([2, 2, -2, -2, 3])]),
    ("Neg", {}, [np.array([7, -2])]),
    ("Max", {}, [np.array([7, -2]), np.array([3]), np.array(4)]),
    ("Min", {}, [np.array([7, -2]), np.array([3])]),
    ("Equal", {}, [np.array([7, -2]), np.array([7, 2])]),
    ("Where", {}, [np.array([True, False]), np.array([7, -2]), np.array([1])]),
    ("Identity", {}, [np.array([7, -2])]),
    ("Cast", {"to": TensorProto.INT32}, [np.array([7, -2])]),
    ("Gather", {"axis": 0}, [np.array([5, 6, 7]), np.array([-1, 0])]),
    ("Gather", {"axis": 1}, [np.array([[5, 6, 7]]), np.array(1)]),
    ("Concat", {"axis": 0}, [np.array([5]), np.array([6, 7])]),
    ("Unsqueeze", {}, [np.array(5), np.array([0])]),
    ("Unsqueeze", {}, [np.array([5, 6]), np.array([0, -1])]),
    ("Squeeze", {}, [np.array([[5]]), np.array([0])]),
    ("Squeeze", {}, [np.array([[5]])]),
    ("Reshape", {}, [np.array([[5, 6], [7, 8]]), np.array([0, -1])]),
    ("Reshape", {}, [np.array([5]), np.array([], I64)]),
    ("Slice", {}, [np.arange(6), np.array([1]), np.array([5])]),
    ("Slice", {}, [np.arange(6), np.array([-1]), np.array([-100]), np.array([0]), np.array([-2])]),
    ("Slice", {}, [np.arange(6), np.array([4]), np.array([0]), np.array([-1]), np.array([-1])]),
    ("Expand", {}, [np.array([5]), np.array([2, 3])]),
    ("Range", {}, [np.array(2), np.array(9), np.array(3)]),
    ("Range", {}, [np.array(9), np.array(2), np.array(-3)]),
    ("ReduceProd", {"keepdims": 0}, [np.array([5, 6, 7]), np.array([0])]),
    ("ReduceProd", {}, [np.array([5, 6, 7])]),
    ("ConstantOfShape", {"value": helper.make_tensor("v", TensorProto.INT64, [1], [4])}, [np.array([3])]),
]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{n}")
def test_values_are_what_the_operator_computes(number: int) -> None:
    name, given, arrays = CASES[number]
    op = OpKey("", name)
    attrs = make_attrs(op, given)
    types = [TensorType(ir.DataType.from_numpy(a.dtype), a.shape) for a in arrays]
    (known,) = infer_types(op, attrs, types, arrays)
    (found,) = propagate(op, attrs, types, arrays, [known])
    infos = [helper.make_tensor_value_info(f"x{i}", int(t.dtype), t.shape) for i, t in enumerate(types)]
    node = helper.make_node(name, [i.name for i in infos], ["y"], **given)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", 0, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (expected,) = ReferenceEvaluator(model).run(None, {i.name: a for i, a in zip(infos, arrays, strict=True)})
    assert found is not None and known is not None and isinstance(expected, np.ndarray)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    assert known.shape == found.shape


def test_what_is_not_known_stays_unknown() -> None:
    op = OpKey("", "Add")
    types = [TensorType(ir.DataType.INT64, (2,))] * 2
    assert propagate(op, (), types, [np.array([1, 2]), None], types[:1]) == (None,)
    assert propagate(op, (), types, [None, None], types[:1]) == (None,)
    assert propagate(OpKey("", "Div"), (), types, [np.array([1, 2]), np.array([0, 1])], types[:1]) == (None,)
    strange = [TensorType(ir.DataType.FLOAT, ("?",))]
    assert propagate(OpKey("", "Shape"), (), strange, [None], [TensorType(ir.DataType.INT64, (1,))]) == (None,)
    symbolic = [TensorType(ir.DataType.FLOAT, ("N", 3))]
    part = make_attrs(OpKey("", "Shape"), {"start": 1})
    (found,) = propagate(OpKey("", "Shape"), part, symbolic, [None], [TensorType(ir.DataType.INT64, (1,))])
    assert found is not None and found.tolist() == [3]


def test_absent_inputs_keep_their_place() -> None:
    op, arrays = OpKey("", "Slice"), [np.arange(6), np.array([5]), np.array([0]), None, np.array([-2])]
    types = [None if a is None else TensorType(ir.DataType.INT64, a.shape) for a in arrays]
    (found,) = propagate(op, (), types, arrays, [TensorType(ir.DataType.INT64, (3,))])
    assert found is not None
    assert found.tolist() == [5, 3, 1]


def _node(name: str, inputs: tuple[int | None, ...], outputs: int = 1, **given: Any) -> BodyNode:
    op = OpKey("", name)
    return BodyNode(op, make_attrs(op, given), inputs, outputs)


def test_bodies() -> None:
    """Flattens all but the first dimension, as exporters spell it, and multiplies."""
    two = TensorAttr(np.array(2, np.int64), ir.DataType.INT64)
    body = Body(
        2,
        (
            _node("Shape", (0,), end=1),  # 2
            _node("Constant", (), value_ints=[-1]),  # 3
            _node("Concat", (2, 3), axis=0),  # 4
            _node("Reshape", (0, 4)),  # 5
            _node("MatMul", (5, 1)),  # 6
            _node("Split", (6,), 2, axis=1, num_outputs=2),  # 7, 8
            BodyNode(OpKey("", "Constant"), (("value", two),), ()),  # 9
        ),
        (7, 8),
    )
    x, w = TensorType(ir.DataType.FLOAT, (5, 3, 4)), TensorType(ir.DataType.FLOAT, (12, 6))
    types = infer_body(body, [x, w])
    shapes = [t.shape if t is not None else None for t in types]
    assert shapes == [(5, 3, 4), (12, 6), (1,), (1,), (2,), (5, 12), (5, 6), (5, 3), (5, 3), ()]
    with pytest.raises(ModelError, match="MatMul"):
        infer_body(body, [x, TensorType(ir.DataType.FLOAT, (11, 6))])
    assert infer_body(body, [None, w])[-3:-1] == [None, None]


def test_absent_inputs_of_bodies() -> None:
    body = Body(3, (_node("Clip", (0, 1, 2)),), (3,))
    x = TensorType(ir.DataType.FLOAT, (5,))
    number = TensorType(ir.DataType.FLOAT, ())
    assert infer_body(body, [x, number, number])[3] == x
