"""A tutorial on Relax's dataflow patterns (DPL): ``rewrite_call`` with its five examples.

x + x to 2x and 4x, a rewrite that changes nothing, attention, a constant on either side of a commutative operator, and
a product distributed over a sum until nothing changes. Where the document's rewrite is wrong, the test says how far.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.check.rule import check_rule
from eqsat.rules.ast import Rule
from eqsat.search import Search
from tests.seeds.helpers import check_values, dear, listing, operators, rule, rules

# ---- x + x -------------------------------------------------------------------------------------------

TWICE = "rule twice : exact\n    x + x  =>  x * 2\n"
FOUR_TIMES = "rule four_times : exact\n    let s = x + x\n    s + s  =>  x * 4\n"
MERGE = "rule merge : real\n    (x * c) * d  =>  x * (c * d)\n    where const(c, d)\n"


def doubled() -> ir.Model:
    x = eqsat.input("x", (16, 16))
    x2 = x + x
    return eqsat.graph({"x4": x2 + x2})


def test_x_plus_x_is_two_x(tmp_path: Path) -> None:
    result = eqsat.optimize(doubled(), targets=[dear(tmp_path, "Add")], rules=rules(TWICE), default_rules=False)
    first, second = (line.partition(" = ")[2] for line in listing(result.model.graph))
    assert first == "Mul(x, 2)" and second.startswith("Mul(") and second.endswith(", 2)")
    check_values(doubled(), result, rtol=0)


@pytest.mark.parametrize("order", list(itertools.permutations([TWICE, FOUR_TIMES])), ids=["2 then 4", "4 then 2"])
def test_four_x_whatever_comes_first(order: tuple[str, ...]) -> None:
    # With the first rule first, TVM rewrites both sums to products and no longer finds the second pattern.
    result = eqsat.optimize(doubled(), rules=rules("\n".join(order)), default_rules=False)
    assert listing(result.model.graph) == ["x4 = Mul(x, 4)"]
    check_values(doubled(), result, rtol=0)


@pytest.mark.parametrize("asked", [rules(TWICE + MERGE), None], ids=["two rules", "shipped rules"])
def test_four_x_without_a_rule_for_it(asked: list[Rule] | None) -> None:
    result = eqsat.optimize(doubled(), rules=asked or [], default_rules=asked is None)
    assert listing(result.model.graph) in (["x4 = Mul(x, 4)"], ["x4 = Mul(4, x)"])
    check_values(doubled(), result, rtol=0)


def test_sums_of_two_separate_equal_values() -> None:
    # A binding of its own for each operand: two expressions that are one value. Relax misses them.
    x = eqsat.input("x", (16, 16))
    model = eqsat.graph(op.Exp(x) + op.Exp(x))
    assert operators(model.graph) == ["Exp", "Exp", "Add"]
    result = eqsat.optimize(model, rules=rules(TWICE), default_rules=False)
    assert operators(result.model.graph)[0] == "Exp" and len(result.model.graph) == 2
    check_values(model, result, rtol=4e-7)


@pytest.mark.slow
def test_a_rewrite_that_changes_nothing(tmp_path: Path) -> None:
    model = doubled()
    result = eqsat.optimize(model, rules=rules("rule same : exact\n    x + y  =>  x + y"), default_rules=False)
    alone = eqsat.optimize(model, default_rules=False)
    result.save(tmp_path / "a.onnx")
    alone.save(tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert listing(result.model.graph) == listing(model.graph)
    assert result.summary.saturation.stop_reason == "saturated"
    check_values(model, result, rtol=0)


# ---- attention ---------------------------------------------------------------------------------------

SCALE = 0.15811388194561005
_ATTENTION = """
rule attention : real
    # From [batch, sequence, heads, size] to [batch * heads, sequence, size], and back.
    let b = q.shape[0]
    let n = q.shape[1]
    let h = q.shape[2]
    let d = q.shape[3]
    let m = k.shape[1]
    let qh = Reshape(Transpose(q, perm=[0, 2, 1, 3]), [b * h, n, d])
    let kh = Reshape(Transpose(k, perm=[0, 2, 1, 3]), [b * h, m, d])
    let vh = Reshape(Transpose(v, perm=[0, 2, 1, 3]), [b * h, m, v.shape[3]])
    let weights = Softmax((qh @ Transpose(kh, perm=[0, 2, 1])) * s, axis=2)
    y: Transpose(Reshape(weights @ vh, [b, h, n, v.shape[3]]), perm=[0, 2, 1, 3])
        =>  Reshape(Attention(ARGUMENTS, q_num_heads=h, kv_num_heads=h), y.shape)
    let flat(t) = Reshape(t, [0, 0, -1])
    where const(s), s.rank == 0, s.value > 0, q.dtype in floats, k.shape[2] == h, v.shape[2] == h,
          k.shape[0] == b, v.shape[0] == b
"""
RIGHT = _ATTENTION.replace("ARGUMENTS", "flat(q), flat(k), flat(v), scale=s.value")
AS_DOCUMENTED = _ATTENTION.replace("ARGUMENTS", "flat(q), flat(v), flat(k)")
"""``R.nn.attention(Q, V, K, scale=None)``: the pattern binds what it calls V where the keys are."""


def attention_block(sequence: int = 96, scale: float = SCALE) -> ir.Model:
    b, n, h, d = 2, sequence, 8, 40
    q, k, v = (eqsat.input(name, (b, n, h, d)) for name in "QKV")

    def by_head(t: eqsat.model.expression.Tensor) -> eqsat.model.expression.Tensor:
        return op.Reshape(op.Transpose(t, perm=[0, 2, 1, 3]), [b * h, n, d])

    lv59, lv62, lv65 = by_head(q), by_head(k), by_head(v)
    lv68 = op.MatMul(lv59, op.Transpose(lv62, perm=[0, 2, 1])) * np.float32(scale)
    lv3 = op.MatMul(op.Softmax(lv68, axis=-1), lv65)
    return eqsat.graph({"lv72": op.Transpose(op.Reshape(lv3, [b, h, n, d]), perm=[0, 2, 1, 3])})


def attention(model: ir.Model) -> ir.Node:
    (found,) = (node for node in model.graph if node.op_type == "Attention")
    return found


def operands(node: ir.Node) -> list[str | None]:
    """The graph inputs that a node's operands come from, reshaped or not."""
    inputs = [v for v in node.inputs if v is not None]
    return [(v.producer().inputs[0] if v.producer() else v).name for v in inputs]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [SCALE, 0.3])
def test_attention_with_its_operands_in_order_and_its_scale(scale: float) -> None:
    model = attention_block(scale=scale)
    result = eqsat.optimize(model, rules=rules(RIGHT), default_rules=False)
    assert operators(result.model.graph) == ["Reshape", "Reshape", "Reshape", "Attention", "Reshape"]
    node = attention(result.model)
    assert operands(node) == ["Q", "K", "V"]
    assert node.attributes["scale"].as_float() == np.float32(scale)
    check_values(model, result, rtol=2e-5)


@pytest.mark.slow
def test_attention_at_the_documents_size() -> None:
    result = eqsat.optimize(attention_block(4096), rules=rules(RIGHT), default_rules=False)
    assert operands(attention(result.model)) == ["Q", "K", "V"]
    assert [tuple(v.shape or ()) for v in result.model.graph.outputs] == [(2, 4096, 8, 40)]
    assert result.cost < result.baseline_cost and result.stop_reason == "optimal"


@pytest.mark.slow
def test_other_softmax_axes_are_no_attention() -> None:
    x = [eqsat.input(name, (4, 6, 5)) for name in "qkv"]
    scores = op.MatMul(x[0], op.Transpose(x[1], perm=[0, 2, 1])) * np.float32(SCALE)
    model = eqsat.graph(op.MatMul(op.Softmax(scores, axis=1), x[2]))
    result = eqsat.optimize(model, rules=rules(RIGHT + CORE_RIGHT.replace("attention", "core")), default_rules=False)
    assert "Attention" not in operators(result.model.graph)
    check_values(model, result)


def test_the_documents_attention_is_wrong() -> None:
    model = attention_block()
    with pytest.raises(eqsat.errors.VerificationError, match="`attention`"):
        eqsat.optimize(model, rules=rules(AS_DOCUMENTED), default_rules=False, trust=True)
    result = eqsat.optimize(model, rules=rules(AS_DOCUMENTED), default_rules=False, trust=True, verify=False)
    assert operands(attention(result.model)) == ["Q", "V", "K"]
    found = eqsat.compare(model, result.model)
    assert not found.agrees and found.outputs[0].max_abs_error > 1
    # In order but without scale, it is right for the usual scale alone: that is what the operator takes by default.
    unscaled = rules(_ATTENTION.replace("ARGUMENTS", "flat(q), flat(k), flat(v)"))
    assert eqsat.compare(model, eqsat.optimize(model, rules=unscaled, default_rules=False, trust=True).model).agrees
    other = attention_block(scale=0.3)
    assert not eqsat.compare(
        other, eqsat.optimize(other, rules=unscaled, default_rules=False, trust=True, verify=False).model
    ).agrees


_CORE = """
rule attention : real
    # The same without heads.
    Softmax((q @ Transpose(k, perm=[0, 2, 1])) * s, axis=2) @ v
        =>  Attention(ARGUMENTS, q_num_heads=1, kv_num_heads=1)
    where const(s), s.rank == 0, CONDITION, q.dtype in floats, q.rank == 3, v.rank == 3,
          k.shape[0] == q.shape[0], v.shape[0] == q.shape[0]
"""
CORE_RIGHT = _CORE.replace("ARGUMENTS", "q, k, v, scale=s.value").replace("CONDITION", "s.value > 0")


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        ("q, v, k", "s.value > 0"),
        ("q, v, k, scale=s.value", "s.value > 0"),
        ("q, k, v", "s.value > 0"),
        # ONNX's operator multiplies both factors with the root of the scale.
        ("q, k, v, scale=s.value", "s.value < 0"),
    ],
    ids=["as documented", "swapped", "without scale", "negative scale"],
)
def test_the_checker_refuses_it_with_a_counterexample(arguments: str, condition: str) -> None:
    wrong = rule(_CORE.replace("ARGUMENTS", arguments).replace("CONDITION", condition))
    outcome = check_rule(wrong)
    assert outcome.counterexamples and outcome.counterexamples[0].kind == "value"
    text = str(outcome.counterexamples[0])
    assert "rule attention : real is wrong (value)" in text and "elements differ" in text and "Attention<" in text


@pytest.mark.slow
def test_the_checker_accepts_the_right_one() -> None:
    outcome = check_rule(rule(CORE_RIGHT))
    assert outcome.instances >= 10 and not outcome.counterexamples and not outcome.mismatches


# ---- the commutative constant --------------------------------------------------------------------------


def one_plus() -> ir.Model:
    x = eqsat.input("x", (1024,))
    return eqsat.graph({"out": np.float32(1) + (x + x)})


def test_a_constant_on_either_side_is_matched() -> None:
    """1 becomes 2 in the document, to show that ``add(const, x)`` matches. The checker refutes it."""
    replace = rule("rule replace : real\n    (op: Add | Mul)(x, 1)  =>  op(x, 2)")
    search = Search.of(one_plus(), rules=[replace], default_rules=False)
    (statistics,) = search.saturation.statistics
    assert statistics.applied == 1 and search.saturation.stop_reason == "saturated"
    programs = [search.extract("random", seed, verify=False) for seed in range(20)]
    (replaced,) = {tuple(lines) for p in programs if (lines := listing(p.model.graph))[-1] != "out = Add(1, add)"} - {
        tuple(listing(one_plus().graph))
    }
    assert replaced[-1] in ("out = Add(add, 2)", "out = Add(2, add)")
    wrong = next(p for p in programs if tuple(listing(p.model.graph)) == replaced)
    found = eqsat.compare(one_plus(), wrong.model)
    assert not found.agrees and found.outputs[0].max_abs_error == pytest.approx(1)
    assert check_rule(replace).counterexamples


@pytest.mark.parametrize("constant_first", [True, False])
@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_a_sound_rewrite_of_a_constant_on_either_side(name: str, constant_first: bool, tmp_path: Path) -> None:
    text = {
        "Add": "rule away : exact\n    x + 1  =>  x - -1\n",
        "Mul": "rule away : exact\n    x * 1  =>  x\n    where x.rank >= 1\n",
    }
    x = eqsat.input("x", (1024,))
    y, one = op.Exp(x), np.float32(1)
    model = eqsat.graph(getattr(op, name)(one, y) if constant_first else getattr(op, name)(y, one))
    result = eqsat.optimize(model, targets=[dear(tmp_path, name)], rules=rules(text[name]), default_rules=False)
    assert operators(result.model.graph) == (["Exp", "Sub"] if name == "Add" else ["Exp"])
    check_values(model, result, rtol=1e-6)


# ---- distribution to a fixed point ---------------------------------------------------------------------

DISTRIBUTE = "rule distribute : real\n    (x + y) * c  =>  x * c + y * c\n    where const(c)\n"
FACTOR = "rule factor : real\n    x * c + y * c  =>  (x + y) * c\n    where const(c)\n"
SWAP = "rule swap : exact\n    x + y  =>  y + x\n"


def sum_times_five() -> ir.Model:
    x, y, z = (eqsat.input(name, (1024,)) for name in "xyz")
    return eqsat.graph({"out": ((x + y) + z) * np.float32(5)})


@pytest.mark.parametrize("text", [DISTRIBUTE, DISTRIBUTE + FACTOR, FACTOR + DISTRIBUTE + SWAP])
def test_distribution_to_a_fixed_point(text: str) -> None:
    # TVM never ends with a rule and its inverse, nor with a + b -> b + a.
    search = Search.of(sum_times_five(), rules=rules(text), default_rules=False)
    assert search.saturation.stop_reason == "saturated"
    # All spellings are there: the document's is the dearest of them, the input's own the cheapest.
    dearest, best = search.extract("worst"), search.extract("best")
    assert sorted(operators(dearest.model.graph)) == ["Add", "Add", "Mul", "Mul", "Mul"]
    products = [line.partition(" = ")[2] for line in listing(dearest.model.graph) if "= Mul(" in line]
    assert sorted(products) == ["Mul(x, 5)", "Mul(y, 5)", "Mul(z, 5)"]
    assert [n.op_type for n in dearest.model.graph][-1] == "Add"
    assert operators(best.model.graph) == ["Add", "Add", "Mul"]
    check_values(sum_times_five(), dearest, best, rtol=1e-6)


def test_the_factored_form_comes_back_from_the_distributed_one() -> None:
    x, y, z = (eqsat.input(name, (1024,)) for name in "xyz")
    five = np.float32(5)
    model = eqsat.graph({"out": (x * five + y * five) + z * five})
    for asked in (rules(FACTOR), None):
        result = eqsat.optimize(model, rules=asked or [], default_rules=asked is None)
        assert operators(result.model.graph) == ["Add", "Add", "Mul"]
        check_values(model, result, rtol=1e-6)
