"""Pooling of rows in types other than float32, on every instruction set, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.kernels.loops.test_doubles import compiled

WINDOWS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 3, 9, 31), dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    ((2, 3, 8, 65), dict(kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 1, 2], ceil_mode=1)),
    ((1, 2, 9, 33), dict(kernel_shape=[3, 2], dilations=[2, 3], strides=[1, 3])),
    ((1, 5, 129), dict(kernel_shape=[5], strides=[2], pads=[2, 2])),
    ((1, 2, 4, 5, 17), dict(kernel_shape=[2, 3, 2], pads=[1, 1, 0, 0, 1, 1])),
    ((3, 1, 7, 1), dict(kernel_shape=[3, 1], pads=[1, 0, 1, 0])),
)
"""Shapes and windows: 1 to 3 axes, with borders at each side, strides, dilations, rows of one element."""


def model(dtype: str, kinds: tuple[str, ...]) -> ir.Model:
    results = []
    for number, (shape, attributes) in enumerate(WINDOWS):
        x = eqsat.input(f"x{number}", shape, dtype)
        results += [getattr(op, kind)(x, **attributes) for kind in kinds]
    return eqsat.graph(results)


@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "float64", "float16"])
def test_as_onnx_runtime(dtype: str, isa: Isa) -> None:
    kinds = ("MaxPool", "AveragePool") if dtype.startswith("float") else ("MaxPool",)
    made = model(dtype, kinds)
    program = compiled(made, isa)
    families = {kernel.family for kernel in program.emitted.kernels if kernel.task.operator.name != "Identity"}
    assert dtype == "float16" or "pooling of rows" in families
    feeds = complete_inputs(load(made), seed=4)
    if dtype.startswith("float"):
        for x in feeds.values():
            x.flat[[1, -1]] = np.inf, -np.inf
    # ONNX Runtime has no means of float64.
    oracle = "float32" if dtype == "float64" else dtype
    given = {name: x.astype(oracle) for name, x in feeds.items()}
    unit = {"float64": 1e-7, "float16": 1e-3}.get(dtype, 0)
    wanted = session(model(oracle, kinds)).run(None, given)
    for (name, found), want in zip(program.run(feeds).items(), wanted, strict=True):
        np.testing.assert_allclose(found, np.asarray(want), rtol=8 * unit, atol=8 * unit, err_msg=name)


def session(made: ir.Model) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(ir.to_proto(made).SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_free_side() -> None:
    """The rows of a free size, of which the greatest fits."""
    x = eqsat.input("x", (1, 3, "h", "w"), "float64")
    made = eqsat.graph(op.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    program = CModel(load(made), dims={"h": (1, 9), "w": (1, 40)})
    assert [kernel.family for kernel in program.emitted.kernels] == ["pooling of rows"]
    oracle = session(made)
    for h, w in ((1, 1), (2, 40), (9, 17), (8, 16)):
        feeds = {"x": np.random.default_rng(h).standard_normal((1, 3, h, w))}
        (found,), (wanted,) = program.run(feeds).values(), oracle.run(None, feeds)
        np.testing.assert_array_equal(found, wanted)
