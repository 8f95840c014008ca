"""float16 and bfloat16 in C: computed by the kernels for float32, rounded after each operator, as the executor does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from benchmarks.half_models import half
from eqsat.codegen.isa import AVX2, AVX512, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import runnable
from tests.codegen.random_graphs import random_model

HEAD = '<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>\n'
HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
TYPES = HALVES | {"float": np.dtype(np.float32)}
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
STRICT = ("-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
ISAS = {"avx512": (AVX512,), "avx2": (AVX2,), "portable": (PORTABLE,), "scalar": (PORTABLE, SCALAR)}

KERNELS = {
    "MatMul": "(T[5,37] x) => (T[5,21] y) {y = MatMul(x, w)} w[37,21]",
    "MatMul of a row": "(T[1,37] x) => (T[1,53] y) {y = MatMul(x, w)} w[37,53]",
    "MatMul of two": "(T[3,5,37] x, T[3,37,18] z) => (T[3,5,18] y) {y = MatMul(x, z)}",
    "Gemm": "(T[5,37] x) => (T[5,21] y) {y = Gemm<transB=1, alpha=0.5>(x, w, c)} w[21,37] c[21]",
    "Conv": "(T[1,5,13,11] x) => (T[1,18,13,11] y) {y = Conv<pads=[1,1,1,1]>(x, w, c)} w[18,5,3,3] c[18]",
    "pointwise Conv": "(T[2,7,6,9] x) => (T[2,19,6,9] y) {y = Conv(x, w)} w[19,7,1,1]",
    "depthwise Conv": "(T[1,18,9,9] x) => (T[1,18,5,5] y) "
    "{y = Conv<pads=[1,1,1,1], strides=[2,2], group=18>(x, w)} w[18,1,3,3]",
    "narrow Conv": "(T[1,9,20] x) => (T[1,2,18] y) {y = Conv(x, w)} w[2,9,3]",
    "BatchNormalization": "(T[1,6,5,7] x) => (T[1,6,5,7] y) {y = BatchNormalization(x, s, c, m, v)} "
    "s[6] c[6] m[6] v[6]",
    "ConvTranspose": "(T[1,6,5,7] x) => (T[1,17,10,14] y) {y = ConvTranspose<strides=[2,2]>(x, w)} w[6,17,2,2]",
    "Softmax": "(T[3,4,37] x) => (T[3,4,37] y) {y = Softmax(x)}",
    "LayerNormalization": "(T[3,4,37] x) => (T[3,4,37] y) {y = LayerNormalization(x, w, c)} w[37] c[37]",
    "InstanceNormalization": "(T[2,5,8,9] x) => (T[2,5,8,9] y) {y = InstanceNormalization(x, w, c)} w[5] c[5]",
    "ReduceMean": "(T[4,19,6] x) => (T[4,6] y) {a = Constant<value_ints=[1]>() y = ReduceMean<keepdims=0>(x, a)}",
    "ReduceMax": "(T[4,19,6] x) => (T[4,19] y) {a = Constant<value_ints=[2]>() y = ReduceMax<keepdims=0>(x, a)}",
    "ArgMax": "(T[4,19,40] x) => (int64[4,19,1] y) {y = ArgMax<axis=2>(x)}",
    "MaxPool": "(T[1,18,9,9] x) => (T[1,18,4,4] y) {y = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x)}",
    "AveragePool": "(T[1,18,9,9] x) => (T[1,18,4,4] y) {y = AveragePool<kernel_shape=[3,3], strides=[2,2]>(x)}",
    "GlobalAveragePool": "(T[2,18,9,9] x) => (T[2,18,1,1] y) {y = GlobalAveragePool(x)}",
    "Resize": "(T[1,3,9,20] x) => (T[1,3,18,40] y) {s = Constant<value_floats=[1.,1.,2.,2.]>() "
    'y = Resize<mode="linear">(x, , s)}',
    "Attention": "(T[2,3,9,8] q, T[2,3,11,8] k, T[2,3,11,8] v) => (T[2,3,9,8] y) {y = Attention(q, k, v)}",
    "LSTM": "(T[4,2,9] x) => (T[4,1,2,6] y) {y = LSTM<hidden_size=6>(x, w, r, b)} w[1,24,9] r[1,24,6] b[1,48]",
    "elementwise": "(T[3,40] x, T[40] z) => (T[3,40] y) {a = Mul(x, z) b = Gelu(a) c = Add(b, x) y = Clip(c, low)} "
    "low[]",
}
"""A graph, and the shapes of its weights, drawn from a normal distribution."""


def parsed(text: str, dtype: str, seed: int = 0) -> onnx.ModelProto:
    graph, _, shapes = text.rpartition("}")
    model = onnx.parser.parse_model(f"{HEAD} g {graph}}}".replace("T[", f"{dtype}["))
    rng = np.random.default_rng(seed)
    for weight in shapes.split():
        name, _, shape = weight.rstrip("]").partition("[")
        drawn = np.asarray(0.5 * rng.standard_normal([int(n) for n in shape.split(",") if n]))
        drawn = np.abs(drawn) if name == "v" else drawn
        model.graph.initializer.append(onnx.numpy_helper.from_array(drawn.astype(TYPES[dtype]), name))
    return model


def ways(name: str) -> tuple[Isa, ...]:
    if ISAS[name][0] not in runnable():
        pytest.skip(f"no {name} here")
    return ISAS[name]


def near(found: np.ndarray, wanted: np.ndarray, units: float, dtype: str, message: str = "") -> None:
    """Whether all elements are within some roundings of the greatest magnitude."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), message
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    scale = max(float(np.abs(b).max(initial=0)), 1e-3)
    np.testing.assert_allclose(a, b, rtol=0, atol=units * UNIT[dtype] * scale, err_msg=message)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_those_of_float32(name: str, dtype: str) -> None:
    model = load(parsed(KERNELS[name], dtype))
    compiled = CModel(model, isas=(PORTABLE,), flags=STRICT)
    feeds = complete_inputs(model)
    wanted = np.asarray(Executor(model).run(feeds)["y"])
    near(compiled.run(feeds)["y"], wanted, 2.0, dtype)
    families = [kernel.family for kernel in compiled.emitted.kernels]
    assert families and not any("loops" in family for family in families), families
    assert all(
        kernel.task.output.dtype.name in ("FLOAT", dtype.upper(), "INT64") for kernel in compiled.emitted.kernels
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", ISAS)
def test_kernels_on_instruction_sets(way: str) -> None:
    isas = ways(way)
    flags = (*STRICT, *(["-DMODEL_SCALAR"] if way == "scalar" else []))
    for name in ("elementwise", "Conv", "Softmax", "MatMul of a row", "MatMul of two", "ReduceMean"):
        for dtype in HALVES:
            model = load(parsed(KERNELS[name], dtype))
            feeds = complete_inputs(model)
            found = CModel(model, isas=isas, flags=flags).run(feeds)["y"]
            near(found, np.asarray(Executor(model).run(feeds)["y"]), 2.0, dtype, f"{name} {dtype}")


@pytest.mark.parametrize("dtype", HALVES)
def test_each_operator_is_rounded(dtype: str) -> None:
    """A large number swallows a small one, whatever the type that is computed in."""
    text = "(T[50] x, T[50] z) => (T[50] y, T[50] s) {a = Add(x, z) y = Sub(a, z) b = Mul(x, z) s = Div(b, z)}"
    model = load(parsed(text, dtype))
    rng = np.random.default_rng(1)
    feeds = {n: (f * rng.standard_normal(50)).astype(TYPES[dtype]) for n, f in (("x", 1.0), ("z", 3000.0))}
    found, wanted = CModel(model, numerics="exact").run(feeds), Executor(model).run(feeds)
    for key, array in found.items():
        np.testing.assert_array_equal(array, np.asarray(wanted[key]))
    assert (found["y"] != feeds["x"]).any()


@pytest.mark.parametrize("dtype", HALVES)
def test_operators_that_select_and_compute_are_rounded(dtype: str) -> None:
    """The products are rounded before the difference from ``x / 4`` is taken; whole numbers need no rounding."""
    text = (
        "(T[50] x) => (T[50] y, T[50] z, T[50] w) {q = Constant<value_float=0.25>() f = CastLike(q, x) d = Mul(x, f) "
        "a = LeakyRelu<alpha=0.26>(x) y = Sub(a, d) b = PRelu(x, s) z = Sub(b, d) c = Floor(x) w = Sub(c, d)} s[50]"
    )
    model = load(parsed(text, dtype))
    feeds = {"x": (3.0 * np.random.default_rng(2).standard_normal(50)).astype(TYPES[dtype])}
    wanted = Executor(model).run(feeds)
    for key, array in CModel(model, numerics="exact").run(feeds).items():
        np.testing.assert_array_equal(array, np.asarray(wanted[key]), key)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_is_not_finite(dtype: str) -> None:
    text = "(T[64] x) => (T[64] y, T[64] z, T[64] w) {y = Mul(x, x) z = Sub(x, x) w = Relu(x)}"
    model = load(parsed(text, dtype))
    x = np.resize(np.array([65504.0, -300.0, np.inf, -np.inf, np.nan, 6e-8, -1e-4, 3e38, 0.0, -0.0]), 64)
    with np.errstate(all="ignore"):
        feeds = {"x": x.astype(TYPES[dtype])}
        wanted = Executor(model).run(feeds)
    for isas in ((PORTABLE,), None):
        for key, array in CModel(model, isas=isas, numerics="exact").run(feeds).items():
            np.testing.assert_array_equal(array.astype(np.float32), np.asarray(wanted[key]).astype(np.float32), key)


def test_weights_of_few_rows_stay_halves() -> None:
    """Whatever the type of the model, if float16 has all numbers: reading them takes longest."""
    sizes = []
    for rows, scale in ((1, 1.0), (1, 1.0001), (64, 1.0)):
        proto = parsed(f"(T[{rows},37] x) => (T[{rows},53] y) {{y = Gemm(x, w, c)}} w[37,53] c[53]", "float")
        for weight in proto.graph.initializer:
            halves = onnx.numpy_helper.to_array(weight).astype(np.float16).astype(np.float32)
            weight.CopyFrom(onnx.numpy_helper.from_array(np.float32(scale) * halves, weight.name))
        model = load(proto)
        compiled, feeds = CModel(model), complete_inputs(model)
        wanted = np.asarray(Executor(model).run(feeds)["y"])
        np.testing.assert_allclose(compiled.run(feeds)["y"], wanted, rtol=0, atol=1e-5)
        sizes.append(len(compiled.emitted.weights))
    assert sizes[0] < 0.6 * sizes[1] == 0.6 * sizes[2]


@pytest.mark.parametrize("dtype", HALVES)
def test_results_are_rounded_once(dtype: str) -> None:
    """Not to the type of the model, back to float32, and again where they are stored."""
    text = "(T[3,40] x) => (T[3,40] y) {one = Constant<value=int64 {1}>() y = CumSum(x, one)}"
    model = load(parsed(text, dtype))
    compiled, feeds = CModel(model), complete_inputs(model)
    (steps,) = (k.task.epilogue.steps for k in compiled.emitted.kernels if k.task.operator.name == "CumSum")
    assert [(step.operator.name, step.dtype.name) for step in steps] == [("Cast", dtype.upper())]
    found, wanted = compiled.run(feeds)["y"], Executor(model).run(feeds)["y"]
    np.testing.assert_array_equal(found.astype(np.float32), np.asarray(wanted).astype(np.float32))


def test_what_only_moves_stays_as_it_is() -> None:
    """An embedding keeps its table in half precision, and the caller's tensors are not converted to be moved."""
    text = (
        "(int64[7] i, T[4,6] x, int64[2,1] j, T[2,6] u) => (T[7,33] y, T[6,4] z, T[4,6] s) "
        "{y = Gather(w, i) z = Transpose<perm=[1,0]>(x) s = ScatterND(x, j, u)} w[50,33]"
    )
    model = load(parsed(text, "float16"))
    compiled = CModel(model)
    feeds = complete_inputs(model)
    for key, array in compiled.run(feeds).items():
        np.testing.assert_array_equal(array, np.asarray(Executor(model).run(feeds)[key]))
    assert all(kernel.task.output.dtype.name == "FLOAT16" for kernel in compiled.emitted.kernels)


def test_quantization_divides_in_half_precision() -> None:
    """The quotient is rounded to the type of the scale before it becomes an integer."""
    text = (
        "(T[4096] x) => (int8[4096] q, T[4096] y) "
        "{a = Add(x, x) q = QuantizeLinear(a, s, z) y = DequantizeLinear(q, s, z)}"
    )
    proto = parsed(text, "float16")
    scale, zero = np.float16(0.0123), np.int8(3)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(v), n) for n, v in (("s", scale), ("z", zero)))
    model = load(proto)
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, 4096).astype(np.float16)}
    found, wanted = CModel(model).run(feeds), Executor(model).run(feeds)
    for key, array in found.items():
        np.testing.assert_array_equal(array, np.asarray(wanted[key]))


def test_bodies_and_other_types_read_halves() -> None:
    text = """(T[3,40] x, bool p, int64[3,40] i) => (T[3,40] y, double[3,40] d, int32[3,40] n, T[3,40] c) {
        a = Sigmoid(x)
        y = If (p) <then_branch = t () => (T[3,40] u) {u = Exp(a)}, else_branch = e () => (T[3,40] v) {v = Neg(a)}>
        b = Exp(y) d = Cast<to=11>(b) m = Mul(b, b) n = Cast<to=6>(m) j = Cast<to=10>(i) c = Add(j, a) }"""
    model = load(parsed(text, "float16"))
    rng = np.random.default_rng(0)
    x, i = rng.standard_normal((3, 40)).astype(np.float16), rng.integers(-3000, 3000, (3, 40))
    for p in (True, False):
        feeds = {"x": x, "p": np.array(p), "i": i}
        wanted = Executor(model).run(feeds)
        for key, array in CModel(model).run(feeds).items():
            np.testing.assert_allclose(
                array.astype(np.float64), np.asarray(wanted[key]).astype(np.float64), 2e-3, 2e-3 if key != "n" else 1
            )


@pytest.mark.slow
@pytest.mark.parametrize("way", ISAS)
@pytest.mark.parametrize("seed", range(6))
def test_random_networks(seed: int, way: str) -> None:
    isas = ways(way)
    model = load(half(random_model(seed)))
    feeds = complete_inputs(model)
    flags = (*STRICT, *(["-DMODEL_SCALAR"] if way == "scalar" else []))
    found, wanted = CModel(model, isas=isas, flags=flags).run(feeds), Executor(model).run(feeds)
    for name, array in found.items():
        near(array, np.asarray(wanted[name]), 16.0, "float16", f"{seed} {name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_beside_onnxruntime(name: str) -> None:
    proto = parsed(KERNELS[name], "float16", seed=3)
    model = load(proto)
    feeds = complete_inputs(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except NoKernel:
        pytest.skip("ONNX Runtime has no such kernel")
    near(CModel(model).run(feeds)["y"], np.asarray(session.run(None, feeds)[0]), 4.0, "float16")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", HALVES)
def test_casts_round_at_the_store(isa: str, dtype: str) -> None:
    """Of every kind of number and ties, to rows with rests of vectors and across them."""
    rng = np.random.default_rng(7)
    x = rng.integers(0, 1 << 32, (33, 2001), np.uint64).astype(np.uint32).view(np.float32)
    halves = rng.integers(0, 1 << 16, (33, 2001), np.uint64).astype(np.uint16).view(HALVES[dtype])
    with np.errstate(all="ignore"):
        near, above = halves.astype(np.float32), np.nextafter(halves, HALVES[dtype].type(np.inf)).astype(np.float32)
        ties = (near + above) / 2
        x[::3], x[1::3] = near[::3], ties[1::3]
    kind = int(onnx.helper.np_dtype_to_tensor_dtype(HALVES[dtype]))
    text = f"""(float[33,2001] x) => (T[33,2001] y, T[2001,33] z) {{
        y = Cast<to={kind}>(x)
        t = Transpose<perm=[1,0]>(x)
        z = Cast<to={kind}>(t)
    }}"""
    flags = ("-DMODEL_SCALAR",) if isa == "scalar" else ()
    found = CModel(load(parsed(text, dtype)), isas=ways(isa), flags=(*STRICT, *flags)).run({"x": x})
    with np.errstate(all="ignore"):
        expected = x.astype(HALVES[dtype])
    bits = expected.view(np.uint16)
    for y in (found["y"], found["z"].T):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
        np.testing.assert_array_equal(np.ascontiguousarray(y).view(np.uint16)[~np.isnan(y)], bits[~np.isnan(y)])
