"""Layers of Keras as tf2onnx writes them: parameters before training, attention by products of reshaped tensors, sizes
that are computed from the batch.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat

T, HEADS, WIDTH = 6, 4, 8
D = HEADS * WIDTH


def _agrees(source: onnx.ModelProto, result: eqsat.Result, *batches: int) -> None:
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    for n in batches:
        x = np.random.default_rng(n).standard_normal((n, T, D)).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        (found,) = result.run({"x": x}).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def _kinds(result: eqsat.Result) -> Counter[str]:
    return Counter(node.op_type for node in result.model.graph)


# ---- normalization before training ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", ["GlobalAveragePool", "ReduceMean<axes=[-1],keepdims=1>"])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (1, None), (None, 0), (None, None)])
def test_a_layer_normalization(mean: str, rank: int, scale: float | None, shift: float | None) -> None:
    shape = "1," * (rank - 1) + str(D)
    source = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[2,{T},{D}] x) => (float[2,{T},{D}] y) <float e = {{0.001}}> {{
        m = {mean}(x) mn = Neg(m) d = Sub(x, m) q = Mul(d, d) v = {mean}(q) w = Add(v, e)
        s = Sqrt(w) r = Reciprocal(s) k = Mul(r, scale) xk = Mul(x, k) mk = Mul(mn, k) c = Add(mk, shift) y = Add(xk, c)
    }}""".replace("scale)", "scale_)").replace("shift)", "shift_)")
    )
    dims = [int(d) for d in shape.split(",")]
    rng = np.random.default_rng(0)
    for name, number in (("scale_", scale), ("shift_", shift)):
        array = rng.uniform(0.5, 2, dims) if number is None else np.full(dims, number)
        source.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    result = eqsat.optimize(source)
    assert _kinds(result) == {"LayerNormalization": 1}
    _agrees(source, result, 2)


# ---- causal convolution --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_causal_convolution_pads_by_itself(mode: str, dilation: int) -> None:
    """Of one dimension with the channels last, as one of two with the channels first; two that follow each other."""
    reach = 2 * dilation
    source = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[2,{T},{D}] x) => (float[2,{T},{D}] y)
        <int64[6] first = {{0,{reach},0,0,0,0}}, int64[6] second = {{0,0,{reach},0,0,0}}, int64[1] two = {{2}},
         int64[1] one = {{1}}> {{
        p = Pad<mode="{mode}">(x, first) u = Unsqueeze(p, one) t = Transpose<perm=[0,3,1,2]>(u)
        c = Conv<dilations=[1,{dilation}]>(t, w0) r = Relu(c) s = Squeeze(r, two)
        q = Pad<mode="{mode}">(s, second) v = Unsqueeze(q, two) d = Conv<dilations=[1,{dilation}]>(v, w1)
        z = Squeeze(d, two) y = Transpose<perm=[0,2,1]>(z)
    }}"""
    )
    rng = np.random.default_rng(0)
    for name in ("w0", "w1"):
        weights = (rng.standard_normal((D, D, 1, 3)) / np.sqrt(3 * D)).astype(np.float32)
        source.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    result = eqsat.optimize(source)
    kinds = _kinds(result)
    assert kinds["Conv"] == 2 and kinds["Pad"] == (0 if mode == "constant" else 2), kinds
    if mode == "constant":
        assert kinds == {"Conv": 2, "Relu": 1, "Transpose": 2}
    _agrees(source, result, 2)


# ---- attention -----------------------------------------------------------------------------------------------------


def _einsum(k: str, a: str, b: str, rows: tuple[str, str]) -> str:
    """A product of two tensors with a batch, as tf2onnx takes an equation apart: batches and heads become one."""
    return f"""
        shape_{k}a = Shape({a})
        shape_{k}b = Shape({b})
        lead_{k}a = Gather(shape_{k}a, both)
        lead_{k}b = Gather(shape_{k}b, both)
        lead_{k} = Max(lead_{k}a, lead_{k}b)
        count_{k}a = ReduceProd<axes=[0],keepdims=1>(lead_{k}a)
        count_{k}b = ReduceProd<axes=[0],keepdims=1>(lead_{k}b)
        last_{k}a = Gather(shape_{k}a, end)
        last_{k}b = Gather(shape_{k}b, end)
        to_{k}a = Concat<axis=0>(count_{k}a, open, last_{k}a)
        to_{k}b = Concat<axis=0>(count_{k}b, open, last_{k}b)
        flat_{k}a = Reshape({a}, to_{k}a)
        flat_{k}b = Reshape({b}, to_{k}b)
        turned_{k}b = Transpose<perm=[0,2,1]>(flat_{k}b)
        product_{k} = MatMul(flat_{k}a, turned_{k}b)
        rows_{k} = Gather(shape_{k}a, {rows[0]})
        columns_{k} = Gather(shape_{k}b, {rows[1]})
        back_{k} = Concat<axis=0>(lead_{k}, rows_{k}, columns_{k}, one)
        {k}5 = Reshape(product_{k}, back_{k})
        {k} = Squeeze({k}5, four)
    """


def _attention(batch: str) -> onnx.ModelProto:
    heads = "\n".join(
        f"{n}p = MatMul(x, w{n}) {n}h = Reshape({n}p, heads) {n}u = Unsqueeze({n}h, {axis}) "
        f"{n} = Transpose<perm={perm}>({n}u)"
        for n, axis, perm in (("q", "three", "[0,2,1,3,4]"), ("k", "one", "[0,3,2,1,4]"), ("v", "two", "[0,3,2,4,1]"))
    )
    text = f"""<ir_version: 8, opset_import: ["": 17]>
g (float[{batch},{T},{D}] x) => (float[{batch},{T},{D}] y)
    <int64[4] heads = {{-1,{T},{HEADS},{WIDTH}}}, int64[2] both = {{0,1}}, int64[1] end = {{4}}, int64[1] open = {{-1}},
     int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] four = {{4}},
     float c = {{0.35355338}}, int64[3] wide = {{-1,{T},{D}}}> {{
    {heads}
    {_einsum("s", "q", "k", ("two", "three"))}
    scaled = Mul(s, c)
    p = Softmax<axis=-1>(scaled)
    pu = Unsqueeze(p, three)
    {_einsum("o", "pu", "v", ("two", "three"))}
    t = Transpose<perm=[0,2,1,3]>(o)
    y = Reshape(t, wide)
}}"""
    # The keys lie in the third of four dimensions, after one of size 1; those of the values in the last.
    text = text.replace("columns_s = Gather(shape_sb, three)", "columns_s = Gather(shape_sb, two)")
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for n in "qkv":
        weights = (rng.standard_normal((D, D)) / np.sqrt(D)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, f"w{n}"))
    return model


@pytest.mark.parametrize("batch", ["2", "1", "N"])
def test_attention_whose_equations_were_taken_apart(batch: str) -> None:
    source = _attention(batch)
    result = eqsat.optimize(source)
    kinds = _kinds(result)
    assert kinds["Attention"] == 1, kinds
    assert not kinds.keys() & {"Softmax", "Shape", "ReduceProd", "Max"}, kinds
    _agrees(source, result, *((1, 3) if batch == "N" else (int(batch),)))
