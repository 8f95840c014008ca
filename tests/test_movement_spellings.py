"""One program whatever the spelling: products by their equation, parts of tensors, gathering that moves nothing."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import eqsat
from eqsat.model.load import load
from tests.model.running import random_inputs, run_ort

HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'


def _optimized(body: str, **options: object) -> tuple[Counter[str], float]:
    """The operators of the optimized model, compared with ONNX Runtime on the input, and its cost in seconds."""
    model = HEAD + body
    result = eqsat.optimize(model, **options)
    loaded = load(model)
    feed = random_inputs(loaded, seed=1)
    for found, wanted in zip(result.run(feed).values(), run_ort(loaded, feed), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max(initial=1e-30)))
    scopes = [result.model.graph, *result.model.functions.values()]
    kinds = Counter(
        node.op_type for scope in scopes for node in scope if not node.domain and node.op_type != "Constant"
    )
    return kinds, result.cost


@pytest.fixture(scope="module")
def without_einsum(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A host on which the operator is never worth its price."""
    path = tmp_path_factory.mktemp("hosts") / "plain.target"
    path.write_text(
        'host plain\n    summary "no kernel for Einsum"\n    peak float32 = 1e9\n    bandwidth = 1e9, launch = 1e-6\n\n'
        "    supports Einsum\n        cost 1\n\n    supports *\n",
        "utf-8",
    )
    return str(path)


# ---- sums of products ----------------------------------------------------------------------------------------------


def _einsum(equation: str, host: str) -> Counter[str]:
    terms, _, result = equation.replace(" ", "").partition("->")

    def kind(labels: str) -> str:
        return f"float{[SIZES[label] for label in labels]}".replace(", ", ",")

    inputs = ", ".join(f"{kind(labels)} x{i}" for i, labels in enumerate(terms.split(",")))
    names = ", ".join(f"x{i}" for i in range(terms.count(",") + 1))
    body = f'g ({inputs}) => ({kind(result)} y) {{ y = Einsum <equation = "{equation}"> ({names}) }}'
    return _optimized(body, host=host)[0]


SIZES = dict(zip("abcdehijn", (2, 13, 8, 5, 6, 3, 7, 4, 3), strict=True))


@pytest.mark.parametrize(
    "equation",
    [
        "ab,bc->ac",
        "ab,cb->ca",
        "abc,cde->abde",  # Keras: the projection into heads
        "aecd,abcd->acbe",  # Keras: scores
        "acbe,aecd->abcd",  # Keras: values
        "abcd,cde->abe",
        "bind,bjnd->bnij",
        "abc,acd->abd",
        "abc,abc->a",
        "ab,ab->",
        "abc,dc->abd",
        "a, abc -> cb",
        "abcd,bd->ca",
        "hab,hbc->hac",
    ],
)
def test_a_sum_of_products_is_a_matrix_product(equation: str, without_einsum: str) -> None:
    kinds = _einsum(equation, without_einsum)
    assert "Einsum" not in kinds and kinds["MatMul"] + kinds["Gemm"] == 1, kinds


@pytest.mark.parametrize(
    ("equation", "kinds"),
    [
        ("abc->cab", {"Transpose": 1}),
        ("abc->abc", {}),
        ("abc->b", {"ReduceSum": 1}),
        ("abc->ca", {"ReduceSum": 1, "Transpose": 1}),
        ("abcd,d->abcd", {"Mul": 1}),
        ("ab,ab->ab", {"Mul": 1}),
    ],
)
def test_other_equations_are_the_operators_that_they_say(
    equation: str, kinds: dict[str, int], without_einsum: str
) -> None:
    found = _einsum(equation, without_einsum)
    assert {kind: n for kind, n in found.items() if kind not in ("Reshape", "Unsqueeze", "Identity")} == kinds


@pytest.mark.parametrize("equation", ["aab,bc->ac", "aa->a", "ab,bc,cd->ad", "ab,c->abc", "abc,b->a", "ab,bc->a"])
def test_the_rest_keeps_its_values(equation: str, without_einsum: str) -> None:
    _einsum(equation, without_einsum)


def test_an_axis_of_one_that_is_repeated_is_not_summed_as_a_product() -> None:
    body = 'g (float[2,1] x, float[4,3] w) => (float[2,3] y) { y = Einsum <equation = "ab,bc->ac"> (x, w) }'
    kinds, _ = _optimized(body)
    assert kinds == {"Einsum": 1}


@pytest.mark.parametrize("written", ["...ij,...jk->...ik", "...ij, ...jk", "b...j,bjk->b...k", "xqz,xzr->xqr"])
def test_spellings_of_an_equation_have_one_cost(written: str) -> None:
    def body(equation: str) -> str:
        return (
            f'g (float[2,3,4] x, float[2,4,5] w) => (float[2,3,5] y) {{ y = Einsum <equation = "{equation}"> (x, w) }}'
        )

    kinds, cost = _optimized(body(written), targets=["dnnl"])
    assert kinds == {"MatMul": 1}
    assert cost == _optimized(body("abc,acd->abd"), targets=["dnnl"])[1]


def test_attention_by_equations_is_attention() -> None:
    body = """g (float[2,48,4,32] q, float[2,64,4,32] k, float[2,64,4,32] v) => (float[2,48,4,32] y)
    <float scale = {0.17677669}>
    {
        s = Einsum <equation = "aecd,abcd->acbe"> (k, q)
        t = Mul(s, scale)
        p = Softmax <axis = -1> (t)
        y = Einsum <equation = "acbe,aecd->abcd"> (p, v)
    }"""
    kinds, _ = _optimized(body)
    assert kinds["Attention"] == 1 and "Softmax" not in kinds


@pytest.mark.parametrize("scale", ["Div(t, root)", "Mul(scale, t)"])
def test_attention_that_scales_scores_with_their_bias_is_attention(scale: str) -> None:
    body = f"""g (float[2,4,48,32] q, float[2,4,32,64] k, float[2,4,64,32] v, float[2,4,48,8] r, float[2,4,8,64] e)
    => (float[2,4,48,32] y) <float root = {{5.656854}}, float scale = {{0.17677669}}> {{
        s = MatMul(q, k) positions = MatMul(r, e) t = Add(s, positions)
        u = {scale} p = Softmax <axis = -1> (u) y = MatMul(p, v) }}"""
    kinds, _ = _optimized(body, host="ort")
    assert kinds["Attention"] == 1 and "Softmax" not in kinds


def test_products_by_equation_with_free_sizes() -> None:
    model = (
        HEAD
        + """g (float[N,T,4,8] q, float[N,S,4,8] k) => (float[N,4,T,S] y) {
        y = Einsum <equation = "bind,bjnd->bnij"> (q, k)
    }"""
    )
    result = eqsat.optimize(model)
    assert any(node.op_type == "MatMul" for node in result.model.graph)
    for n, t, s in ((1, 1, 1), (2, 5, 3), (1, 16, 7)):
        rng = np.random.default_rng(n)
        q, k = (rng.standard_normal((n, m, 4, 8)).astype(np.float32) for m in (t, s))
        found = result.run({"q": q, "k": k})["y"]
        np.testing.assert_allclose(found, np.einsum("bind,bjnd->bnij", q, k), rtol=1e-5, atol=1e-5)


# ---- parts of a tensor ---------------------------------------------------------------------------------------------


def test_parts_by_slices_and_by_split_have_one_cost() -> None:
    signature = "g (float[2,12] x) => (float[2,4] y) "
    use = "r = Relu(b) s = Sigmoid(c) t = Mul(r, s) y = Add(a, t)"
    slices = """<int64[1] z = {0}, int64[1] f = {4}, int64[1] e = {-4}, int64[1] n = {9223372036854775807},
        int64[1] k = {1}> { a = Slice(x, z, f, k) b = Slice(x, f, e, k) c = Slice(x, e, n, k) """
    split = "{ a, b, c = Split <axis = 1, num_outputs = 3> (x) "
    costs = {_optimized(f"{signature}{parts}{use} }}")[1] for parts in (slices, split)}
    assert max(costs) < 1.001 * min(costs)  # Slices have one more small operand.


@pytest.mark.parametrize(("first", "second"), [((1, 7), (2, 5)), ((-9, 9), (-4, 3)), ((0, 100), (-100, 2))])
def test_a_slice_of_a_slice_is_one(first: tuple[int, int], second: tuple[int, int]) -> None:
    body = f"""g (float[2,8] x) => (float[2,{len(range(8)[slice(*first)][slice(*second)])}] y)
        <int64[1] a = {{{first[0]}}}, int64[1] b = {{{first[1]}}}, int64[1] c = {{{second[0]}}},
        int64[1] d = {{{second[1]}}}, int64[1] k = {{1}}> {{ t = Slice(x, a, b, k) y = Slice(t, c, d, k) }}"""
    assert sum(_optimized(body)[0].values()) == 1


def test_parts_without_elements_are_not_joined() -> None:
    body = """g (float[2,8] x) => (float[2,8] y) <int64[1] z = {0}, int64[1] e = {8}, int64[1] k = {1}> {
        a = Slice(x, z, e, k) b = Slice(x, e, e, k) r = Relu(a) t = Concat <axis = 1> (r, b)
        u = Concat <axis = 1> (b, t)
        y = Abs(u)
    }"""
    assert _optimized(body)[0]["Concat"] == 0


# ---- gathering -----------------------------------------------------------------------------------------------------


def _indices(values: np.ndarray, shape: tuple[int, ...]) -> str:
    dims = ",".join(map(str, shape))
    return f"int64[{dims}] i = {{{', '.join(map(str, values.reshape(-1).tolist()))}}}"


def test_gathering_everything_in_order_is_a_view() -> None:
    body = f"""g (float[6,2] x) => (float[2,3,2] y) <{_indices(np.arange(6), (2, 3))}> {{
        t = Gather(x, i) y = Relu(t) }}"""
    assert set(_optimized(body)[0]) == {"Reshape", "Relu"}


@pytest.mark.parametrize("shape", [(2, 7), (2, 3, 4), (1, 5)])
def test_gathering_each_element_in_order_is_a_view(shape: tuple[int, ...]) -> None:
    # As exporters write mask[batch, position].
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    given, size = ",".join(map(str, shape)), math.prod(shape)
    body = f"""g (float[{given}] x) => (float[{size},1] y) <{_indices(grid, (size, 1, len(shape)))}> {{
        t = GatherND(x, i) y = Relu(t) }}"""
    assert set(_optimized(body)[0]) == {"Reshape", "Relu"}


def test_gathering_in_another_order_stays() -> None:
    body = f"""g (float[2,2] x) => (float[4] y) <{_indices(np.array([[0, 0], [1, 0], [0, 1], [1, 1]]), (4, 2))}> {{
        t = GatherND(x, i) y = Relu(t) }}"""
    assert _optimized(body)[0]["GatherND"] == 1


def test_softplus_with_its_threshold_is_softplus() -> None:
    body = """g (float[64] x) => (float[64] y) <float c = {20}, float k = {10}> {
        z = Mul(x, k) s = Softplus(z) a = Greater(z, c) y = Where(a, z, s) }"""
    assert _optimized(body)[0] == {"Mul": 1, "Softplus": 1}


def test_gathering_a_row_along_a_moved_axis_moves_nothing() -> None:
    # As PyTorch exports keys and values of one head.
    body = """g (float[2, 3, 6, 4] x) => (float[2, 3, 1, 4] y) {
        i = Constant<value_ints = [-2]>()
        first = Transpose<perm = [2, 0, 1, 3]>(x)  row = Gather<axis = 0>(first, i)
        y = Transpose<perm = [1, 2, 0, 3]>(row) }"""
    assert sum(_optimized(body)[0].values()) == 1
    assert "Transpose" not in _optimized(body)[0]


ONE_COST = {
    "a bias of zeros": (
        "float[1, 3, 8, 8] x, float[4, 3, 3, 3] w",
        "float[1, 4, 6, 6] y",
        "n = Constant<value_ints = [4]>() b = ConstantOfShape(n) y = Conv(x, w, b)",
        "y = Conv(x, w)",
    ),
    "a product with a bias of zeros": (
        "float[5, 3] x, float[3, 4] w",
        "float[5, 4] y",
        "n = Constant<value_ints = [4]>() b = ConstantOfShape(n) y = Gemm(x, w, b)",
        "y = MatMul(x, w)",
    ),
    "the mean of an image": (
        "float[2, 3, 8, 8] x",
        "float[2, 3, 1, 1] y",
        "y = GlobalAveragePool(x)",
        "a = Constant<value_ints = [2, 3]>() y = ReduceMean<keepdims = 1>(x, a)",
    ),
    "blocks along a moved axis": (
        # As PyTorch exports an index of two dimensions.
        "float[1, 2, 6, 4] x",
        "float[1, 2, 3, 2, 4] y",
        "i = Constant<value = int64[3, 2, 1] {1, 0, 2, 5, -3, 3}>() first = Transpose<perm = [2, 0, 1, 3]>(x)"
        " rows = GatherND(first, i) y = Transpose<perm = [2, 3, 0, 1, 4]>(rows)",
        "i = Constant<value = int64[3, 2] {1, 0, 2, 5, -3, 3}>() y = Gather<axis = 2>(x, i)",
    ),
    "a sum of integers": (
        "int32[2, 9] x",
        "int32[2, 9] y",
        "a = Constant<value_int = 1>() w = Cast<to = 7>(x) s = CumSum(w, a) y = Cast<to = 6>(s)",
        "a = Constant<value_int = 1>() y = CumSum(x, a)",
    ),
}


@pytest.mark.parametrize("host", ["cpu", "ort"])
@pytest.mark.parametrize("name", ONE_COST)
def test_both_spellings_have_one_cost(name: str, host: str) -> None:
    inputs, output, first, second = ONE_COST[name]
    costs = [_optimized(f"g ({inputs}) => ({output}) {{ {body} }}", host=host)[1] for body in (first, second)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


# ---- sums by weights -----------------------------------------------------------------------------------------------

WEIGHTS = ", ".join(str(i) for i in range(8))
"""Of a detector: how far a side of a box is, for each probability of a distribution."""


@pytest.mark.parametrize("host", ["cpu", "ort", "c"])
def test_distances_by_distributions_have_one_spelling(host: str) -> None:
    first = "r = Reshape(x, s) p = Transpose<perm = [0, 2, 1, 3]>(r) q = Softmax<axis = 1>(p)"
    last = "r = Reshape(x, s) p = Transpose<perm = [0, 3, 1, 2]>(r) m = Softmax<axis = 3>(p)"
    found = {
        _optimized(
            f"""g (float[2,32,400] x) => (float[2,4,400] y) <int64[4] s = {{2, 4, 8, 400}}, int64[3] t = {{2, 4, 400}},
            int64[1] a = {{1}}, float[1,8,1,1] w = {{{WEIGHTS}}}> {{ {body} }}""",
            host=host,
        )[1]
        for body in (
            f"{first} k = Conv(q, w) y = Reshape(k, t)",
            f"{last} q = Transpose<perm = [0, 3, 2, 1]>(m) k = Conv(q, w) y = Reshape(k, t)",
            f"{first} k = Mul(q, w) y = ReduceSum<keepdims = 0>(k, a)",
            f"{last} q = Transpose<perm = [0, 3, 2, 1]>(m) k = Mul(w, q) n = ReduceSum(k, a) y = Reshape(n, t)",
        )
    }
    assert max(found) < 1.001 * min(found)


@pytest.mark.parametrize(
    ("perm", "sizes", "bias"),
    [
        ([0, 2, 1, 3], (2, 4, 8, 5), False),
        ([0, 2, 1, 3], (2, 4, 8, 5), True),
        ([0, 2, 3, 1], (2, 4, 8, 5), True),
        ([0, 3, 2, 1], (2, 4, 5, 8), False),
        ([0, 3, 1, 2], (2, 4, 5, 8), True),
        ([0, 1, 3, 2], (2, 8, 5, 4), True),
        ([2, 3, 0, 1], (4, 5, 2, 8), True),
    ],
)
def test_channels_that_a_transposition_brings_forward_are_those_of_a_product(
    perm: list[int], sizes: tuple[int, ...], bias: bool
) -> None:
    back = [perm.index(i) for i in range(4)]
    result = [3 if perm[1] == i else size for i, size in enumerate(sizes)]
    body = f"""g (float{list(sizes)} x) => (float{result} y)
    <float[3,8,1,1] w = {{{WEIGHTS}, {WEIGHTS}, {WEIGHTS}}}, float[3] b = {{1, 2, 3}}> {{
    t = Transpose<perm = {perm}>(x) k = Conv(t, w{", b" * bias}) y = Transpose<perm = {back}>(k) }}"""
    found, _ = _optimized(body)
    product = perm[0] == 0 and perm[1] > 1
    assert (found["MatMul"], found["Conv"]) == (int(product), int(not product)), found


@pytest.mark.parametrize("shape", ["8", "1,8", "1,1,8"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_sum_of_rows_by_weights_is_a_product(shape: str, keepdims: int) -> None:
    body = f"""g (float[5,64,8] x) => (float[5,64{",1" * keepdims}] y) <float[{shape}] w = {{{WEIGHTS}}},
    int64[1] a = {{2}}> {{ m = Mul(x, w) y = ReduceSum<keepdims = {keepdims}>(m, a) }}"""
    found, _ = _optimized(body, host="ort")
    assert found["MatMul"] == 1 and not found["ReduceSum"]


def test_other_weights_of_sums_stay() -> None:
    # One for each row, and some that make the operand larger.
    for shape, x, y in (("8,1", "4,8,8", "4,8"), ("8,8", "4,8,8", "4,8"), ("8", "4,8,1", "4,8")):
        numbers = ", ".join([WEIGHTS] * (8 if shape == "8,8" else 1))
        body = f"""g (float[{x}] x) => (float[{y}] y) <float[{shape}] w = {{{numbers}}}, int64[1] a = {{2}}> {{
        m = Mul(x, w) y = ReduceSum<keepdims = 0>(m, a) }}"""
        _optimized(body, host="ort")
