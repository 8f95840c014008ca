"""Quantized graphs as whole programs: bit-equal to the numpy executor, within one step of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.quantization.runtime import has_exact_products

HEAD = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>'


def both(text: str, **feeds: np.ndarray) -> CModel:
    """Run a model as C and by the executor, equal to the bit, and where its products are exact by ONNX Runtime."""
    model = load(HEAD + text)
    compiled = CModel(model)
    found, expected = compiled.run(feeds), Executor(load(HEAD + text)).run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    if not has_exact_products():
        return compiled
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx.parser.parse_model(HEAD + text).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for name, peer in zip(expected, session.run(list(expected), feeds), strict=True):
        assert np.abs(found[name].astype(np.int64) - np.asarray(peer)).max() <= 1
    return compiled


def families(compiled: CModel) -> list[str]:
    return [kernel.family for kernel in compiled.emitted.kernels]


def numbers(values) -> str:
    return ", ".join(str(v) for v in values)


def table(dtype: str, seed: int) -> str:
    values = np.random.default_rng(seed).integers(0, 127, 256)
    return f"{dtype}[256] t = {{{numbers(values)}}}"


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("index", [6, 7], ids=["int32", "int64"])
def test_looking_bytes_up(dtype, index):
    text = f"""g ({dtype}[2, 3, 50] x) => ({dtype}[2, 3, 50] y) <{table(dtype, 1)}> {{
        i = Cast<to={index}>(x)
        y = Gather<axis=0>(t, i)
    }}"""
    info = np.iinfo(dtype)
    x = np.random.default_rng(2).integers(info.min, info.max + 1, (2, 3, 50)).astype(dtype)
    assert families(both(text, x=x)) == ["table of bytes"]


def test_table_that_is_too_short_stays_a_gather():
    """Its indices are not all inside: what is outside must not happen, but must not be assumed either."""
    text = """g (uint8[10] x) => (uint8[10] y) <uint8[4] t = {9, 8, 7, 6}> {
        i = Cast<to=6>(x)
        y = Gather<axis=0>(t, i)
    }"""
    found = both(text, x=np.array([0, 1, 2, 3, 3, 2, 1, 0, 0, 0], np.uint8))
    assert "table of bytes" not in families(found)


def test_concatenation_converts_in_the_producers():
    """Three operands: one as it is, one converted in its convolution's epilogue, one by a table."""
    rng = np.random.default_rng(3)
    w = numbers(rng.integers(-127, 128, 6 * 8))
    text = f"""g (uint8[1, 8, 16, 16] x) => (uint8[1, 20, 16, 16] y)
        <float s = {{0.1}}, uint8 z = {{120}}, float sw = {{0.01}}, int8 zw = {{0}}, int8[6, 8, 1, 1] w = {{{w}}},
         float s2 = {{0.07}}, uint8 z2 = {{3}}, float s3 = {{0.3}}, uint8 z3 = {{130}}> {{
        a = QLinearConv(x, s, z, w, sw, zw, s, z)
        b = QLinearConv(x, s, z, w, sw, zw, s2, z2)
        y = com.microsoft.QLinearConcat<axis=1>(s, z, a, s, z, b, s2, z2, x, s3, z3)
    }}"""
    compiled = both(text, x=rng.integers(0, 256, (1, 8, 16, 16)).astype(np.uint8))
    assert families(compiled).count("integer convolution") == 2
    assert not any("concat" in name for name in families(compiled))


def test_residual_network_block():
    """Convolution, depthwise convolution, sum, clip and mean in one program, with a halo between them."""
    rng = np.random.default_rng(4)
    w1, w2 = numbers(rng.integers(-127, 128, 20 * 20)), numbers(rng.integers(-127, 128, 20 * 9))
    text = f"""g (float[2, 20, 9, 9] x) => (uint8[2, 20, 1, 1] y, uint8[2, 20, 9, 9] c)
        <float s = {{0.05}}, uint8 z = {{128}}, float sw = {{0.01}}, int8 zw = {{0}}, uint8 low = {{100}},
         uint8 high = {{200}},
         int8[20, 20, 1, 1] w1 = {{{w1}}}, int8[20, 1, 3, 3] w2 = {{{w2}}}, float sy = {{0.11}}, uint8 zy = {{117}}> {{
        q = QuantizeLinear(x, s, z)
        a = QLinearConv(q, s, z, w1, sw, zw, sy, zy)
        b = QLinearConv<group=20, pads=[1, 1, 1, 1]>(a, sy, zy, w2, sw, zw, s, z)
        d = com.microsoft.QLinearAdd(b, s, z, q, s, z, sy, zy)
        c = Clip(d, low, high)
        y = com.microsoft.QLinearGlobalAveragePool<channels_last=0>(c, sy, zy, s, z)
    }}"""
    compiled = both(text, x=(rng.standard_normal((2, 20, 9, 9)) * 3).astype(np.float32))
    # The sum and the clip are computed where the depthwise convolution stores its result; what is left on its own is
    # the quantization of the input and the transposition of an output.
    assert sorted(families(compiled)) == [
        "elementwise bytes",
        "elementwise bytes",
        "integer convolution",
        "integer depthwise convolution",
        "integer mean pooling",
    ]


def test_attention_products():
    """Both matrices computed, one of them transposed, and the projection after them."""
    rng = np.random.default_rng(5)
    w = numbers(rng.integers(-127, 128, 24 * 24))
    text = f"""g (uint8[2, 10, 24] x) => (uint8[2, 10, 24] y)
        <float s = {{0.05}}, uint8 z = {{120}}, float sw = {{0.01}}, int8 zw = {{0}}, int8[24, 24] w = {{{w}}},
         float sp = {{0.4}}, uint8 zp = {{60}}, int64[4] shape = {{2, 10, 3, 8}}, int64[3] back = {{2, 10, 24}}> {{
        p = QLinearMatMul(x, s, z, w, sw, zw, s, z)
        h = Reshape(p, shape)
        q = Transpose<perm=[0, 2, 1, 3]>(h)
        k = Transpose<perm=[0, 2, 3, 1]>(h)
        a = QLinearMatMul(q, s, z, k, s, z, sp, zp)
        v = QLinearMatMul(a, sp, zp, q, s, z, sp, zp)
        t = Transpose<perm=[0, 2, 1, 3]>(v)
        y = Reshape(t, back)
    }}"""
    compiled = both(text, x=rng.integers(0, 256, (2, 10, 24)).astype(np.uint8))
    assert families(compiled).count("integer matrix product") == 3
