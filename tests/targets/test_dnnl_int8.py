"""The int8 part of ``dnnl.target``: oneDNN's formulas against ONNX Runtime, the refusals, and whole programs.

oneDNN's developer guide, "Primitive Attributes: Quantization" and "Post-ops": accumulators are integers, everything
after them is computed in float32, and the result is divided by its scale, shifted, rounded and saturated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

from eqsat.rules.ast import Composite, Match
from eqsat.rules.expand import Clause, expand
from eqsat.schema.opset import IR_VERSION, PINNED_OPSET
from eqsat.search import Search
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel
from tests.fuzz.check import ort_outputs
from tests.quantization.runtime import needs_exact_products
from tests.targets.instances import Operand, facts, instance, model_of, variables
from tests.targets.test_shipped import CASES

Array = np.ndarray
MODEL = CostModel(load_targets("dnnl"))
COMPOSITES = {c.name: c for c in MODEL.targets[1].composites if c.name.startswith("int8_")}
NEAR = "dnnl -dispatch=0 -launch=1e-12 -link.latency=0 -link.bandwidth=1e18"
"""The target where nothing speaks for the host."""


# ---- instances with data -----------------------------------------------------------------------------


def clauses(composite: Composite) -> list[Clause]:
    return expand(composite.patterns)


def with_data(name: str, rng: np.random.Generator, per_channel: bool = False) -> dict[str, Operand]:
    """The usual operands of a composite with random weights, biases, scales and zero points."""
    operands = dict(CASES["dnnl"][name][0])
    for key, operand in operands.items():
        if not isinstance(operand, np.ndarray):
            continue
        if operand.dtype == np.int8 and operand.ndim:
            operands[key] = rng.integers(-127, 128, operand.shape).astype(np.int8)
        elif operand.dtype == np.int32 and operand.ndim:
            operands[key] = rng.integers(-500, 500, operand.shape).astype(np.int32)
        elif key[0] == "z" and operand.dtype == np.uint8:
            operands[key] = np.array(rng.integers(0, 200), np.uint8)
    for key in ("zr",) if name == "int8_conv_mul" else ("zx",) if name == "int8_inner_product" else ():
        operands[key] = np.array(0, np.uint8)
    if name == "int8_conv_depthwise":
        operands["zc"] = np.array(0, np.uint8)
    spread = {"sx": 0.02, "sw": 0.004, "sv": 0.01, "sr": 0.03, "su": 0.03, "sc": 0.02, "ss": 0.03, "sy": 0.05}
    operands |= {k: np.array(v * rng.uniform(0.8, 1.2), np.float32) for k, v in spread.items()}
    operands |= {"si": np.array(0.00008, np.float32), "so": np.array(0.02, np.float32)}
    if per_channel:
        w = operands.get("w")
        shape = w.shape if isinstance(w, np.ndarray) else ()
        if name.startswith("int8_conv"):
            operands["sw"] = (rng.uniform(0.5, 1.5, shape[0]) * 0.004).astype(np.float32)
            operands["zw"] = np.zeros(shape[0], np.int8)
    return operands


def operators(pattern: Any) -> set[str]:
    return set().union({pattern.ops[0].name}, *map(operators, pattern.args)) if isinstance(pattern, Match) else set()


# Of Swish ONNX Runtime 1.31 has no kernel.
EACH = [(n, i) for n, c in COMPOSITES.items() for i, k in enumerate(clauses(c)) if "Swish" not in operators(k.roots[0])]


@needs_exact_products
@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), EACH)
def test_every_pattern_is_chosen_whole_and_computes_what_onnx_runtime_does(name: str, number: int) -> None:
    rng = np.random.default_rng([number, len(name)])
    composite = COMPOSITES[name]
    clause = clauses(composite)[number]
    operands = with_data(name, rng, per_channel=number % 2 == 1)
    made = instance(clause, operands, CASES["dnnl"][name][1])
    assert made.failing(composite) is None, made.failing(composite)
    model, feed = model_of(made, clause, operands, rng)
    result = Search.of(model, NEAR, default_rules=False).extract()
    kernels = [n for region in result.regions for n in region.nodes]
    assert kernels == [f"dnnl.{name}"]
    (output,) = result.run(feed).values()
    own = Search.of(model, default_rules=False).extract().model  # ONNX Runtime needs definitions of what ONNX lacks
    (expected,) = ort_outputs(ir.to_proto(own).SerializeToString(), feed).values()
    (saved,) = ort_outputs(ir.to_proto(result.model).SerializeToString(), feed).values()
    np.testing.assert_array_equal(saved, expected)
    if expected.dtype == np.float32:
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    else:
        assert np.unique(expected).size > 2, "the data say something"
        assert np.abs(output.astype(int) - expected).max() <= 1


# ---- oneDNN's formulas -------------------------------------------------------------------------------


def linear(a: float, b: float) -> Callable[[Array], Array]:
    return lambda v: (np.float32(a) * v + np.float32(b)).astype(np.float32)


def quantized(s: Any, z: Any, dtype: type = np.uint8) -> list[Callable[[Array], Array]]:
    """A tensor between two post-ops that is quantized: linear, round, clip, linear."""
    info = np.iinfo(dtype)
    back = linear(float(s), -float(s) * float(z))
    return [linear(1 / float(s), float(z)), np.rint, lambda v: np.clip(v, info.min, info.max), back]


def written(real: Array, post_ops: list[Callable[[Array], Array]], s: Any, z: Any, dtype: type = np.uint8) -> Array:
    """A primitive's end: post-ops in float32, then the destination's scale and zero point."""
    for step in post_ops:
        real = step(real.astype(np.float32))
    info = np.iinfo(dtype)
    return np.clip(np.rint(real / np.float32(s) + np.float32(z)), info.min, info.max).astype(dtype)


def by_onnx_runtime(op: str, inputs: list[Array], **attributes: Any) -> Array:
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attributes)
    kinds = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", kinds, [helper.make_value_info("y", onnx.TypeProto())])
    imports = [helper.make_opsetid("", PINNED_OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0])


def close(ours: Array, theirs: Array) -> None:
    difference = np.abs(ours.astype(int) - theirs.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02


S = {k: np.float32(v) for k, v in {"x": 0.02, "r": 0.03, "c": 0.015, "y": 0.0413}.items()}


@needs_exact_products
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_convolution_with_residual_and_clip_is_one_chain(group: int, seed: int) -> None:
    rng = np.random.default_rng([seed, group])
    x = rng.integers(0, 256, (2, 4, 9, 9)).astype(np.uint8)
    w = rng.integers(-127, 128, (8, 4 // group, 3, 3)).astype(np.int8)
    b = rng.integers(-900, 900, 8).astype(np.int32)
    sw = (rng.uniform(0.5, 1.5, 8) * 0.004).astype(np.float32)
    zx, zc, zr, zy = (np.uint8(v) for v in rng.integers(0, 200, 4))
    r = rng.integers(0, 256, (2, 8, 9, 9)).astype(np.uint8)
    window = {"pads": [1] * 4, "group": group}
    zeros = np.zeros(8, np.int8)
    c = by_onnx_runtime(
        "QLinearConv", [x, S["x"][...], np.array(zx), w, sw, zeros, S["c"][...], np.array(zc), b], **window
    )
    y = by_onnx_runtime(
        "QLinearAdd",
        [c, S["c"][...], np.array(zc), r, S["r"][...], np.array(zr), S["y"][...], np.array(zy)],
        domain="com.microsoft",
    )
    expected = np.clip(y, 20, 230)
    sums = by_onnx_runtime("ConvInteger", [x, w, np.array(zx)], **window)
    per_channel = (S["x"] * sw).reshape(1, 8, 1, 1)
    real = (sums + b.reshape(1, 8, 1, 1)) * per_channel
    residual = S["r"] * (r.astype(np.float32) - np.float32(zr))
    low, high = (float(S["y"] * (v - np.float32(zy))) for v in (20, 230))
    chain = [*quantized(S["c"], zc), lambda v: v + residual, lambda v: np.clip(v, low, high)]
    close(written(real, chain, S["y"], zy), expected)


@pytest.mark.parametrize("seed", range(4))
def test_sums_and_products_of_quantized_tensors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 256, (3, 5, 7)).astype(np.uint8) for _ in range(2))
    za, zb, zy = (np.uint8(v) for v in rng.integers(1, 200, 3))
    scales = [S["x"][...], S["r"][...], S["y"][...]]

    def theirs(op: str, first: Any, second: Any) -> Array:
        inputs = [a, scales[0], np.array(first), b, scales[1], np.array(second), scales[2], np.array(zy)]
        return by_onnx_runtime(op, inputs, domain="com.microsoft")

    # A sum: a scale an operand, and one constant for all zero points.
    real = a * (S["x"] / S["y"]) + b * (S["r"] / S["y"])
    constant = float(zy) - (float(S["x"]) * float(za) + float(S["r"]) * float(zb)) / float(S["y"])
    close(written(real, [linear(1, constant)], 1, 0), theirs("QLinearAdd", za, zb))
    # A product: the first operand loses its zero point in a sum before; the second has none.
    real = a * S["x"] + np.float32(-float(S["x"]) * float(za))
    product = [lambda v: v * b.astype(np.float32), linear(float(S["r"]), 0)]
    close(written(real, product, S["y"], zy), theirs("QLinearMul", za, np.uint8(0)))
    # With two zero points it is another value; the target's condition says so.
    assert np.abs(written(real, product, S["y"], zy).astype(int) - theirs("QLinearMul", za, zb)).max() > 1


def mean_of_windows(x: Array, kernel: int, pad: int, include: bool) -> Array:
    """oneDNN, "Pooling": what is beyond the border is 0, and counts with the algorithm that includes padding."""
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    inside = np.pad(np.ones(x.shape, np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    size = padded.shape[2] - kernel + 1
    sums, counts = np.zeros((*x.shape[:2], size, size), np.int64), np.zeros((*x.shape[:2], size, size), np.int64)
    for i in range(kernel):
        for j in range(kernel):
            sums += padded[:, :, i : i + size, j : j + size]
            counts += inside[:, :, i : i + size, j : j + size]
    return (sums / (kernel * kernel if include else counts)).astype(np.float32)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("zero", [0, 100])
def test_means_agree_where_they_are_accepted(include: int, pad: int, zero: int) -> None:
    rng = np.random.default_rng([include, pad, zero])
    x = rng.integers(0, 256, (1, 3, 8, 8)).astype(np.uint8)
    zx, zy = np.array(zero, np.uint8), np.array(31, np.uint8)
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [pad] * 4, "count_include_pad": include}
    inputs = [x, S["x"][...], zx, S["y"][...], zy]
    theirs = by_onnx_runtime("QLinearAveragePool", inputs, domain="com.microsoft", **window)
    scaled = linear(float(S["x"]), -float(S["x"]) * zero)
    ours = written(mean_of_windows(x, 3, pad, bool(include)), [scaled], S["y"], zy)
    agree = np.abs(ours.astype(int) - theirs).max() <= 1
    assert agree == (
        not why_not(
            "QLinearAveragePool", inputs, theirs, domain="com.microsoft", ceil_mode=0, channels_last=0, **window
        )
    )


@pytest.mark.parametrize("name", ["Sigmoid", "HardSwish", "LeakyRelu", "Elu"])
def test_functions_of_quantized_tensors(name: str) -> None:
    x = np.arange(256, dtype=np.uint8)
    zx, zy = np.uint8(97), np.uint8(12)
    real = by_onnx_runtime(name, [S["x"] * (x.astype(np.float32) - np.float32(zx))])
    info = np.iinfo(np.uint8)
    expected = np.clip(np.rint(real / S["y"]) + float(zy), info.min, info.max)
    after = by_onnx_runtime(name, [(x * S["x"] + np.float32(-float(S["x"]) * float(zx))).astype(np.float32)])
    close(written(after, [], S["y"], zy), expected)


@pytest.mark.parametrize("zero", [0, 55])
def test_softmax_takes_off_the_zero_point(zero: int) -> None:
    x = np.random.default_rng(zero).integers(0, 256, (20, 9)).astype(np.uint8)
    real = by_onnx_runtime("Softmax", [S["x"] * (x.astype(np.float32) - zero)])
    without = np.exp(S["x"] * x.astype(np.float32))
    without /= without.sum(-1, keepdims=True)
    close(written(without, [], 1 / 256, 0), np.clip(np.rint(real * 256), 0, 255))


# ---- what is refused, and why ------------------------------------------------------------------------


def why_not(op: str, inputs: list[Array | None], output: Array, domain: str = "", **attributes: Any) -> str:
    from eqsat.model.normalize import complete
    from eqsat.schema.attributes import make_attrs
    from eqsat.schema.types import OpKey, TensorType

    key = OpKey(domain, op)
    known = [None if x is None else facts(x) for x in inputs]
    attrs = complete(key, make_attrs(key, attributes), [None if f is None else f.type for f in known])
    return MODEL.why_not(1, key, attrs, known, [TensorType(ir.DataType.from_numpy(output.dtype), output.shape)])


ONE, ZERO, MANY = np.array(0.1, np.float32), np.array(0, np.uint8), np.full(6, 0.1, np.float32)
IMAGE, WEIGHT = np.zeros((1, 4, 5, 5), np.uint8), np.zeros((6, 4, 3, 3), np.int8)
SIGNED = np.array(0, np.int8)
SHIFTED, MOVED = np.array(1, np.int8), np.array(1, np.uint8)
MATRIX = IMAGE[0, 0]
NARROW = dict.fromkeys(("low", "high"), np.array(9, np.int16))
RESULT = np.zeros((1, 6, 3, 3), np.uint8)

OPERATORS: list[tuple[str, str, list[Array | None], Array, dict[str, Any], str]] = [
    ("", "QLinearConv", [IMAGE, ONE, ZERO, WEIGHT, MANY, SIGNED, ONE, ZERO], RESULT, {}, ""),
    ("", "QLinearConv", [IMAGE, ONE, ZERO, WEIGHT.view(np.uint8), MANY, ZERO, ONE, ZERO], RESULT, {}, "signed"),
    ("", "QLinearConv", [IMAGE, ONE, ZERO, WEIGHT, MANY, SHIFTED, ONE, ZERO], RESULT, {}, "without zero point"),
    ("", "QLinearConv", [MATRIX, ONE, ZERO, WEIGHT, MANY, SIGNED, ONE, ZERO], RESULT, {}, "1-D to 3-D"),
    ("", "QLinearMatMul", [IMAGE, ONE, ZERO, IMAGE, ONE, ZERO, ONE, ZERO], IMAGE, {}, "signed"),
    ("", "QLinearMatMul", [IMAGE, ONE, ZERO, WEIGHT, MANY, SIGNED, ONE, ZERO], IMAGE, {}, "one scale per column"),
    ("", "QLinearMatMul", [IMAGE, ONE, ZERO, WEIGHT[0, 0], MANY[:3], np.array(3, np.int8), ONE, ZERO], IMAGE, {}, ""),
    ("", "MatMulInteger", [IMAGE, IMAGE], IMAGE.astype(np.int32), {}, "signed"),
    ("", "ConvInteger", [IMAGE, WEIGHT, ZERO, SHIFTED], RESULT.astype(np.int32), {}, "without zero point"),
    ("com.microsoft", "QLinearMul", [IMAGE, ONE, MOVED, IMAGE, ONE, ZERO, ONE, ZERO], IMAGE, {}, ""),
    ("com.microsoft", "QLinearMul", [IMAGE, ONE, MOVED, IMAGE, ONE, MOVED, ONE, ZERO], IMAGE, {}, "no zero point"),
    ("com.microsoft", "QGemm", [MATRIX, ONE, ZERO, MATRIX, ONE, ZERO, None, ONE, ZERO], MATRIX, {}, "signed"),
    ("", "QuantizeLinear", [np.zeros(4, np.float64), ONE, ZERO], np.zeros(4, np.uint8), {}, "float32"),
    ("", "QuantizeLinear", [np.zeros(4, np.float32), ONE, ZERO], np.zeros(4, np.uint8), {}, ""),
    ("", "QuantizeLinear", [np.zeros(4, np.float32), ONE, np.array(0, np.int16)], np.zeros(4, np.int16), {}, "8 bits"),
    ("", "DequantizeLinear", [np.zeros(4, np.int16), ONE], np.zeros(4, np.float32), {}, "8 bits and int32"),
    ("", "MaxPool", [IMAGE], RESULT, {"kernel_shape": [2, 2]}, ""),
    ("", "MaxPool", [IMAGE.astype(np.int32)], RESULT, {"kernel_shape": [2, 2]}, "float32 and int8"),
]  # fmt: skip


@pytest.mark.parametrize(("domain", "op", "inputs", "output", "attributes", "why"), OPERATORS)
def test_operators(
    domain: str, op: str, inputs: list[Array | None], output: Array, attributes: dict[str, Any], why: str
) -> None:
    reason = why_not(op, inputs, output, domain=domain, **attributes)
    assert bool(reason) == bool(why), reason
    assert why in reason


U8 = np.ones((6, 4, 3, 3), np.uint8)


def per_index(size: int) -> dict[str, Array]:
    return {"sw": np.full(size, 0.1, np.float32), "zw": np.zeros(size, np.int8)}


REFUSED: list[tuple[str, dict[str, Any], dict[str, dict[str, Any]], str]] = [
    ("int8_conv_eltwise", {"w": U8, "zw": ZERO}, {}, "weights are signed"),
    ("int8_conv_eltwise", {"zw": np.array(1, np.int8)}, {}, "weights are signed"),
    ("int8_conv_sum", {"w": U8, "zw": ZERO}, {}, "weights are signed"),
    ("int8_conv_sum", {"r": facts(np.ones((1, 6, 7, 7), np.uint8)).type}, {}, "result's shape"),
    ("int8_conv_mul", {"zr": np.array(1, np.uint8)}, {}, "a factor has no zero point"),
    ("int8_conv_mul", {"r": facts(np.ones((6, 1, 1), np.uint8)).type}, {}, "result's shape"),
    ("int8_conv_depthwise", {"zc": np.array(1, np.uint8)}, {}, "no zero point"),
    ("int8_conv_depthwise", {"w": np.ones((6, 4, 3, 3), np.int8)}, {}, "the first convolution is 1x1"),
    ("int8_conv_depthwise", {"v": np.ones((6, 1, 5, 5), np.int8)}, {}, "the second is 3x3 and depthwise"),
    ("int8_conv_depthwise", {}, {"d": {"group": 6, "pads": [0] * 4}}, "padding 1"),
    ("int8_conv_chain", {"w": U8, "zw": ZERO}, {}, "weights are signed"),
    ("int8_conv_chain", per_index(4), {"d": {"axis": 1}}, "one per output channel"),
    ("int8_conv_to_float", {"zw": np.array(2, np.int8)}, {}, "weights are signed"),
    ("int8_conv_requantize", {"zi": np.array(1, np.int32)}, {}, "accumulators have no zero point"),
    ("int8_conv_requantize", {"k": np.zeros((1, 7, 7), np.int32)}, {}, "one number per channel"),
    ("int8_conv_requantize", NARROW, {"r": {"dtype": 5}}, "results have 8 bits"),
    ("int8_deconv", {"w": np.ones((4, 6, 3, 3), np.uint8), "zw": ZERO}, {}, "weights are signed"),
    ("int8_matmul_transposed", {"w": facts(np.ones((3, 8, 8), np.uint8)).type, "zw": ZERO}, {}, "weights are signed"),
    ("int8_matmul_eltwise", {"w": np.ones((8, 6), np.uint8), "zw": ZERO}, {}, "weights are signed"),
    ("int8_matmul_sum", {"r": facts(np.ones((3, 4, 6), np.uint8)).type}, {}, "product's shape"),
    ("int8_matmul_chain", {"b": (6,)}, {"Gemm": {"alpha": 0.5}}, "a bias has no factor"),
    ("int8_matmul_chain", per_index(8), {"d": {"axis": 0}}, "one per column"),
    ("int8_matmul_to_float", {"w": np.ones((8, 6), np.uint8), "zw": ZERO}, {}, "weights are signed"),
    ("int8_matmul_requantize", {"k": np.zeros((4, 6), np.int32)}, {}, "one number per column"),
    ("int8_inner_product", {"zx": np.array(1, np.uint8)}, {}, "it has no zero points"),
    ("int8_inner_product", {"s": np.array([2, -1]), "w": np.ones((36, 6), np.int8)}, {}, "all but the batch"),
    ("int8_linear", {"c": np.ones((4, 1, 1), np.float32)}, {}, "its factor and its constant"),
    ("int8_binary_eltwise", {"sr": np.full((), 0.1, np.float32), "sx": MANY[:1]}, {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "attributes", "why"), REFUSED)
def test_composites(name: str, operands: dict[str, Any], attributes: dict[str, dict[str, Any]], why: str) -> None:
    usual, settings = CASES["dnnl"][name]
    clause = next(c for c in clauses(COMPOSITES[name]) if set(operands) <= set(variables(c.roots[0])))
    failing = instance(clause, usual | operands, settings | attributes).failing(COMPOSITES[name])
    if not why:
        assert failing is None
        return
    assert failing is not None
    assert failing.because is not None
    assert why in failing.because


def test_every_composite_has_a_refusal_or_takes_any_bytes() -> None:
    free = {"int8_eltwise", "int8_softmax", "int8_concat", "int8_binary_eltwise"}
    assert {name for name, *_ in REFUSED} | free == set(COMPOSITES)
