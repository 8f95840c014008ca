"""Rules that are wrong somewhere: below a bound, above it, at zero, for large numbers, in one type. All are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.errors import VerificationError
from eqsat.search import Search
from eqsat.stages.options import Objective

Graph = Callable[[Any, str], Any]


def number(value: float, dtype: str) -> np.ndarray:
    import ml_dtypes

    return np.array(value).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


FLOATS = ("float32", "float64", "float16", "bfloat16")

# Name, rule, graph over an input of 3 x 4, element types.
PLANTED: list[tuple[str, str, Graph, tuple[str, ...]]] = [
    ("min_of_relu", "exact Min(Relu(v), c) => Relu(v)", lambda x, d: op.Min(op.Relu(x), number(50, d)), FLOATS),
    ("clip_is_relu", "exact Clip(x, 0, 6) => Relu(x)", lambda x, d: op.Clip(x, number(0, d), number(6, d)), FLOATS),
    ("clip_far", "real Clip(x, a, b) => x", lambda x, d: op.Clip(x, number(-3e4, d), number(3e4, d)), FLOATS),
    ("max_low", "exact Max(x, -1e4) => x", lambda x, d: op.Max(x, number(-1e4, d)), ("float32", "float64")),
    ("max_low_16", "exact Max(x, -9984) => x", lambda x, d: op.Max(x, number(-9984, d)), ("float16", "bfloat16")),
    ("leaky", "real LeakyRelu(x, alpha=a) => Relu(x)", lambda x, d: op.LeakyRelu(x, alpha=1e-3), FLOATS),
    ("no_abs", "exact Abs(x) => x", lambda x, d: op.Abs(x), FLOATS),
    ("abs_is_relu", "exact Abs(x) => Relu(x)", lambda x, d: op.Abs(x), FLOATS),
    ("sign_of_zero", "exact Abs(Sign(x)) => 1 + Sign(x) * 0", lambda x, d: op.Abs(op.Sign(x)), ("float32",)),
    (
        "large",
        "real Where(Greater(x, c), a, x) => x",
        lambda x, d: op.Where(op.Greater(x, number(3e4, d)), number(7, d), x),
        FLOATS,
    ),
    ("hard_sigmoid", "real HardSigmoid(x) => x * 0.2 + 0.5", lambda x, d: op.HardSigmoid(x), ("float32", "float16")),
    ("round", "real Round(x) => Floor(x)", lambda x, d: op.Round(x), ("float32", "float64", "float16")),
    ("no_floor", "real Floor(x * c) => x * c", lambda x, d: op.Floor(x * number(1e-3, d)), ("float32", "float64")),
    ("selu", "real Elu(x, alpha=a) => LeakyRelu(x, alpha=0.01)", lambda x, d: op.Elu(x), ("float32",)),
    ("greater", "exact Greater(x, y) => GreaterOrEqual(x, y)", lambda x, d: op.Greater(x, number(2, d)), FLOATS),
    ("softplus", "real Softplus(x) => Relu(x) + 0.6", lambda x, d: op.Softplus(x), ("float32",)),
    ("tiny", "real Max(x, c) => Relu(x)", lambda x, d: op.Max(x, number(1e-6, d)), ("float32", "float64")),
    ("scaled_min", "real Min(x * s, c) => x * s", lambda x, d: op.Min(x * number(0.25, d), number(1e3, d)), FLOATS),
    ("product", "exact x * y => x + y", lambda x, d: x * (x + x), (*FLOATS, "int32", "int64")),
    ("integer_max", "exact Max(x, c) => x", lambda x, d: op.Max(x, number(-(2**30), d)), ("int32", "int64")),
    ("integer_clip", "exact Clip(x, a, b) => x", lambda x, d: op.Clip(x, number(-120, d), number(120, d)), ("int8",)),
    ("unsigned_min", "exact Min(x, c) => x", lambda x, d: op.Min(x, number(250, d)), ("uint8",)),
    ("wide_min", "exact Min(x, c) => x", lambda x, d: op.Min(x, number(2**31, d)), ("int64", "uint64", "uint32")),
    ("integer_abs", "exact Abs(x) => x", lambda x, d: op.Abs(x), ("int32", "int64", "int8")),
    ("cast", "exact Cast(Cast(x, to=8)) => x", lambda x, d: op.Cast(op.Cast(x, to=3), to=6), ("int32",)),
    ("mod", "exact x * 2 / 2 => x", lambda x, d: x * number(2, d) / number(2, d), ("int32", "uint8")),
    ("logic", "exact And(x, y) => Or(x, y)", lambda x, d: op.And(x, op.Not(x)), ("bool",)),
    ("flush", "real x * c * d => x * 0", lambda x, d: x * number(1e-3, d) * number(1e-3, d), ("float32", "float64")),
]

_ATTENDED = "real Where(IsNaN(Softmax(x, axis=-1)), 0, Softmax(x, axis=-1)) => Softmax(x, axis=-1)"


def masked(x: Any, dtype: str, hidden: Any) -> Any:
    weights = op.Softmax(op.Where(hidden, number(-np.inf, dtype), x), axis=-1)
    return op.Where(op.IsNaN(weights), number(0, dtype), weights)


@pytest.mark.parametrize("shape", [(1, 64), (3, 64), (2, 3, 64)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("keeps", [False, True], ids=["hides", "keeps"])
def test_rows_that_are_wholly_masked_are_among_the_samples(
    keeps: bool, dtype: str, shape: tuple[int, ...], tmp_path: Any
) -> None:
    path = tmp_path / "planted.rules"
    path.write_text(f"rule planted : {_ATTENDED.replace(' ', chr(10) + '    ', 1)}\n", "utf-8")
    x, mask = eqsat.input("x", shape, dtype), eqsat.input("mask", shape, "bool")
    graph = eqsat.graph(masked(x, dtype, op.Not(mask) if keeps else mask))
    with pytest.raises(VerificationError, match="planted"):
        eqsat.optimize(graph, rules=[path], default_rules=False, trust=True)


CASES = [(name, rule, graph, dtype) for name, rule, graph, dtypes in PLANTED for dtype in dtypes]


def search(rule: str, graph: Graph, dtype: str, folder: Any) -> Search:
    numerics, _, text = rule.partition(" ")
    text = text.replace("Cast(Cast(x, to=8))", "Cast(Cast(x, to=int8), to=int32)")
    path = folder / "planted.rules"
    path.write_text(f"rule planted : {numerics}\n    {text}\n", "utf-8")
    x = eqsat.input("x", (3, 4), dtype)
    return Search.of(eqsat.graph(graph(x, dtype)), rules=[path], default_rules=False)


@pytest.mark.parametrize(("name", "rule", "graph", "dtype"), CASES, ids=[f"{c[0]}-{c[3]}" for c in CASES])
def test_caught(name: str, rule: str, graph: Graph, dtype: str, tmp_path: Any) -> None:
    found = search(rule, graph, dtype, tmp_path)
    left = found.extract(verify=False)
    assert any(row.applied for row in left.summary.rules), "the rule must apply"
    # Where the wrong program costs as much as the right one or more, it is not the best.
    programs: list[tuple[Objective, int]] = [("best", 0), ("worst", 0), *(("random", seed) for seed in range(6))]
    with pytest.raises(VerificationError, match="planted") as error:
        for objective, seed in programs:
            found.extract(objective, seed)
    assert error.value.place.startswith("tensor ")
    assert error.value.actual
    assert "verify=False" in error.value.hint
