"""What reports are told about regions agrees with the model that is written."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.partition.describe import describe
from eqsat.partition.functions import to_model
from eqsat.partition.regions import regions
from tests.partition.plans import Builder, body, constant
from tests.partition.random_plans import random_plan


@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_the_model(seed):
    plan, flat = random_plan(seed)
    found = regions(plan)
    model = to_model(plan, found, ir.from_proto(flat))
    rows = describe(plan, found)
    assert [r.name for r in rows] == [r.name for r in found]
    assert math.isclose(sum(r.cost for r in rows), sum(n.cost for n in plan.nodes) + sum(r.dispatch for r in rows))
    for row in rows:
        if row.target == "cpu":
            continue
        function = model.functions[f"eqsat.{row.target}", row.name, ""]
        call = next(n for n in model.graph if n.name == row.name)
        assert [v.name for v in function.inputs][: len(row.inputs)] == [t.name for t in row.inputs]
        assert [v.name for v in call.outputs] == [t.name for t in row.outputs]
        kernels = [n for n in function if n.op_type != "Constant"]
        assert [k.name for k in row.kernels] == [n.outputs[0].name for n in kernels]
        for value, tensor in zip(call.outputs, row.outputs, strict=True):
            assert value.dtype is not None and value.shape is not None
            assert tensor.bytes == value.dtype.itemsize * math.prod(value.shape.numpy())
            assert tensor.type == f"float[{', '.join(str(d) for d in value.shape)}]"


def test_a_composite_is_one_kernel_of_several_operators():
    b = Builder()
    x = b.input("x", ("N", 4))
    w = b.constant(np.ones((4, 8), np.float32), "w")
    definition = body(2, ("MatMul", (0, 1)), ("Constant", (), constant(6)), ("Min", (2, 3)))
    b.output(b.composite("matmul_min", definition, x, w), "y")
    plan, _ = b.build()
    (row,) = describe(plan, regions(plan))
    (kernel,) = row.kernels
    assert (kernel.op, kernel.operators, row.operators) == ("dnnl.matmul_min", ("MatMul", "Min"), 2)
    assert (row.inputs[0].name, row.inputs[0].type, row.inputs[0].bytes) == ("x", "float[N, 4]", None)
    assert (row.constant_bytes, row.dispatch) == (128, plan.dispatch[1])
