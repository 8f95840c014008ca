"""Literals and axes in patterns match whatever the size of a constant and the side that axes are counted from."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.egraph.limits import Limits
from eqsat.errors import RuleError
from eqsat.model.builder import Tensor
from eqsat.model.load import load
from eqsat.rules.reader import read_text
from tests.egraph.helpers import saturated


def operators(*tensors: Tensor) -> list[str]:
    return [node.op_type for node in eqsat.optimize(eqsat.graph(tensors)).model.graph]


@pytest.mark.parametrize("elements", [64, 65, 4096, 4097, 1_000_000])
def test_a_literal_matches_constants_of_any_size(elements: int) -> None:
    x = eqsat.input("x", (elements,))
    model = eqsat.graph(op.Max(x, np.zeros(elements, np.float32)))
    result = eqsat.optimize(model)
    assert [node.op_type for node in result.model.graph] == ["Relu"]
    values = np.linspace(-1, 1, elements, dtype=np.float32)
    (found,) = result.run({"x": values}).values()
    np.testing.assert_array_equal(found, np.maximum(values, 0))


@pytest.mark.parametrize("place", [0, 63, 64, 5000, 9999])
def test_one_other_element_is_enough_to_differ(place: int) -> None:
    low = np.zeros(10_000, np.float32)
    low[place] = 0.5
    assert operators(op.Max(eqsat.input("x", (10_000,)), low)) == ["Max"]


@pytest.mark.parametrize("channels", [64, 65])
def test_a_composite_has_the_literal_in_its_body(channels: int) -> None:
    x = eqsat.input("x", (1, 3, 8, 8))
    weights = np.random.default_rng(0).normal(size=(channels, 3, 1, 1)).astype(np.float32)
    model = eqsat.graph(op.Max(op.Conv(x, weights), np.zeros((1, channels, 8, 8), np.float32)))
    pattern = "composite conv_max : exact\n        Max(Conv(x, w), 0)\n        cost 1e-9"
    target = (
        "target acc\n    peak float32 = 1e12\n    bandwidth = 1e12\n    launch = 1e-9\n"
        f"    link bandwidth = 1e12, latency = 1e-9\n    {pattern}\n"
    )
    result = eqsat.optimize(model, targets=read_text(target, "acc.target").targets, default_rules=False)
    assert result.summary.after.composites == 1
    values = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)
    (found,) = result.run({"x": values}).values()
    expected = np.maximum(np.einsum("oi,bihw->bohw", weights[:, :, 0, 0], values), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_expressions_of_constants_have_equal_elements_too() -> None:
    x = eqsat.input("x", (100, 100))
    zeros = op.Expand(np.zeros((1, 1), np.float32), [100, 100])
    assert operators(op.Max(x, zeros)) == ["Relu"]
    assert operators(op.Max(x, op.Transpose(zeros) - zeros)) == ["Relu"]
    assert operators(x * op.Cast(op.ConstantOfShape([100, 100]) + np.float32(1), to=1)) == ["Identity"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
def test_ones_of_all_types(dtype: type) -> None:
    x = eqsat.input("x", (100, 100), np.dtype(dtype).name)
    assert operators(x * np.ones((100, 100), dtype)) == ["Identity"]
    assert operators(x * np.full((100, 100), 2, dtype)) == ["Mul"]


@pytest.mark.parametrize("elements", [64, 4097, 10_000])
def test_truth_values_of_any_size(elements: int) -> None:
    x, y = eqsat.input("x", (elements,)), eqsat.input("y", (elements,))
    b = eqsat.input("b", (elements,), "bool")
    ones, zeros = np.ones(elements, bool), np.zeros(elements, bool)
    assert operators(op.Where(ones, x, y)) == operators(op.Where(zeros, x, y)) == ["Identity"]
    assert operators(op.And(b, ones)) == operators(op.Or(b, zeros)) == ["Identity"]
    one_other = ones.copy()
    one_other[elements // 2] = False
    assert operators(op.Where(one_other, x, y)) == ["Where"]
    assert operators(op.And(b, one_other)) == ["And"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("elements", [1, 64, 5000])
def test_an_infinity_matches_infinite_constants(elements: int, dtype: str) -> None:
    rules = "rule least : exact\n    Max(x, -inf)  =>  x\nrule greatest : exact\n    Min(x, inf)  =>  x\n"
    x = eqsat.input("x", (elements,), dtype)
    high = np.full(elements, np.inf, dtype)
    largest = np.full(elements, np.finfo(dtype).max, dtype)
    for value, applied in ((op.Max(x, -high), [1, 0]), (op.Min(x, high), [0, 1]), (op.Min(x, largest), [0, 0])):
        saturation = saturated(load(eqsat.graph(value)), rules)
        assert [s.applied for s in saturation.statistics] == applied
    mixed = high.copy()
    mixed[-1] = 0
    assert [s.applied for s in saturated(load(eqsat.graph(op.Min(x, mixed))), rules).statistics] == [0, 0]


def test_a_truth_value_is_no_number() -> None:
    with pytest.raises(RuleError, match=r"operand `B` of `Mul` must be .*; got a tensor\(bool\)"):
        read_text("rule r : exact\n    Mul(x, true)  =>  x\n", "r.rules")


X, Y = eqsat.input("x", (2, 3, 4)), eqsat.input("y", (4, 4))


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("Softmax(x, axis=-1)", op.Softmax(X, axis=2), op.Softmax(X, axis=1)),
        ("Softmax(x, axis=-2)", op.Softmax(X, axis=-2), op.Softmax(X, axis=0)),
        ("Softmax(x, axis=x.rank - 1)", op.Softmax(X, axis=2), op.Softmax(X, axis=1)),
        ("Concat(x, y, axis=-1)", op.Concat(X, X, axis=2), op.Concat(X, X, axis=1)),
        ("ReduceMean(x, [-1])", op.ReduceMean(X, [2]), op.ReduceMean(X, [1])),
        ("ReduceMean(x, -1)", op.ReduceMean(X, [-1]), op.ReduceMean(X, [0])),
        ("ReduceMean(Relu(x), [-1, 1])", op.ReduceMean(op.Relu(X), [1, 2]), op.ReduceMean(op.Relu(X), [0, 2])),
        ("ReduceMean(x, [2, 1])", op.ReduceMean(X, [1, 2]), op.ReduceMean(X, [0, 1])),
        ("Unsqueeze(x, [-1])", op.Unsqueeze(X, [3]), op.Unsqueeze(X, [2])),
        ("Unsqueeze(_, [0, -1])", op.Unsqueeze(X, [0, 4]), op.Unsqueeze(X, [0, 3])),
        ("CumSum(x, -1)", op.CumSum(X, np.int64(2)), op.CumSum(X, np.int64(1))),
        ("Gather(x, i, axis=-2)", op.Gather(X, [0, 1], axis=1), op.Gather(X, [0, 1], axis=2)),
    ],
)
def test_axes_are_counted_from_either_side(pattern: str, matching: Tensor, other: Tensor) -> None:
    rule = f"rule found : exact\n    n: {pattern}  =>  Identity(n)\n"
    applied = [saturated(load(eqsat.graph(t)), rule).statistics[0].applied for t in (matching, other)]
    assert applied == [1, 0]


IMAGE = eqsat.input("image", (1, 1, 6, 6))
WEIGHT = np.ones((1, 1, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ('Einsum(x, y, equation="ij,jk->ik")', op.Einsum(Y, Y, equation="xy,yz"), op.Einsum(Y, Y, equation="xy,zy")),
        ('Einsum(x, y, equation="i j, jk")', op.Einsum(Y, Y, equation="ab,bc"), op.Einsum(Y, Y, equation="ab,bc->ca")),
        ('Conv(x, w, auto_pad="SAME_UPPER")', op.Conv(IMAGE, WEIGHT, pads=[1, 1, 1, 1]), op.Conv(IMAGE, WEIGHT)),
        ('Conv(x, w, auto_pad="VALID")', op.Conv(IMAGE, WEIGHT), op.Conv(IMAGE, WEIGHT, auto_pad="SAME_UPPER")),
        (
            'MaxPool(x, auto_pad="SAME_UPPER", kernel_shape=[2, 2], strides=[1, 1])',
            op.MaxPool(IMAGE, kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
            op.MaxPool(IMAGE, kernel_shape=[2, 2], auto_pad="SAME_LOWER"),
        ),
    ],
)  # fmt: skip
def test_attributes_may_be_written_otherwise(pattern: str, matching: Tensor, other: Tensor) -> None:
    rule = f"rule found : exact\n    n: {pattern}  =>  Identity(n)\n"
    applied = [saturated(load(eqsat.graph(t)), rule).statistics[0].applied for t in (matching, other)]
    assert applied == [1, 0]


def test_one_output_of_several_may_be_built() -> None:
    rule = "rule found : exact\n    n: TopK(x, k)  =>  TopK(Abs(x), k, **n)\n    where x.rank == 2\n"
    (statistics,) = saturated(load(eqsat.graph(op.TopK(Y, [2])[0])), rule, limits=Limits(iterations=2)).statistics
    assert statistics.applied and not statistics.mismatches


def test_an_index_needs_no_type() -> None:
    rule = "rule found : exact\n    Squeeze(x, [0])  =>  Gather(x, 0, axis=0)\n"
    (statistics,) = saturated(load(eqsat.graph(op.Squeeze(eqsat.input("x", (1, 4)), [0]))), rule).statistics
    assert statistics.applied == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_exponent_has_the_type_of_its_base(dtype: str) -> None:
    x = eqsat.input("x", (4,), dtype)
    found = saturated(eqsat.graph(op.Sqrt(x)), "rule half : real\n    Sqrt(x)  =>  Pow(x, 0.5)")
    [statistics] = found.statistics
    assert statistics.applied == 1


def test_a_literal_without_any_neighbour_of_its_type_is_said() -> None:
    text = "Relu(Cast(x, to=float32))  =>  Relu(DequantizeLinear(x, 1))\n    where x.dtype == int8"
    [rule] = read_text(f"rule scaled : real\n    {text}").rules
    [found] = eqsat.check_rules([rule])
    assert found.verdict == "undecided"
    assert "no neighbour gives the literal its element type" in str(found)


@pytest.mark.parametrize("sign", [-1, 1])
def test_signs_of_large_constants_are_not_lost(sign: int) -> None:
    x = eqsat.input("x", (5000,))
    ones = op.Expand(np.full(1, sign, np.float32), [5000])
    for factor, value in ((op.Neg(ones), -sign), (op.Abs(ones), 1)):
        model = eqsat.graph(op.Mul(x, factor))
        result = eqsat.optimize(model)
        assert [node.op_type for node in result.model.graph] == (["Identity"] if value == 1 else ["Neg"])
        (found,) = result.run({"x": np.arange(5000, dtype=np.float32)}).values()
        np.testing.assert_array_equal(found, value * np.arange(5000, dtype=np.float32))


@pytest.mark.parametrize("elements", [4, 5000])
def test_zeros_of_both_signs_are_not_one_constant(elements: int) -> None:
    x = eqsat.input("x", (elements,))
    zeros = np.zeros(elements, np.float32)
    mixed = zeros.copy()
    mixed[-1] = -0.0
    model = eqsat.graph([op.Atan(op.Div(x, zeros)), op.Atan(op.Div(x, mixed))])
    result = eqsat.optimize(model)
    with np.errstate(divide="ignore"):
        plain, last = result.run({"x": np.ones(elements, np.float32)}).values()
    np.testing.assert_allclose(plain, np.pi / 2, rtol=1e-6)
    assert plain[0] == last[0] == -last[-1]


@pytest.mark.parametrize("elements", [64, 5000])
def test_constants_with_equal_elements_are_one(elements: int) -> None:
    x = eqsat.input("x", (elements,))
    halves = [np.full(elements, 0.5, np.float32) for _ in range(2)]
    assert operators(*(op.Sin(op.Mul(x, half)) for half in halves)).count("Mul") == 1
    assert operators(op.Sin(op.Mul(x, halves[0])), op.Sin(op.Mul(x, -halves[1]))).count("Mul") == 2
