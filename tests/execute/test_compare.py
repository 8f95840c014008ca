"""Two models are compared by what they compute; the first tensor that differs is found, also inside regions."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from eqsat.errors import ExecutionError
from eqsat.execute.compare import compare

HEAD = '<ir_version: 10, opset_import: ["" : 21, "eqsat.toy" : 1]>\n'


def model(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(HEAD + text))


CHAIN = model(
    """
    g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
    { a = Relu(x)  b = Add(a, a)  c = Tanh(b)  y = Neg(c)  z = Mul(x, x) }
    """
)


def test_equal_models_agree() -> None:
    comparison = compare(CHAIN, CHAIN, numerics="exact", dims={"N": 3})
    assert comparison.agrees
    assert [d.name for d in comparison.outputs] == ["y", "z"]
    assert [d.elements for d in comparison.outputs] == [12, 12]
    assert (comparison.first, comparison.max_abs_error) == (None, 0.0)


def test_the_first_tensor_that_differs_is_named() -> None:
    other = model(
        """
        g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
        { a = Relu(x)  two = Constant<value_float = 2.5>()  b = Mul(a, two)  c = Tanh(b)  y = Neg(c)  z = Mul(x, x) }
        """
    )
    comparison = compare(CHAIN, other, dims={"N": 3})
    assert [d.agrees for d in comparison.outputs] == [False, True]
    assert comparison.first is not None
    assert comparison.first.name == "b"
    assert comparison.shared == 5
    assert 0 < comparison.max_abs_error < 1


def test_tensors_inside_regions_are_reached_and_those_of_composites_are_not() -> None:
    region = model(
        """
        g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
        { c = eqsat.toy.toy_0(x)  y = Neg(c)  z = Mul(x, x) }
        <domain: "eqsat.toy", opset_import: ["" : 21, "eqsat.toy" : 1]>
        toy_0 (x) => (c) { a = eqsat.toy.clamp(x)  b = Sub(a, a)  c = Tanh(b) }
        <domain: "eqsat.toy", opset_import: ["" : 21]>
        clamp (p) => (q) { b = Neg(p)  c = Neg(b)  q = Relu(c) }
        """
    )
    for function in region.functions.values():
        if function.name == "toy_0":
            function.metadata_props["eqsat.region"] = "toy_0"
    comparison = compare(CHAIN, region, dims={"N": 1})
    assert comparison.first is not None
    assert comparison.first.name == "b"
    # a, b, c, y, z: the b and c inside the composite are its own.
    assert comparison.shared == 5
    assert len(region.functions) == 2, "the model itself stays as it is"


def test_inputs_and_outputs_pair_by_name_then_by_position() -> None:
    a = model("g (float[2] p, float[2] q) => (float[2] y, float[2] z) { y = Sub(p, q) z = Neg(p) }")
    swapped = model("g (float[2] q, float[2] p) => (float[2] z, float[2] y) { y = Sub(p, q) z = Neg(p) }")
    renamed = model("g (float[2] r, float[2] s) => (float[2] t, float[2] u) { t = Sub(r, s) u = Neg(r) }")
    assert compare(a, swapped).agrees
    assert compare(a, renamed).agrees
    assert not compare(swapped, renamed).agrees


def test_models_of_other_arity_cannot_be_compared() -> None:
    one = model("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    two = model("g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Relu(x) }")
    with pytest.raises(ExecutionError, match="equally many outputs"):
        compare(one, two)


def test_given_inputs_and_tolerances() -> None:
    one = model("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    other = model("g (float[2] x) => (float[2] y) { c = Constant<value_floats = [0.0, 0.25]>() y = Add(x, c) }")
    inputs = {"x": np.array([1, 2], np.float32)}
    assert not compare(one, other, inputs).agrees
    assert compare(one, other, inputs, atol=0.25).agrees
    assert compare(one, other, inputs, rtol=0.125).agrees
    difference = compare(one, other, inputs).outputs[0]
    assert (difference.index, difference.values) == ((1,), ("2.0", "2.25"))


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (
            "float[2] x",
            "int64[2] x",
            "input 'x': two models with inputs of equal types are required; got float[2] and int64[2]",
        ),
        ("float[N] x", "float[N, 2] z", "input 'x', in the second model 'z': two models with inputs"),
        ("float[2] x", "float[3] x", "got float[2] and float[3]"),
    ],
)
def test_inputs_of_other_types_are_named_before_any_is_drawn(first: str, second: str, found: str) -> None:
    def copies(given: str) -> ir.Model:
        kind, name = given.rsplit(" ", 1)
        return model(f"g ({given}) => ({kind} y) {{ y = Identity({name}) }}")

    with pytest.raises(ExecutionError) as caught:
        compare(copies(first), copies(second))
    assert found in str(caught.value)
    assert "paired by name" in str(caught.value)


def test_inputs_with_a_namesake_are_paired_with_it_and_the_rest_by_position() -> None:
    first = model("g (float[2] x, float[2] y) => (float[2] z) { z = Sub(x, y) }")
    second = model("g (float[2] y, float[2] x_1) => (float[2] z) { z = Sub(x_1, y) }")
    assert compare(first, second).agrees


PAIRS = """
    g (float[64] x) => (float[64] y) <float s = {0.5}, uint8 z = {3}>
    { h = OPERATOR q = QuantizeLinear(h, s, z) y = DequantizeLinear(q, s, z) }
    """


def test_dequantized_integers_may_differ_by_one() -> None:
    one, other, third = (
        model(PAIRS.replace("h = OPERATOR", f"c = Constant<value_float = {text}>() h = Add(x, c)"))
        for text in ("0.0", "0.4", "1.2")
    )
    found = compare(one, other)
    assert found.agrees and found.max_abs_error == 0.5
    assert not compare(one, other, numerics="exact").agrees
    assert not compare(one, other, atol=0.4).agrees
    assert not compare(one, third).agrees


@pytest.mark.parametrize("scales", [[0.01, 9.0], np.inf], ids=["of each channel", "infinite"])
def test_other_scales_allow_no_step(scales: object) -> None:
    def added(number: int) -> ir.Model:
        made = model(
            """
            g (uint8[1, 2] x) => (float[1, 2] y) <float[2] s = {1, 1}, uint8[1, 2] c = {0, 0}, uint8[1, 2] q>
            { q = Add(x, c) y = DequantizeLinear<axis = 1>(q, s) }
            """
        )
        made.graph.initializers["s"].const_value = ir.tensor(np.float32(scales))
        made.graph.initializers["c"].const_value = ir.tensor(np.full((1, 2), number, np.uint8))
        return made

    assert not compare(added(0), added(1), {"x": np.zeros((1, 2), np.uint8)}).agrees
