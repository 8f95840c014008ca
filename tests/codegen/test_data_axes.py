"""Axes, steps and widths that are data: C against ONNX Runtime, and what does not fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from eqsat.codegen.compiled import CModel
from eqsat.codegen.data_axes import REDUCTIONS
from eqsat.codegen.generate import generate
from eqsat.errors import CodegenError, ExecutionError
from eqsat.model.load import load
from tests.codegen.test_data_sizes import F, expected, model
from tests.codegen.test_free_sizes import FLAGS, STRICT

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 2)).astype(F)
TYPES = {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64}
Values = Sequence[Sequence[int]]
PADS: Values = ([0, 0, 0, 0, 0, 0], [1, 0, 1, 2, 1, 0], [-1, 0, 0, 1, -2, 1], [0, -4, 0, 0, 2, 0], [2, 3, 1, 1, 1, 1])
CASES: dict[str, tuple[str, list[dict[str, object]]]] = {
    "slice with steps": (
        "(float[3,4,2] x, int64[2] s, int64[2] e, int64[2] a, int64[2] d) => (float[p,q,r] y) "
        "{z = Slice(x, s, e, a, d) y = Exp(z)}",
        [
            {"x": X, "s": s, "e": e, "a": a, "d": d}
            for a, d in itertools.product(([0, 1], [2, 0], [-2, -1]), ([1, 1], [2, -1], [-3, 2], [2**40, -(2**40)]))
            for s, e in (([0, 0], [9, 9]), ([-1, 2], [0, -9]), ([2, 3], [-99, 0]), ([1, 1], [1, 1]))
        ],
    ),
    "slice with steps from the left": (
        "(float[3,4,2] x, int64[2] s, int64[2] e, int64[2] d) => (float[p,q,2] y) {y = Slice(x, s, e, a, d)} "
        "<int64[2] a = {0, 1}>",
        [{"x": X, "s": [0, -1], "e": [3, -9], "d": d} for d in ([1, -1], [2, -3], [5, -1])],
    ),
    "slice of one axis": (
        "(int8[3,4,2] x, int32[1] s, int32[1] e, int32[1] a) => (int8[p,q,r] y) {y = Slice(x, s, e, a)}",
        [{"x": (9 * X).astype(np.int8), "s": [1], "e": [3], "a": [a]} for a in range(-3, 3)],
    ),
    "cumulative sum": (
        "(float[3,4,2] x, int64 a) => (float[3,4,2] y) {y = CumSum<exclusive=1>(x, a)}",
        [{"x": X, "a": a} for a in range(-3, 3)],
    ),
    "cumulative sum back": (
        "(int64[3,4,2] x, int32 a) => (int64[3,4,2] y) {y = CumSum<reverse=1>(x, a)}",
        [{"x": (9 * X).astype(np.int64), "a": a} for a in range(-3, 3)],
    ),
    "squeeze": (
        "(float[1,3,1,4] x, int64[1] a) => (float[p,q,r] y, float[s] z) {y = Squeeze(x, a) "
        "z = ReduceMax<keepdims=0>(y, o)} <int64[2] o = {1, 2}>",
        [{"x": X[..., 0].reshape(1, 3, 1, 4), "a": [a]} for a in (0, 2, -2, -4)],
    ),
    "squeeze to a scalar": (
        "(float[1,1] x, int64[2] a) => (float y) {y = Squeeze(x, a)}",
        [{"x": X[:1, :1, 0], "a": a} for a in ([0, 1], [-1, 0])],
    ),
    "unsqueeze": (
        "(float[3,4,2] x, int64[2] a) => (float[p,q,r,s,t] y) {z = Neg(x) y = Unsqueeze(z, a)}",
        [{"x": X, "a": a} for a in ([0, 1], [4, 0], [-1, -3], [3, 1])],
    ),
    "unsqueezed scalar": ("(float x, int64[1] a) => (float[p] y) {y = Unsqueeze(x, a)}", [{"x": 3, "a": [0]}]),
    "mean and what is left of it": (
        "(float[3,4,2] x, int64[1] a) => (float[p,q,r] y) {m = ReduceMean(x, a) d = Sub(x, m) y = Mul(d, d)}",
        [{"x": X, "a": [a]} for a in range(-3, 3)],
    ),
    "expanded as declared": (
        "(float[3,1] x, int64[2] s) => (float[3,4] y) {y = Expand(x, s)}",
        [{"x": X[:, :1, 0], "s": s} for s in ([3, 4], [1, 4])],
    ),
    "tiled as declared": (
        "(float[3,4] x, int64[2] s) => (float[6,4] y) {y = Tile(x, s)}",
        [{"x": X[..., 0], "s": [2, 1]}],
    ),
    "one-hot as declared": (
        "(int64[5] x, int64 d, float[2] v) => (float[5,7] y) {y = OneHot(x, d, v)}",
        [{"x": [0, 6, 7, -7, -8], "d": 7, "v": [0.5, 2]}],
    ),
    "parts that are not equal": (
        "(float[3,4] x, int64[2] s) => (float[3,p] y, float[3,q] z) {y, z = Split<axis=1>(x, s)}",
        [{"x": X[..., 0], "s": s} for s in ([1, 3], [4, 0], [2, 2])],
    ),
    **{
        f"pad: {mode}": (
            f"(float[3,4,2] x, int64[6] p) => (float[a,b,c] y) "
            f"{{l = Clip(p, low, high) y = Pad<mode=\"{mode}\">(x, l)}} <int64 low = {{-4}}, int64 high = {{3}}>",
            [{"x": X, "p": p} for p in PADS[: None if mode == "constant" else 2]],
        )
        for mode in ("constant", "edge", "reflect", "wrap")
    },
    "pad of some axes": (
        "(float[3,4,2] x, int64[4] p, float v, int64[2] a) => (float[a0,b0,c0] y) "
        "{l = Clip(p, low, high) y = Pad(x, l, v, a)} <int64 low = {-2}, int64 high = {3}>",
        [
            {"x": X, "p": p, "v": 7, "a": a}
            for p in ([1, 0, 2, 3], [-1, 1, 0, -1])
            for a in ([0, 2], [-1, 1], [1, 0])
        ],
    ),
}  # fmt: skip


def compiled(text: str, flags: Sequence[str] = STRICT) -> CModel:
    return CModel(load(model(text)), isas=(), flags=("-O1", *flags))


def given(text: str, feed: dict[str, object]) -> dict[str, np.ndarray]:
    """The feed in the types of the model's inputs."""
    kinds = {v.name: v.type.tensor_type.elem_type for v in model(text).graph.input}
    types = {1: np.float32, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}
    return {name: np.asarray(value, types[kinds[name]]) for name, value in feed.items()}


def compare(text: str, program: CModel, feed: dict[str, object]) -> None:
    arrays = given(text, feed)
    for got, want in zip(program.run(arrays).values(), expected(model(text), arrays), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype, feed
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=str(feed))


@pytest.mark.parametrize("name", CASES)
def test_values_and_shapes(name: str) -> None:
    text, feeds = CASES[name]
    program = compiled(text)
    for feed in feeds:
        compare(text, program, feed)


@pytest.mark.parametrize("name", ["slice with steps", "pad of some axes", "unsqueeze", "cumulative sum"])
def test_undefined_behaviour_stops_the_program(name: str) -> None:
    text, feeds = CASES[name]
    program = compiled(text, FLAGS)
    for feed in feeds:
        compare(text, program, feed)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("count", [1, 2])
def test_reductions(name: str, count: int) -> None:
    dtype = "double" if name in ("ReduceLogSum", "ReduceL2") else ("float", "int32")[count - 1]
    dtype = "float" if name == "ReduceLogSumExp" else dtype
    x = (3 * np.abs(X) + 1).astype(TYPES[dtype])
    for keeps in (0, 1):
        rank = 3 if keeps else 3 - count
        shape = ",".join("pqr"[:rank])
        text = f"({dtype}[3,4,2] x, int64[{count}] a) => ({dtype}[{shape}] y) {{y = {name}<keepdims={keeps}>(x, a)}}"
        program = compiled(text)
        for axes in itertools.permutations((0, 1, -1), count):
            compare(text, program, {"x": x, "a": axes})


def test_reductions_of_nothing_and_over_no_axes() -> None:
    for noop in (0, 1):
        text = f"(float[3,n] x, int64[m] a) => (float[p,q] y) {{y = ReduceSum<noop_with_empty_axes={noop}>(x, a)}}"
        program = CModel(load(model(text)), dims={"n": (1, 5), "m": (1, 2)}, isas=(), flags=("-O1", *STRICT))
        for n, axes in itertools.product((1, 4), ([0], [1], [1, 0])):
            compare(text, program, {"x": RNG.random((3, n)), "a": axes})
    text = "(float[2,0,4] x, int64[1] a) => (float[p,q,r] y) {y = ReduceSum(x, a)}"
    program = compiled(text)
    for axis in range(3):
        compare(text, program, {"x": np.zeros((2, 0, 4)), "a": [axis]})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("slice of one axis", {"a": [3]}),
        ("slice with steps from the left", {"d": [0, 1]}),
        ("cumulative sum", {"a": 3}),
        ("squeeze", {"a": [1]}),
        ("unsqueeze", {"a": [0, 5]}),
        ("unsqueeze", {"a": [1, -4]}),
        ("mean and what is left of it", {"a": [-4]}),
        ("pad of some axes", {"a": [0, 0]}),
        ("pad: constant", {"p": [-4, 0, 0, 0, 0, 0]}),
    ],
)
def test_what_does_not_fit_ends_the_run(name: str, wrong: dict[str, object]) -> None:
    text, feeds = CASES[name]
    feed = given(text, {**feeds[0], **wrong})
    with pytest.raises(ExecutionError, match="sizes within the bounds"):
        compiled(text).run(feed)


def test_a_declared_size_is_the_greatest() -> None:
    text, _ = CASES["expanded as declared"]
    with pytest.raises(ExecutionError, match="sizes within the bounds"):
        compiled(text).run(given(text, {"x": X[:, :1, 0], "s": [3, 5]}))


def test_parameters_of_an_axis_do_not_broadcast() -> None:
    text = (
        "(int8[3,4] x, float[3] s, int64[1] e) => (float[3,n] y) "
        "{t = Slice(x, b, e, a) y = DequantizeLinear<axis=0>(t, s)} <int64[1] b = {0}, int64[1] a = {1}>"
    )
    program = compiled(text)
    for end in (1, 2, 3, 4):
        compare(text, program, {"x": (50 * X[..., 0]), "s": [0.5, 2, 3], "e": [end]})
    text = (
        "(float[3,4] x, int32[3,4] l, int64[1] e) => (int32[3,n] y) {t = Slice(x, b, e, a) y = CastLike(t, l)} "
        "<int64[1] b = {0}, int64[1] a = {1}>"
    )
    program = compiled(text)
    for end in (1, 2, 4):
        compare(text, program, {"x": 9 * X[..., 0], "l": np.zeros((3, 4)), "e": [end]})


def test_a_rank_that_data_decides_is_refused_by_name() -> None:
    text = "(float[3,4] x, int64[m] a) => (float y) {t = ReduceSum<keepdims=0>(x, a) y = ReduceMax<keepdims=0>(t)}"
    with pytest.raises(CodegenError, match=r"ReduceSum.*'t'"):
        generate(load(model(text)), dims={"m": (1, 2)})
