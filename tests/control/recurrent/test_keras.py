"""Recurrent layers of Keras as tf2onnx writes them: a `while` over a counter, sizes by way of int32, a free batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.model.load import load
from tests.control.flows import checked

T, WIDTH, H = 6, 5, 8

LAYER = """
    sizes{k} = Shape({x})
    narrow{k} = Cast<to=6>(sizes{k})
    batch{k} = Slice(narrow{k}, nought, one, nought)
    packed{k} = Concat<axis=0>(batch{k}, units)
    wide{k} = Cast<to=7>(packed{k})
    zeros{k} = Expand(zero, wide{k})
    rows{k} = Transpose<perm=[1,0,2]>({x})
    going{k} = And(below, below)
    time{k}, state{k}, w{k}_1, r{k}_1, b{k}_1, stacked{k} = Loop<body = body{k} (
        int64 i, bool go, int32 t, float[m,{h}] s, float[{i},{g}] w, float[{h},{g}] r, float[2,{g}] b
    ) => (bool on, int32 t2, float[m2,{h}] s2, float[{i},{g}] w2, float[{h},{g}] r2, float[2,{g}] b2, float[m3,{h}] row)
    <int32 step = {{1}}, float most = {{{t}.0}}, float ones = {{1.0}}, int64[1] first = {{0}},
     int64[2] from0 = {{0,0}}, int64[2] from1 = {{0,{h}}}, int64[2] from2 = {{0,{hh}}},
     int64[2] to0 = {{2147483647,{h}}}, int64[2] to1 = {{2147483647,{hh}}},
     int64[2] to2 = {{2147483647,2147483647}}, int64[2] axes = {{0,1}}> {{
        t2 = Add(t, step)
        tf = Cast<to=1>(t2)
        if = Cast<to=1>(i)
        below0 = Less(if, most)
        below1 = Less(tf, most)
        on = And(below0, below1)
        xt = Gather<axis=0>(rows{k}, t)
        bx, bh = Split<axis=0,num_outputs=2>(b)
        bx1 = Squeeze(bx, first)
        bh1 = Squeeze(bh, first)
        xw0 = MatMul(xt, w)
        xw = Add(xw0, bx1)
        sr0 = MatMul(s, r)
        sr = Add(sr0, bh1)
        {cell}
        w2 = Identity(w)
        r2 = Identity(r)
        b2 = Identity(b)
        row = Identity(s2)
    }}>(rounds, going{k}, start, zeros{k}, w{k}, r{k}, b{k})
    y{k} = Transpose<perm=[1,0,2]>(stacked{k})
"""
GRU = """xz, xr, xh = Split<axis=-1,num_outputs=3>(xw)
        hz = Slice(sr, from0, to0, axes)
        hr = Slice(sr, from1, to1, axes)
        hh = Slice(sr, from2, to2, axes)
        z0 = Add(xz, hz)
        z = Sigmoid(z0)
        before = Add(xr, hr)
        reset = Sigmoid(before)
        h0 = Mul(reset, hh)
        h1 = Add(xh, h0)
        h = Tanh(h1)
        zn = Sub(ones, z)
        old = Mul(z, s)
        new = Mul(zn, h)
        s2 = Add(old, new)"""
RNN = """sum = Add(xw, sr)
        s2 = Tanh(sum)"""


FREE = """steps = Shape<start=1, end=2>(x)
    narrow = Cast<to=6>(steps)
    length = Squeeze(narrow, nought)
    end = Cast<to=1>(length)
    most = Cast<to=1>(length)
    rounds = Cast<to=7>(length)
    below"""


def layers(cell: str, gates: int, *, free: bool = False) -> onnx.ModelProto:
    """Two layers; the second reads what the first stacks. A free length is compared as a float, twice in each round."""
    sizes = dict(h=H, hh=2 * H, g=gates * H, t=T, cell=cell)
    text = f"""<ir_version: 8, opset_import: ["": 18]>
g (float[N,{T},{WIDTH}] x) => (float[N,{T},{H}] y1)
    <int64[1] nought = {{0}}, int64[1] one = {{1}}, int32[1] units = {{{H}}}, float zero = {{0.0}},
     float begin = {{0.0}}, float end = {{{T}.0}}, int64 rounds = {{{T}}}, int32 start = {{0}}> {{
    below = Less(begin, end)
    {LAYER.format(k=0, x="x", i=WIDTH, **sizes)}
    {LAYER.format(k=1, x="y0", i=H, **sizes)}
}}"""
    if free:
        text = (
            text.replace(f"[N,{T},", "[N,L,").replace(f"float most = {{{T}.0}}, ", "").replace("below =", f"{FREE} =")
        )
        text = text.replace(f", float end = {{{T}.0}}, int64 rounds = {{{T}}}", "")
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for k, inputs in enumerate((WIDTH, H)):
        for name, shape in ((f"w{k}", (inputs, gates * H)), (f"r{k}", (H, gates * H)), (f"b{k}", (2, gates * H))):
            array = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def feeds(*sizes: int) -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(n).standard_normal((n, T, WIDTH)).astype(np.float32)} for n in sizes]


@pytest.mark.slow
@pytest.mark.parametrize(("op", "cell", "gates"), [("GRU", GRU, 3), ("RNN", RNN, 1)])
def test_layers_of_keras_are_operators_for_any_batch(op: str, cell: str, gates: int, tmp_path: Path) -> None:
    result = checked(layers(cell, gates), tmp_path, feeds(1, 3, 8))
    kinds = [node.op_type for node in result.model.graph]
    assert kinds.count(op) == 2 and "Loop" not in kinds, kinds


@pytest.mark.slow
@pytest.mark.parametrize(("op", "cell", "gates"), [("GRU", GRU, 3), ("RNN", RNN, 1)])
def test_sequences_may_have_any_length(op: str, cell: str, gates: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    given = [{"x": rng.standard_normal((*n, WIDTH)).astype(np.float32)} for n in ((1, 1), (2, 9), (3, 17))]
    result = checked(layers(cell, gates, free=True), tmp_path, given)
    kinds = [node.op_type for node in result.model.graph]
    assert kinds.count(op) == 2 and "Loop" not in kinds, kinds


def test_the_input_costs_as_many_rounds_as_it_runs() -> None:
    """The number of rounds is a size that operators on shapes make."""
    source = layers(RNN, 1, free=True)
    short, long = (eqsat.optimize(source, dims={"L": n, "N": 1}, verify=False).summary for n in (10, 160))
    assert 8 < long.before.cost / short.before.cost < 16
    assert long.after.cost < long.before.cost


def test_what_leaves_a_loop_has_the_size_that_entered() -> None:
    """The size enters as a symbol that is known only once arithmetic of shapes is followed."""
    model = load(layers(GRU, 3))
    node = next(node for node in model.graph if node.op_type == "Loop")
    assert [str(d) for d in node.outputs[1].shape or ()] == ["N", str(H)]


def test_a_loop_without_a_condition_does_not_stop_the_inference_of_symbols() -> None:
    source = layers(RNN, 1)
    for node in source.graph.node:
        if node.op_type == "Loop":
            node.input[1] = ""
    view = onnx.helper.make_node("Reshape", ["x", "rows"], ["z"])
    shape = [onnx.helper.make_node("Concat", ["batch0", "narrow"], ["rows32"], axis=0),
             onnx.helper.make_node("Cast", ["rows32"], ["rows"], to=7)]  # fmt: skip
    source.graph.node.extend([*shape, view])
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1], np.int32), "narrow"))
    source.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, None))
    z = load(source).graph.outputs[1]
    assert z.shape is not None and str(z.shape[0]) == "N" and z.shape[1] == T * WIDTH


@pytest.mark.parametrize("n", [1, 3])
def test_layers_of_keras_in_c_with_a_free_batch(n: int) -> None:
    source, (feed,) = layers(RNN, 1), feeds(n)
    expected = eqsat.run(source, feed)["y1"]
    compiled = eqsat.compile(source, dims={"N": (1, 4, 1)})
    np.testing.assert_allclose(compiled(feed)["y1"], expected, rtol=1e-5, atol=1e-6)
