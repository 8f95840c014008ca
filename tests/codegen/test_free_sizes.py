"""C that receives sizes as arguments: right for every size in the range, by values beside ONNX Runtime."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.cli import main
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernels.shared.families import families
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.symbols import symbols
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import runnable
from tests.codegen.ways import SANITIZERS

HEAD = '<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>'
RANGES = {"b": (1, 8, 1), "s": (1, 64, 16)}
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
FLAGS = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")


def weights(name: str, *shape: int) -> str:
    """An initializer in ONNX's text."""
    values = np.random.default_rng(len(shape)).standard_normal(shape).ravel()
    return f"float[{','.join(map(str, shape))}] {name} = {{{','.join(f'{x:.4f}' for x in values)}}}"


CASES = {
    "elementwise": "(float[b,s,6] x, float[6] z) => (float[b,s,6] y) {t = Add(x, z) u = Relu(t) y = Mul(u, x)}",
    "one size twice": "(float[s,s] x) => (float[s,s] y) {t = Transpose<perm=[1,0]>(x) y = Add(x, t)}",
    "broadcast": "(float[b,s,8] x, float[b,1,8] m) => (float[b,s,8] y) {t = Mul(x, m) y = Sigmoid(t)}",
    "where": "(float[b,s] x, bool[b,s] m) => (float[b,s] y) {c = Constant<value_float=-9.0>() y = Where(m, x, c)}",
    "float16": "(float16[b,s] x) => (float16[b,s] y) {t = Abs(x) y = Add(t, x)}",
    "product": f"(float[b,s,24] x) => (float[b,s,40] y) <{weights('w', 24, 40)}> {{y = MatMul(x, w)}}",
    "product with steps": f"(float[b,s,5] x) => (float[b,s,19] y) <{weights('w', 5, 19)}, {weights('c', 19)}> "
    "{t = MatMul(x, w) u = Add(t, c) y = Relu(u)}",
    "gemm": f"(float[s,24] x) => (float[s,7] y) <{weights('w', 7, 24)}, {weights('c', 7)}> "
    "{y = Gemm<transB=1>(x, w, c)}",
    "scores": "(float[b,2,s,8] q, float[b,2,s,8] k) => (float[b,2,s,s] y) "
    "{t = Transpose<perm=[0,1,3,2]>(k) y = MatMul(q, t)}",
    "mixing": "(float[b,2,s,s] p, float[b,2,s,24] v) => (float[b,2,s,24] y) {y = MatMul(p, v)}",
    "softmax": "(float[b,2,s,s] p) => (float[b,2,s,s] y) {y = Softmax<axis=-1>(p)}",
    "softmax of columns": "(float[b,s,6] p) => (float[b,s,6] y) {y = Softmax<axis=1>(p)}",
    "normalization": f"(float[b,s,24] x) => (float[b,s,24] y) <{weights('w', 24)}, {weights('c', 24)}> "
    "{y = LayerNormalization(x, w, c)}",
    "heads": "(float[b,s,24] x) => (float[b,3,s,8] y) {h = Shape<start=0,end=2>(x) r = Constant<value_ints=[3,8]>() "
    "f = Concat<axis=0>(h, r) t = Reshape(x, f) y = Transpose<perm=[0,2,1,3]>(t)}",
    "padded to a multiple": "(float[1,1,s,4] x) => (float[1,1,p,q] y) {n = Shape<start=2,end=3>(x) "
    "f = Constant<value_ints=[4]>() m = Mod(n, f) d = Sub(f, m) e = Mod(d, f) z = Constant<value_ints=[0,0,0,0,0,0]>() "
    "o = Constant<value_ints=[0]>() a = Concat<axis=0>(z, e, o) t = Pad(x, a) "
    "y = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(t)}",
    "padded and cut into windows": "(float[b,s,4] x) => (float[b,p,7,4] y) {n = Shape<start=1,end=2>(x) "
    "f = Constant<value_ints=[7]>() m = Mod(n, f) d = Sub(f, m) e = Mod(d, f) z = Constant<value_ints=[0,0,0,0]>() "
    "o = Constant<value_ints=[0]>() a = Concat<axis=0>(z, e, o) t = Pad(x, a) h = Shape<end=1>(x) k = Add(n, e) "
    "w = Div(k, f) q = Constant<value_ints=[4]>() r = Concat<axis=0>(h, w, f, q) u = Reshape(t, r) y = Exp(u)}",
    "heads joined": "(float[b,3,s,8] x) => (float[b,s,24] y) {t = Transpose<perm=[0,2,1,3]>(x) "
    "f = Constant<value_ints=[0,0,24]>() y = Reshape(t, f)}",
    "axes joined": "(float[b,s,8] x) => (float[n,8] y) {f = Constant<value_ints=[-1,8]>() y = Reshape(x, f)}",
    "axes joined that may be empty": "(float[b,s,8] x) => (float[n,8] y) {n = Shape<end=2>(x) "
    "f = Constant<value_ints=[2,4]>() e = Div(n, f) z = Constant<value_ints=[0,0]>() i = Constant<value_ints=[0,1]>() "
    "t = Slice(x, z, e, i) r = Constant<value_ints=[-1,8]>() y = Reshape(t, r)}",
    "transposed copy": "(float[b,s,8] x) => (float[8,s,b] y) {y = Transpose<perm=[2,1,0]>(x)}",
    "concatenation": "(float[b,s,8] x, float[b,3,8] z) => (float[b,n,8] y) {t = Exp(x) y = Concat<axis=1>(t, z)}",
    "last of an axis": "(float[b,s,8] x) => (float[b,1,8] y) {a = Constant<value_ints=[-1]>() "
    "e = Constant<value_ints=[9223372036854775807]>() i = Constant<value_ints=[1]>() t = Slice(x, a, e, i) y = Neg(t)}",
    "first of an axis": "(float[b,s,8] x) => (float[b,8] y) {i = Constant<value_int=0>() t = Gather<axis=1>(x, i) "
    "y = Tanh(t)}",
    "attention": "(float[b,4,s,16] x, float[b,2,s,16] z) => (float[b,4,s,16] y) {y = Attention<is_causal=1>(x, z, z)}",
    "attention with a cache": "(float[b,2,1,16] x, float[b,2,s,16] z) => (float[b,2,1,16] y, float[b,2,t,16] k, "
    "float[b,2,t,16] v) {y, k, v = Attention(x, x, x, , z, z)}",
    "positions": f"(float[b,s,8] x) => (float[b,s,8] y) <{weights('w', 1, 64, 8)}> {{n = Shape<start=1,end=2>(x) "
    "z = Constant<value_ints=[0]>() i = Constant<value_ints=[1]>() p = Slice(w, z, n, i) y = Add(x, p)}",
    "embedding": f"(int64[b,s] x) => (float[b,s,8] y) <{weights('w', 30, 8)}> {{y = Gather<axis=0>(w, x)}}",
    "mean": "(float[b,s,8] x) => (float[b,8] y) {a = Constant<value_ints=[1]>() y = ReduceMean<keepdims=0>(x, a)}",
    "expanded": "(float[s,8] x, float[b] z) => (float[b,s,8] y) {h = Shape(z) i = Shape(x) f = Concat<axis=0>(h, i) "
    "t = Expand(x, f) y = Exp(t)}",
    "sizes as data": "(float[b,s,8] x) => (float[b,s,8] y, int64[3] n) {n = Shape(x) m = Shape<start=1,end=2>(x) "
    "f = Cast<to=1>(m) q = Sqrt(f) y = Div(x, q)}",
    "range": "(float[b,s,8] x) => (float[b,s,8] y) {n = Shape<start=1,end=2>(x) q = Squeeze(n) "
    "z = Constant<value_int=0>() o = Constant<value_int=1>() r = Range(z, q, o) f = Cast<to=1>(r) "
    "a = Constant<value_ints=[1]>() u = Unsqueeze(f, a) y = Add(x, u)}",
    "several sizes": "(float[b,s,8] x) => (float[b,p,8] y, float[q] r) {n = Shape<start=0,end=1>(x) "
    "m = Shape<start=1,end=2>(x) a = Constant<value_ints=[5]>() e = Min(a, n, m) z = Constant<value_ints=[0]>() "
    "i = Constant<value_ints=[1]>() t = Slice(x, z, e, i) y = Neg(t) f = Max(n, a, m) r = ConstantOfShape(f)}",
    "pads": "(float[b,s,8] x) => (float[b,p,8] y) {f = Constant<value_ints=[0,1,0,0,2,0]>() y = Pad(x, f)}",
    "edges": "(float[b,s,8] x) => (float[b,p,8] y) "
    '{f = Constant<value_ints=[0,1,0,0,2,0]>() y = Pad<mode="edge">(x, f)}',
    "cropped pads": "(float[b,s,8] x) => (float[b,p,7] y) {f = Constant<value_ints=[0,2,-3,0,-1,2]>() y = Pad(x, f)}",
    **{
        f"cropped {mode} {left} {right}": "(float[b,s,8] x) => (float[b,p,8] y) {t = Concat<axis=1>(x, x, x) "
        f'f = Constant<value_ints=[0,{left},0,0,{right},0]>() y = Pad<mode="{mode}">(t, f)}}'
        for mode in ("edge", "reflect", "wrap")
        for left, right in ((-1, 1), (1, -1))
    },
    "halves": "(float[b,s,8] x) => (float[b,s,4] y, float[b,s,4] z) {y, z = Split<axis=2,num_outputs=2>(x)}",
    "uneven parts": "(float[b,s,8] x, float[b,1,8] c) => (float[b,p,8] y, float[b,q,8] z) "
    "{t = Concat<axis=1>(x, c) y, z = Split<axis=1,num_outputs=2>(t)}",
    "backwards": "(float[b,s,8] x) => (float[b,p,8] y) {a = Constant<value_ints=[-1]>() "
    "e = Constant<value_ints=[-9999]>() i = Constant<value_ints=[1]>() k = Constant<value_ints=[-1]>() "
    "t = Slice(x, a, e, i, k) y = Neg(t)}",
    "in steps": "(float[b,s,8] x) => (float[b,p,8] y) {a = Constant<value_ints=[2]>() "
    "e = Constant<value_ints=[-1]>() i = Constant<value_ints=[1]>() k = Constant<value_ints=[3]>() "
    "t = Slice(x, a, e, i, k) y = Neg(t)}",
    "convolution": f"(float[b,3,9,9] x) => (float[b,20,9,9] y) <{weights('w', 20, 3, 3, 3)}, {weights('c', 20)}> "
    "{t = Conv<pads=[1,1,1,1]>(x, w, c) y = Relu(t)}",
    "convolution of free sides": f"(float[1,3,s,b] x) => (float[1,20,p,q] y) <{weights('w', 20, 3, 3, 3)}> "
    "{y = Conv<pads=[1,1,1,1],strides=[2,2]>(x, w)}",
    "convolution of one axis": f"(float[b,3,s] x) => (float[b,20,p] y) <{weights('w', 20, 3, 3)}> "
    "{t = Conv<pads=[1,1]>(x, w) y = Relu(t)}",
    "depthwise convolution": f"(float[1,16,s,b] x) => (float[1,16,p,q] y) <{weights('w', 16, 1, 3, 3)}> "
    "{y = Conv<pads=[1,1,1,1],group=16>(x, w)}",
    "transposed convolution": f"(float[b,12,5,5] x) => (float[b,20,10,10] y) <{weights('w', 12, 20, 3, 3)}> "
    "{t = ConvTranspose<pads=[1,1,1,1],strides=[2,2],output_padding=[1,1]>(x, w) y = Relu(t)}",
    "transposed convolution of free sides": f"(float[1,12,s,b] x) => (float[1,20,p,q] y) "
    f"<{weights('w', 12, 20, 3, 3)}> {{y = ConvTranspose<pads=[1,1,1,1],strides=[2,2]>(x, w)}}",
    "deformable convolution": f"(float[b,5,6,s] x, float[b,18,6,s] o, float[b,9,6,s] m) => (float[b,20,6,s] y) "
    f"<{weights('w', 20, 5, 3, 3)}, {weights('c', 20)}> "
    "{t = DeformConv<kernel_shape=[3,3],pads=[1,1,1,1]>(x, w, o, c, m) y = Relu(t)}",
    "deformable convolution of free sides": f"(float[1,5,s,b] x, float[1,18,s,b] o) => (float[1,20,s,b] y) "
    f"<{weights('w', 20, 5, 3, 3)}> {{y = DeformConv<kernel_shape=[3,3],pads=[1,1,1,1]>(x, w, o)}}",
    "max pool": "(float[b,16,s,9] x) => (float[b,16,p,5] y) "
    "{y = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(x)}",
    "average pool": "(float[1,16,s,b] x) => (float[1,16,p,q] y) "
    "{y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)}",
    "pool rounded up": "(float[b,3,s,9] x) => (float[b,3,p,5] y) "
    "{y = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1],ceil_mode=1>(x)}",
    "pool without windows in the padding": "(float[b,3,s] x) => (float[b,3,p] y) "
    "{y = AveragePool<kernel_shape=[3],strides=[3],pads=[1,1],ceil_mode=1,count_include_pad=1>(x)}",
    "pool of the same size": "(float[b,3,s] x) => (float[b,3,p] y) "
    '{y = AveragePool<kernel_shape=[2],strides=[2],auto_pad="SAME_LOWER">(x)}',
    "convolution of the same size": f"(float[1,3,s,b] x) => (float[1,20,p,q] y) <{weights('w', 20, 3, 3, 3)}> "
    '{y = Conv<auto_pad="SAME_UPPER",strides=[2,2]>(x, w)}',
    "convolution by weights of an input": "(float[b,3,s] x, float[4,3,3] w) => (float[b,4,p] y) "
    '{y = Conv<auto_pad="SAME_LOWER",strides=[3]>(x, w)}',
    "global pool": "(float[b,16,s,9] x) => (float[b,16,1,1] y) {y = GlobalAveragePool(x)}",
    "recurrence": f"(float[s,b,4] x) => (float[s,1,b,3] y) <{weights('w', 1, 12, 4)}, {weights('r', 1, 12, 3)}> "
    "{y = LSTM<hidden_size=3>(x, w, r)}",
    "summation": '(float[b,s,4] x, float[b,s,4] z) => (float[b,s,s] y) {y = Einsum<equation="bid,bjd->bij">(x, z)}',
    "integers": "(float[b,s,8] x) => (float[b,s,8] y) {c = Constant<value_float=0.05>() z = Constant<value=int8{3}>() "
    "q = QuantizeLinear(x, c, z) y = DequantizeLinear(q, c, z)}",
    "integer softmax": "(uint8[b,s,3] x) => (uint8[b,s,3] y) <float c = {0.05}, float d = {0.00390625}, uint8 z = {0}> "
    "{y = com.microsoft.QLinearSoftmax<axis=1,opset=13>(x, c, z, d, z)}",
    "integer softmax of several axes": "(int8[b,s,3] x) => (int8[b,s,3] y) "
    "<float c = {0.1}, float d = {0.00390625}, int8 z = {-128}> "
    "{y = com.microsoft.QLinearSoftmax<axis=1,opset=11>(x, c, z, d, z)}",
    "largest": "(float[b,s] x) => (int64[b] y) {y = ArgMax<axis=1,keepdims=0>(x)}",
}
"""Graphs with the free sizes ``b`` and ``s``; other symbols stand for what is inferred."""


def model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} g {body}")


def points(symbols: Mapping[str, object]) -> list[dict[str, int]]:
    """The smallest and the greatest size, primes, multiples of 16, each with each."""
    every = {"b": (1, 3, 8), "s": (1, 7, 16, 33, 64)}
    return [dict(zip(symbols, values, strict=True)) for values in itertools.product(*(every[name] for name in symbols))]


def check(proto: onnx.ModelProto, isa: Isa | None = None) -> CModel:
    """Compares with ONNX Runtime at several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    loaded = load(proto)
    used = {
        name: RANGES[name] for name in sorted({d.dim_param for v in proto.graph.input for d in dims(v)} & {*RANGES})
    }
    compiled = CModel(loaded, dims=used, isas=None if isa is None else (isa,), flags=(*STRICT, *FLAGS))
    for sizes in points(used):
        inputs = complete_inputs(loaded, dims=sizes, seed=sum(sizes.values()))
        found = compiled.run(inputs)
        for wanted, (name, got) in zip(session.run(None, inputs), found.items(), strict=True):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype, (name, sizes)
            tolerance = 2e-2 if got.dtype == np.float16 else 1e-4
            np.testing.assert_allclose(got, wanted, tolerance, tolerance, err_msg=f"{name} at {sizes}")
    return compiled


def dims(value: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
    return list(value.type.tensor_type.shape.dim)


@pytest.mark.slow
@pytest.mark.parametrize("isa", runnable(), ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", CASES)
def test_one_program_is_right_for_all_sizes(name: str, isa: Isa) -> None:
    if isa.vectors:
        check(model(CASES[name]), isa)


@pytest.mark.parametrize(
    "name",
    [
        "product with steps",
        "heads",
        "axes joined that may be empty",
        "convolution of free sides",
        "sizes as data",
        "several sizes",
    ],
)
def test_the_usual_program_is_right_for_all_sizes(name: str) -> None:
    check(model(CASES[name]))


def test_fast_families_take_free_sizes() -> None:
    wanted = {
        "product": "packed matrix product",
        "scores": "packed matrix product",
        "mixing": "packed matrix product",
        "softmax": "softmax of rows",
        "attention": "attention of rows",
        "attention with a cache": "attention of rows",
        "normalization": "normalization of rows",
        "elementwise": "elementwise vectors",
        "convolution": "direct convolution",
        "convolution of free sides": "direct convolution",
        "depthwise convolution": "depthwise convolution",
        "max pool": "max pooling of channel vectors",
        "global pool": "average pooling of channel vectors",
    }
    for name, family in wanted.items():
        used = {symbol: RANGES[symbol] for symbol in RANGES if re.search(rf"[\[,]{symbol}[,\]]", CASES[name])}
        emitted = generate(load(model(CASES[name])), dims=used, isas=())
        assert family in [kernel.family for kernel in emitted.kernels], name


@pytest.mark.heavy
@pytest.mark.parametrize("macro", ["", "-DMODEL_SCALAR"])
@pytest.mark.parametrize("name", CASES)
def test_sanitizers_find_nothing(name: str, macro: str, tmp_path: Path) -> None:
    """The program that checks itself, at sizes that leave remainders and at the greatest ones."""
    loaded = load(model(CASES[name]))
    used = {symbol: RANGES[symbol] for symbol in symbols(loaded)}
    for sizes in ({"b": 3, "s": 13}, {"b": 8, "s": 64}):
        inputs = complete_inputs(loaded, dims=sizes)
        eqsat.write_c(loaded, tmp_path, dims=used, inputs=inputs)
        command = ["cc", "-std=c11", "-O1", macro, *SANITIZERS, *map(str, tmp_path.glob("*.c")), "-lm"]
        subprocess.run([*filter(None, command), "-o", str(tmp_path / "check")], check=True)
        done = subprocess.run([tmp_path / "check"], capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ---- the interface ---------------------------------------------------------------------------------------

LAYER = (
    f"(float[batch,seq,8] x) => (float[batch,seq,4] y) <{weights('w', 8, 4)}> "
    "{t = MatMul(x, w) y = Softmax<axis=-1>(t)}"
)
BOTH = {"batch": (1, 4, 1), "seq": (2, 32, 16)}


def test_the_entry_function_receives_and_checks_sizes(tmp_path: Path) -> None:
    emitted = eqsat.write_c(model(LAYER), tmp_path / "out", name="net", dims=BOTH)
    assert [(size.name, size.least, size.most) for size in emitted.sizes] == [("batch", 1, 4), ("seq", 2, 32)]
    header = (tmp_path / "out/net.h").read_text("utf-8")
    assert "    size_t batch,\n    size_t seq,\n    void *arena" in header
    assert "x: float[batch, seq, 8]" in header and "#define NET_X_SIZE 1024" in header
    assert "#define NET_SEQ_LEAST 2" in header and "#define NET_SEQ_MOST 32" in header
    caller = """
        #include "net.h"
        #include <stdio.h>
        static _Alignas(64) unsigned char arena[NET_ARENA_SIZE];
        static float x[NET_X_SIZE], y[NET_Y_SIZE];
        int main(void) {
            printf("%d %d %d %d\\n", net_run(x, y, 4, 32, arena, net_weights), net_run(x, y, 5, 32, arena, net_weights),
                   net_run(x, y, 1, 1, arena, net_weights), NET_SIZE_OUT_OF_RANGE);
            return 0;
        }"""
    (tmp_path / "caller.c").write_text(caller, "utf-8")
    sources = [*map(str, (tmp_path / "out").glob("net*.c")), str(tmp_path / "caller.c")]
    command = ["cc", "-std=c11", *STRICT, f"-I{tmp_path / 'out'}", *sources, "-lm", "-o", str(tmp_path / "caller")]
    subprocess.run(command, check=True)
    assert subprocess.check_output([tmp_path / "caller"], encoding="utf-8") == "0 4 4 4\n"
    checks = [str(path) for path in (tmp_path / "out").glob("*.c")]
    subprocess.run(["cc", "-std=c11", *STRICT, *checks, "-lm", "-o", str(tmp_path / "check")], check=True)
    assert "PASSED" in subprocess.check_output([tmp_path / "check"], encoding="utf-8")


def test_the_arena_has_room_for_the_greatest_sizes() -> None:
    body = "(float[b,s,8] x) => (float[b,8,s] y) {t = Softmax(x) u = Transpose<perm=[0,2,1]>(t) y = Softmax(u)}"
    free = generate(load(model(body)), dims=RANGES, isas=())
    fixed = generate(load(model(body)), dims={"b": 8, "s": 64}, isas=())
    assert free.arena >= fixed.arena > 8 * 64 * 8 * 4


def test_runs_from_python_read_the_sizes_from_the_arrays() -> None:
    compiled = CModel(load(model(LAYER)), dims=BOTH)
    assert compiled.run({"x": np.ones((3, 5, 8), np.float32)})["y"].shape == (3, 5, 4)
    with pytest.raises(ExecutionError, match="`seq` of 2 to 32 is required") as caught:
        compiled.run({"x": np.ones((3, 33, 8), np.float32)})
    assert "input 'x'" in str(caught.value) and "33" in str(caught.value)


def test_a_range_without_an_end_is_named_with_the_option_to_copy() -> None:
    with pytest.raises(CodegenError) as caught:
        generate(load(model(LAYER)), dims={"batch": (1, 4)})
    assert "`seq` without one" in str(caught.value) and "--dim seq=1..512@128" in str(caught.value)


def test_one_size_may_be_bound_and_another_free() -> None:
    emitted = generate(load(model(LAYER)), dims={"batch": 2, "seq": (1, 9)}, isas=())
    assert [size.name for size in emitted.sizes] == ["seq"] and emitted.inputs[0].dims == (2, "seq", 8)


def test_what_cannot_be_done_is_refused_by_name() -> None:
    body = (
        "(float[s] x) => (float[n] y) "
        "{d = Shape(x) z = Constant<value_ints=[3]>() f = Sub(d, z) y = ConstantOfShape(f)}"
    )
    with pytest.raises(CodegenError, match=r"of a size that may be negative.*'y'"):
        generate(load(model(body)), dims={"s": (1, 9)})
    assert generate(load(model(body)), dims={"s": (3, 9)}, isas=())


def test_results_may_be_empty() -> None:
    body = (
        "(float[s] x) => (float[n] y) "
        "{z = Constant<value_ints=[1]>() e = Constant<value_ints=[-1]>() t = Slice(x, z, e) y = Exp(t)}"
    )
    compiled = CModel(load(model(body)), dims={"s": (1, 9)})
    for size in (1, 2, 3, 9):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], np.exp(x[1:-1]), rtol=1e-6)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(model(LAYER), path)
    out = str(tmp_path / "out")
    assert main(["codegen", str(path), "--dim", "batch=1..4", "--dim", "seq=1..32@16", "-o", out]) == 0
    assert "size      seq, from 1 to 32" in capsys.readouterr().out
    assert main(["codegen", str(path), "--dim", "batch=1..4", "--dim", "seq=1..", "-o", out]) == 1
    assert "--dim seq=1..512@128" in capsys.readouterr().err
    assert main(["codegen", str(path), "--dim", "batch=1..4", "--dim", "seq=3..32", "-o", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == ["batch", "seq", 8]


def test_results_of_an_optimization_receive_sizes(tmp_path: Path) -> None:
    result = eqsat.optimize(model(LAYER), dims=BOTH, verify=False)
    emitted = result.codegen(tmp_path / "out", dims=BOTH)
    assert len(emitted.sizes) == 2


def test_programs_of_fixed_sizes_know_nothing_of_it() -> None:
    emitted = generate(load(model(LAYER)), dims={"batch": 2, "seq": 8})
    assert "dim_" not in emitted.source and "SIZE_OUT_OF_RANGE" not in emitted.header
    assert families(OpKey("eqsat.codegen", "Sizes"))


def test_a_refusal_says_what_would_have_to_be_known() -> None:
    body = "(float[s,4] x) => (float[p,q] y) {f = Constant<value_ints=[3,3]>() y = CenterCropPad(x, f)}"
    with pytest.raises(CodegenError, match=r"no kernel for CenterCropPad .*, because whether s < 4 depends .*: 'y'"):
        generate(load(model(body)), dims={"s": (1, 9)})


@pytest.mark.parametrize("as_written", [True, False])
def test_symbols_that_are_no_names_in_c(as_written: bool):
    """Paddle's exporter writes ``DynamicDimension.0``; a range is given for that, or for the name that it became."""
    infos = [onnx.helper.make_tensor_value_info(n, 1, ["D.0", "my size", 3]) for n in "xwy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Sub", ["x", "w"], ["y"])], "g", infos[:2], infos[2:])
    names = ("D.0", "my size") if as_written else ("D_0", "my_size")
    compiled = eqsat.compile(onnx.helper.make_model(graph), dims=dict.fromkeys(names, (1, 5)))
    for shape in [(1, 1, 3), (2, 5, 3), (5, 4, 3)]:
        x, w = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(compiled(x, w)), x - w)
