"""Partitioned models run: in ONNX Runtime and in onnx.reference they give what the flat program gives, to the bit."""

from __future__ import annotations

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

from eqsat.partition.regions import regions
from eqsat.partition.write_plan import to_model
from tests.partition.checks import accelerate, check, parsed, same
from tests.partition.plans import Builder, plan_of, run_ort
from tests.partition.random_plans import random_plan


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


_PRINT = """
import hashlib, onnx_ir as ir
from eqsat.partition.write_plan import to_model
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
            [sys.executable, "-c", _PRINT], env=environment, cwd=root, capture_output=True, encoding="utf-8", check=True
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] and len(outputs[0].splitlines()) == 5
