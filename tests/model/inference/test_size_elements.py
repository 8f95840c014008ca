"""Arithmetic of shapes, element by element: random programs against ``onnx.reference`` at several sizes."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from eqsat.errors import EqsatError
from eqsat.model.inference.infer import infer_types
from eqsat.model.inference.shape_values import dimensions, propagate
from eqsat.model.inference.size_elements import Real
from eqsat.model.load import load
from eqsat.schema.attributes import make_attrs
from eqsat.schema.free_sizes import FreeSize, within
from eqsat.schema.size import Size, value_at
from eqsat.schema.types import OpKey, TensorType

FREE = {"n": FreeSize(1, None, 0), "m": FreeSize(3, 4096, 0)}
SIZES = ({"n": 1, "m": 3}, {"n": 2, "m": 7}, {"n": 31, "m": 64}, {"n": 1000, "m": 4096}, {"n": 6, "m": 5})
GIVEN = TensorType(ir.DataType.FLOAT, ("n", 4, "m", 6))
PROGRAMS, STEPS = 120, 14
BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
REDUCTIONS = ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")


class Program:
    """Nodes with what inference says of their results.

    Args:
        seed: Programs of one seed are the same.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[Any] = []
        self.types: dict[str, TensorType | None] = {"x": GIVEN}
        self.values: dict[str, np.ndarray | None] = {"x": None}
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        array = np.asarray(array, dtype)
        self.constants[name] = self.values[name] = array
        self.types[name] = TensorType(ir.DataType.from_numpy(array.dtype), array.shape)
        return name

    def add(self, op: str, *operands: str, outputs: int = 1, **given: Any) -> str:
        """Adds a node if its operands fit together; the name of its first result."""
        key, names = OpKey("", op), [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        attrs = make_attrs(key, given)
        types, values = [self.types[o] for o in operands], [self.values[o] for o in operands]
        found = infer_types(key, attrs, types, values, outputs)
        self.types.update(zip(names, found, strict=True))
        self.values.update(zip(names, propagate(key, attrs, types, values, found), strict=True))
        self.nodes.append(helper.make_node(op, list(operands), names, **given))
        return names[0]

    def vectors(self, dtype: ir.DataType) -> list[str]:
        return [
            k
            for k, t in self.types.items()
            if t is not None and t.dtype == dtype and t.shape is not None and t.is_static
        ]

    def pick(self, dtype: ir.DataType) -> str:
        return self.random.choice(self.vectors(dtype))

    def shape(self, name: str) -> tuple[Any, ...]:
        known = self.types[name]
        assert known is not None and known.shape is not None
        return known.shape

    def partner(self, name: str) -> str:
        """An operand that can be broadcast with another one."""
        known = self.types[name]
        assert known is not None
        fitting = [
            k
            for k in self.vectors(known.dtype)
            if len(self.shape(k)) < 2 and self.shape(k) in (self.shape(name), (), (1,))
        ]
        return self.random.choice(fitting)

    def step(self) -> None:
        draw = self.random
        x = self.pick(ir.DataType.INT64)
        rank = len(self.shape(x))
        first = self.constant([0])
        match draw.randrange(22):
            case 0 | 1 | 2 | 3:
                operands = [x, self.partner(x)]
                draw.shuffle(operands)
                self.add(draw.choice(BINARY), *operands)
            case 4 | 5:
                self.add(draw.choice(COMPARISONS), x, self.partner(x))
            case 6 | 7 if self.vectors(ir.DataType.BOOL):
                condition = self.pick(ir.DataType.BOOL)
                self.add("Where", condition, x, self.partner(x))
            case 8 if self.vectors(ir.DataType.BOOL):
                condition = self.pick(ir.DataType.BOOL)
                if draw.random() < 0.5:
                    self.add("Not", condition)
                else:
                    self.add(draw.choice(("And", "Or", "Xor")), condition, self.partner(condition))
            case 9 | 10:
                to, dtype = draw.choice(((TensorProto.FLOAT, np.float32), (TensorProto.DOUBLE, np.float64)))
                a = self.add("Cast", x, to=to)
                by = self.constant(draw.choice((2, 0.5, 3, 1.5, 16, 7)), dtype)
                a = self.add(draw.choice(("Mul", "Div", "Add", "Sub")), a, by)
                rounds = draw.choice(("Floor", "Ceil", ""))
                a = self.add(rounds, a) if rounds else a
                self.add("Cast", a, to=TensorProto.INT64)
            case 11:
                self.add(draw.choice(("Neg", "Abs", "Sign")), x)
            case 12:
                self.add(draw.choice(REDUCTIONS), x, keepdims=draw.randrange(2))
            case 13 if rank == 1:
                self.add(
                    "Concat",
                    x,
                    draw.choice([k for k in self.vectors(ir.DataType.INT64) if len(self.shape(k)) == 1]),
                    axis=0,
                )
            case 14 if rank == 1:
                self.add("Gather", x, self.constant(draw.randrange(-self.shape(x)[0], self.shape(x)[0])), axis=0)
            case 15 if rank == 1:
                step = draw.choice((1, 2, -1))
                # Where an axis is shorter, onnx.reference starts elsewhere than the standard says.
                start = draw.randrange(-3 if step > 0 else -1, 3)
                end = draw.choice((10**9, 2, -1, -(10**9)))
                self.add("Slice", x, self.constant([start]), self.constant([end]), first, self.constant([step]))
            case 16:
                self.add("Unsqueeze", x, first)
            case 17 if rank:
                self.add("Reshape", x, self.constant([-1]))
            case 18 if rank == 1:
                self.add("CumSum", x, self.constant(0))
            case 19 if rank == 1:
                self.add(draw.choice(("Tile", "Expand")), x, self.constant([draw.choice((1, self.shape(x)[0]))]))
            case 20 if rank == 1 and self.shape(x)[0] > 1:
                self.add("Split", x, self.constant([1, self.shape(x)[0] - 1]), outputs=2, axis=0)
            case 21 if not rank:
                self.add("Range", x, self.add("Add", x, self.constant(3)), self.constant(draw.choice((1, 2))))
            case _:
                self.add(
                    "Squeeze", self.add("Slice", self.add("Reshape", x, self.constant([-1])), first, self.constant([1]))
                )


def _program(seed: int) -> Program:
    program = Program(seed)
    with within(FREE):
        shape = program.add("Shape", "x")
        for k in range(4):
            program.add("Gather", shape, program.constant(k), axis=0)
        for number in (-1, 0, 2, 5):
            program.constant(number)
        while len(program.nodes) < STEPS:
            try:
                program.step()
            except EqsatError:
                continue
    return program


def _at(element: Any, sizes: dict[str, int]) -> Any:
    if isinstance(element, Real):
        dtype = np.float32 if element.bits == 24 else np.float64
        return dtype(value_at(element.top, sizes)) / dtype(element.bottom)
    return value_at(element, sizes) if isinstance(element, Size) else element


@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_what_is_said_of_an_element_holds_at_every_size(first: int):
    known = 0
    for seed in range(first, first + 20):
        program = _program(seed)
        names = [name for node in program.nodes for name in node.output]
        info = helper.make_tensor_value_info("x", TensorProto.FLOAT, GIVEN.shape)
        graph = helper.make_graph(
            program.nodes,
            "g",
            [info],
            [helper.make_tensor_value_info(name, 0, None) for name in names],
            [numpy_helper.from_array(a, k) for k, a in program.constants.items()],
        )
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
        for sizes in SIZES:
            x = np.broadcast_to(np.float32(0), [d if isinstance(d, int) else sizes[str(d)] for d in GIVEN.shape or ()])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Divisions by zero, of which nothing is said.
                results = dict(zip(names, map(np.asarray, evaluator.run(None, {"x": x})), strict=True))
            for name, result in results.items():
                kind, value = program.types[name], program.values[name]
                assert kind is not None
                dims = dimensions(kind)
                assert dims is not None and len(dims) == result.ndim
                assert all(d is None or _at(d, sizes) == n for d, n in zip(dims, result.shape, strict=True))
                if value is None:
                    continue
                assert value.shape == result.shape
                for element, expected in zip(value.reshape(-1).tolist(), result.reshape(-1).tolist(), strict=True):
                    if element is not None:
                        known += 1
                        assert _at(element, sizes) == expected, (seed, name, sizes, program.nodes)
    assert known > 1000


def test_products_that_floats_round_are_not_followed():
    program = Program(0)
    with within(FREE):
        shape = program.add("Shape", "x")
        n, m = (program.add("Gather", shape, program.constant(k), axis=0) for k in (0, 2))
        area = program.add("Mul", n, m)
        for to, dtype, is_known in ((TensorProto.FLOAT, np.float32, False), (TensorProto.DOUBLE, np.float64, True)):
            half = program.add("Mul", program.add("Cast", area, to=to), program.constant(0.5, dtype))
            value = program.values[program.add("Cast", half, to=TensorProto.INT64)]
            assert (value is not None) == is_known


def test_numbers_that_wrap_around_are_not_followed():
    program = Program(0)
    with within(FREE):
        shape = program.add("Shape", "x")
        for to, dtype in ((TensorProto.INT32, np.int32), (TensorProto.INT64, np.int64)):
            sizes, most = program.add("Cast", shape, to=to), program.constant(np.iinfo(dtype).max, dtype)
            for op in ("Add", "Mul"):
                value = program.values[program.add(op, sizes, most)]
                assert value is None or value.tolist()[::2] == [None, None]
            value = program.values[program.add("Min", sizes, most)]
            assert value is not None and str(value.tolist()[1:]) == "[4, m, 6]"


def test_the_sign_of_what_may_be_zero_is_not_known():
    program = Program(0)
    with within(FREE):
        shape = program.add("Shape", "x")
        differences = program.add("Sub", program.constant(1), shape)
        value = program.values[program.add("Sign", differences)]
        # n may be 1.
        assert value is not None and value.tolist() == [None, -1, -1, -1]


def test_one_limit_of_a_clip_is_enough():
    program = Program(0)
    with within(FREE):
        shape = program.add("Shape", "x")
        value = program.values[program.add("Clip", shape, program.constant(3))]
        assert value is not None and str(value.tolist()) == "[Max((n), 3), 4, m, 6]"


def test_the_expansion_of_torchscript_keeps_sizes():
    model = load(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 1, 1, m] x, float[n, m] w) => (float[a, b, c, d] y)
        <int64[4] ones = {1, 1, 1, 1}, int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, int64 minus = {-1}>
        {
            s = Shape(w)
            n = Gather(s, zero)
            m = Gather(s, one)
            n1 = Unsqueeze(n, axis)
            one1 = Unsqueeze(one, axis)
            m1 = Unsqueeze(m, axis)
            c = Concat <axis=0> (n1, one1, m1, m1)
            cs = Shape(c)
            o = ConstantOfShape <value = int64[1] {1}> (cs)
            minuses = Mul(o, minus)
            is_minus = Equal(c, minuses)
            wanted = Where(is_minus, ones, c)
            y = Expand(x, wanted)
        }"""
    )
    assert str(model.graph.outputs[0].shape) == "[n,1,m,m]"
