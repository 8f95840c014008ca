"""What ``dnnl.target`` accepts is what oneDNN computes: oneDNN's formulas against ONNX Runtime, and the refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from eqsat.model.normalize import complete
from eqsat.rules.ast import Target
from eqsat.rules.evaluation import TensorFacts
from eqsat.rules.expand import expand
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey, TensorType
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel
from tests.targets.instances import FLOAT, facts, instance
from tests.targets.test_shipped import CASES

RNG = np.random.default_rng(7)
MODEL = CostModel(load_targets("dnnl"))


@pytest.fixture(scope="module")
def dnnl() -> Target:
    return MODEL.targets[1]


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def onnx_result(op: str, inputs: list[np.ndarray | None], **attributes: Any) -> np.ndarray:
    """ONNX Runtime's result of one operator."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], **attributes)
    given = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    fed = {n: x for n, x in given.items() if n == "x0"}
    constants = [numpy_helper.from_array(x, n) for n, x in given.items() if n != "x0"]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, x.shape) for n, x in fed.items()]
    graph = helper.make_graph([node], "g", values, [helper.make_value_info("y", onnx.TypeProto())], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, fed)[0]


def refusal(op: str, inputs: list[np.ndarray | None], output: np.ndarray | tuple[int, ...], **attributes: Any) -> str:
    """Why the target does not take an operator, empty if it does."""
    known = [None if x is None else facts(x.shape) if i == 0 else facts(x) for i, x in enumerate(inputs)]
    types = [None if f is None else f.type for f in known]
    attrs = complete(OpKey("", op), make_attrs(OpKey("", op), attributes), types)
    shape = output if isinstance(output, tuple) else output.shape
    result = [TensorType(FLOAT, shape)]
    reason = MODEL.why_not(1, OpKey("", op), attrs, known, result)
    assert (MODEL.operator(1, OpKey("", op), attrs, known, result) == math.inf) == bool(reason)
    return reason


# ---- resampling ------------------------------------------------------------------------------------


def resampled(x: np.ndarray, shape: tuple[int, ...], mode: str) -> np.ndarray:
    """oneDNN, developer guide, "Resampling": nearest and (bi-)linear by the centres of pixels."""
    for axis in range(2, x.ndim):
        size, length = x.shape[axis], shape[axis]
        position = (np.arange(length) + 0.5) * size / length - 0.5
        if mode == "nearest":
            nearest = np.sign(position) * np.floor(np.abs(position) + 0.5)  # C's roundf: halves away from zero
            x = np.take(x, np.clip(nearest, 0, size - 1).astype(int), axis)
            continue
        low = np.floor(position)
        weight = (position - low).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        below, above = (np.take(x, np.clip(low + i, 0, size - 1).astype(int), axis) for i in (0, 1))
        x = below * (1 - weight) + above * weight
    return x


COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_agrees_where_it_is_accepted(mode: str) -> None:
    accepted = differing = 0
    sizes = [((1, 2, 5, 4), (10, 4)), ((2, 1, 3, 3), (9, 12)), ((1, 1, 6, 7), (3, 7)), ((1, 1, 5, 5), (7, 8))]
    for (shape, spatial), how in itertools.product(sizes, ("sizes", "scales")):
        x = draw(*shape)
        wanted = np.array((*shape[:2], *spatial))
        operand = [None, wanted] if how == "sizes" else [(wanted / shape).astype(np.float32)]
        for coordinates, rounding in itertools.product(COORDINATES, ROUNDINGS):
            settings = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
            inputs = [x, None, *operand]
            expected = onnx_result("Resize", inputs, **settings)
            same = np.allclose(resampled(x, expected.shape, mode), expected, rtol=1e-5, atol=1e-6)
            if refusal("Resize", inputs, expected, **settings):
                differing += not same
            else:
                accepted += 1
                assert same, (shape, spatial, how, settings)
    # How to round is of no meaning to linear resampling, and PyTorch writes `floor`.
    assert accepted >= (4 * len(ROUNDINGS) if mode == "linear" else 4)
    assert differing > 0


@pytest.mark.parametrize(
    ("shape", "scales", "reason"),
    [
        ((1, 1, 5, 5), [1, 1, 1.1, 2], "quotient of the sizes"),
        ((1, 2, 5, 5), [1, 2, 2, 2], "spatial dimensions"),
        ((5, 5), [2, 2], "spatial dimensions"),
    ],
)
def test_resize_is_refused(shape: tuple[int, ...], scales: list[float], reason: str) -> None:
    x, factor = draw(*shape), np.array(scales, np.float32)
    result = tuple(math.floor(a * b) for a, b in zip(shape, scales, strict=True))
    assert reason in refusal("Resize", [x, None, factor], result, mode="linear")


def test_resize_of_any_number_of_images_is_accepted() -> None:
    attrs = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    types = [TensorType(FLOAT, ("N", 2, 5, 5)), None, TensorType(FLOAT, (4,))]
    attributes = complete(OpKey("", "Resize"), make_attrs(OpKey("", "Resize"), attrs), types)
    scales = TensorFacts(types[2], np.array([1, 1, 2, 2], np.float32), True)
    known = [TensorFacts(types[0]), None, scales]
    for shape, accepted in ((("N", 2, 10, 10), True), (("N + 1", 2, 10, 10), False)):
        result = [TensorType(FLOAT, shape)]
        assert bool(MODEL.why_not(1, OpKey("", "Resize"), attributes, known, result)) != accepted


def test_resize_with_antialiasing_and_cubic_are_refused() -> None:
    inputs = [draw(1, 1, 4, 4), None, np.array([1, 1, 2, 2], np.float32)]
    for settings in ({"mode": "linear", "antialias": 1}, {"mode": "cubic"}):
        assert "nearest and linear" in refusal("Resize", inputs, (1, 1, 8, 8), **settings)


# ---- pooling, normalization ------------------------------------------------------------------------


def average(x: np.ndarray, shape: tuple[int, ...], kernel: int, stride: int, pad: int, include: bool) -> np.ndarray:
    """oneDNN, developer guide, "Pooling": divided by the window, or by its overlap with the image."""
    result = np.zeros(shape, np.float32)
    for i, j in itertools.product(range(shape[2]), range(shape[3])):
        top, left = i * stride - pad, j * stride - pad
        window = x[:, :, max(top, 0) : max(top + kernel, 0), max(left, 0) : max(left + kernel, 0)]
        count = kernel * kernel if include else window.shape[2] * window.shape[3]
        result[:, :, i, j] = window.sum((2, 3)) / count
    return result


def test_average_pool_agrees_where_it_is_accepted() -> None:
    accepted = differing = 0
    for size, stride, pad, ceil, include in itertools.product((6, 7, 8), (1, 2, 3), (0, 1), (0, 1), (0, 1)):
        x = draw(1, 2, size, size)
        settings = {
            "kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [pad] * 4, "ceil_mode": ceil,
            "count_include_pad": include,
        }  # fmt: skip
        expected = onnx_result("AveragePool", [x], **settings)
        same = np.allclose(average(x, expected.shape, 3, stride, pad, bool(include)), expected, atol=1e-6)
        if refusal("AveragePool", [x], expected, **settings):
            differing += not same
        else:
            accepted += 1
            assert same, settings
    assert accepted > 20
    assert differing > 0


def local_response(x: np.ndarray, size: int, alpha: float, beta: float, k: float) -> np.ndarray:
    """oneDNN, developer guide, "LRN across channels"; the loop's bounds are integers in C."""
    half = (size - 1) // 2
    square = np.zeros_like(x)
    for c in range(x.shape[1]):
        square[:, c] = (x[:, max(c - half, 0) : c + half + 1] ** 2).sum(1)
    return (k + alpha / size * square) ** -beta * x


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_lrn_agrees_where_it_is_accepted(size: int) -> None:
    x = draw(5, 5, 3, 3)  # the reference implementation takes the batch for the channels
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.5, beta=0.75, bias=2.0)
    (expected,) = ReferenceEvaluator(node).run(None, {"x": x})  # ONNX Runtime: odd sizes only
    same = np.allclose(local_response(x, size, 0.5, 0.75, 2.0), expected, rtol=1e-5)
    assert same == (not refusal("LRN", [x], expected, size=size))


# ---- eltwise ---------------------------------------------------------------------------------------

_logistic: Callable[[np.ndarray], np.ndarray] = lambda s: 1 / (1 + np.exp(-s))  # noqa: E731
_erf = np.vectorize(math.erf)
FORMULAS: list[tuple[str, dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = [
    ("Relu", {}, lambda s: np.where(s > 0, s, 0)),
    ("LeakyRelu", {"alpha": 0.2}, lambda s: np.where(s > 0, s, 0.2 * s)),
    ("Elu", {"alpha": 0.7}, lambda s: np.where(s > 0, s, 0.7 * np.expm1(s))),
    ("Sigmoid", {}, _logistic),
    ("Tanh", {}, np.tanh),
    ("Abs", {}, np.abs),
    ("Exp", {}, np.exp),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, lambda s: np.clip(0.3 * s + 0.4, 0, 1)),
    ("HardSwish", {}, lambda s: s * np.clip(s / 6 + 0.5, 0, 1)),
    ("Mish", {}, lambda s: s * np.tanh(np.log1p(np.exp(s)))),
    ("Gelu", {}, lambda s: 0.5 * s * (1 + _erf(s / math.sqrt(2)))),
    ("Gelu", {"approximate": "tanh"},
     lambda s: 0.5 * s * (1 + np.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3)))),
    ("Softplus", {}, lambda s: np.log1p(np.exp(s))),
    ("Round", {}, np.rint),
    ("Neg", {}, lambda s: -1 * s + 0),
    ("Reciprocal", {}, lambda s: 1 * s**-1),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attributes", "formula"), FORMULAS, ids=lambda v: v if isinstance(v, str) else "")
def test_eltwise_agrees(op: str, attributes: dict[str, Any], formula: Callable[[np.ndarray], np.ndarray]) -> None:
    x = np.concatenate([draw(50) * 3, np.array([0.5, 1.5, 2.5, -0.5, -1.5, 4, -4], np.float32)])
    expected = onnx_result(op, [x], **attributes)
    assert not refusal(op, [x], expected, **attributes)
    np.testing.assert_allclose(formula(x.astype(np.float64)), expected, rtol=2e-5, atol=2e-6)


# ---- data movement ---------------------------------------------------------------------------------


def test_channel_shuffle_is_the_shuffle_primitive(dnnl: Target) -> None:
    (composite,) = (c for c in dnnl.composites if c.name == "channel_shuffle")
    (clause,) = expand(composite.patterns)
    operands, attributes = CASES["dnnl"]["channel_shuffle"]
    made = instance(clause, operands, attributes)
    groups = made.env["a"].output.type.shape[2]
    x = draw(2, 12, 5, 5)
    expected = x.reshape(2, 3, 4, 5, 5).transpose(0, 2, 1, 3, 4).reshape(x.shape)
    shuffled = np.empty_like(x)
    rows = 12 // groups
    for u, v in itertools.product(range(rows), range(groups)):  # oneDNN, developer guide, "Shuffle"
        shuffled[:, u + v * rows] = x[:, u * groups + v]
    np.testing.assert_array_equal(shuffled, expected)


@pytest.mark.parametrize("transposed", [0, 1])
def test_inner_product_takes_images_unflattened(transposed: int) -> None:
    x, b = draw(4, 2, 3, 3), draw(6)
    w = draw(6, 18) if transposed else draw(18, 6)
    expected = x.reshape(4, 18) @ (w.T if transposed else w) + b
    weights = (w if transposed else w.T).reshape(6, 2, 3, 3)
    np.testing.assert_allclose(np.einsum("nchw,ochw->no", x, weights) + b, expected, rtol=2e-5, atol=1e-5)


# ---- what is refused, and why ----------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], dict[str, dict[str, Any]], str]] = [
    ("conv_sum", {"r": (1, 6, 7, 7)}, {}, "rides"),
    ("conv_sum", {"r": (7,)}, {}, "rides"),
    ("conv_eltwise_sum", {"r": (2, 6, 1, 1)}, {}, "rides"),
    ("conv_binary", {"r": (6, 1, 1)}, {}, "rides"),
    ("conv_depthwise", {"w": (6, 4, 3, 3)}, {}, "the first convolution is 1x1"),
    ("conv_depthwise", {}, {"c": {"strides": [2, 2]}}, "the first convolution is 1x1"),
    ("conv_depthwise", {"v": (6, 1, 5, 5)}, {}, "the second is 3x3 and depthwise"),
    ("conv_depthwise", {"v": (6, 3, 3, 3)}, {"d": {"group": 2, "pads": [1] * 4}}, "the second is 3x3 and depthwise"),
    ("conv_depthwise", {}, {"d": {"group": 6, "pads": [0] * 4}}, "padding 1"),
    ("conv_depthwise", {}, {"d": {"group": 6, "pads": [1] * 4, "strides": [3, 3]}}, "padding 1"),
    ("matmul_transposed", {"w": (3, 8, 8)}, {"Transpose": {"perm": [0, 1, 2]}}, "flipped"),
    ("matmul_transposed", {"w": (8, 3, 8)}, {"Transpose": {"perm": [1, 0, 2]}}, "flipped"),
    ("matmul_sum", {"r": (2, 3, 5, 8)}, {}, "adds"),
    ("gemm_eltwise", {}, {"Gemm": {"alpha": 0.5}}, "factorless"),
    ("gemm_eltwise", {}, {"Gemm": {"beta": 0.5}}, "factorless"),
    ("gemm_sum", {"r": (2, 4, 6)}, {}, "adds"),
    ("inner_product", {"s": np.array([2, -1]), "x": (4, 1, 3, 3)}, {}, "all but the batch"),
    ("inner_product", {"b": (1, 6)}, {}, "one value per channel"),
    ("scale_shift", {"t": (2, 2, 6, 7, 7)}, {}, "adds"),
    ("eltwise_binary", {"x": (2, 6, 1, 1)}, {}, "adds"),
    ("pooling_eltwise", {}, {"MaxPool": {"kernel_shape": [2, 2], "ceil_mode": 1}}, "beyond the padding"),
    ("resampling_sum", {"f": np.array([1, 1, 1.5, 1.5], np.float32), "r": (2, 6, 10, 10)}, {}, "whole"),
    ("resampling_sum", {"r": (1, 2, 6, 14, 14)}, {}, "adds"),
    ("channel_shuffle", {}, {"Transpose": {"perm": [0, 2, 1, 4, 3]}}, "exchanged"),
    ("channel_shuffle", {"s": np.array([2, 3, 4, 25]), "u": np.array([2, 12, 5, 5])},
     {"Transpose": {"perm": [0, 2, 1, 3]}}, "alone is split"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "attributes", "why"), REFUSED)
def test_refused(
    dnnl: Target, name: str, operands: dict[str, Any], attributes: dict[str, dict[str, Any]], why: str
) -> None:
    (composite,) = (c for c in dnnl.composites if c.name == name)
    usual, settings = CASES["dnnl"][name]
    clauses = expand(composite.patterns)
    clause = next(c for c in clauses if set(operands) <= set(_variables(c.roots[0])))
    made = instance(clause, usual | operands, settings | attributes)
    failing = made.failing(composite)
    assert failing is not None
    if failing.because is not None:
        assert why in failing.because


def _variables(pattern: Any) -> list[str]:
    if pattern is None:
        return []
    if hasattr(pattern, "args"):
        return [name for arg in pattern.args for name in _variables(arg)]
    return [pattern.name]
