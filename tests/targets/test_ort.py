"""The host `ort`: what a composite is written as computes in ONNX Runtime what the model computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.execute.inputs import complete_inputs
from eqsat.model.builder import Tensor
from eqsat.rules.ast import Number, Place, Supports, Target
from eqsat.targets.find_targets import load_host

RNG = np.random.default_rng(0)
NOWHERE = Place("", 1, 1)
LEVELS = (onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)


def w(*shape: int) -> np.ndarray:
    """Weights."""
    return RNG.standard_normal(shape).astype(np.float32)


def x(*shape: int, name: str = "x") -> Tensor:
    """An input of float32."""
    return eqsat.input(name, shape)


@lru_cache
def only(name: str) -> Target:
    """The host with one composite, which is always worth it."""
    host = load_host("ort")
    (composite,) = (c for c in host.composites if c.name == name)
    dear = Supports((), (), Number(1.0, "1.0", NOWHERE), NOWHERE)
    return replace(host, supports=(dear,), composites=(replace(composite, cost=Number(0.1, "0.1", NOWHERE)),))


def conv(*shape: int, group: int = 1, **attributes: object) -> Tensor:
    """A convolution with a bias of an image."""
    channels = 2 * shape[1]
    weight = w(channels, shape[1] // group, *[3] * (len(shape) - 2)) / 8
    return op.Conv(x(*shape), weight, w(channels), group=group, **attributes)


IMAGES: dict[str, Callable[[], Tensor]] = {
    "image": lambda: conv(1, 3, 9, 11),
    "strides": lambda: conv(2, 16, 12, 12, strides=[2, 2], pads=[1, 1, 1, 1]),
    "depthwise": lambda: conv(1, 16, 10, 10, group=16, pads=[0, 1, 1, 0], dilations=[2, 1]),
    "sequence": lambda: conv(2, 4, 20, pads=[2, 2]),
    "volume": lambda: conv(1, 2, 5, 6, 7),
    "without bias": lambda: op.Conv(x(1, 16, 8, 8), w(32, 16, 1, 1)),
}
ENDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": op.Relu,
    "sigmoid": op.Sigmoid,
    "tanh": op.Tanh,
    "leaky_relu": lambda y: op.LeakyRelu(y, alpha=0.3),
    "hard_sigmoid": lambda y: op.HardSigmoid(y, alpha=0.3, beta=0.4),
    "clip": lambda y: op.Clip(y, np.float32(-0.5), np.float32(2.5)),
}
GEMMS: dict[str, Callable[[], Tensor]] = {
    "rows": lambda: op.Gemm(x(5, 7), w(7, 4), w(4)),
    "transposed": lambda: op.Gemm(x(7, 5), w(4, 7), w(5, 4), transA=1, transB=1, alpha=0.5, beta=2.0),
    "without bias": lambda: op.Gemm(x(1, 8), w(8, 3)),
    "of two inputs": lambda: op.Gemm(x(3, 8), x(8, 3, name="b"), x(1, 3, name="c")),
}


def transposed(tensor: Tensor) -> Tensor:
    """The matrices of a tensor, transposed."""
    rank = len(tensor.shape)
    return op.Transpose(tensor, perm=[*range(rank - 2), rank - 1, rank - 2])


PRODUCTS: dict[str, Callable[[], Tensor]] = {
    "right": lambda: op.MatMul(x(2, 3, 5, 4), transposed(x(2, 3, 6, 4, name="b"))),
    "left": lambda: op.MatMul(transposed(x(2, 4, 5)), x(2, 4, 6, name="b")),
    "both": lambda: op.MatMul(transposed(x(4, 5)), transposed(x(6, 4, name="b"))),
    "scaled": lambda: op.MatMul(x(3, 4), x(4, 5, name="b")) * np.float32(0.125),
    "scaled and transposed": lambda: op.MatMul(x(2, 1, 3, 4), transposed(x(2, 5, 4, name="b"))) * w(1, 1),
    "broadcast": lambda: op.MatMul(transposed(x(2, 3, 4, 5)), x(4, 6, name="b")),
}


def skip_norm(norm: str, *shape: int, bias: bool = True, both: bool = False, epsilon: float = 1e-5) -> list[Tensor]:
    """A normalization of a sum; with ``both`` the sum is an output as well."""
    total = x(*shape) + x(*shape, name="skip")
    shift = [w(shape[-1])] if bias and norm == "LayerNormalization" else []
    made = getattr(op, norm)(total, w(shape[-1]), *shift, axis=-1, epsilon=epsilon)
    return [made, total] if both else [made]


def norms(norm: str) -> dict[str, Callable[[], list[Tensor]]]:
    """Sums and normalizations of several shapes."""
    return {
        "three dimensions": lambda: skip_norm(norm, 2, 5, 16),
        "two dimensions": lambda: skip_norm(norm, 7, 24, both=True),
        "without shift": lambda: skip_norm(norm, 1, 3, 33, bias=False),
        "epsilon": lambda: skip_norm(norm, 1, 4, 8, both=True, epsilon=0.1),
    }


def attention(
    batch: int,
    queries: int,
    keys: int,
    heads: int,
    width: int,
    *,
    values: int = 0,
    mask: tuple[int, ...] = (),
    **more: float,
) -> Tensor:
    """Attention of heads that lie side by side in rows."""

    def split(tensor: Tensor, length: int, size: int) -> Tensor:
        return op.Transpose(op.Reshape(tensor, np.array([batch, length, heads, size])), perm=[0, 2, 1, 3])

    last = values or width
    q = split(x(batch, queries, heads * width, name="q"), queries, width)
    k = split(x(batch, keys, heads * width, name="k"), keys, width)
    v = split(x(batch, keys, heads * last, name="v"), keys, last)
    y = op.Attention(q, k, v, *([w(*mask)] if mask else []), **more)
    return op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), np.array([batch, queries, heads * last]))


ATTENTION: dict[str, Callable[[], Tensor]] = {
    "self": lambda: attention(1, 6, 6, 2, 8),
    "batch": lambda: attention(3, 5, 5, 4, 16, scale=0.3),
    "cross": lambda: attention(2, 4, 9, 2, 8),
    "one query": lambda: attention(1, 1, 70, 4, 8),
    "other values": lambda: attention(2, 4, 9, 2, 8, values=12),
    "mask": lambda: attention(2, 4, 9, 2, 8, mask=(2, 2, 4, 9), scale=1.0),
    "mask for all heads": lambda: attention(2, 4, 9, 2, 8, mask=(2, 1, 4, 9)),
    "mask for all": lambda: attention(2, 4, 9, 2, 8, mask=(1, 1, 4, 9)),
    "mask of two dimensions": lambda: attention(2, 4, 9, 2, 8, mask=(4, 9)),
    "long": lambda: attention(1, 300, 300, 2, 8),
}


def masked_products(batch: int, queries: int, keys: int, mask: tuple[int, ...], scale: float | None = None) -> Tensor:
    """Products of two heads of eight, with a mask that may hold anything."""

    def heads(name: str, length: int, perm: list[int]) -> Tensor:
        rows = op.Reshape(x(batch, length, 16, name=name), np.array([batch, length, 2, 8]))
        return op.Transpose(rows, perm=perm)

    scores = op.MatMul(heads("q", queries, [0, 2, 1, 3]), heads("k", keys, [0, 2, 3, 1]))
    scores = scores if scale is None else scores * np.float32(scale)
    y = op.MatMul(op.Softmax(scores + x(*mask, name="mask"), axis=3), heads("v", keys, [0, 2, 1, 3]))
    return op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), np.array([batch, queries, 16]))


MASKED: dict[str, Callable[[], Tensor]] = {
    "scaled": lambda: masked_products(2, 4, 9, (2, 2, 4, 9), 0.3),
    "not scaled": lambda: masked_products(1, 6, 6, (1, 2, 6, 6)),
    "mask for all heads": lambda: masked_products(2, 4, 9, (2, 1, 4, 9), 0.5),
    "mask for all": lambda: masked_products(2, 4, 9, (1, 1, 4, 9)),
    "long": lambda: masked_products(1, 300, 300, (1, 1, 300, 300), 0.2),
}

CASES: dict[str, dict[str, Callable[[], Tensor | list[Tensor]]]] = {
    **{
        f"convolution_{name}": {case: lambda f=f, made=made: f(made()) for case, made in IMAGES.items()}
        for name, f in ENDINGS.items()
    },
    **{
        f"gemm_{name}": {case: lambda f=ENDINGS[name], made=made: f(made()) for case, made in GEMMS.items()}
        for name in ("relu", "sigmoid", "tanh", "leaky_relu")
    },
    "matrix_product": PRODUCTS,
    "skip_layer_normalization": norms("LayerNormalization"),
    "skip_simplified_layer_normalization": norms("RMSNormalization"),
    "bias_gelu": {
        "rows": lambda: op.Gelu(x(2, 3, 8) + w(8)),
        "row": lambda: op.Gelu(x(5) + x(5, name="b")),
        "images": lambda: op.Gelu(x(2, 3, 4, 5) + w(5)),
    },
    "fast_gelu": {
        "rows": lambda: op.Gelu(x(2, 3, 8), approximate="tanh"),
        "bias": lambda: op.Gelu(x(2, 3, 8) + w(8), approximate="tanh"),
    },
    "quick_gelu": {
        "rows": lambda: (y := x(2, 3, 8)) * op.Sigmoid(y * np.float32(1.702)),
        "swish": lambda: (y := x(7)) * op.Sigmoid(y),
        "image": lambda: (y := conv(1, 3, 9, 11)) * op.Sigmoid(y),
        "negative": lambda: (y := x(4, 9)) * op.Sigmoid(y * np.float32(-2)),
    },
    "multi_head_attention": ATTENTION,
    "multi_head_attention_of_products": MASKED,
}


def test_each_composite_is_tested() -> None:
    assert {c.name for c in load_host("ort").composites} == set(CASES)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases])
def test_written_operator(name: str, case: str, tmp_path: object) -> None:
    model = eqsat.graph(CASES[name][case]())
    host = only(name)
    result = eqsat.optimize(model, host=host)
    (composite,) = host.composites
    assert composite.written is not None
    assert str(composite.written.operator.op) in [str(node.op) for node in result.plan.nodes], result
    agrees(model, result, str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("convolution_relu", "skip_layer_normalization", "matrix_product"),
        *("multi_head_attention", "multi_head_attention_of_products"),
    ],
)
def test_the_host_as_it_is(name: str, tmp_path: object) -> None:
    for made in CASES[name].values():
        model = eqsat.graph(made())
        agrees(model, eqsat.optimize(model, host="ort"), str(tmp_path))


def agrees(model: ir.Model, result: eqsat.Result, folder: str) -> None:
    """The saved file loads in ONNX Runtime and computes the same, whether that optimizes it or not."""
    paths = [f"{folder}/before.onnx", f"{folder}/after.onnx"]
    eqsat.save(model, paths[0])
    result.save(paths[1])
    for seed in range(2):
        feeds = complete_inputs(model, seed=seed)
        wanted = session(paths[0], LEVELS[0]).run(None, feeds)
        for level in LEVELS:
            found = session(paths[1], level).run(None, feeds)
            for a, b in zip(wanted, found, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-3, atol=2e-4 * max(1.0, float(np.max(np.abs(a)))))


def session(path: str, level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.InferenceSession:
    """A session with one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads, options.log_severity_level = level, 1, 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def test_a_sum_before_a_normalization_is_not_fused(tmp_path: object) -> None:
    model = eqsat.graph(skip_norm("LayerNormalization", 1, 64, 256, both=True))
    result = eqsat.optimize(model, host="ort")
    assert sorted(node.op.name for node in result.plan.nodes) == ["LayerNormalization", "Sum"]
    result.save(f"{tmp_path}/after.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = f"{tmp_path}/loaded.onnx"
    onnxruntime.InferenceSession(f"{tmp_path}/after.onnx", options, providers=["CPUExecutionProvider"])
    assert {node.op_type for node in onnx.load(f"{tmp_path}/loaded.onnx").graph.node} == {"LayerNormalization", "Sum"}


def test_signed_bytes_become_unsigned_ones(tmp_path: object) -> None:
    def qdq(tensor: Tensor, scale: float, zero: int) -> Tensor:
        s, z = np.float32(scale), np.int8(zero)
        return op.DequantizeLinear(op.QuantizeLinear(tensor, s, z), s, z)

    weight = op.DequantizeLinear(RNG.integers(-127, 128, (64, 32), np.int8), np.float32(0.01), np.int8(0))
    product = op.MatMul(qdq(x(1, 40, 64), 0.03, -7), weight)
    model = eqsat.graph(qdq(product, 0.1, 3))
    result = eqsat.optimize(model, host="ort")
    (node,) = [node for node in result.plan.nodes if node.op.name == "QLinearMatMul"]
    operand, zero = node.inputs[0], node.inputs[2]
    assert operand is not None and zero is not None
    assert result.plan.types[operand].dtype == ir.DataType.UINT8
    assert int(result.plan.constants[zero].numpy()) == 121
    feeds = complete_inputs(model)
    eqsat.save(model, f"{tmp_path}/before.onnx")
    result.save(f"{tmp_path}/after.onnx")
    wanted, found = (session(f"{tmp_path}/{n}.onnx", LEVELS[1]).run(None, feeds)[0] for n in ("before", "after"))
    assert np.abs(found - wanted).max() <= 0.1001  # a step, where the float sum is near the middle between two


def _channels_last(tensor: Tensor) -> Tensor:
    return op.Transpose(tensor, perm=[0, 2, 3, 1])


def _channels_first(tensor: Tensor) -> Tensor:
    return op.Transpose(tensor, perm=[0, 3, 1, 2])


@pytest.mark.parametrize("host", ["ort", "c", "cpu"])
def test_transpositions_of_bytes_meet_around_operators_of_floats(host: str, tmp_path: object) -> None:
    scale, zero = np.float32(0.04), np.int8(-5)
    dequantized = partial(op.DequantizeLinear, x_scale=scale, x_zero_point=zero)

    def quantized(tensor: Tensor) -> Tensor:
        return op.QuantizeLinear(tensor, scale, zero)

    def convolved(tensor: Tensor, *shape: int) -> Tensor:
        weight = op.DequantizeLinear(RNG.integers(-9, 10, shape, np.int8), np.float32(0.01), np.int8(0))
        return op.Conv(tensor, weight)

    first = convolved(dequantized(_channels_first(quantized(x(1, 14, 14, 32)))), 64, 32, 3, 3)
    activated = op.HardSwish(dequantized(_channels_last(quantized(first))))
    second = convolved(dequantized(_channels_first(quantized(activated))), 32, 64, 3, 3)
    model = eqsat.graph(dequantized(quantized(second)))
    result = eqsat.optimize(model, host=host)
    # That of the input stays, unless kernels read channels last.
    assert [node.op.name for node in result.plan.nodes].count("Transpose") <= 1
    feeds = complete_inputs(model)
    eqsat.save(model, f"{tmp_path}/before.onnx")
    result.save(f"{tmp_path}/after.onnx")
    before, after = (session(f"{tmp_path}/{n}.onnx", LEVELS[0]).run(None, feeds) for n in ("before", "after"))
    for wanted, found in zip(before, after, strict=True):
        assert np.abs(found - wanted).max() <= 0.0801  # two steps, one in each of two layers


@pytest.mark.parametrize("channels", [16, 24, 64])
def test_normalized_channels_are_a_convolution_of_each(channels: int, tmp_path: object) -> None:
    mean, variance = w(channels), np.abs(w(channels)) + 0.5
    normal = op.BatchNormalization(conv(1, channels // 2, 9, 7), w(channels), w(channels), mean, variance)
    again = op.BatchNormalization(op.Relu(normal), w(channels), w(channels), mean, variance)
    model = eqsat.graph(op.Conv(op.Relu(again), w(8, channels, 1, 1)))
    result = eqsat.optimize(model, host="ort")
    groups = [dict(node.attrs).get("group") for node in result.plan.nodes if node.op.name == "FusedConv"]
    assert (channels in groups) == (channels % 16 == 0)
    agrees(model, result, str(tmp_path))


ZERO = np.uint8(3)
SCALE, OUT_SCALE = np.float32(0.02), np.float32(0.4)


def weights(dtype: type, *shape: int) -> np.ndarray:
    """Bytes of the whole range."""
    return RNG.integers(0 if dtype is np.uint8 else -128, 256 if dtype is np.uint8 else 128, shape).astype(dtype)


def bytes_in(*shape: int) -> Tensor:
    return eqsat.input("x", shape, "uint8")


def small_weights(*shape: int) -> np.ndarray:
    """Unsigned bytes of which no processor's sums of two products saturate."""
    return RNG.integers(64, 193, shape).astype(np.uint8)


BYTES: dict[str, tuple[Callable[[], Tensor], str, ir.DataType]] = {
    "convolution": (
        lambda: op.QLinearConv(
            bytes_in(1, 8, 12, 12),
            SCALE,
            ZERO,
            small_weights(16, 8, 3, 3),
            w(16) ** 2 / 50,
            weights(np.uint8, 1)[0],
            OUT_SCALE,
            ZERO,
            pads=[1, 1, 1, 1],
        ),
        "QLinearConv",
        ir.DataType.INT8,
    ),
    "product": (
        lambda: op.QLinearMatMul(
            bytes_in(6, 40), SCALE, ZERO, small_weights(40, 24), SCALE, np.uint8(200), OUT_SCALE, ZERO
        ),
        "QLinearMatMul",
        ir.DataType.INT8,
    ),
    "dynamic product": (
        lambda: op.MatMulInteger(bytes_in(6, 40), small_weights(40, 24), ZERO, np.uint8(9)),
        "MatMulInteger",
        ir.DataType.INT8,
    ),
    "dynamic product of large weights": (
        lambda: op.MatMulInteger(bytes_in(6, 40), weights(np.uint8, 40, 24), ZERO, np.uint8(9)),
        "MatMulInteger",
        ir.DataType.UINT8,
    ),
    "convolution of large weights": (
        lambda: op.QLinearConv(
            bytes_in(1, 8, 12, 12), SCALE, ZERO, weights(np.uint8, 16, 8, 3, 3), SCALE, np.uint8(9), OUT_SCALE, ZERO
        ),
        "QLinearConv",
        ir.DataType.UINT8,
    ),
    "dynamic convolution": (
        lambda: op.ConvInteger(bytes_in(1, 32, 12, 12), weights(np.int8, 16, 32, 3, 3), ZERO, np.int8(-4)),
        "ConvInteger",
        ir.DataType.UINT8,
    ),
}


@pytest.mark.parametrize("name", BYTES)
def test_weights_of_bytes_have_the_type_that_is_fast(name: str, tmp_path: object) -> None:
    made, kind, dtype = BYTES[name]
    model = eqsat.graph(made())
    result = eqsat.optimize(model, host="ort")
    (node,) = [node for node in result.plan.nodes if node.op.name == kind]
    (weight,) = [c for c in node.inputs if c in result.plan.constants and result.plan.constants[c].size > 100]
    assert result.plan.types[weight].dtype == dtype
    eqsat.save(model, f"{tmp_path}/before.onnx")
    result.save(f"{tmp_path}/after.onnx")
    feeds = complete_inputs(model)
    wanted, found = (session(f"{tmp_path}/{n}.onnx", LEVELS[1]).run(None, feeds)[0] for n in ("before", "after"))
    np.testing.assert_array_equal(found, wanted)


def test_an_integer_convolution_of_each_channel_is_one_of_floats(tmp_path: object) -> None:
    x = bytes_in(1, 24, 14, 14)
    y = op.Cast(op.ConvInteger(x, weights(np.int8, 24, 1, 3, 3), ZERO, np.int8(5), group=24, pads=[1] * 4), to=1)
    model = eqsat.graph(op.Relu(y * np.float32(0.01)))
    result = eqsat.optimize(model, host="ort")
    kinds = {node.op.name for node in result.plan.nodes}
    assert "ConvInteger" not in kinds and kinds & {"Conv", "FusedConv"}
    agrees(model, result, str(tmp_path))
