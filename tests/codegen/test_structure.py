"""What is fused, what costs nothing, what shares memory: kernels and buffers of small networks, and their values."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.codegen.emitted import Emitted
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load


def generated(interface: str, body: str, constants: str = "") -> Emitted:
    """The program of a graph, which has been run and compared."""
    text = f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g {interface} {constants} {{ {body} }}'
    model = load(text)
    inputs = complete_inputs(model)
    compiled = CModel(model)
    results, expected = compiled.run(inputs), Executor(model).run(inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(results[name], array, rtol=1e-5, atol=1e-6)
    return compiled.emitted


def kernels(emitted: Emitted) -> list[str]:
    return [k.what for k in emitted.kernels]


def numbers(*shape: int, scale: float = 0.01) -> str:
    count = int(np.prod(shape))
    return "{" + ", ".join(f"{scale * ((7 * i) % 23 - 11):.4f}" for i in range(count)) + "}"


CONV = f"<float[16, 16, 3, 3] w = {numbers(16, 16, 3, 3)}, float[16] b = {numbers(16)}>"
IMAGE = "float[1, 16, 6, 6]"


def test_elementwise_operators_are_one_kernel() -> None:
    found = generated("(float[4, 5] x, float[5] y) => (float[4, 5] z)", "a = Add(x, y) b = Mul(a, x) z = Tanh(b)")
    assert kernels(found) == ["Add + Mul + Tanh"]


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_functions_after_plain_loops_are_computed_in_vectors_where_there_are_any(dtype: str) -> None:
    space = f"({dtype}[2, 8, 5, 3] x) => ({dtype}[2, 2, 10, 6] y)"
    found = generated(space, "a = DepthToSpace<blocksize = 2>(x) b = Tanh(a) y = Mul(a, b)")
    assert kernels(found) == ["DepthToSpace", "Tanh + Mul"]
    found = generated(space, "a = DepthToSpace<blocksize = 2>(x) y = Tanh(a)")
    assert kernels(found) == (["DepthToSpace", "Tanh"] if dtype == "float" else ["DepthToSpace + Tanh"])
    found = generated(space, "a = DepthToSpace<blocksize = 2>(x) y = Neg(a)")
    assert kernels(found) == ["DepthToSpace + Neg"]


def test_what_two_read_is_computed_once() -> None:
    found = generated(
        "(float[4, 5] x) => (float[4, 5] y, float[4] z)", "a = Exp(x) y = Neg(a) k = Constant<value_ints = [1]>() "
        "z = ReduceSum<keepdims = 0>(a, k)"
    )  # fmt: skip
    assert sorted(kernels(found)) == ["Exp", "Neg", "ReduceSum"]


def test_what_is_returned_is_kept() -> None:
    found = generated("(float[4, 5] x) => (float[4, 5] a, float[4, 5] y)", "a = Exp(x) y = Neg(a)")
    assert kernels(found) == ["Exp", "Neg"]
    assert found.memory_map == []


def test_a_residual_joins_the_later_convolution() -> None:
    body = (
        "c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) d = Conv<pads = [1, 1, 1, 1]>(r, w, b)"
        "s = Add(d, r) y = Relu(s) z = GlobalMaxPool(y)"
    )
    found = kernels(generated(f"({IMAGE} x) => (float[1, 16, 1, 1] z)", body, CONV))
    assert found[1:3] == ["Conv + Relu", "Conv + Add + Relu"]
    assert "Add" not in found


NORMALIZED = CONV.replace(
    ">", f", float[16] v = {'{' + ', '.join(['1.5'] * 16) + '}'}, float[16, 1, 1] s = {numbers(16, scale=0.1)}>"
)


@pytest.mark.parametrize(
    "after",
    [
        "n = BatchNormalization<epsilon = 0.001>(c, b, b, b, v) y = Relu(n)",
        "n = BatchNormalization<epsilon = 0.001>(c, v, b, b, v) m = Mul(n, s) k = Sub(m, s) y = Relu(k)",
        "h = Constant<value_float = 3.0>() d = Div(c, h) k = Add(s, d) y = Relu(k)",
    ],
)
@pytest.mark.parametrize("bias", ["", ", b"])
def test_scales_and_shifts_of_channels_are_part_of_the_weights(after: str, bias: str) -> None:
    body = f"c = Conv<pads = [1, 1, 1, 1]>(x, w{bias}) {after} z = GlobalAveragePool(y)"
    found = kernels(generated(f"({IMAGE} x) => (float[1, 16, 1, 1] z)", body, NORMALIZED))
    assert found[:3] == ["Copy", "Conv + Relu", "GlobalAveragePool"]


def test_what_is_no_scale_of_channels_stays() -> None:
    body = (
        "c = Conv<pads = [1, 1, 1, 1]>(x, w, b) m = Mul(c, c) n = Sigmoid(m) k = Mul(n, rows) i = Div(k, zero) "
        "y = Add(i, c) z = GlobalMaxPool(y)"
    )
    constants = CONV.replace(">", ", float[6] rows = {1, 2, 3, 4, 5, 6}, float zero = {0}>")
    found = kernels(generated(f"({IMAGE} x) => (float[1, 16, 1, 1] z)", body, constants))
    assert "Conv + Mul + Sigmoid + Mul + Div + Add" in found or "Mul + Sigmoid + Mul + Div + Add" in found


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", ["", ", c", ", d"])
def test_scales_of_a_product(transposed: int, bias: str) -> None:
    shape = "5, 4" if transposed else "4, 5"
    found = generated(
        "(float[3, 4] x) => (float[3, 5] y)",
        f"g = Gemm<transB = {transposed}>(x, w{bias}) m = Mul(g, s) a = Add(m, s) y = Relu(a)",
        f"<float[{shape}] w = {numbers(4, 5, scale=0.1)}, float[5] s = {numbers(5)}, float[1, 5] c = {numbers(5)},"
        " float d = {2}>",
    )
    assert kernels(found) == ["Gemm + Relu"]


@pytest.mark.parametrize(
    "operator, shape",
    [
        ("Reshape(a, k)", (6, 10)),
        ("Unsqueeze(a, one)", (4, 1, 15)),
        ("Flatten(a)", (4, 15)),
        ("Transpose(a)", (15, 4)),
        ("Identity(a)", (4, 15)),
        ("Slice(a, one, three, one)", (4, 2)),
        ("Gather<axis = 0>(a, two)", (15,)),
    ],
)
def test_pieces_cost_nothing(operator: str, shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    found = generated(
        f"(float[4, 15] x) => (float[{dims}] y)",
        f"a = Exp(x) p = {operator} y = Neg(p)",
        "<int64[2] k = {6, 10}, int64[1] one = {1}, int64[1] three = {3}, int64 two = {2}>",
    )
    # The next step reads the piece where it lies, or joins the operator before.
    assert [k for k in kernels(found) if k == "Copy"] == []
    assert len(found.memory_map) <= 1


def test_transposes_around_a_convolution_cancel() -> None:
    """An image that comes channels last is convolved as it is: only its border is added."""
    body = (
        "t = Transpose<perm = [0, 3, 1, 2]>(x) c = Conv<pads = [1, 1, 1, 1]>(t, w, b) r = Relu(c) "
        "u = Transpose<perm = [0, 2, 3, 1]>(r) y = Exp(u)"
    )
    found = generated("(float[1, 6, 6, 16] x) => (float[1, 6, 6, 16] y)", body, CONV)
    assert kernels(found) == ["Copy", "Conv + Relu", "Exp"]
    body = body.replace("[1, 1, 1, 1]", "[0, 0, 0, 0]")
    found = generated("(float[1, 6, 6, 16] x) => (float[1, 4, 4, 16] y)", body, CONV)
    assert kernels(found) == ["Conv + Relu", "Exp"]


def test_concatenation_in_place() -> None:
    body = "a = Exp(x) b = Neg(x) c = Concat<axis = 1>(a, b) d = Abs(x) e = Concat<axis = 1>(c, d) y = Tanh(e)"
    found = generated("(float[2, 3, 4] x) => (float[2, 9, 4] y)", body)
    assert sorted(kernels(found)) == ["Abs", "Exp", "Neg", "Tanh"]
    (entry,) = found.memory_map
    assert entry.size == 2 * 9 * 4 * 4


def test_concatenation_of_what_must_be_copied() -> None:
    body = "a = Exp(x) c = Concat<axis = 0>(a, x, a, k) y = Tanh(c)"
    found = generated("(float[2, 3] x) => (float[7, 3] y)", body, "<float[1, 3] k = {1, 2, 3}>")
    assert kernels(found).count("Copy") == 4


def test_elementwise_in_place() -> None:
    body = "s = Softmax(x) t = Softmax(s) u = Softmax(t) y = ReduceMax<keepdims = 0>(u, k)"
    found = generated("(float[4, 5] x) => (float[4] y)", body, "<int64[1] k = {1}>")
    assert len(found.memory_map) == 1


def test_what_is_read_later_is_not_overwritten() -> None:
    body = "s = Softmax(x) t = Softmax<axis = 0>(s) u = MatMul(s, t) y = Add(u, s)"
    found = generated("(float[5, 5] x) => (float[5, 5] y)", body)
    assert len(found.memory_map) >= 2


def test_halo_is_filled_once_and_shared() -> None:
    """Two convolutions of different size read one padded tensor."""
    body = (
        "r = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) c = Conv<pads = [1, 1, 1, 1]>(r, w, b) "
        "d = Conv<pads = [2, 2, 2, 2], dilations = [2, 2]>(r, w, b) y = Add(c, d)"
    )
    found = generated(f"({IMAGE} x) => ({IMAGE} y)", body, CONV)
    names = [e.name for e in found.memory_map]
    assert sum("r" in name.split(", ") for name in names) == 1
    padded = next(e for e in found.memory_map if "r" in e.name.split(", "))
    assert padded.size == 4 * 16 * 10 * 10


def test_an_arena_of_a_chain_is_two_buffers() -> None:
    body = " ".join(f"v{i + 1} = MatMul(v{i}, m)" for i in range(8)) + " y = MatMul(v8, m)"
    found = generated("(float[6, 6] v0) => (float[6, 6] y)", body, f"<float[6, 6] m = {numbers(6, 6, scale=0.05)}>")
    assert found.plan.size == found.plan.bound
    assert found.plan.size <= 2 * 192


def test_constant_outputs_and_inputs_returned() -> None:
    found = generated(
        "(float[2, 2] x) => (float[2, 2] x2, float[2, 2] x3, float[2] k2, int64[2] n)",
        "x2 = Identity(x) x3 = Identity(x) k2 = Neg(k) n = Shape(x)",
        "<float[2] k = {1, 2}>",
    )
    assert kernels(found) == ["Copy"] * 4


def test_tensors_without_elements() -> None:
    generated("(float[0, 3] x) => (float[0, 3] y, float[2, 3] z)", "y = Exp(x) z = Concat<axis = 0>(x, k)",
              "<float[2, 3] k = {1, 2, 3, 4, 5, 6}>")  # fmt: skip


def test_scalars() -> None:
    generated("(float x, float y) => (float z)", "a = Add(x, y) z = Mul(a, k)", "<float k = {3}>")


def test_an_operator_by_its_definition() -> None:
    """What has no kernel is made of what ONNX defines it by."""
    found = generated("(float[2, 6] x) => (float[2, 6] y)", "y = MeanVarianceNormalization<axes = [1]>(x)")
    assert len(kernels(found)) >= 1
