"""Rules that are right over the reals make no constant that its element type cannot hold."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.egraph.engine import TimeUp
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from tests.egraph.helpers import model, saturated

TYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}


def optimized(graph: object, **options) -> eqsat.Result:
    return eqsat.optimize(eqsat.graph(graph), **options)


def agree(result: eqsat.Result, x: np.ndarray, wanted: np.ndarray) -> None:
    """The result on ``x``; at most the roundings of a few operators away."""
    (found,) = result.run({"x": x}).values()
    limit = 8 * float(ml_dtypes.finfo(x.dtype).eps)
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=limit)


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_doubling_and_halving_does_not_run_away(name: str) -> None:
    kind = TYPES[name]
    x = eqsat.input("x", (2,), name)
    values = np.array([1, 2], kind)
    agree(optimized((x + x) * kind.type(0.5) + x), values, 2 * values)
    agree(optimized(op.Max(x + x, (x + x) * kind.type(0.5))), values, 2 * values)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("objective", ["best", "worst", "random"])
def test_products_whose_constants_overflow_together(name: str, objective: str) -> None:
    """(x * big) * big * small: only the pairs that stay in range may be merged."""
    kind = TYPES[name]
    limits = ml_dtypes.finfo(kind)
    big, small = kind.type(float(limits.max) ** 0.6), kind.type(float(limits.max) ** -0.55)
    x = eqsat.input("x", (3,), name)
    values = np.array([1, -2, 3], kind) * small
    wide = np.longdouble
    wanted = values.astype(wide) * wide(big) * wide(big) * wide(small)
    assert np.all(np.abs(wanted) < float(limits.max))
    agree(optimized(((x * big) * big) * small, objective=objective), values, wanted)


def test_constants_are_guarded_after_the_model_was_left_half_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model's own operators round is allowed only while these are read."""
    body = "p = Mul(a, x) q = Mul(b, x) out = Add(p, q)"
    graph = model(f"a = Constant<value_floats = [300.0]>() b = Constant<value_floats = [3e38]>() {body}")
    saturation = Saturation(graph, (), ())
    facts, tables = saturation.facts, saturation.tables
    multiply = next(n for n in saturation.encoding.nodes if n.constructor.op.name == "Mul")
    large = tables.constants.of_array(np.array([3e38], np.float32), ir.DataType.FLOAT)

    def over() -> None:
        raise TimeUp

    monkeypatch.setattr(facts.engine, "look_at_clock", over)
    with pytest.raises(TimeUp):
        facts.prime(saturation.encoding)
    assert facts._ask("value", multiply.constructor, (multiply.number, large, large)) is None


def rule_row(result: eqsat.Result, name: str):
    (row,) = [r for r in result.summary.rules if r.name == name]
    return row


@pytest.mark.parametrize(
    ("name", "graph", "rule", "message"),
    [
        (
            "float16",
            lambda x, c: (x * c(300)) * c(300),
            "merge_constant_factors",
            "90000 is beyond the largest",
        ),
        (
            "float16",
            lambda x, c: (x * c(1e-4)) * c(1e-4),
            "merge_constant_factors",
            "below the smallest normal float16",
        ),
        ("float16", lambda x, c: (x + c(60000)) + c(60000), "merge_added_constants", "1.2e+05 is beyond"),
        ("float16", lambda x, c: x / c(1e-5), "divide_by_constant", "is beyond the largest float16, 65504"),
        ("float32", lambda x, c: x / c(3e38), "divide_by_constant", "is below the smallest normal float32"),
        (
            "float32",
            lambda x, c: (x * c(1e20)) * c(1e20),
            "merge_constant_factors",
            "1e+40 is beyond the largest",
        ),
        ("bfloat16", lambda x, c: (x * c(1e20)) * c(1e20), "merge_constant_factors", "beyond the largest bfloat16"),
        ("float64", lambda x, c: (x * c(1e200)) * c(1e200), "merge_constant_factors", "beyond the largest float64"),
        (
            "float64",
            lambda x, c: (x * c(1e-200)) * c(1e-200),
            "merge_constant_factors",
            "is below the smallest",
        ),
    ],
)
def test_a_constant_out_of_range_stops_the_rule_and_is_reported(name, graph, rule, message) -> None:
    x = eqsat.input("x", (2,), name)
    result = optimized(graph(x, TYPES[name].type))
    row = rule_row(result, rule)
    assert (row.applied, row.misfits) == (0, 1)
    assert message in row.misfit
    assert message in str(result) or row.misfit in str(result.summary)


def test_a_sum_may_cancel_to_nothing() -> None:
    """What remains of 1 - 1 is zero, and what remains of nearly equal numbers is as accurate as they are."""
    x = eqsat.input("x", (2,), "float16")
    result = optimized((x + np.float16(0.1)) + np.float16(-0.1))
    assert result.summary.after.operators == 0
    agree(result, np.array([1, 2], np.float16), np.array([1, 2], np.float16))


def test_a_rule_computes_its_constant_in_one_rounding() -> None:
    """A batch normalisation with an epsilon that float16 cannot hold, and terms that cancel."""
    rng = np.random.default_rng(0)
    shape = (1, 4, 5, 5)
    x = eqsat.input("x", shape, "float16")
    w, gamma, beta, mean = (rng.uniform(0.5, 2, s).astype(np.float16) for s in ((4, 4, 3, 3), 4, 4, 4))
    var = np.array([1e-4, 1, 10, 0.01], np.float16)
    y = op.BatchNormalization(op.Conv(x, w, pads=[1, 1, 1, 1]), gamma, beta, mean, var, epsilon=1e-5)
    result = optimized(y)
    assert [n.op_type for n in result.model.graph] == ["Conv"]
    factor = gamma.astype(np.float64) / np.sqrt(var.astype(np.float64) + np.float32(1e-5))
    (conv,) = result.model.graph
    bias = conv.inputs[2].const_value.numpy()
    assert np.array_equal(bias, ((0 - mean.astype(np.float64)) * factor + beta).astype(np.float16))


LARGE = (70, 70, 1, 1)
"""More elements than are computed during saturation."""


@pytest.mark.parametrize(
    ("weight", "scale", "folds", "message"),
    [
        (300, 0.5, True, ""),
        (300, 1000, False, "up to 3e+05 is beyond the largest float16"),
        (1e-3, 1e-3, False, "below the smallest normal float16"),
        (1, 1e-3, True, ""),
    ],
)
def test_scales_fold_into_large_weights_only_where_they_fit(weight, scale, folds, message) -> None:
    x = eqsat.input("x", (1, 70, 3, 3), "float16")
    w = np.full(LARGE, weight, np.float16)
    w[0, 1:] = 1e-6 if weight == 1 else weight
    result = optimized(op.Conv(x, w) * np.float16(scale))
    kinds = [n.op_type for n in result.model.graph]
    assert kinds == (["Conv"] if folds else ["Conv", "Mul"])
    if not folds:
        assert message in rule_row(result, "fold_scale_into_conv").misfit


def test_infinite_constants_of_the_model_are_not_algebra() -> None:
    x = eqsat.input("x", (2,), "float32")
    inf = np.float32(np.inf)
    values = np.array([2, -1.5], np.float32)
    result = optimized(x * inf + (x + np.float32(1)) * inf)
    (found,) = result.run({"x": values}).values()
    assert np.array_equal(found, values * inf + (values + 1) * inf)
    assert "infinite" in rule_row(result, "factor_out_constant").misfit


def test_masks_of_minus_infinity_still_move() -> None:
    x, y = eqsat.input("x", (4,)), eqsat.input("y", (4,))
    result = optimized((x + np.array([0, -np.inf, 0, -np.inf], np.float32)) + y)
    row = rule_row(result, "move_added_constant")
    assert row.applied == 1 and row.misfits == 0


def test_literals_that_a_type_cannot_hold_match_nothing() -> None:
    """1e6 is infinite in float16, and 1e-10 is zero; neither equals the number."""
    rules = "rule big : real\n    Min(x, 1e6) => x\nrule tiny : real\n    x + 1e-10 => x\n"
    x = eqsat.input("x", (2,), "float16")
    for graph in (op.Min(x, np.float16(np.inf)), x + np.float16(0)):
        saturation = saturated(eqsat.load(eqsat.graph(graph)), rules)
        snap = snapshot(saturation)
        assert all(s.applied == 0 for s in saturation.statistics), snap


def test_computed_attributes_fit_float32() -> None:
    """ONNX's attributes are float32, so a slope of a float64 tensor may not become one."""
    rules = "rule leak : real\n    Max(x, x * a) => LeakyRelu(x, alpha=a.value)\n    where const(a), a.rank == 0\n"
    for slope, fits in ((0.25, True), (0.1, False)):
        x = eqsat.input("x", (2,), "float64")
        saturation = saturated(eqsat.load(eqsat.graph(op.Max(x, x * np.float64(slope)))), rules)
        assert [s.applied for s in saturation.statistics] == [int(fits)]
        assert ("cannot hold 0.1" in saturation.statistics[0].misfit) is not fits


def test_constants_of_unknown_range_may_be_moved_but_not_computed_with() -> None:
    x, large = eqsat.input("x", (1, 4, 24, 16)), np.linspace(-1, 1, 24 * 24 * 16, dtype=np.float32)
    weights = op.Erf(large.reshape(24, 24, 16))
    result = optimized(op.Einsum(x, weights, equation="bhld,lrd->bhlr"))
    assert rule_row(result, "einsum_is_product_of_batches").applied == 1
    product = op.MatMul(eqsat.input("x", (24, 8, 16)), op.Transpose(weights, perm=[0, 2, 1]))
    scaled = optimized(product * np.float32(0.5))
    assert rule_row(scaled, "fold_scale_into_matmul").applied == 0
    assert "is not known" in rule_row(scaled, "fold_scale_into_matmul").misfit
