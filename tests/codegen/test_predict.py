"""Predicted seconds of generated kernels: their work by hand, and costs that mean something for every model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.codegen.emitted import Emitted, KernelInfo
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import AVX512
from eqsat.codegen.kernel import Epilogue, Step, Task, View
from eqsat.codegen.predict import Prediction, predict, work
from eqsat.errors import TargetError
from eqsat.model.builder import Tensor, graph, input, op
from eqsat.model.load import load
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text
from eqsat.schema.types import OpKey
from eqsat.targets.find_targets import load_host
from tests.codegen import __main__ as conformance
from tests.codegen import nodes
from tests.codegen.random_graphs import random_model

FLOAT = ir.DataType.FLOAT
HOST = load_host("c")
EVERY = 30


def kernels(model: ir.Model, *, select: bool = True) -> list[KernelInfo]:
    return generate(model, isas=(AVX512,), select=select).kernels


def weights(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# ---- work by hand ------------------------------------------------------------------------------------------


def test_work_of_a_convolution_with_what_is_fused():
    """Products of the anchor, one operation for each element and step; weights and the residual cross the border."""
    x, r = input("x", (1, 8, 6, 6)), input("r", (1, 16, 6, 6))
    y = op.Sigmoid(op.Conv(x, weights(16, 8, 3, 3), weights(16), pads=[1, 1, 1, 1]) + r)
    (kernel,) = [k for k in kernels(graph(y), select=False) if k.family == "direct convolution"]
    assert [s.operator.name for s in kernel.task.epilogue.steps] == ["Add", "Sigmoid"]
    done = work(kernel.task)
    elements = 16 * 36
    assert done.macs == elements * 8 * 9 + 2 * elements
    assert done.functions == elements
    assert done.bytes == 4 * (8 * 36 + 16 * 8 * 9 + 16 + 2 * elements)
    assert done.scattered == 0


@pytest.mark.parametrize("name", ["Div", "Mod"])
def test_quotients_of_64_bits_are_functions(name: str):
    """There are no vectors of them; those of fewer bits, and products, are steps like all others."""
    for dtype, functions in (("int64", 50), ("uint64", 50), ("int32", 0), ("uint8", 0)):
        x, y = input("x", (5, 10), dtype), input("y", (5, 10), dtype)
        (kernel,) = kernels(graph(getattr(op, name)(x, y)))
        assert work(kernel.task).functions == functions
        (kernel,) = kernels(graph(x * y))
        assert work(kernel.task).functions == 0


def test_prices_of_deformable_convolutions_follow_their_work():
    """Twice the images, and nearly twice the outputs of many, take twice the time; offset groups take some more."""

    def price(images: int, outputs: int, parts: int) -> float:
        x, offset = input("x", (images, 16, 20, 20)), input("o", (images, 18 * parts, 20, 20))
        y = op.DeformConv(x, weights(outputs, 16, 3, 3), offset, pads=[1] * 4, offset_group=parts)
        return sum(predict(k, HOST) for k in kernels(graph(y)) if k.family == "deformable convolution")

    once = price(1, 256, 1)
    assert once > 0
    assert price(2, 256, 1) == pytest.approx(2 * once, rel=0.05)
    assert price(1, 512, 1) == pytest.approx(2 * once, rel=0.1)
    assert once < price(1, 256, 4) < 2 * once


def test_what_strides_repeat_counts_once():
    x = View.dense(FLOAT, (4, 5))
    row = View.dense(FLOAT, (5,)).broadcast((4, 5))
    add = Step(OpKey("", "Add"), {}, (0, 1), FLOAT)
    task = Task(OpKey("", "Identity"), {}, (x,), (x,), Epilogue(FLOAT, (row,), (add,)))
    done = work(task)
    assert (done.macs, done.bytes) == (20, 4 * (20 + 20 + 5))


def test_reading_across_the_order():
    """Channels of an image are a plane apart, so that a line of the cache is read for each; neighbours are not."""
    shape = (1, 3, 40, 40)
    rows, last = View.dense(FLOAT, shape), View.dense(FLOAT, shape, (0, 2, 3, 1))
    identity = OpKey("", "Identity")
    assert work(Task(identity, {}, (rows,), (last,), Epilogue(FLOAT))).scattered == 4 * 4800
    assert work(Task(identity, {}, (rows,), (rows,), Epilogue(FLOAT))).scattered == 0
    near = View.dense(FLOAT, (1, 10, 3), (0, 2, 1))  # 3 by 10: 40 bytes apart
    assert work(Task(identity, {}, (near,), (View.dense(FLOAT, (1, 10, 3)),), Epilogue(FLOAT))).scattered == 0


def test_large_constants_are_kept_as_shapes():
    x = input("x", (1, 256))
    (kernel,) = kernels(graph(op.MatMul(x, weights(256, 128))))
    held = kernel.task.constant(1)
    assert held is not None and held.shape == (256, 128) and held.strides == (0, 0)
    assert work(kernel.task).macs == 256 * 128
    assert work(kernel.task).bytes == 4 * (256 + 256 * 128 + 128)


# ---- which entry -------------------------------------------------------------------------------------------


def host(entries: str) -> Target:
    (found,) = read_text(
        f"host core\n    peak float32 = 1e9\n    bandwidth = 1e9, launch = 1e-3\n    supports *\n{entries}",
        "core.target",
    ).targets
    return found


@pytest.fixture(scope="module")
def product() -> KernelInfo:
    (kernel,) = kernels(graph(op.Gemm(input("x", (2, 64)), weights(64, 32), alpha=1.0)))
    return kernel


@pytest.mark.parametrize(
    ("entries", "seconds"),
    [
        ("    family packed_matrix_product cost 3\n    family * cost 4\n", 3),
        ("    family direct_convolution cost 3\n    family * cost 4\n", 4),
        ("    family packed_matrix_product where x.shape[0] == 1 cost 3\n    family * cost 4\n", 4),
        ("    family packed_matrix_product cost y.shape[1] + node.alpha\n", 33),
        ("", 1e-3 + 4 * (2 * 64 + 64 * 32 + 64) / 1e9),
    ],
)
def test_entry_of_the_family(product: KernelInfo, entries: str, seconds: float):
    assert product.family == "packed matrix product"
    assert predict(product, host(entries)) == pytest.approx(seconds)
    assert Prediction(product.task, product.family, host(entries)).seconds() == pytest.approx(seconds)


def test_an_expression_without_a_value_is_an_error(product: KernelInfo):
    with pytest.raises(TargetError, match=r"core.target:5:.*cost of packed matrix product.*no attribute `group`"):
        predict(product, host("    family * cost node.group\n"))


# ---- the shipped file ------------------------------------------------------------------------------------------


def check(emitted: Emitted) -> int:
    for kernel in emitted.kernels:
        seconds = predict(kernel, HOST)
        assert 0 < seconds < 1e3 and math.isfinite(seconds), (kernel, seconds)
    return len(emitted.kernels)


@pytest.mark.parametrize("seed", range(6))
def test_every_kernel_of_networks_has_a_cost(seed: int):
    assert check(generate(load(random_model(seed)), isas=())) > 0


@pytest.mark.slow
def test_every_kernel_of_node_cases_has_a_cost():
    """All operators that have C, all element types, scalars and empty tensors."""
    for name in conformance.expected()[::EVERY]:
        check(nodes.prepare(name, "k", ()).emitted)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_empty_tensors(shape: tuple[int, int]):
    model = graph(op.Softmax(op.MatMul(input("x", shape), weights(shape[1], 2)), axis=-1))
    assert check(generate(model, isas=())) > 0


def test_scalars():
    model = graph(op.MatMul(input("a", (8,)), input("b", (8,))))
    # The product of matrices of one row and one column, and the copy of its only element to the result.
    assert check(generate(model, isas=())) == 2


@pytest.mark.parametrize(
    "build",
    [
        lambda n: op.Relu(op.Conv(input("x", (1, 16, n, n)), weights(32, 16, 3, 3), pads=[1, 1, 1, 1])),
        lambda n: op.Conv(input("x", (1, 16, n, n)), weights(16, 1, 3, 3), pads=[1, 1, 1, 1], group=16),
        lambda n: op.MatMul(input("x", (1, 8 * n)), weights(8 * n, 64)),
        lambda n: op.Exp(input("x", (1, n, n))),
        lambda n: op.Softmax(input("x", (n, n))),
        lambda n: op.LayerNormalization(input("x", (n, 64)), weights(64), weights(64)),
        lambda n: op.MaxPool(input("x", (1, 32, n, n)), kernel_shape=[2, 2], strides=[2, 2]),
        lambda n: op.ReduceSum(input("x", (n, n))),
        lambda n: op.Transpose(op.Relu(input("x", (n, 3, n))), perm=[2, 1, 0]),
    ],
)
def test_more_work_costs_more(build: Callable[[int], Tensor]):
    costs = [sum(predict(k, HOST) for k in kernels(graph(build(n)), select=False)) for n in (8, 16, 32, 64, 128)]
    assert costs == sorted(costs) and costs[-1] > 1.5 * costs[0]


def test_predictions_do_not_depend_on_names_or_weights():
    """Equal kernels have equal costs, which is what caches of selections rely on."""
    model = '<ir_version: 10, opset_import: ["": 21]> g (float[1, 4] x) => (float[1, 4] y) {y = Exp(x)}'
    (first,), (second,) = kernels(load(model)), kernels(load(model.replace("Exp(x)", "Exp(x)").replace(" g ", " h ")))
    assert predict(first, HOST) == predict(replace(second, name="other"), HOST)
