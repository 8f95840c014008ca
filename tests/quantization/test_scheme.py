"""Which tensors are quantized, and the model that comes out."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import QuantizationError
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.quantization.calibrate import calibrate
from eqsat.quantization.insert import apply_scheme, quantize_dequantize, with_taps
from eqsat.quantization.methods import METHODS
from eqsat.quantization.options import Options
from eqsat.quantization.quantizer import Quantizer
from eqsat.quantization.ranges import Range, ranges
from eqsat.quantization.scheme import QuantizedTensor, make_scheme
from tests.quantization import runtime
from tests.quantization.networks import NETWORKS, convolution, he, normal, perceptron, residual, samples
from tests.quantization.runtime import needs_exact_products


def text(body: str, opset: int = 21) -> ir.Model:
    return load(f'<ir_version: 10, opset_import: ["": {opset}]> {body}')


def shape_of(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return value.shape.numpy()


def settle(model: ir.Model, values: dict[str, np.ndarray]) -> None:
    """Make constants of inputs."""
    for value in [v for v in model.graph.inputs if v.name in values]:
        value.const_value = ir.Tensor(values[value.name or ""], name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)


def scheme_of(model: ir.Model, **options) -> dict[tuple[str, str], QuantizedTensor]:
    """Tensors of a scheme by name and kind."""
    found = make_scheme(model, ranges(calibrate(model, samples(model, 4))), Options(**options))
    by_key = {(t.name, t.kind): t for t in found.tensors}
    assert len(by_key) == len(found.tensors)
    return by_key


def quantized(model: ir.Model, count: int = 4, **options) -> ir.Model:
    chosen = Options(**options)
    return quantize_dequantize(model, ranges(calibrate(model, samples(model, count)), chosen), chosen)


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def same(a: Quantizer, b: Quantizer) -> bool:
    return a.key == b.key


# ---- what is quantized ---------------------------------------------------------------------------


def test_a_convolution():
    model = convolution()
    found = scheme_of(model)
    assert [kind for _, kind in found] == ["activation", "weight", "bias", "activation"]
    x, weight, bias, y = found.values()
    conv = next(node for node in model.graph if node.op_type == "Conv")
    assert x.name == "x" and x.readers == ((0, 0),) and y.name == model.graph.outputs[0].name and y.readers is None
    assert (weight.name, bias.name) == (conv.inputs[1].name, conv.inputs[2].name)
    assert weight.quantizer.axis == 0 and weight.quantizer.scale.shape == (16,)
    np.testing.assert_array_equal(bias.quantizer.scale, x.quantizer.scale * weight.quantizer.scale)
    assert y.quantizer.zero == 0, "what a Relu gives has no use for negative numbers"


def test_nothing_between_an_operator_and_the_relu_that_alone_reads_it():
    body = """g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) {
      a = Add(x, x)  b = Relu(a)  c = Mul(b, x)  y = Relu(c)  z = Sigmoid(c) }"""
    found = scheme_of(text(body))
    # a goes to a Relu only; c is read twice, so it is there as integers.
    assert {name for name, _ in found} == {"x", "b", "c", "y", "z"}
    clip = """g (float[2, 4] x, float m) => (float[2, 4] y) <float low = {0}> { a = Add(x, x)  y = Clip(a, low%s) }"""
    assert {name for name, _ in scheme_of(text(clip % ""))} == {"x", "y"}
    assert {name for name, _ in scheme_of(text(clip % ", m"))} == {"x", "a", "y"}, "the bound is not known"


def test_outputs_of_the_model_are_not_skipped_over():
    found = scheme_of(text("g (float[4] x) => (float[4] a, float[4] y) { a = Add(x, x)  y = Relu(a) }"))
    assert {name for name, _ in found} == {"x", "a", "y"}


def test_data_movement_passes_integers_on():
    body = """g (float[1, 4, 6, 6] x) => (float[36] y) <int64[1] flat = {-1}, int64[2] cut = {2, 2}> {
      a = Add(x, x)  b = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(a)  c = Transpose<perm=[0, 2, 3, 1]>(b)
      d, e = Split<axis=3>(c, cut)  f = Concat<axis=3>(e, d)  y = Reshape(f, flat) }"""
    found = {name: t for (name, _), t in scheme_of(text(body)).items()}
    assert list(found) == ["x", "a", "b", "c", "d", "e", "f", "y"]
    assert all(found[n].follows == "a" and same(found[n].quantizer, found["a"].quantizer) for n in "bcde")
    # Concat has an integer form with a scale for each operand, and its own for the result.
    assert found["f"].follows is None and found["y"].follows == "f"


def test_the_result_of_a_softmax_has_the_range_of_its_integer_operator():
    found = scheme_of(text("g (float[2, 4] x) => (float[2, 4] y) { y = Softmax(x) }"))
    assert list(found) == [("x", "activation"), ("y", "activation")]
    y = found["y", "activation"].quantizer
    assert (y.zero, y.scale) == (0, np.float32(1 / 255))


@pytest.mark.parametrize(
    ("operator", "operand", "takes_part"),
    [
        ("Div", "2", True),
        ("Div", "0", False),
        ("Pow", "2", True),
        ("Pow", "0.5", False),
        ("Pow", "-1", False),
    ],
)
def test_division_and_powers_by_a_number(operator: str, operand: str, takes_part: bool):
    model = text(f"g (float[4] x) => (float[4] y) <float c = {{{operand}}}> {{ y = {operator}(x, c) }}")
    names = [name for name, _ in scheme_of(model)]
    assert names == (["x", "y"] if takes_part else [])


def test_division_by_what_is_no_number():
    assert not scheme_of(text("g (float[4] x, float[4] z) => (float[4] y) { y = Div(x, z) }"))
    vector = "g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { y = Div(x, c) }"
    assert not scheme_of(text(vector))


def test_data_movement_alone_is_not_worth_it():
    body = """g (float[2, 4] x) => (float[4, 2] y) { a = Transpose<perm=[1, 0]>(x)  y = LogSoftmax(a) }"""
    assert scheme_of(text(body)) == {}


def test_a_relu_alone_is_not_worth_it_either():
    body = "g (float[4] x) => (float[4] y, float[4] z) { a = LogSoftmax(x)  b = Relu(a)  y = Add(b, x)  z = Log(b) }"
    assert {name: t.readers for (name, _), t in scheme_of(text(body)).items()} == {
        "b": ((2, 0),),
        "x": ((2, 1),),
        "y": None,
    }


@pytest.mark.parametrize(("value", "moves"), [("0", True), ("1", False)])
def test_padding_with_zero_only(value: str, moves: bool):
    body = f"""g (float[2] x) => (float[4] y) <int64[2] widths = {{1, 1}}, float v = {{{value}}}> {{
      a = Add(x, x)  y = Pad(a, widths, v) }}"""
    assert (("y", "activation") in scheme_of(text(body))) == moves


def test_readers_without_an_integer_form_get_the_float():
    model = text("g (float[4] x) => (float[4] y, float[4] z) { a = LogSoftmax(x)  y = Add(a, x)  z = Log(a) }")
    found = scheme_of(model)
    assert found["a", "activation"].readers == ((1, 0),)
    result = quantized(model)
    by_output = {node.outputs[0].name: node for node in result.graph}
    assert by_output["z"].inputs[0].name == "a"


def test_what_an_operator_writes_is_quantized_for_everybody():
    model = text("g (float[4] x) => (float[4] y, float[4] a) { a = Add(x, x)  y = Log(a) }")
    result = quantized(model)
    log = next(node for node in result.graph if node.op_type == "Log")
    assert log.inputs[0] is result.graph.outputs[1] and log.inputs[0].name == "a"


def test_bodies_read_the_quantized_form_too():
    body = """g (float[4] x, bool c) => (float[4] y) {
      a = Add(x, x)
      y = If(c) <then_branch = t () => (float[4] p) { p = Neg(a) },
                 else_branch = e () => (float[4] q) { q = Exp(a) }> }"""
    model = text(body)
    data = [{"x": normal(4, seed=1), "c": np.array(True)}, {"x": normal(4, seed=2), "c": np.array(False)}]
    result = quantize_dequantize(model, ranges(calibrate(model, data)))
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    for sample in data:
        x, (scale, zero) = sample["x"], (result.graph.initializers[n].const_value for n in ("a_scale", "a_zero_point"))
        assert scale is not None and zero is not None
        (y,) = Executor(result).run(sample).values()
        a = np.log(y) if not sample["c"] else -y
        grid = a / scale.numpy() + zero.numpy()
        np.testing.assert_allclose(grid, np.round(grid), atol=1e-4)
        np.testing.assert_allclose(a, 2 * x, atol=float(scale.numpy()) * 2)


WEIGHTS = {
    "MatMul": ("y = MatMul(x, w)", (4, 3), 1, None),
    "MatMul with a vector": ("y = MatMul(x, w)", (4,), None, None),
    "Gemm": ("y = Gemm(x, w, b)", (4, 3), 1, 3),
    "Gemm transposed": ("y = Gemm<transB=1>(x, w, b)", (3, 4), 0, 3),
    "Gemm with factors": ("y = Gemm<alpha=0.5>(x, w, b)", (4, 3), 1, None),
}


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", WEIGHTS)
def test_channels_of_products(name: str, per_channel: bool):
    body, shape, axis, bias = WEIGHTS[name]
    model = text(f"g (float[2, 4] x, float{list(shape)} w, float[3] b) => (float[2, 3] y) {{ {body} }}"
                 if len(shape) == 2 else f"g (float[2, 4] x, float[4] w) => (float[2] y) {{ {body} }}")  # fmt: skip
    settle(model, {value.name or "": normal(*shape_of(value), seed=1) for value in list(model.graph.inputs)[1:]})
    found = scheme_of(model, per_channel=per_channel)
    axis = axis if per_channel else None
    weight = found["w", "weight"].quantizer
    assert weight.axis == axis and weight.scale.shape == (
        () if axis is None else (shape_of(model.graph.initializers["w"])[axis],)
    )
    assert (("b", "bias") in found) == (bias is not None)
    agrees_with_runtime(model, samples(model, 3), per_channel=per_channel)


@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolution(group: int):
    from eqsat import input as graph_input
    from eqsat import op
    from tests.quantization.networks import built

    x = graph_input("x", (1, 4, 5, 5))
    model = built(op.ConvTranspose(x, he(4, 6 // group, 3, 3, seed=1), normal(6, seed=2), group=group))
    weight = next(t for (_, kind), t in scheme_of(model).items() if kind == "weight")
    assert weight.quantizer.axis == (1 if group == 1 else None)
    agrees_with_runtime(model, samples(model, 3))


def test_shared_weights_and_biases():
    """One weight and one bias for two layers: the weight is stored once, the bias once for each scale."""
    body = """g (float[2, 3] x) => (float[2, 3] y) {
      a = Gemm(x, w, b)  c = Sigmoid(a)  y = Gemm(c, w, b) }"""
    model = text(body.replace("(float[2, 3] x)", "(float[2, 3] x, float[3, 3] w, float[3] b)"))
    settle(model, {value.name or "": normal(*shape_of(value), seed=1) for value in list(model.graph.inputs)[1:]})
    found = make_scheme(model, ranges(calibrate(model, samples(model, 4))))
    weights = [t for t in found.tensors if t.kind == "weight"]
    assert [t.readers for t in weights] == [((0, 1), (2, 1))]
    assert [t.readers for t in found.tensors if t.kind == "bias"] == [((0, 2),), ((2, 2),)]
    agrees_with_runtime(model, samples(model, 3))


def test_constant_expressions_are_weights_too():
    model = text("""g (float[2, 4] x) => (float[2, 1] y) <float[1, 4] w = {1, -2, 3, 4}> {
      t = Transpose<perm=[1, 0]>(w)  y = MatMul(x, t) }""")
    assert ("t", "weight") in scheme_of(model)
    result = quantized(model)
    assert operators(result) == {"QuantizeLinear": 2, "DequantizeLinear": 3, "MatMul": 1}
    assert "w" not in result.graph.initializers
    agrees_with_runtime(model, samples(model, 3))


def test_constants_that_are_no_weights():
    model = text("g (float[2] x) => (float[2] y) <float[2] k = {-1, 4}> { y = Mul(x, k) }")
    found = scheme_of(model)["k", "constant"]
    assert found.quantizer.dtype == np.uint8 and found.quantizer.axis is None
    np.testing.assert_array_equal(found.quantizer.round_trip(np.float32([-1, 4])), np.float32([-1, 4]))


def test_infinite_masks_stay_floats():
    model = text("""g (float[2] x) => (float[2] y) <float[2] one = {1, 1}, float[2] zero = {0, 0}> {
      mask = Div(one, zero)  a = Sub(x, mask)  e = Exp(a)  y = Add(e, x) }""")
    found = make_scheme(model, ranges(calibrate(model, samples(model, 4))))
    assert set(found.unranged.values()) == {"a", "mask"} or set(found.unranged.values()) == {"mask", "a"}
    assert {t.name for t in found.tensors} == {"e", "x", "y"}
    (y,) = Executor(apply_scheme(model, found)).run({"x": np.ones(2, np.float32)}).values()
    assert np.isfinite(y).all()


def test_layers_with_broken_weights_stay_floats():
    model = text("g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y) { y = MatMul(x, w) }")
    settle(model, {"w": np.array([[1, np.nan], [0, 1]], np.float32)})
    found = make_scheme(model, {"x": Range(-1, 1), "y": Range(-1, 1)})
    assert found.tensors == () and found.unranged == {0: "w"}


def test_tensors_that_are_no_float32_stay():
    model = text("g (float16[2] x, int64[2] i) => (float16[2] y, int64[2] j) { y = Add(x, x)  j = Add(i, i) }")
    data = {"x": np.ones((3, 2), np.float16), "i": np.ones((3, 2), np.int64)}
    found = calibrate(model, data)
    assert list(found.tensors) == ["x", "y"]
    assert make_scheme(model, ranges(found)).tensors == ()


def test_quantizing_again_changes_nothing():
    for name, make in NETWORKS.items():
        once = quantized(make())
        again = quantize_dequantize(once, ranges(calibrate(once, samples(once, 4))))
        assert operators(once) == operators(again), name


# ---- options -------------------------------------------------------------------------------------


def test_skipped_layers():
    model = residual()
    everything = operators(quantized(model))
    conv = [node for node in model.graph if node.op_type == "Conv"]
    for name in (conv[1].name or "", conv[1].outputs[0].name or ""):
        if not name:
            continue
        result = quantized(model, skip=[name])
        assert operators(result)["DequantizeLinear"] < everything["DequantizeLinear"]
        node = next(n for n in result.graph if n.outputs[0].name == conv[1].outputs[0].name)
        assert node.inputs[1].name == conv[1].inputs[1].name
    every = [v.name or "" for node in model.graph for v in node.outputs]
    assert operators(quantized(model, skip=every)) == operators(model)


def test_chosen_operators():
    found = operators(quantized(residual(), operators=["Conv"]))
    assert found["QuantizeLinear"] == 6, "input and output of three convolutions"
    model = text("g (float[4] x) => (float[4] y) { y = LogSoftmax(x) }")
    assert operators(quantized(model)) == {"LogSoftmax": 1}
    assert operators(quantized(model, operators=["LogSoftmax"])) == {
        "LogSoftmax": 1, "QuantizeLinear": 2, "DequantizeLinear": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skip": ["matmull"]}, r"option skip: the name of a node, .* got 'matmull'\n  hint: did you mean `matmul"),
        ({"operators": ["Convolution"]}, r"option operators: an operator of ONNX .*\n  hint: did you mean `Conv"),
    ],
)
def test_unknown_names(options, message: str):
    with pytest.raises(QuantizationError, match=message):
        quantized(perceptron(), **options)


def test_element_types_and_symmetry():
    for activation in ("uint8", "int8"):
        for symmetric in (False, True):
            found = scheme_of(residual(), activation=activation, symmetric=symmetric)
            for (_, kind), tensor in found.items():
                expected = {"weight": "int8", "bias": "int32"}.get(kind, activation)
                assert tensor.quantizer.dtype == expected
                if symmetric and expected == activation:
                    assert np.all(tensor.quantizer.zero == (128 if activation == "uint8" else 0))


# ---- the model that comes out --------------------------------------------------------------------


def agrees_with_runtime(model: ir.Model, data: dict[str, np.ndarray], **options) -> None:
    """The quantized model is valid, and the executor and ONNX Runtime agree on it.

    A float that falls between two integers may go either way where sums are added in another order, and such a
    difference moves what follows: one in a thousand elements is allowed to differ by steps of the output.
    """
    found = ranges(calibrate(model, data), Options(**options))
    result = quantize_dequantize(model, found, Options(**options))
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    assert [v.name for v in result.graph.outputs] == [v.name for v in model.graph.outputs]
    theirs = runtime.run(result, data)
    executor = Executor(result)
    rows = zip(*data.values(), strict=True)
    ours = np.stack([next(iter(executor.run(dict(zip(data, row, strict=True))).values())) for row in rows])
    close = np.isclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert np.mean(close) > 0.999
    span = found[model.graph.outputs[0].name or ""]
    np.testing.assert_allclose(ours, theirs, atol=3 * (span.high - span.low) / 255)


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NETWORKS)
def test_against_onnx_runtime(name: str, method, activation):
    model = NETWORKS[name]()
    agrees_with_runtime(model, samples(model, 4), method=method, activation=activation)


@needs_exact_products
@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_runtime_makes_integer_operators_of_it(name: str):
    model, data = NETWORKS[name](), samples(NETWORKS[name](), 16)
    result = quantize_dequantize(model, ranges(calibrate(model, data)))
    exact = runtime.run(model, data)
    plain, fused = (runtime.sqnr(exact, runtime.run(result, data, optimized=o)) for o in (False, True))
    assert fused > plain - 0.5


@pytest.mark.parametrize("name", NETWORKS)
def test_at_least_as_good_as_the_peer(name: str, tmp_path):
    """``quantize_static`` of ONNX Runtime with the same settings on the same data.

    The choices are alike; where a scale differs (a pool has its own, here), that of the peer is the coarser one. The
    quarter of a decibel is the chance of how values fall between integers.
    """
    model = NETWORKS[name]()
    data = samples(model, 32)
    exact = runtime.run(model, data)
    ours = quantize_dequantize(model, ranges(calibrate(model, data)))
    theirs = runtime.quantized_by_peer(model, data, tmp_path)
    peers = Counter(node.op_type for node in theirs.graph.node)
    assert operators(ours)["QuantizeLinear"] >= peers["QuantizeLinear"]
    a, b = (runtime.sqnr(exact, runtime.run(m, data)) for m in (ours, theirs))
    assert a > b - 0.25 and a > 28


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("std", [0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("method", METHODS)
def test_error_does_not_depend_on_the_scale_of_the_input(std: float, method, activation):
    model = convolution()
    options = Options(method=method, activation=activation)
    result = quantize_dequantize(model, ranges(calibrate(model, samples(model, 16, std=std)), options), options)
    fresh = samples(model, 16, seed=99, std=std)
    exact, rounded = runtime.run(model, fresh), runtime.run(result, fresh)
    relative = np.sqrt(np.mean((rounded - exact) ** 2) / np.mean(exact**2))
    assert relative <= 0.02


def test_calibrated_on_zeros():
    """An input that was always zero, weights that are zero: nothing divides by a scale of zero."""
    model = convolution()
    result = quantize_dequantize(model, ranges(calibrate(model, {"x": np.zeros((2, 1, 8, 12, 12), np.float32)})))
    for std in (0.0, 1.0):
        (y,) = Executor(result).run({"x": normal(1, 8, 12, 12, seed=1, std=std)}).values()
        assert np.isfinite(y).all()


def test_the_model_is_not_changed_and_results_are_the_same_each_time():
    model = residual()
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    models = [quantized(model, 128, method=m, percentile=99) for m in METHODS for _ in range(2)]
    made = {ir.to_proto(m).SerializeToString(deterministic=True) for m in models}
    assert len(made) == len(METHODS)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_names_that_are_taken():
    model = text(
        "g (float[4] y_scale) => (float[4] y) { y_quantized = Sigmoid(y_scale)  y = Add(y_quantized, y_scale) }"
    )
    result = quantized(model)
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    assert [v.name for v in (*result.graph.inputs, *result.graph.outputs)] == ["y_scale", "y"]


def test_a_symbolic_batch():
    model = text("g (float[N, 4] x) => (float[N, 4] y) { a = Sigmoid(x)  y = Mul(a, x) }")
    result = quantize_dequantize(model, ranges(calibrate(model, {"x": normal(6, 4, seed=1)})))
    assert result.graph.outputs[0].shape == model.graph.outputs[0].shape
    (y,) = Executor(result).run({"x": normal(3, 4, seed=2)}).values()
    assert y.shape == (3, 4)


def test_taps_change_nothing():
    for make in NETWORKS.values():
        model = make()
        scheme = make_scheme(model, ranges(calibrate(model, samples(model, 2))))
        tapped, taps = with_taps(model, scheme)
        assert len(set(taps)) == len(scheme.tensors)
        x = {k: v[0] for k, v in samples(model, 1).items()}
        for a, b in zip(Executor(model).run(x).values(), Executor(tapped).run(x).values(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_ranges_that_were_made_by_hand():
    model = text("g (float[2] x) => (float[2] y) { b = Add(x, x)  y = Relu(b) }")
    result = quantize_dequantize(model, {"x": Range(-1, 1), "y": Range(0, 1)})
    (y,) = Executor(result).run({"x": np.array([-3, 3], np.float32)}).values()
    np.testing.assert_allclose(y, [0, 1], atol=1 / 255)
    assert operators(quantize_dequantize(model, {"x": Range(-1, 1)})) == {"Relu": 1, "Add": 1}
    model = residual()
    found = ranges(calibrate(model, samples(model, 2)))
    by_hand = {name: r for name, r in found.items() if name not in model.graph.initializers}
    assert len(by_hand) < len(found)
    a, b = (ir.to_proto(quantize_dequantize(model, r)).SerializeToString(deterministic=True) for r in (found, by_hand))
    assert a == b, "constants need no range"
