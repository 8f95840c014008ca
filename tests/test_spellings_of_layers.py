"""Layers that exporters write in several ways: an accelerator described in one of them takes all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat import op

DENSE = """target rows
    summary "products of matrices with a bias and an activation, written as MatMul and Add"
    peak float32 = 1e12
    bandwidth = 1e11, launch = 1e-8, dispatch = 1e-8
    link bandwidth = 1e11, latency = 1e-8

    composite dense : real
        let product = MatMul(x, w)
        let sum = product + b | product
        Relu(sum) | sum
        where const(w, b), x.dtype == float32, x.rank == 2, w.rank == 2, not b.is_present or b.rank == 1
"""


def _float32(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def _agrees(source: onnx.ModelProto, result: eqsat.Result) -> None:
    """Executed by numpy and as C, as ONNX Runtime executes the input."""
    rng = np.random.default_rng(1)
    feed = {i.name: _float32(rng, *(d.dim_value for d in i.type.tensor_type.shape.dim)) for i in source.graph.input}
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = map(np.asarray, session.run(None, feed))
    for backend in ("numpy", "c"):
        (found,) = result.run(feed, backend=backend).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# ---- a dense layer ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [0, 1])
def test_a_kernel_of_matmul_and_add_takes_a_gemm(tmp_path: Path, transposed: int, bias: bool, alpha: float) -> None:
    (tmp_path / "rows.target").write_text(DENSE, encoding="utf-8")
    rng = np.random.default_rng(0)
    y = eqsat.input("x", (8, 16))
    for inner, outer in ((16, 32), (32, 4)):
        weights = _float32(rng, *((outer, inner) if transposed else (inner, outer)))
        operands = (weights, _float32(rng, outer)) if bias else (weights,)
        y = op.Relu(op.Gemm(y, *operands, transB=transposed, alpha=alpha))
    model = eqsat.graph(y)
    eqsat.save(model, tmp_path / "model.onnx")
    result = eqsat.optimize(model, targets=[str(tmp_path / "rows.target")])
    assert [(region.target, region.nodes) for region in result.regions] == [("rows", ("rows.dense", "rows.dense"))]
    _agrees(onnx.load(tmp_path / "model.onnx"), result)


# ---- a causal convolution --------------------------------------------------------------------------------------------


def _cut(shape: str, attributes: str, weights: tuple[int, ...], cut: str) -> onnx.ModelProto:
    """A convolution of which ``cut``, which names start, end and axis, leaves a part."""
    rank = shape.count(",") + 1
    result = ",".join(f"D{k}" for k in range(rank))
    start, end, axis = cut.split()
    source = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[{shape}] x) => (float[{result}] y)
        <int64[1] start = {{{start}}}, int64[1] end = {{{end}}}, int64[1] axis = {{{axis}}}> {{
        c = Conv<{attributes}>(x, w, b) s = Slice(c, start, end, axis) y = Relu(s)
    }}"""
    )
    rng = np.random.default_rng(0)
    for name, array in (("w", _float32(rng, *weights)), ("b", _float32(rng, weights[0]))):
        source.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return source


@pytest.mark.parametrize(
    ("attributes", "cut"),
    [
        ("dilations=[2],pads=[4,4]", "0 -4 2"),
        ("dilations=[2],pads=[4,4]", "4 1000 2"),
        ("dilations=[2],pads=[4,4]", "1 -2 -1"),
        ("pads=[4,4],strides=[2]", "1 -1 2"),
        ("pads=[3,5],strides=[2]", "-11 10 2"),
        ("pads=[3,4],strides=[3]", "1 -1 2"),
        ("group=2,pads=[2,2]", "0 -2 2"),
    ],
)
def test_a_convolution_pads_what_is_not_cut_off(attributes: str, cut: str) -> None:
    weights = (4, 2, 3) if "group" in attributes else (4, 4, 3)
    source = _cut("2,4,17", attributes, weights, cut)
    result = eqsat.optimize(source)
    assert Counter(node.op_type for node in result.model.graph) == {"Conv": 1, "Relu": 1}
    _agrees(source, result)


@pytest.mark.parametrize("cut", ["0 -3 2", "3 20 2", "0 2 1", "1 2 0"])
def test_a_cut_of_more_than_padding_stays(cut: str) -> None:
    source = _cut("2,4,17", "pads=[2,2]", (4, 4, 3), cut)
    result = eqsat.optimize(source)
    assert "Slice" in {node.op_type for node in result.model.graph}
    _agrees(source, result)


def test_the_padding_of_one_axis_of_an_image() -> None:
    source = _cut("1,4,9,8", "pads=[1,2,1,2],strides=[1,2]", (4, 4, 3, 3), "1 1000 3")
    result = eqsat.optimize(source)
    (conv,) = (node for node in result.model.graph if node.op_type == "Conv")
    assert list(conv.attributes["pads"].as_ints()) == [1, 0, 1, 2]
    assert "Slice" not in {node.op_type for node in result.model.graph}
    _agrees(source, result)
