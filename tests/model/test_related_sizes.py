"""Sizes of inputs that have to agree: what is derived from operators is what ONNX Runtime asks for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.errors import ExecutionError, ModelError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.model.read.given_sizes import split
from eqsat.schema.chosen_sizes import completed, samples, where_costed
from eqsat.schema.free_sizes import FreeSizes
from tests.model.running import run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17, "own": 1]> g '
FORCED = {
    "product": ("(float[N, K] x, float[L, 3] w) => (float[N, 3] y) { y = MatMul(x, w) }", {"L": "K"}),
    "product with a constant": (
        "(float[N, K] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }",
        {"K": "3"},
    ),
    "gemm": ("(float[K, N] x, float[M, L] w) => (float[N, M] y) { y = Gemm<transA=1, transB=1>(x, w) }", {"L": "K"}),
    "concat": ("(float[N, 2] a, float[M, K] b) => (float[N, C] y) { y = Concat<axis=1>(a, b) }", {"M": "N"}),
    "concat in reverse": (
        "(float[A, C] a, float[B, C] b, float[T, C] c) => (float[T, D] y) {"
        " ab = Concat<axis=0>(a, b) y = Concat<axis=1>(ab, c) }",
        {"T": "A + B"},
    ),
    "sum of three": (
        "(float[A, 4] a, float[2, 4] b, float[4, T] c, float[S, 1] d) => (float[T, P] y) {"
        " ab = Concat<axis=0>(a, b) m = MatMul(ab, c) y = Concat<axis=1>(m, d) }",
        {"S": "A + 2"},
    ),
    "multiple": (
        "(float[N, 2] x, float[M, 1] z) => (float[K, 2] y) <int64[2] s = {-1, 1}> {"
        " f = Reshape(x, s) y = Concat<axis=1>(f, z) }",
        {"M": "2*N"},
    ),
    "einsum": (
        '(float[B, I, J] x, float[C, K] z) => (float[B, I, K] y) { y = Einsum<equation="bij,jk->bik">(x, z) }',
        {"C": "J"},
    ),
    "lstm": (
        "(float[S, B, F] x, float[1, 12, G] w, float[1, 12, H] r, float[1, C, H] h, float[1, D, 3] c)"
        " => (float[S, 1, B, 3] y) { y = LSTM<hidden_size=3>(x, w, r, , , h, c) }",
        {"G": "F", "C": "B", "D": "B", "H": "3"},
    ),
    "channels": (
        "(float[N, C, S] x, float[4, 3, 1] w, float[D] b) => (float[N, 4, S] y) { y = Conv(x, w, b) }",
        {"C": "3", "D": "4"},
    ),
    "normalization": (
        "(float[N, C, S] x, float[D] s, float[E] b) => (float[N, C, S] y) { y = InstanceNormalization(x, s, b) }",
        {"D": "C", "E": "C"},
    ),
    "squeeze": (
        "(float[N, M] x) => (float[N] y) <int64[1] a = {1}> { y = Squeeze(x, a) }",
        {"M": "1"},
    ),
    "split": (
        "(float[N, M] x) => (float[N, 2] y, float[N, 5] z) <int64[2] p = {2, 5}> { y, z = Split<axis=1>(x, p) }",
        {"M": "7"},
    ),
    "reshape": (
        "(float[N, M] x, float[N, 3] z) => (float[N, 3] y) { s = Shape(z) y = Reshape(x, s) }",
        {},  # Of N*M = 3*N no symbol stands alone, but sizes are drawn that fit.
    ),
    "function": (
        "(float[N, K] x, float[L, 3] w) => (float[N, 3] y) { y = own.f(x, w) } "
        '<domain: "own", opset_import: ["": 17]> f (a, b) => (c) { d = MatMul(a, b) c = Relu(d) }',
        {"L": "K"},
    ),
    "both branches": (
        "(float[N, 2] x, float[M, 2] z, bool on) => (float[N, 4] y) { y = If(on) <"
        " then_branch = t () => (float[P, 4] u) { u = Concat<axis=1>(x, z) },"
        " else_branch = e () => (float[Q, 4] v) { v = Concat<axis=1>(z, x) }> }",
        {"M": "N"},
    ),
}
LOOSE = {
    "addition": ("(float[N, S] x, float[N, T] m) => (float[N, S] y) { y = Add(x, m) }", {"T": "S"}),
    "mask of a cache": (
        """(float[1, 2, P, 4] past, float[1, 2, S, 4] k, float[1, 2, S, 4] q, float[1, 1, S, T] mask)
        => (float[1, 2, S, 4] y) { all = Concat<axis=2>(past, k) kt = Transpose<perm=[0,1,3,2]>(all)
        s = MatMul(q, kt) a = Add(s, mask) p = Softmax<axis=3>(a) y = MatMul(p, all) }""",
        {"T": "P + S"},
    ),
    "chain": (
        "(float[N, 3] x, float[M, 3] z, float[K, 3] u) => (float[N, 3] y) { a = Mul(x, z) y = Add(a, u) }",
        {"M": "N", "K": "N"},
    ),
    "one branch": (
        "(float[N, 2] x, float[M, 2] z, bool on) => (float[N, C] y) { y = If(on) <"
        " then_branch = t () => (float[P, 4] u) { u = Concat<axis=1>(x, z) },"
        " else_branch = e () => (float[N, 2] v) { v = Relu(x) }> }",
        {"M": "N"},
    ),
}
CONDITIONS = {
    "windows": "(float[N, 2, H, W] x, float[3, 2, 5, 4] w) => (float[N, 3, I, J] y) { y = Conv<strides=[2,1]>(x, w) }",
    "pyramid": """(float[N, 1, H, W] x, float[1, 1, 3, 3] w) => (float[N, 2, I, J] y)
        <float[4] s = {1, 1, 2, 2}> { a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w)
        b = Conv<strides=[2,2], pads=[1,1,1,1]>(a, w) c = Resize<mode="nearest">(b, , s)
        y = Concat<axis=1>(a, c) }""",
    "positions": """(float[N, S, 4] x, float[T, 4] table) => (float[N, S, 4] y)
        <int64 zero = {0}, int64 one = {1}> { s = Shape(x) n = Gather(s, one) i = Range(zero, n, one)
        p = Gather(table, i) y = Add(x, p) }""",
    "elements": "(float[N, M] x, float[N, 3] z) => (float[N, 3] y) { s = Shape(z) y = Reshape(x, s) }",
}
ALL = {**{n: t for n, (t, _) in FORCED.items()}, **{n: t for n, (t, _) in LOOSE.items()}, **CONDITIONS}


def sizes_of(text: str, dims: dict | None = None) -> FreeSizes:
    return free_sizes(load(HEAD + text), split(dims)[1])


def executes(text: str, sizes: dict[str, int]) -> bool:
    proto = onnx.parser.parse_model(HEAD + text)
    given = complete_inputs(load(HEAD + text), dims=sizes)
    try:
        run_ort(proto, given)
    except Exception:  # ONNX Runtime's exceptions have no common base.
        return False
    return True


@pytest.mark.parametrize("name", FORCED)
def test_what_is_forced(name: str) -> None:
    text, expected = FORCED[name]
    sizes = sizes_of(text)
    assert {n: size.follows for n, size in sizes.items() if size.follows} == expected
    assert all(size.forced for size in sizes.values() if size.follows)
    # With another size ONNX Runtime refuses the model, or computes nonsense without a word (LSTM).
    usual = next(iter(samples(sizes)))
    for symbol in expected if name != "lstm" else ():
        assert not executes(text, usual | {symbol: usual[symbol] + 1})


@pytest.mark.parametrize("name", LOOSE)
def test_what_may_be_one_instead(name: str) -> None:
    text, expected = LOOSE[name]
    sizes = sizes_of(text)
    assert {n: size.follows for n, size in sizes.items() if size.follows} == expected
    assert not any(size.forced for size in sizes.values())
    typical, *others = samples(sizes)
    assert any(values[n] == 1 for values in others for n in expected) or all(typical[n] == 1 for n in expected)


@pytest.mark.parametrize("name", ALL)
def test_results_are_verified_at_sizes_that_exist(name: str) -> None:
    sizes = sizes_of(ALL[name])
    drawn = list(samples(sizes))
    assert len(drawn) >= 3
    for values in drawn:
        assert executes(ALL[name], values), values
    assert all(executes(ALL[name], values) for values in where_costed(sizes))


def test_a_range_without_one_makes_a_size_follow() -> None:
    text = LOOSE["mask of a cache"][0]
    assert not sizes_of(text, {"T": (1, 64)})["T"].forced
    sizes = sizes_of(text, {"T": (2, 64)})
    assert sizes["T"].forced and (sizes["T"].least, sizes["T"].most) == (2, 64)
    with pytest.raises(ModelError, match=r"`P \+ S` and `T` have to agree; got 2..64 for `T`, which is P \+ S"):
        sizes_of(text, {"P": (70, 80), "T": (2, 64)})


def test_a_missing_size_follows_from_given_ones() -> None:
    text = LOOSE["mask of a cache"][0]
    sizes = sizes_of(text)
    assert completed(sizes, {"P": 3, "S": 4})["T"] == 7
    assert completed(sizes, {"P": 3, "T": 7})["S"] == 4
    assert "S" not in completed(sizes, {"P": 8, "T": 7})
    given = complete_inputs(load(HEAD + text), dims={"P": 3, "S": 2})
    assert given["mask"].shape == (1, 1, 2, 5)
    with pytest.raises(ExecutionError, match=r"--dim P=128 --dim S=128; `T` is P \+ S"):
        complete_inputs(load(HEAD + text))


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ({"T": "P + S"}, ["P + S"]),
        ({"T": "S+P", "S": 3}, ["P + 3"]),
        ({"T": "P + S", "P": 3, "S": 4}, [7]),
        ({"T": "2*(P - 1) + S // 2"}, None),
        ({"T": "R + 1", "R": "2 * P"}, ["2*P + 1"]),
        ({"T": "12"}, [12]),
    ],
)
def test_expressions(dims: dict[str, int | str], shape: list[int | str] | None) -> None:
    text = HEAD + "(float[P, 2] x, float[S, 2] z, float[T, 2] u, float[R, 2] v) => (float[T, 2] y) { y = Relu(u) }"
    found = load(text, dims=dims).graph.outputs[0].shape
    assert found is not None
    if shape is not None:
        assert [d if isinstance(d, int) else d.value for d in found[:1]] == shape
    values = {"P": 5, "S": 7, "R": 9} | {n: d for n, d in dims.items() if isinstance(d, int)}
    size = found[0] if isinstance(found[0], int) else found[0].evaluate(values)
    written = str(dims["T"]).replace("R", f"({dims.get('R', 'R')})")
    assert size == eval(written, dict(values))


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"T": "P + Q"}, "symbolic dimension of the inputs is required; got `Q`"),
        ({"T": "P + T"}, "got `T` -> `T`"),
        ({"T": "P", "P": "S", "S": "T"}, "got `T` -> `P` -> `S` -> `T`"),
        ({"T": "P // S"}, "a size for the dimension `T` is required, or an expression"),
        ({"T": "P ** 2"}, r"a size for the dimension `T` is required, or an expression.*P \*\* 2"),
        ({"T": "f(P)"}, "a size for the dimension `T` is required, or an expression"),
        ({"T": "P +"}, "a size for the dimension `T` is required, or an expression"),
        ({"T": "P - 9", "P": 3}, r"not negative are required; got float\[1, 1, S, -6\]"),
        ({"T": "(" * 300 + "P" + ")" * 300}, "a size for the dimension `T` is required, or an expression"),
    ],
)
def test_expressions_that_are_none(dims: dict[str, int | str], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(HEAD + LOOSE["mask of a cache"][0], dims=dims)


def test_messages_name_the_pair() -> None:
    text = HEAD + LOOSE["mask of a cache"][0]
    with pytest.raises(ModelError, match=r"(?s)`P \+ S` and `T` have to agree; got P \+ S = 7 and T = 9.*--dim T=P\+S"):
        load(text, dims={"P": 3, "S": 4, "T": 9})
    arrays = complete_inputs(load(text), dims={"P": 3, "S": 4, "T": 7})
    wrong = arrays | {"mask": arrays["mask"][..., :6]}
    with pytest.raises(ExecutionError, match=r"\(Add.*sizes of the inputs that agree.*P \+ S = 7 and T = 6"):
        eqsat.run(text, wrong)
    with pytest.raises(ExecutionError, match=r"a dimension of P \+ S must be 7.*got 6, with P = 3, S = 4"):
        eqsat.run(text, wrong, dims={"T": "P + S"})
    with pytest.raises(ExecutionError, match=r"P \+ S = 7 and T = 6"):
        eqsat.compare(text, text, wrong)


def test_messages_say_what_is_too_small() -> None:
    text = HEAD + "(float[1, 1, W] x) => (float[1, 1, V] y) { y = MaxPool<kernel_shape = [2], strides = [2]>(x) }"
    with pytest.raises(
        ModelError, match=r"`floor\(\(W\)/2\)` has to be 1 or more; got floor\(\(W\)/2\) = 0, less than 1$"
    ):
        load(text, dims={"W": 1})
    with pytest.raises(
        ExecutionError, match=r"that suffice are required; got .* = 0, less than 1\n  hint: check the .*'x'$"
    ):
        eqsat.run(text, {"x": np.ones((1, 1, 1), np.float32)})


@pytest.mark.parametrize("name", [*FORCED, *LOOSE])
def test_every_sample_of_a_verification_is_executed(name: str) -> None:
    text = HEAD + ALL[name]
    seen = eqsat.optimize(text).summary.verification
    assert seen.agrees and len([s for s in seen.samples if "as inputs" in s]) >= 3
    assert not [s for s in seen.skipped if "cannot be executed" in s]


def test_sizes_that_nothing_shows_to_be_equal_are_tried() -> None:
    """The sizes meet where types do not know them: one of them has been data in between."""
    text = f"""{HEAD} (float[N, 2] x, float[M, 2] z) => (float[K, 4] y) <int64[1] one = {{1}}> {{
        e = Exp(x) sum = ReduceSum<keepdims=0>(e, one) sign = Sign(sum) all = Cast<to=9>(sign)
        c = Compress<axis=0>(x, all) y = Concat<axis=1>(c, z) }}"""
    seen = eqsat.optimize(text).summary.verification
    assert "N = 7, M = 7" in " ".join(seen.samples) and not [s for s in seen.skipped if "executed" in s]


def test_rules_know_what_is_said() -> None:
    """A rule that needs the lengths to agree applies once they are one size, and the summary says how."""
    text = HEAD + "(float[N, S] x, float[N, T] m) => (float[N, S] y) { a = Mul(x, m) b = Mul(m, x) y = Sub(a, b) }"
    notes = " ".join(eqsat.optimize(text).summary.notes)
    assert "T = S" in notes and "--dim T=S" in notes
    result = eqsat.optimize(text, dims={"T": "S"})
    shape = result.model.graph.inputs[1].shape
    assert shape is not None and [str(d) for d in shape] == ["N", "S"]
