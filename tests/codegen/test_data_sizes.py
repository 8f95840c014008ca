"""C whose sizes data decides: values and shapes beside ONNX Runtime, also where nothing is found."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.cli import main
from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError, ModelError
from eqsat.model.load import load
from tests.codegen.test_free_sizes import FLAGS, HEAD, STRICT
from tests.codegen.ways import SANITIZERS

F = np.float32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(F)
BOXES = np.abs(RNG.standard_normal((2, 20, 4))).astype(F)
BOXES[..., 2:] += BOXES[..., :2]
SCORES = RNG.random((2, 3, 20)).astype(F)
SOME = [{"x": X}, {"x": 0 * X}, {"x": abs(X)}]
COPIES = np.array([3, 1, 2, 1, 3, 7, 3], F)
LIMIT = "c = Constant<value_ints=[9]>() t = Min(s, c)"
FIND = "t = Relu(x) i = NonZero(t) j = Transpose<perm=[1,0]>(i)"

Feeds = Sequence[dict[str, object]]
CASES: dict[str, tuple[str, Feeds]] = {
    "non-zero": ("(float[3,4] x) => (int64[2,n] y) {t = Relu(x) y = NonZero(t)}", SOME),
    "non-zero of bools": ("(bool[5] x) => (int64[1,n] y) {y = NonZero(x)}", [{"x": np.arange(5) % 2 == 0}]),
    "elements found": (f"(float[3,4] x) => (float[n] y, float[n] z) {{{FIND} y = GatherND(x, j) z = Exp(y)}}", SOME),
    "sum of what is found": (
        f"(float[3,4] x) => (float y, float m, int64[1] c) {{{FIND} v = GatherND(x, j) y = ReduceSum<keepdims=0>(v) "
        "z = Constant<value_float=0.5>() w = Unsqueeze(z, a) u = Concat<axis=0>(w, v) m = ReduceMax<keepdims=0>(u) "
        "c = Shape<start=1>(i)} <int64[1] a = {0}>",
        SOME,
    ),
    "mean of what is found": (
        f"(float[3,4] x) => (float y, float[1] z) {{{FIND} v = GatherND(x, j) y = ReduceMean<keepdims=0>(v) "
        "d = Cast<to=11>(v) e = ReduceMean(d, a) z = Cast<to=1>(e)} <int64[1] a = {0}>",
        SOME,
    ),
    "scattered": (
        f"(float[3,4] x) => (float[3,4] y) {{{FIND} v = GatherND(x, j) e = Neg(v) y = ScatterND(x, j, e)}}",
        SOME,
    ),
    "product of what is found": (
        "(float[3,4] x) => (float[n,5] y) {r = ReduceMax<keepdims=0>(x, a) t = Relu(r) i = NonZero(t) "
        "k = Squeeze(i, z) g = Gather(x, k) y = MatMul(g, w)} "
        f"<int64[1] a = {{1}}, int64[1] z = {{0}}, float[4,5] w = {{{','.join(str(n / 7) for n in range(20))}}}>",
        SOME,
    ),
    "softmax of what is found": (
        f"(float[3,4] x) => (float[n] y) {{{FIND} v = GatherND(x, j) y = Softmax<axis=0>(v)}}",
        SOME,
    ),
    "compressed rows": (
        "(float[3,4] x, bool[3] c) => (float[n,4] y) {y = Compress<axis=0>(x, c)}",
        [{"x": X, "c": np.array(c)} for c in ([True, False, True], [False] * 3)],
    ),
    "compressed elements": (
        "(float[3,4] x, bool[9] c) => (float[n] y) {y = Compress(x, c)}",
        [{"x": X, "c": np.array([True, False, True] * 3)}],
    ),
    "unique": (
        "(float[7] x) => (float[n] y, int64[n] i, int64[7] j, int64[n] c) {y, i, j, c = Unique(x)}",
        [{"x": COPIES}, {"x": 0 * COPIES}],
    ),
    "unique in order": (
        "(float[7] x) => (float[n] y, int64[n] i, int64[7] j, int64[n] c) {y, i, j, c = Unique<sorted=0>(x)}",
        [{"x": COPIES}],
    ),
    "unique of ONNX Runtime": (
        "(float[7] x) => (float[n] y, int64[7] i, int64[n] c) {y, i, c = com.microsoft.Unique(x)}",
        [{"x": np.array(x, np.float32)} for x in ([3, 1, 1, 2, 3, 0, -0.0], [2] * 7, range(7))],
    ),
    "unique rows": (
        "(float[3,4] x) => (float[n,4] y, int64[n] i, int64[3] j, int64[n] c) {y, i, j, c = Unique<axis=0>(x)}",
        [*SOME, {"x": X[[1, 0, 1]]}],
    ),
    "suppression": (
        "(float[2,20,4] b, float[2,3,20] s) => (int64[n,3] y) {y = NonMaxSuppression(b, s, m, i, l)} "
        "<int64[1] m = {5}, float[1] i = {0.3}, float[1] l = {0.2}>",
        [{"b": BOXES, "s": SCORES}, {"b": BOXES, "s": 0 * SCORES}, {"b": 0 * BOXES, "s": 0 * SCORES + 1}],
    ),
    "suppression of centres": (
        "(float[2,20,4] b, float[2,3,20] s, int64[1] m) => (int64[n,3] y) "
        "{y = NonMaxSuppression<center_point_box=1>(b, s, m, i)} <float[1] i = {0.3}>",
        [{"b": BOXES, "s": SCORES, "m": np.array([n])} for n in (4, 0, 99)],
    ),
    "boxes that are kept": (
        "(float[1,20,4] b, float[1,3,20] s) => (float[n,4] y, float[n] p) {k = NonMaxSuppression(b, s, m, i, l) "
        "j = Gather<axis=1>(k, two) r = Squeeze(b, zero) y = Gather(r, j) p = GatherND(s, k)} "
        "<int64[1] m = {5}, float[1] i = {0.3}, float[1] l = {0.2}, int64 two = {2}, int64[1] zero = {0}>",
        [{"b": BOXES[:1], "s": SCORES[:1]}, {"b": BOXES[:1], "s": 0 * SCORES[:1]}],
    ),
    "best of some": (
        "(float[9] x, int64[1] k) => (float[n] y, int64[n] i) {y, i = TopK(x, k)}",
        [{"x": X.ravel()[:9], "k": np.array([k])} for k in (0, 3, 9)],
    ),
    "best of what is found": (
        f"(float[3,4] x) => (float[n] y, int64[n] p) {{{FIND} v = GatherND(x, j) d = Shape(v) e = Concat<axis=0>(d, c) "
        "k = ReduceMin<keepdims=0>(e) f = Unsqueeze(k, z) y, p = TopK(v, f)} <int64[1] c = {3}, int64[1] z = {0}>",
        SOME,
    ),
    "range": (
        "(int64 s) => (int64[n] y) {c = Constant<value_int=9>() t = Min(s, c) y = Range(z, t, o)} "
        "<int64 z = {0}, int64 o = {2}>",
        [{"s": np.array(s)} for s in (-5, 0, 3, 50)],
    ),
    "first ones": (
        "(float[3,4] x, int64[1] e) => (float[n,4] y) {y = Slice(x, z, e)} <int64[1] z = {0}>",
        [{"x": X, "e": np.array([e])} for e in (0, 2, 99, -1, -7)],
    ),
    "box": (
        "(float[3,4] x, int64[2] s, int64[2] e) => (float[a,b] y) {t = Slice(x, s, e) y = Exp(t)}",
        [
            {"x": X, "s": np.array(s), "e": np.array(e)}
            for s, e in (([0, 1], [2, 3]), ([-2, -2], [100, -1]), ([2, 2], [1, 1]), ([9, -9], [9, 9]))
        ],
    ),
    "box backwards": (
        "(float[3,4] x, int64[2] s, int64[2] e) => (float[a,b] y) {y = Slice(x, s, e, a, d)} "
        "<int64[2] a = {1, 0}, int64[2] d = {-2, 2}>",
        [{"x": X, "s": np.array(s), "e": np.array(e)} for s, e in (([3, 0], [0, 3]), ([99, 1], [-99, 3]))],
    ),
    "reshaped": (
        "(float[3,4] x, int64[3] s) => (float[a,b,c] y, float[b] z) {t = Reshape(x, s) y = Exp(t) "
        "z = ReduceSum<keepdims=0>(y, o)} <int64[2] o = {0, 2}>",
        [{"x": X, "s": np.array(s)} for s in ([2, 3, 2], [0, -1, 1], [1, 12, 1], [-1, 2, 2])],
    ),
    "padded": (
        "(float[3,4] x, int64[2] p) => (float[a,4] y, float[b,4] z) {t = Clip(p, zero, two) o = Concat<axis=0>(a, t) "
        "q = Gather(o, order) y = Pad(x, q) z = Pad<mode=\"reflect\">(x, q)} "
        "<int64 zero = {0}, int64 two = {2}, int64[2] a = {0, 0}, int64[4] order = {2, 0, 3, 1}>",
        [{"x": X, "p": np.array(p)} for p in ([0, 0], [1, 2], [2, 0])],
    ),
    "split": (
        "(float[5,2] x, int64 n) => (float[a,2] y, float[b,2] z) {m = Clip(n, zero, five) u = Unsqueeze(m, axis) "
        "v = Sub(all, u) s = Concat<axis=0>(u, v) y, w = Split<axis=0>(x, s) z = Neg(w)} "
        "<int64 zero = {0}, int64 five = {5}, int64[1] all = {5}, int64[1] axis = {0}>",
        [{"x": COPIES.repeat(2)[:10].reshape(5, 2), "n": np.array(n)} for n in (0, 2, 5)],
    ),
    "two masks": (
        "(float[6] x, float[6] z) => (float[n] y, float[n,n] p) {a = NonZero(x) b = NonZero(z) i = Squeeze(a, o) "
        "j = Squeeze(b, o) f = Gather(x, i) g = Gather(z, j) y = Add(f, g) u = Unsqueeze(f, o) p = Mul(u, g)} "
        "<int64[1] o = {0}>",
        [
            {"x": np.array(x, F), "z": np.array(z, F)}
            for x, z in (
                ([1, 0, 2, 0, 0, 3], [0, 5, 0, 6, 7, 0]),
                ([1, 0, 0, 0, 0, 0], [0, 5, 0, 6, 7, 0]),
                ([1, 0, 9, 0, 0, 0], [0, 0, 0, 6, 0, 0]),
                ([0, 0, 0, 0, 0, 0], [0, 0, 0, 6, 0, 0]),
                ([0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
            )
        ],
    ),
    "a mask and a size": (
        "(float[6] x, float[3] z) => (float[3] y, float[3,3] c) {a = NonZero(x) i = Squeeze(a, o) f = Gather(x, i) "
        "y = Add(f, z) u = Unsqueeze(f, o) v = Unsqueeze(z, o) c = Concat<axis=0>(u, v, u)} <int64[1] o = {0}>",
        [{"x": np.array([1, 0, 2, 0, 0, 3], F), "z": np.array([1, 2, 3], F)}],
    ),
    "scattered by two masks": (
        "(float[6] x, float[6] z) => (float[6] y) {a = NonZero(x) b = NonZero(z) i = Transpose<perm=[1,0]>(a) "
        "j = Squeeze(b, o) u = Gather(z, j) y = ScatterND(z, i, u)} <int64[1] o = {0}>",
        [{"x": np.array([1, 0, 2, 0, 0, 3], F), "z": np.array([0, 5, 0, 6, 7, 0], F)}],
    ),
    "product over two masks": (
        "(float[6,2] x, float[6] z) => (float[2] y) {r = ReduceMax<keepdims=0>(x, l) a = NonZero(r) b = NonZero(z) "
        "i = Squeeze(a, o) j = Squeeze(b, o) f = Gather(x, i) g = Gather(z, j) y = MatMul(g, f)} "
        "<int64[1] o = {0}, int64[1] l = {1}>",
        [{"x": np.array([[1, 2], [0, 0], [3, 4], [0, 0], [0, 0], [5, 6]], F), "z": np.array([0, 5, 0, 6, 7, 0], F)}],
    ),
    "branches of different sizes": (
        "(float[3,4] x, bool c) => (float[a,b] y, int64[3] s) {z = Exp(x) y = If (c) <then_branch = t () => "
        "(float[p,q] a) { a = Transpose(x) }, else_branch = e () => (float[p,q] b) { b = Slice(z, f, g) }> "
        "w = Neg(y) k = Shape(w) "
        "s = Concat<axis=0>(k, f)} <int64[1] f = {1}, int64[1] g = {9}>",
        [{"x": X, "c": np.array(c)} for c in (True, False)],
    ),
    "branches that find": (
        f"(float[3,4] x, bool c) => (float[n] y, float m) {{{FIND} v = GatherND(x, j) y = If (c) <then_branch = t () "
        "=> (float[p] a) { a0 = Add(v, v) a = Concat<axis=0>(a0, v) }, else_branch = e () => (float[p] b) "
        "{ b0 = Greater(v, h) b1 = Compress<axis=0>(v, b0) b = Neg(b1) }> m = ReduceSum<keepdims=0>(y)} "
        "<float h = {0.5}>",
        [{**feed, "c": np.array(c)} for feed in SOME for c in (True, False)],
    ),
    "constants": (f"(int64[2] s) => (float[a,b] y) {{{LIMIT} y = ConstantOfShape(t)}}",
        [{"s": np.array(s)} for s in ([2, 3], [0, 3])]),
    "expanded": (f"(float[3,1] x, int64[2] s) => (float[a,b] y) {{{LIMIT} y = Expand(x, t)}}",
        [{"x": X[:, :1], "s": np.array(s)} for s in ([3, 3], [1, 1])]),
    "tiled": (f"(float[3,4] x, int64[2] s) => (float[a,b] y) {{{LIMIT} y = Tile(x, t)}}",
        [{"x": X, "s": np.array(s)} for s in ([3, 2], [0, 1])]),
}  # fmt: skip


def model(body: str) -> onnx.ModelProto:
    """A model in ONNX's text, whose initializers may come last."""
    text, _, constants = body.partition("} <")
    head, brace, rest = text.partition("{")
    values = f"<{constants}" if constants else ""
    return onnx.parser.parse_model(f"{HEAD} g {head}{values}{brace}{rest}{'}' if constants else ''}")


def expected(given: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)  # pyright: ignore[reportReturnType]


def check(name: str, compiled: CModel) -> None:
    body, feeds = CASES[name]
    for feed in feeds:
        given = {key: np.asarray(value) for key, value in feed.items()}
        for got, want in zip(compiled.run(given).values(), expected(model(body), given), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_values_and_shapes(name: str) -> None:
    check(name, CModel(load(model(CASES[name][0])), flags=("-O1", *STRICT)))


def unique(x: np.ndarray, in_order: bool) -> list[np.ndarray]:
    """The results of the operator, by numpy."""
    y, first, number, count = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first) if in_order else np.arange(len(y))
    return [y[order], first[order], np.argsort(order)[number], count[order]]


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.int8, np.bool_])
def test_unique_elements(dtype: type, in_order: bool) -> None:
    rng = np.random.default_rng(2)
    few, many = rng.integers(0, 9, 300), rng.permutation(np.arange(300) * 2**20 - 2**26)
    with np.errstate(over="ignore"):
        draws = [few.astype(dtype), many.astype(dtype), np.zeros(300, dtype)]
    if dtype not in (np.int64, np.int8, np.bool_):
        draws.append(rng.choice(np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5], dtype), 300))
    kind = onnx.helper.tensor_dtype_to_string(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    kind = kind.removeprefix("TensorProto.").lower()
    text = f"({kind}[300] x) => ({kind}[n] y, int64[n] i, int64[300] j, int64[n] c) "
    compiled = CModel(load(model(f"{text}{{y, i, j, c = Unique<sorted={int(not in_order)}>(x)}}")), flags=STRICT)
    for x in draws:
        for got, want in zip(compiled.run({"x": x}).values(), unique(x, in_order), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "name", ["suppression", "elements found", "box backwards", "unique rows", "unique", "best of some"]
)
def test_undefined_behaviour_stops_the_program(name: str) -> None:
    check(name, CModel(load(model(CASES[name][0])), isas=(), flags=("-O1", *FLAGS)))


def test_sizes_of_arguments_and_of_data_go_together() -> None:
    body = f"(float[s,4] x) => (float[n] y) {{{FIND} v = GatherND(x, j) y = Exp(v)}}"
    compiled = CModel(load(model(body)), dims={"s": (1, 7)})
    for size in (1, 3, 7):
        x = RNG.standard_normal((size, 4)).astype(F)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], np.exp(x[x > 0]), rtol=1e-5)


def test_a_range_as_on_the_command_line_is_told_how_to_be_written() -> None:
    with pytest.raises(ModelError, match=re.escape("dims={'s': (1, 8)}")):
        CModel(load(model("(float[s] x) => (float[s] y) {y = Exp(x)}")), dims={"s": "1..7"})


def test_a_size_without_bound_is_named_with_the_option_to_copy(tmp_path: Path) -> None:
    body = "(int64[1] s) => (float[n] y) {t = ConstantOfShape(s) y = Exp(t)}"
    with pytest.raises(CodegenError, match=r"nothing bounds .*--dim t=\.\.N.*'t'"):
        generate(load(model(body)))
    onnx.save(model(body), tmp_path / "m.onnx")
    assert main(["codegen", str(tmp_path / "m.onnx"), "--dim", "t=..5", "-o", str(tmp_path / "out"), "-q"]) == 0
    compiled = CModel(load(model(body)), dims={"t": (1, 5)})
    assert compiled.run({"s": np.array([5])})["y"].tolist() == [1.0] * 5
    assert compiled.run({"s": np.array([0])})["y"].shape == (0,)
    for beyond in (6, -1, 2**40):
        with pytest.raises(ExecutionError, match=r"within the bounds of the generated program"):
            compiled.run({"s": np.array([beyond])})
    with pytest.raises(ModelError, match="`other`"):
        generate(load(model(body)), dims={"t": (1, 5), "other": (1, 5)})


def test_sizes_that_do_not_fit_end_the_run() -> None:
    compiled = CModel(load(model(CASES["two masks"][0])))
    x, z = np.array([1, 0, 2, 0, 0, 3], F), np.array([0, 5, 0, 6, 0, 0], F)
    with pytest.raises(ExecutionError, match="does not fit another tensor"):
        compiled.run({"x": x, "z": z})
    compiled = CModel(load(model(CASES["a mask and a size"][0])))
    with pytest.raises(ExecutionError, match="does not fit another tensor"):
        compiled.run({"x": np.ones(6, F), "z": np.ones(3, F)})


def test_a_declared_size_bounds_what_data_decides() -> None:
    text = "(int32 x) => (float[10] y) {f = Cast<to=1>(x) r = Range(z, f, o) y = Exp(r)} <float z = {0}, float o = {1}>"
    compiled = CModel(load(model(text)))
    np.testing.assert_allclose(
        compiled.run({"x": np.array(10, np.int32)})["y"], np.exp(np.arange(10, dtype=F)), rtol=1e-6
    )
    for count in (9, 11):
        with pytest.raises(ExecutionError, match="sizes within the bounds"):
            compiled.run({"x": np.array(count, np.int32)})


def test_a_shape_that_does_not_fit_ends_the_run() -> None:
    compiled = CModel(load(model(CASES["reshaped"][0])))
    assert compiled.emitted.arena < 2000
    for shape in ([5, 2, 2], [-1, -1, 2], [2**40, 2**40, 0], [-2, 3, 2], [5, -1, 1]):
        with pytest.raises(ExecutionError, match="does not fit another tensor"):
            compiled.run({"x": X, "s": np.array(shape)})


@pytest.mark.parametrize("k", [None, 1, 3, 5])
def test_more_of_the_largest_than_there_are_end_the_run(k: int | None) -> None:
    """The length is an argument or found in data, and k is data or a constant."""
    asked = "int64[1] k" if k is None else ""
    given = " <int64[1] zero = {0}" + (">" if k is None else f", int64[1] k = {{{k}}}>")
    received = f"(float[s] x{', ' * (k is None)}{asked}) => (float[a] y) {{y, i = TopK(x, k)}}{given}"
    found = received.replace("{y", "{n = NonZero(x) m = Squeeze(n, zero) v = Gather(x, m) y").replace(
        "TopK(x", "TopK(v"
    )
    found = found.replace("float[s]", "float[8]")
    for body, dims in ((received, {"s": (1, 8)}), (found, {})):
        original = model(body)
        compiled = CModel(load(original), dims=dims)
        for some in range(1, 9):
            x = np.zeros(8, F)
            x[:some] = RNG.permutation(some) + 1
            x = x[:some] if dims else RNG.permutation(x)
            for count in (0, 1, some - 1, some, some + 1, 100) if k is None else (k,):
                feed = {"x": x} | ({"k": np.array([count])} if k is None else {})
                if count > some:
                    with pytest.raises(ExecutionError, match="does not fit another tensor"):
                        compiled.run(feed)
                else:
                    (want,) = expected(original, feed)
                    np.testing.assert_array_equal(compiled.run(feed)["y"], want)


def test_indices_outside_of_an_axis_are_taken_at_its_ends_and_write_nothing() -> None:
    at = np.array([-(10**12), -6, 5, 10**12])
    x = np.arange(5, dtype=F)
    compiled = CModel(load(model("(float[5] x, int64[4] i) => (float[4] y) {y = Gather(x, i)}")))
    assert compiled.run({"x": x, "i": at})["y"].tolist() == [0, 0, 4, 4]
    scatter = "(float[5] x, int64[4] i, float[4] u) => (float[5] y) {y = ScatterElements<axis=0>(x, i, u)}"
    compiled = CModel(load(model(scatter)))
    assert compiled.run({"x": x, "i": at, "u": np.full(4, 9, F)})["y"].tolist() == x.tolist()


def test_the_caller_gives_no_array_for_a_result_of_unknown_size() -> None:
    body, feeds = CASES["elements found"]
    with eqsat.compile(model(body)) as compiled:
        assert compiled(feeds[0]["x"])[0].shape == (int((X > 0).sum()),)
        with pytest.raises(ExecutionError, match=r"out, .y.*depends on data"):
            compiled.run({"x": X}, out={"y": np.empty(12, F)})


def test_the_folder_checks_shapes(tmp_path: Path) -> None:
    body, _ = CASES["boxes that are kept"]
    eqsat.write_c(model(body), tmp_path / "out", name="net")
    assert "size_t *y_shape," in (tmp_path / "out" / "net.h").read_text("utf-8")
    sources = [str(p) for p in sorted((tmp_path / "out").glob("*.c"))]
    command = ["cc", "-std=c11", "-O1", "-ffp-contract=off", "-DNET_SCALAR", *STRICT, *SANITIZERS, *sources, "-lm"]
    subprocess.run([*command, "-o", "check"], cwd=tmp_path, check=True)
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr
