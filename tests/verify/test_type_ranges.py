"""What leaves the range of its type excuses a difference, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.errors import VerificationError
from eqsat.schema.types import TensorType
from eqsat.search import Search
from eqsat.stages.options import Objective
from eqsat.verify import leaves
from eqsat.verify.leaf_samples import Style, draw

Graph = Callable[[Any, str], Any]
PROGRAMS: list[tuple[Objective, int]] = [("best", 0), ("worst", 0), *(("random", seed) for seed in range(6))]


def number(value: float, dtype: str) -> np.ndarray:
    return np.array(value).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def optimize_all(rules: str, graph: Graph, dtype: str, folder: Path, **options: Any) -> list[Any]:
    path = folder / "some.rules"
    path.write_text(rules, "utf-8")
    search = Search.of(
        eqsat.graph(graph(eqsat.input("x", (3, 4), dtype), dtype)), rules=[path], default_rules=False, **options
    )
    return [search.extract(objective, seed) for objective, seed in PROGRAMS]


def half(value: float) -> Callable[[str], float]:
    """A number near the limit of each type: that part of its largest number."""
    return lambda dtype: value * float(ml_dtypes.finfo(number(0, dtype).dtype).max)


FLOATS = ("float32", "float64", "float16", "bfloat16")
FAR, NEAR = half(0.25), half(1e-3)

# Right over the reals, and not for numbers beyond the range of the type: in the input, or between.
RIGHT: list[tuple[str, str, Graph]] = [
    ("between", "real (x * c) * y => (x * y) * c", lambda x, d: (x * number(0.5, d)) * op.Exp(x)),
    ("between_sum", "real (x - y) + z => (x + z) - y", lambda x, d: (x - op.Abs(x)) + op.Neg(x)),
    ("exponentials", "real Exp(x) * Exp(y) => Exp(x + y)", lambda x, d: op.Exp(x) * op.Exp(op.Neg(x))),
    ("softplus", "real Log(Exp(x) + 1) => Softplus(x)", lambda x, d: op.Log(op.Exp(x) + number(1, d))),
    ("no_softplus", "real Softplus(x) => Log(Exp(x) + 1)", lambda x, d: op.Softplus(x)),
    ("no_sigmoid", "real Sigmoid(x) => 1 / (1 + Exp(Neg(x)))", lambda x, d: op.Sigmoid(x)),
    ("zero", "real x * 0 => x - x", lambda x, d: op.Exp(x * x) * number(0, d)),
    ("square", "real Sqrt(x * x) => Abs(x)", lambda x, d: op.Sqrt(x * x)),
    ("no_abs", "real Abs(x) => Sqrt(x * x)", lambda x, d: op.Abs(x) + number(1, d)),
    ("pole", "real (x / y) * y => x", lambda x, d: (x / op.Relu(x)) * op.Relu(x)),
    ("logarithms", "real Log(x) + Log(y) => Log(x * y)", lambda x, d: op.Log(op.Abs(x)) + op.Log(op.Abs(x))),
    ("norm", "real ReduceSum(x * x) => ReduceSumSquare(x)", lambda x, d: op.ReduceSum(x * x)),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "rule", "graph"), RIGHT, ids=[r[0] for r in RIGHT])
def test_right_over_the_reals(name: str, rule: str, graph: Graph, dtype: str, tmp_path: Path) -> None:
    numerics, _, text = rule.partition(" ")
    found = optimize_all(f"rule right : {numerics}\n    {text}\n", graph, dtype, tmp_path)
    assert any(row.applied for row in found[0].summary.rules), "the rule must apply"
    assert all(result.summary.verification.agrees for result in found)
    if dtype != "float64":  # whose Softplus few have a kernel for
        assert any(result.summary.verification.executed for result in found)


# Wrong at large or small magnitudes that every value stays in the range at.
WRONG: list[tuple[str, str, Graph]] = [
    ("clip", "real Clip(x, a, b) => x", lambda x, d: op.Clip(x, number(-FAR(d), d), number(FAR(d), d))),
    ("clip_above", "real Min(x, c) => x", lambda x, d: op.Min(x, number(FAR(d), d))),
    (
        "far",
        "real Where(Greater(x, c), a, x) => x",
        lambda x, d: op.Where(op.Greater(x, number(FAR(d), d)), number(7, d), x),
    ),
    (
        "far_below",
        "real Where(Less(x, c), a, x) => x",
        lambda x, d: op.Where(op.Less(x, number(-NEAR(d), d)), number(7, d), x),
    ),
    (
        "far_exponential",
        "real Where(Greater(x, c), y, z) => z",
        lambda x, d: op.Where(op.Greater(x, number(2, d)), op.Exp(x) * number(16, d), op.Exp(x)),
    ),
    ("kept", "real Max(x, c) => x", lambda x, d: op.Max(x, number(-NEAR(d), d)) * number(1e-2, d)),
    ("infinite", "real (x * c) * d => x * inf", lambda x, d: x * number(16, d) * number(16, d)),
    ("infinite_sum", "real (x + c) + d => x + inf", lambda x, d: x + number(16, d) + number(16, d)),
    ("vanished", "real (x * c) * d => x * 0", lambda x, d: x * number(1 / 128, d) * number(1 / 128, d)),
    ("pole", "real Abs(x) => x * x / Sqrt(x * x)", lambda x, d: op.Abs(x)),
    ("scaled", "real Exp(x) * Exp(y) => Exp(x - y)", lambda x, d: op.Exp(x) * op.Exp(x * number(0.5, d))),
    ("softplus", "real Log(Exp(x) + 1) => Relu(x)", lambda x, d: op.Log(op.Exp(x) + number(1, d))),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "rule", "graph"), WRONG, ids=[r[0] for r in WRONG])
def test_wrong_within_the_range(name: str, rule: str, graph: Graph, dtype: str, tmp_path: Path) -> None:
    numerics, _, text = rule.partition(" ")
    with pytest.raises(VerificationError, match="wrong"):
        optimize_all(f"rule wrong : {numerics}\n    {text}\n", graph, dtype, tmp_path)


EXACT = [
    ("overflow", "(x * 2) * 0.5 => x", lambda x, d: (x * number(2, d)) * number(0.5, d)),
    ("order", "(x + y) - z => x + (y - z)", lambda x, d: (x + x) - x),
    ("underflow", "(x / 32768) * 32768 => x", lambda x, d: (x / number(32768, d)) * number(32768, d)),
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("other", ["", "rule right : real\n    Log(Exp(y))  =>  y\n"], ids=["alone", "beside"])
@pytest.mark.parametrize(("name", "rule", "graph"), EXACT, ids=[e[0] for e in EXACT])
def test_exact_rules_are_held_to_it_beyond_the_range(
    name: str, rule: str, graph: Graph, other: str, dtype: str, tmp_path: Path
) -> None:
    def both(x: Any, d: str) -> Any:
        return {"y": graph(x, d), "z": op.Log(op.Exp(op.Sin(x)))}

    with pytest.raises(VerificationError, match="wrong"):
        optimize_all(f"rule wrong : exact\n    {rule}\n{other}", both, dtype, tmp_path)
    found = optimize_all(f"rule wrong : real\n    {rule}\n{other}", both, dtype, tmp_path)
    assert all(result.summary.verification.agrees for result in found)


def test_a_dequantized_tensor_that_overflows_is_no_difference_and_a_wrong_scale_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Infinities beside each other hide which of the products is the larger; integers multiplied first do not."""
    rule = (
        "rule product : within 1 lsb\n    QuantizeLinear(DequantizeLinear(a, s, z) @ DequantizeLinear(b, t, v), u, w)"
        "  =>  QLinearMatMul(a, s, z, b, t, v, u{}, w)\n"
    )
    path = tmp_path / "some.rules"

    def drawn(kind: TensorType, style: Style, *others: Any) -> np.ndarray | None:
        if style.kind != "extreme":
            return draw(kind, style, *others)
        integers = kind.dtype == ir.DataType.INT8
        return np.array([[126, 1, -128], [-1, -128, 63]], np.int8) if integers else np.array(2.9e36, np.float32)

    monkeypatch.setattr(leaves, "draw", drawn)

    def found(text: str) -> Any:
        path.write_text(text, "utf-8")
        a = np.array([[-57, -39], [-28, -30], [-10, -125]], np.int8)
        b, t = eqsat.input("b", (2, 3), "int8"), eqsat.input("t", (), "float32")
        left, right = op.DequantizeLinear(a, np.float32(5.27), np.int8(-2)), op.DequantizeLinear(b, t, np.int8(3))
        y = op.QuantizeLinear(op.MatMul(left, right), np.float32(0.13), np.int8(3))
        return eqsat.optimize(eqsat.graph(y), rules=[path], default_rules=False, trust=True).summary.verification

    assert found(rule.format("")).executed == 1
    with pytest.raises(VerificationError, match="product"):
        found(rule.format(" * 1.5"))


def test_a_scale_that_overflows_between_is_no_difference_and_a_wrong_scale_is(tmp_path: Path) -> None:
    rule = "rule scaled : real\n    QuantizeLinear(x * 0.5, s, z)  =>  QuantizeLinear(x, s * {}, z)\n"

    def graph(x: Any, d: str) -> Any:
        return op.QuantizeLinear(x * number(0.5, d), np.float32(0.1), np.int8(0))

    for result in optimize_all(rule.format(2), graph, "float32", tmp_path):
        assert result.summary.verification.agrees
    with pytest.raises(VerificationError, match="scaled"):
        optimize_all(rule.format(2.2), graph, "float32", tmp_path)
