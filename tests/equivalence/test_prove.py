"""Proofs that models are equal, and inputs and places that tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import eqsat
from eqsat.errors import ModelError, RuleError
from eqsat.rules.location import rules_dir

Nodes = list[onnx.NodeProto]


def text(body: str, inputs: str = "float[N, 4] x", outputs: str = "float[N, 4] y") -> str:
    return f'<ir_version: 8, opset_import: ["": 18]> g ({inputs}) => ({outputs}) {{ {body} }}'


def weights(layer: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(layer)
    drawn = {name: rng.standard_normal(8).astype(np.float32) for name in ("bias", "shift", "mean")}
    scales = {name: (rng.random(8) + 0.5).astype(np.float32) for name in ("scale", "variance")}
    return {"weight": 0.2 * rng.standard_normal((8, 8, 3, 3)).astype(np.float32), **drawn, **scales}


def network(layers: int, *, folded: bool, change: Callable[[int, dict[str, np.ndarray]], Any] | None = None) -> bytes:
    """Convolutions with a normalization, as it is trained or folded into the weights."""
    nodes: Nodes = []
    initial: list[onnx.TensorProto] = []
    here = "x"
    for i in range(layers):
        found = weights(i)
        if change is not None:
            change(i, found)
        if folded:
            factor = (found["scale"] / np.sqrt(found["variance"] + np.float32(1e-5))).astype(np.float32)
            found["weight"] = (found["weight"] * factor[:, None, None, None]).astype(np.float32)
            found["bias"] = ((found["bias"] - found["mean"]) * factor + found["shift"]).astype(np.float32)
        kept = ("weight", "bias") if folded else tuple(found)
        initial += [numpy_helper.from_array(found[name], f"{name}_{i}") for name in kept]
        names = [here, f"weight_{i}", f"bias_{i}"]
        nodes.append(helper.make_node("Conv", names, [f"conv_{i}"], pads=[1, 1, 1, 1]))
        here = f"conv_{i}"
        if not folded:
            rest = [f"{name}_{i}" for name in ("scale", "shift", "mean", "variance")]
            nodes.append(helper.make_node("BatchNormalization", [here, *rest], [f"norm_{i}"]))
            here = f"norm_{i}"
        nodes.append(helper.make_node("Relu", [here], [f"relu_{i}"]))
        here = f"relu_{i}"
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", 1, ["N", 8, 6, 6])],
        [helper.make_tensor_value_info(here, 1, ["N", 8, 6, 6])],
        initial,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


ROWS = "float[2, 3, 4] x, float[4, 5] w, float[5] c"
EQUAL: Mapping[str, tuple[str, str, str]] = {
    "one rule": (text("a = Relu(x) \n y = Relu(a)"), text("y = Relu(x)"), "exact"),
    "names of inputs and sizes": (text("y = Abs(x)"), text("y = Abs(z)", "float[batch, 4] z"), "exact"),
    "rounding": (
        text("a = MatMul(x, w) \n y = Relu(a)", "float[N, 4] x, float[4, 4] w"),
        text(
            "t = Transpose<perm = [1, 0]>(w) \n a = Gemm<transB = 1>(x, t) \n y = Relu(a)",
            "float[N, 4] x, float[4, 4] w",
        ),
        "real",
    ),
    "operands in another order": (
        text("a = Add(x, z) \n y = Mul(a, x)", "float[N, 4] x, float[N, 4] z"),
        text("a = Add(z, x) \n y = Mul(x, a)", "float[N, 4] x, float[N, 4] z"),
        "exact",
    ),
    "several outputs": (
        text("y = Relu(x) \n v = Neg(x)", outputs="float[N, 4] y, float[N, 4] v"),
        text(
            "a = Relu(x) \n y = Relu(a) \n b = Neg(x) \n c = Neg(b) \n v = Neg(c)",
            outputs="float[N, 4] y, float[N, 4] v",
        ),
        "exact",
    ),
    "rows viewed as a matrix": (
        text("a = MatMul(x, w) \n b = Add(c, a) \n y = Relu(b)", ROWS, "float[2, 3, 5] y"),
        text(
            "s = Constant<value_ints = [6, 4]>() \n t = Constant<value_ints = [2, -1, 5]>() \n r = Reshape(x, s) \n "
            "v = Transpose(w) \n m = Gemm<transB = 1>(r, v, c) \n n = Reshape(m, t) \n y = Relu(n)",
            ROWS,
            "float[2, 3, 5] y",
        ),
        "real",
    ),
    "normalized rows": (
        text("y = LayerNormalization(x, c)", "float[2, 3, 5] x, float[5] c", "float[2, 3, 5] y"),
        text(
            "s = Constant<value_ints = [6, 5]>() \n t = Constant<value_ints = [2, 3, 5]>() \n r = Reshape(x, s) \n "
            "m = LayerNormalization<axis = 1>(r, c) \n y = Reshape(m, t)",
            "float[2, 3, 5] x, float[5] c",
            "float[2, 3, 5] y",
        ),
        "real",
    ),
    "parts": (
        text("y, v = Split<axis = 1, num_outputs = 2>(x)", "float[N, 4] x", "float[N, 2] y, float[N, 2] v"),
        text(
            "z = Constant<value_ints = [0]>() \n h = Constant<value_ints = [-2]>() \n "
            "e = Constant<value_ints = [9223372036854775807]>() \n a = Constant<value_ints = [-1]>() \n "
            "y = Slice(x, z, h, a) \n v = Slice(x, h, e, a)",
            "float[N, 4] x",
            "float[N, 2] y, float[N, 2] v",
        ),
        "exact",
    ),
    "a mask that hides nothing": (
        text(
            "t = Constant<value = bool {1}>() \n l = Less(x, z) \n y = And(t, l)",
            "float[N, 4] x, float[N, 4] z",
            "bool[N, 4] y",
        ),
        text("y = Greater(z, x)", "float[N, 4] x, float[N, 4] z", "bool[N, 4] y"),
        "exact",
    ),
    "bodies": (
        text(
            "y = If(c) <then_branch = t () => (float[N, 4] a) { a = Relu(x) }, "
            "else_branch = e () => (float[N, 4] b) { b = Neg(x) }>",
            "float[N, 4] x, bool c",
        ),
        text(
            "k = Identity(x) \n z = If(c) <then_branch = one () => (float[N, 4] p) { p = Relu(k) }, "
            "else_branch = two () => (float[N, 4] q) { q = Neg(k) }> \n y = Identity(z)",
            "float[N, 4] x, bool c",
        ),
        "exact",
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_models_are_proven(name: str) -> None:
    a, b, numerics = EQUAL[name]
    for first, second in ((a, b), (b, a)):
        found = eqsat.prove(first, second)
        assert found.verdict == "equal", found
        assert found.numerics == numerics
        assert not found.places
        assert all(proven for _, _, proven in found.outputs)
        assert str(found).startswith("equal ")


@pytest.mark.parametrize(
    ("a", "b", "place"),
    [
        ("y = Relu(x)", "y = Abs(x)", ("y", "y")),
        ("a = Neg(x) \n b = Relu(a) \n y = Neg(b)", "a = Neg(x) \n b = Abs(a) \n y = Neg(b)", ("b", "b")),
        (
            "a = Neg(x) \n b = Softmax<axis = 0>(a) \n y = Neg(b)",
            "c = Neg(x) \n d = Softmax<axis = 1>(c) \n y = Neg(d)",
            ("b", "d"),
        ),
        ("y = Clip(x, )", "l = Constant<value_float = -50.0>() \n y = Max(x, l)", ("y", "y")),
    ],
)
def test_models_that_differ_are_told_apart_at_the_first_tensor(a: str, b: str, place: tuple[str, str]) -> None:
    found = eqsat.prove(text(a), text(b), samples=4)
    assert found.verdict == "different", found
    assert (found.places[0].first, found.places[0].second) == place
    example = found.counterexample
    assert example is not None and example.difference.index is not None and example.difference.values is not None
    # What is said of the input is true.
    left, right = eqsat.run(text(a), dict(example.inputs)), eqsat.run(text(b), dict(example.inputs))
    at = example.difference.index
    assert (str(left["y"][at]), str(right["y"][at])) == example.difference.values
    assert left["y"][at] != right["y"][at]


def test_a_folded_normalization_is_proven_in_each_layer() -> None:
    found = eqsat.prove(network(6, folded=False), network(6, folded=True))
    assert found.verdict == "equal"
    assert found.numerics == "real"
    assert [(j.first, j.second) for j in found.joints] == [(f"norm_{i}", f"conv_{i}") for i in range(6)]
    assert all("fold_batchnorm_into_conv" in j.rules for j in found.joints)


def test_the_size_of_the_e_graph_is_linear_in_the_model() -> None:
    few, many = (eqsat.prove(network(n, folded=False), network(n, folded=True)) for n in (4, 16))
    assert few.verdict == many.verdict == "equal"
    assert many.enodes <= 4 * few.enodes + 20


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("folded", [False, True])
def test_a_changed_weight_is_found_in_its_layer(layer: int, folded: bool) -> None:
    def change(i: int, found: dict[str, np.ndarray]) -> None:
        if i == layer:
            found["weight"][3, 1, 0, 2] += 0.1

    found = eqsat.prove(network(4, folded=False), network(4, folded=folded, change=change))
    assert found.verdict == "different"
    assert (found.places[0].first, found.places[0].second) == (f"conv_{layer}", f"conv_{layer}")


@pytest.mark.slow
def test_a_weight_that_changed_by_less_than_the_tolerance_is_not_proven() -> None:
    def change(i: int, found: dict[str, np.ndarray]) -> None:
        found["weight"][3, 1, 0, 2] += 2e-5 * (i == 1)

    found = eqsat.prove(network(3, folded=False), network(3, folded=False, change=change))
    assert found.verdict == "not proven"
    assert str(found) == "equal on 3 inputs, not proven"
    assert found.places[0].first == "conv_1"
    assert "operand 1" in found.places[0].reason


def scaled(number: str, rest: str = "y = Relu(z)", extra: str = "") -> str:
    return text(f"k = Constant<value = float {{{number}}}>() {extra} z = Mul(x, k) {rest}")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (scaled("0.1"), scaled("0.1"), "equal to the bit"),
        # Neighbouring floats, on their own and where the piece between two cuts has more than one operator.
        (scaled("0.1"), scaled("0.10000001"), "equal up to rounding"),
        (scaled("0.1", "y = Transpose(z)"), scaled("0.10000001", "y = Transpose(z)"), "equal up to rounding"),
        (
            text("y = Constant<value_floats = [0.1, 0.2]>()", outputs="float[2] y"),
            text("y = Constant<value_floats = [0.10000001, 0.2]>()", outputs="float[2] y"),
            "equal up to rounding",
        ),
        (
            scaled("0.25"),
            scaled("0.5", extra="h = Constant<value = float {0.5}>() k = Mul(q, h)").replace(
                "k = Constant", "q = Constant"
            ),
            "equal to the bit",
        ),
        # A number beside a larger one is not known less precisely.
        (
            scaled("1.0").replace("float {1.0}", "float[4] {1, 0.00000001, 1, 1}"),
            scaled("1.0").replace("float {1.0}", "float[4] {1, 0, 1, 1}"),
            "equal on 3 inputs, not proven",
        ),
    ],
)
def test_how_equal_constants_are_is_said(a: str, b: str, expected: str) -> None:
    for first, second in ((a, b), (b, a)):
        assert str(eqsat.prove(first, second)) == expected


@pytest.mark.parametrize("number", ["-10000.0", "-1000000000.0", "inf"])
def test_infinity_is_no_other_number(number: str) -> None:
    """A row that is hidden altogether is NaN with one, and the mean with the other."""
    a, b = (
        text(f"m = Constant<value = float {{{n}}}>() w = Where(b, x, m) y = Softmax(w)", "float[N, 4] x, bool[N, 4] b")
        for n in ("-inf", number)
    )
    assert eqsat.prove(a, b).verdict != "equal"


def test_a_threshold_that_moved_a_little_shows() -> None:
    a, b = (
        text(f"h = Constant<value = float {{{h}}}>() above = Greater(x, h) y = Cast<to=1>(above)") for h in (6, 6.01)
    )
    assert eqsat.prove(a, b).verdict == "different"


def test_values_that_are_equal_by_chance_prove_nothing() -> None:
    # All inputs that are drawn are far from the limit.
    a, b = text("y = Relu(x)"), text("l = Constant<value_float = 10000000.0>() \n r = Relu(x) \n y = Min(r, l)")
    found = eqsat.prove(a, b)
    assert found.verdict == "not proven"
    assert found.counterexample is None


@pytest.mark.slow
def test_a_rule_of_the_user_closes_the_gap(tmp_path: Any) -> None:
    a, b = (
        text("y = Softplus(x)"),
        text("e = Exp(x) \n o = Constant<value_float = 1.0>() \n s = Add(e, o) \n y = Log(s)"),
    )
    rules = tmp_path / "mine.rules"
    rules.write_text("rule softplus_is_log : real\n    Softplus(x) => Log(Add(Exp(x), 1.0))\n", "utf-8")
    alone = eqsat.prove(a, b, default_rules=False)
    assert alone.verdict == "not proven"
    assert alone.places[0].second == "e"
    found = eqsat.prove(a, b, default_rules=False, rules=[rules])
    assert found.verdict == "equal"
    assert found.joints[-1].rules == ("softplus_is_log",)
    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule abs_is_relu : exact\n    Abs(x) => Relu(x)\n", "utf-8")
    with pytest.raises(RuleError):
        eqsat.prove(text("y = Abs(x)"), text("y = Relu(x)"), rules=[wrong])


def test_rules_beyond_the_class_are_not_used() -> None:
    a, b = network(2, folded=False), network(2, folded=True)
    assert eqsat.prove(a, b, numerics="exact").verdict != "equal"


def test_results_of_eqsat_are_proven() -> None:
    source = network(3, folded=False)
    for targets in ((), ("dnnl",)):
        result = eqsat.optimize(source, targets=targets)
        assert eqsat.prove(source, result.model).verdict == "equal"


def test_sizes_of_one_model_bind_those_of_the_other() -> None:
    a, b = text("y = Relu(x)"), text("a = Relu(x) \n y = Relu(a)", "float[2, 4] x", "float[2, 4] y")
    found = eqsat.prove(a, b)
    assert found.verdict == "equal"
    assert any("`N` of the first model is 2" in note for note in found.notes)
    assert eqsat.prove(b, a).verdict == "equal"


@pytest.mark.parametrize(
    ("b", "message"),
    [
        (text("y = Relu(x)", "float[N, 5] x", "float[N, 5] y"), "inputs of equal type are required"),
        (text("y = Relu(x)", "float16[N, 4] x", "float16[N, 4] y"), "inputs of equal type are required"),
        (text("y = Add(x, z)", "float[N, 4] x, float[N, 4] z"), "equally many inputs"),
        (text("y = Relu(x) \n z = Abs(x)", outputs="float[N, 4] y, float[N, 4] z"), "equally many outputs"),
    ],
)
def test_models_that_cannot_be_compared_are_one_message(b: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        eqsat.prove(text("y = Relu(x)"), b)


FUSED = {
    "Relu": ("Relu(c)", ""),
    "LeakyRelu": ("LeakyRelu<alpha = 0.25>(c)", ", activation_params = [0.25]"),
    "HardSigmoid": ("HardSigmoid<alpha = 0.25, beta = 0.5>(c)", ", activation_params = [0.25, 0.5]"),
}


@pytest.mark.parametrize("activation", FUSED)
def test_fused_operators_of_onnx_runtime_are_what_they_fuse(activation: str) -> None:
    plain, parameters = FUSED[activation]
    inputs, outputs = "float[1, 2, 5, 5] x, float[3, 2, 3, 3] w, float[3] b, float[1, 3, 3, 3] z", "float[1, 3, 3, 3] y"
    a = text(f"c = Conv(x, w, b) \n y = {plain}", inputs, outputs)
    body = f'y = com.microsoft.FusedConv<activation = "{activation}"{parameters}>(x, w, b)'
    b = text(body, inputs, outputs).replace('"": 18', '"": 18, "com.microsoft": 1')
    found = eqsat.prove(a, b)
    # The values agree too: those of the fused operator come from a kernel of its own.
    assert found.verdict == "equal" and found.samples == 3 and not found.notes


def test_a_fused_sum_is_what_it_fuses() -> None:
    inputs, outputs = "float[1, 2, 5, 5] x, float[3, 2, 3, 3] w, float[3] b, float[1, 3, 3, 3] z", "float[1, 3, 3, 3] y"
    a = text("c = Conv(x, w, b) \n s = Add(c, z) \n y = Relu(s)", inputs, outputs)
    body = 'y = com.microsoft.FusedConv<activation = "Relu">(x, w, b, z)'
    b = text(body, inputs, outputs).replace('"": 18', '"": 18, "com.microsoft": 1')
    assert eqsat.prove(a, b).verdict == "equal"
    assert eqsat.prove(a, b.replace("Relu", "Tanh")).verdict == "different"


def test_results_for_generated_c_are_proven() -> None:
    source = network(2, folded=False)
    result = eqsat.optimize(source, host="c", dims={"N": 1})
    assert eqsat.prove(source, result.model, dims={"N": 1}).verdict == "equal"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "a", "b"),
    [
        ("rule cap : exact\n    Min(Relu(v), c)  =>  Relu(v)\n", "y = Relu(x)", "a = Relu(x) \n y = Min(a, c)"),
        ("rule cap : real\n    Min(v, c)  =>  v\n", "a = Abs(x) \n y = Sqrt(a)", "a = Min(d, c) \n y = Sqrt(a)"),
    ],
)
def test_values_refute_a_wrong_rule_and_name_it(rules: str, a: str, b: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.rules"
    file.write_text(rules, "utf-8")
    limit = "c = Constant<value_float = 40.0>() \n d = Abs(x) \n "
    found = eqsat.prove(text(a), text(limit + b), rules=[file], trust=True, samples=5)
    assert found.verdict == "different" and found.counterexample is not None
    assert not any(proven for _, _, proven in found.outputs)
    assert "cap" in found.places[0].reason


@pytest.mark.slow
def test_a_difference_that_rounding_explains_refutes_no_rule(tmp_path: Path) -> None:
    sum_and_difference = text("c = Constant<value_float = 300.0>() \n s = Mul(x, x) \n a = Add(s, c) \n y = Sub(a, c)")
    file = tmp_path / "mine.rules"
    file.write_text("rule cancel : real\n    Sub(Add(x, c), c)  =>  x\n", "utf-8")
    found = eqsat.prove(sum_and_difference, text("y = Mul(x, x)"), rules=[file], trust=True, samples=5)
    assert found.verdict == "equal" and found.counterexample is None
    assert any("rounding" in note for note in found.notes)


def merged(width: int, heads: int) -> tuple[bytes, bytes]:
    """Queries, keys and values by three products, or by one that is split, and the attention as one operator."""
    rng = np.random.default_rng(width)
    parts = [rng.standard_normal((width, width)).astype(np.float32) for _ in range(3)]
    found = []
    for fused in (False, True):
        initial = {"shape": np.array([0, 0, heads, -1]), "flat": np.array([0, 0, width])}
        nodes: Nodes = []
        if fused:
            initial["w"] = np.concatenate(parts, axis=1)
            initial["sizes"] = np.array([width] * 3)
            nodes += [
                helper.make_node("MatMul", ["x", "w"], ["p"]),
                helper.make_node("Split", ["p", "sizes"], ["q", "k", "v"], axis=2),
                helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], num_heads=heads, domain="com.microsoft"),
            ]
        else:
            initial["scale"] = np.float32((width / heads) ** -0.5)
            for name, part in zip("qkv", parts, strict=True):
                initial[f"w{name}"] = part
                order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
                nodes += [
                    helper.make_node("MatMul", ["x", f"w{name}"], [f"p{name}"]),
                    helper.make_node("Reshape", [f"p{name}", "shape"], [f"r{name}"]),
                    helper.make_node("Transpose", [f"r{name}"], [name], perm=order),
                ]
            nodes += [
                helper.make_node("MatMul", ["q", "k"], ["s"]),
                helper.make_node("Mul", ["s", "scale"], ["m"]),
                helper.make_node("Softmax", ["m"], ["a"]),
                helper.make_node("MatMul", ["a", "v"], ["o"]),
                helper.make_node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
                helper.make_node("Reshape", ["t", "flat"], ["y"]),
            ]
        ends = [helper.make_tensor_value_info(name, 1, [2, 5, width]) for name in "xy"]
        tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in initial.items()]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        found.append(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())
    return found[0], found[1]


def test_a_fused_operator_that_spans_cuts_is_proven() -> None:
    found = eqsat.prove(*merged(12, 3))
    assert found.verdict == "equal" and found.numerics == "real", found.places


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted((rules_dir() / "proofs").glob("*.rules")), ids=lambda file: file.stem)
def test_the_rules_of_proofs_hold(file: Path) -> None:
    outcomes = eqsat.check_rules(file, samples=20)
    assert not [str(o) for o in outcomes if o.verdict == "refuted"]
    assert sum(o.verdict == "holds" for o in outcomes) >= 0.8 * len(outcomes)


def test_inputs_of_different_kinds_are_refused() -> None:
    tensor = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    sequence = """<ir_version: 10, opset_import: ["": 21]>
        g (seq(float[2]) x) => (float[2] y) { i = Constant<value_int=0>() s = SequenceAt(x, i) y = Relu(s) }"""
    with pytest.raises(ModelError, match="input 'x': inputs of equal type are required; got a tensor and a sequence"):
        eqsat.prove(tensor, sequence)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("m = Constant<value_float=16777216.>() y = Add(x, m)", "m = Constant<value_float=16777218.>() y = Add(x, m)"),
        ("m = Constant<value_float=6.>() y = Min(x, m)", "m = Constant<value_float=6.0000005>() y = Min(x, m)"),
    ],
)
def test_constants_that_differ_by_rounding_are_not_equal_to_the_bit(first: str, second: str) -> None:
    head = '<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y) '
    models = [f"{head}{{ {body} }}" for body in (first, second)]
    assert eqsat.prove(*models).verdict == "equal"
    assert eqsat.prove(*models, numerics="exact").verdict != "equal"
    assert eqsat.prove(models[0], models[0], numerics="exact").verdict == "equal"
