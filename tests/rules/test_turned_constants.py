"""Composites match constants that a model stores in another order of axes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from eqsat.model.load import load
from eqsat.rules.ast import Match
from eqsat.rules.reader import read_text
from eqsat.rules.turned_constants import operators_on_constants, turned_constants
from eqsat.schema.types import OpKey
from eqsat.targets.find_targets import list_targets, load_targets
from tests.model.running import random_inputs, run_ort

HEAD = """target near
    peak float32 = 500e9
    bandwidth = 20e9, launch = 1e-7, dispatch = 1e-7
    link bandwidth = 1e12, latency = 1e-8
    composite kernel : real
"""
DENSE = {
    "rows of outputs": ("MatMul(x, Transpose(w, perm=[1, 0])) + b", ""),
    "rows of inputs": ("MatMul(x, w) + b", ""),
    "Gemm, rows of outputs": ("Gemm(x, w, b, transB=1)", ""),
    "Gemm, rows of inputs": ("Gemm(x, w, b)", ", y.transB == 0"),
    "Gemm, by a condition": ("Gemm(x, w, b)", ", y.transB == 1"),
}


def dense(name: str) -> str:
    product, condition = DENSE[name]
    return f"        let y = {product}\n        Relu(y) | y\n        where const(w, b){condition}\n"


LAYERS: dict[str, Callable[[Tensor, np.ndarray, np.ndarray], Tensor]] = {
    "Gemm with transB": lambda x, w, b: op.Gemm(x, w, b, transB=1),
    "Gemm": lambda x, w, b: op.Gemm(x, np.ascontiguousarray(w.T), b),
    "MatMul": lambda x, w, b: op.MatMul(x, np.ascontiguousarray(w.T)) + b,
    "MatMul of a transposed constant": lambda x, w, b: b + op.MatMul(x, op.Transpose(w, perm=[1, 0])),
    "Einsum": lambda x, w, b: op.Einsum(x, w, equation="ni,oi->no") + b,
}


def placed(y: Tensor, body: str, folder: Path) -> tuple[tuple[str, ...], ...]:
    """The kernels of each region, once values were compared with ONNX Runtime."""
    near = folder / "near.target"
    near.write_text(HEAD + body, encoding="utf-8")
    model = load(eqsat.graph(y))
    result = eqsat.optimize(model, targets=[str(near)])
    feed = random_inputs(model, seed=1)
    for found, wanted in zip(result.run(feed).values(), run_ort(model, feed), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    return tuple(region.nodes for region in result.regions)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [24, 96], ids=["small", "large"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kernel", DENSE)
def test_dense_layers_are_one_kernel_in_each_order(kernel: str, layer: str, outputs: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((outputs, 64)).astype(np.float32) / 8
    b = rng.standard_normal(outputs).astype(np.float32)
    y = op.Relu(LAYERS[layer](eqsat.input("x", (8, 64)), w, b))
    assert placed(y, dense(kernel), tmp_path) == (("near.kernel",),)


def test_weights_of_a_convolution_with_channels_innermost(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32) / 6
    body = "        Conv(x, Transpose(w, perm=[0, 3, 1, 2]), b?)\n        where const(w, b)\n"
    assert placed(op.Conv(eqsat.input("x", (1, 4, 9, 9)), w), body, tmp_path) == (("near.kernel",),)


def test_the_order_of_what_is_no_constant_stays(tmp_path: Path) -> None:
    y = op.MatMul(eqsat.input("x", (8, 64)), eqsat.input("w", (64, 96)))
    body = "        MatMul(x, Transpose(w, perm=[1, 0]))\n        where const(w)\n"
    assert placed(y, body, tmp_path) == (("MatMul",),)


def test_a_place_is_asked_for_once() -> None:
    text = HEAD + dense("rows of outputs") + "    composite other : real\n" + dense("rows of outputs")
    targets = read_text(text, "near.target").targets
    (rule,) = turned_constants(targets)
    assert rule.doc == "A constant as near.kernel reads it, transposed from another one."
    assert isinstance(rule.left[0], Match) and rule.left[0].ops == (OpKey("", "MatMul"),)
    assert operators_on_constants(targets) == {OpKey("", "Transpose")}


def test_shipped_targets_read_constants_as_models_store_them() -> None:
    for name in list_targets():
        assert turned_constants(load_targets([name])) == ()
