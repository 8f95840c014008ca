"""Convolutions of windows of one element as products, in C for every instruction set, against float64."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.kernel import Epilogue, Task, View
from eqsat.codegen.kernels.shared.families import families
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from tests.codegen.kernels.vectors.harness import Case, run, step
from tests.codegen.kernels.vectors.test_direct_convolution import CONV, conv_case

NAME = "pointwise convolution"
SHAPES = {
    "image": ((1, 24, 5, 7), 40, (1, 1), {}),
    "batch": ((3, 16, 4, 4), 64, (1, 1), {}),
    "no bias": ((2, 5, 9, 11), 7, (1, 1), dict(bias=False)),
    "row": ((2, 10, 40), 20, (1,), {}),
    "solid": ((1, 4, 5, 6, 7), 18, (1, 1, 1), {}),
    "one channel": ((1, 1, 12, 12), 1, (1, 1), {}),
    "one place": ((4, 33, 1, 1), 19, (1, 1), {}),
    "tall": ((2, 8, 30, 1), 48, (1, 1), {}),
    "many channels": ((1, 256, 3, 3), 200, (1, 1), {}),
    "many places": ((1, 17, 40, 41), 9, (1, 1), {}),
}


@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps: bool) -> None:
    rng = np.random.default_rng(1)
    cases = [conv_case(rng, *given, chosen=NAME, **rest) for *given, rest in SHAPES.values()]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


EPILOGUES = {
    "channel": (1, 20, 1, 1),
    "row": (1, 1, 6, 1),
    "column": (7,),
    "place": (6, 7),
    "everything": (2, 20, 6, 7),
    "image": (2, 1, 1, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_what_follows(constant: bool, gaps: bool) -> None:
    """A factor of any shape, then the larger of it and another tensor."""
    rng = np.random.default_rng(3)
    cases = []
    for shape in EPILOGUES.values():
        factor = rng.standard_normal(shape).astype(np.float32)
        other = rng.standard_normal((2, 20, 6, 7)).astype(np.float32)

        def finish(y: np.ndarray, scale: np.ndarray, factor: np.ndarray = factor, other: np.ndarray = other):
            wide = factor.astype(np.float64)
            return np.maximum(y * wide, other), np.abs(wide) * scale + np.abs(other)

        cases.append(
            conv_case(
                rng,
                (2, 12, 6, 7),
                20,
                (1, 1),
                finish=finish,
                steps=[step("Mul", 0, 1), step("Max", 3, 2)],
                operands=[factor, other],
                constant_operands=frozenset({0} if constant else ()),
                chosen=NAME,
            )
        )
    run(cases, rng=np.random.default_rng(4) if gaps else None)


@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        ((1, 3), {}),
        ((1, 1), dict(strides=(1, 2))),
        ((1, 1), dict(pads=(0, 1, 0, 0))),
        ((1, 1), dict(group=2)),
    ],
)
def test_other_windows_are_not_accepted(kernel: tuple[int, ...], more: dict[str, object]) -> None:
    case: Case = conv_case(np.random.default_rng(5), (1, 4, 5, 6), 8, kernel, **more)
    view = View.dense(ir.DataType.FLOAT, (1, 4, 5, 6))
    result = View.dense(ir.DataType.FLOAT, case.expected.shape)
    task = Task(CONV, case.attributes, (view, *case.inputs[1:]), (result,), Epilogue(ir.DataType.FLOAT))
    (family,) = [f for f in families(CONV) if f.name == NAME]
    assert not family.accepts(task)


@pytest.mark.parametrize("batch", [2, "batch"])
def test_no_layout_is_converted(batch: int | str) -> None:
    rng = np.random.default_rng(6)
    w = rng.standard_normal((64, 16, 1, 1)).astype(np.float32) / 4
    x = eqsat.input("x", (batch, 16, 20, 30))
    model = eqsat.graph(op.Relu(op.Conv(x, w, rng.standard_normal(64).astype(np.float32))))
    dims = {} if batch == 2 else {"batch": (1, 4)}
    compiled = CModel(eqsat.optimize(model, host="c", dims=dims).model, dims=dims)
    assert [kernel.family for kernel in compiled.emitted.kernels] == [NAME]
    values = {"x": rng.standard_normal((2, 16, 20, 30)).astype(np.float32)}
    (found,), (expected,) = (each.run(values).values() for each in (compiled, Executor(model)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
