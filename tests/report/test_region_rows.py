"""What reports are told about regions agrees with the model that is written."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.partition.regions import regions
from eqsat.partition.write_plan import to_model
from eqsat.report.region_rows import kernel_rows, region_rows
from tests.partition.plans import Builder, body, constant
from tests.partition.random_plans import random_plan


@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_the_model(seed: int) -> None:
    plan, flat = random_plan(seed)
    found = regions(plan)
    model = to_model(plan, found, ir.from_proto(flat))
    copies = [float(i) for i in range(len(found))]
    rows = region_rows(plan, found, copies)
    assert [r.name for r in rows] == [r.name for r in found]
    assert [r.copies for r in rows] == copies
    seconds = sum(n.cost for n in plan.nodes) + sum(r.dispatch + r.copies for r in rows)
    assert math.isclose(sum(r.cost for r in rows), seconds)
    kernels = kernel_rows(plan, found, {"some_rule": "a.rules:1"}, [None] * len(plan.nodes))
    assert {(k.rule, k.place) for k in kernels} <= {("", ""), ("some_rule", "a.rules:1")}
    for row in rows:
        own = [kernel for kernel in kernels if kernel.region == row.name]
        assert (row.kernels, row.nodes) == (len(own), tuple(kernel.op for kernel in own))
        assert row.operators == sum(len(kernel.operators) for kernel in own)
        if row.target == "cpu":
            continue
        function = model.functions[f"eqsat.{row.target}", row.name, ""]
        call = next(n for n in model.graph if n.name == row.name)
        assert [v.name for v in function.inputs][: len(row.inputs)] == list(row.inputs)
        assert [v.name for v in call.outputs] == list(row.outputs)
        assert [k.name for k in own] == [n.outputs[0].name for n in function if n.op_type != "Constant"]


def test_a_composite_is_one_kernel_of_several_operators() -> None:
    b = Builder()
    x = b.input("x", ("N", 4))
    w = b.constant(np.ones((4, 8), np.float32), "w")
    definition = body(2, ("MatMul", (0, 1)), ("Constant", (), constant(6)), ("Min", (2, 3)))
    b.output(b.composite("matmul_min", definition, x, w), "y")
    plan, _ = b.build()
    (row,) = region_rows(plan, regions(plan), [0.0])
    (kernel,) = kernel_rows(plan, regions(plan), {}, [None])
    assert (kernel.op, kernel.operators, row.operators) == ("dnnl.matmul_min", ("MatMul", "Min"), 2)
    assert (row.inputs, row.outputs, row.nodes) == (("x",), ("y",), ("dnnl.matmul_min",))
    assert row.dispatch == plan.dispatch[1]
