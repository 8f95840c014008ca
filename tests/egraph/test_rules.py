"""What rules do to the e-graph: which classes hold which operators after saturation."""

from __future__ import annotations

import time

import numpy as np
import pytest

from eqsat.egraph.engine import TimeUp
from eqsat.egraph.limits import LastGuard, Limits
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.rules.reader import read_text
from tests.egraph.helpers import model, operators, read, saturated

NPU = """
    target npu
        summary "test"
        peak float32 = 1e9
        bandwidth = 1e9, launch = 1e-6
        link bandwidth = 1e9, latency = 1e-6"""


def test_both_doublings_are_found_whatever_comes_first():
    graph = model("a = Add(x, x)\nout = Add(a, a)", "float[4] x")
    rules = [
        "rule twice : exact\n  x + x => 2 * x",
        "rule four : exact\n  (x + x) + (x + x) => 4 * x",
    ]
    for order in (rules, rules[::-1]):
        snap = read(graph, "\n".join(order))
        eclass = snap.refs[graph.graph.outputs[0]]
        products = [snap.nodes[n] for n in snap.classes[eclass] if str(snap.nodes[n].op) == "Mul"]
        factors = {float(v.numpy()) for n in products for c in n.children if c is not None and (v := snap.value[c])}
        assert factors == {2.0, 4.0}


def test_numbers_take_the_type_of_their_neighbours():
    for dtype, kind in (("float", np.float32), ("double", np.float64), ("int32", np.int32)):
        graph = model("out = Add(x, x)", f"{dtype}[4] x", f"{dtype}[4] out")
        snap = read(graph, "rule r : exact\n  x + x => 2 * x")
        (two,) = [v for v in snap.value if v is not None]
        assert two.numpy().dtype == kind
        assert two.numpy() == 2


def test_a_number_on_the_left_matches_constants_equal_to_it_everywhere():
    for text, matches in (
        ("float {1}", True),
        ("float[4] {1,1,1,1}", True),
        ("float[4] {1,1,2,1}", False),
        ("float {2}", False),
    ):
        graph = model(f"c = Constant <value = {text}> ()\nout = Mul(x, c)", "float[4] x")
        assert operators(read(graph, "rule r : exact\n  x * 1 => x"), graph) == (
            {"Mul", "input"} if matches else {"Mul"}
        )


def test_a_right_side_of_another_type_is_counted_and_never_enters():
    graph = model("c = Constant <value = float[1,1] {1}> ()\nout = Mul(x, c)", "float[4] x", "float[1,4] out")
    saturation = saturated(graph, "rule r : exact\n  x * 1 => x")
    (statistics,) = saturation.statistics
    assert statistics.mismatches == 1
    assert "float[1, 4]" in statistics.mismatch
    assert "float[4]" in statistics.mismatch
    assert operators(snapshot(saturation), graph) == {"Mul"}


def test_attributes_bind_and_compute():
    graph = model(
        "a = Transpose <perm = [1,2,0]> (x)\nout = Transpose <perm = [0,2,1]> (a)", "float[2,3,4] x", "float[3,2,4] out"
    )
    snap = read(
        graph, "rule r : exact\n  Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=[p[i] for i in q])"
    )
    eclass = snap.refs[graph.graph.outputs[0]]
    perms = {dict(snap.nodes[n].attrs)["perm"] for n in snap.classes[eclass]}
    assert perms == {(0, 2, 1), (1, 0, 2)}


def test_conditions_look_at_shapes_values_and_attributes():
    rule = "rule r : exact\n  Clip(x, low, high) => Relu(x)\n  where low.value == 0, high.value >= 6, x.rank == 1"
    for high, inputs, fires in (("7", "float[4] x", True), ("5", "float[4] x", False), ("7", "float[1,4] x", False)):
        shape = inputs.removesuffix(" x")
        graph = model(
            f"l = Constant <value = float {{0}}> ()\nh = Constant <value = float {{{high}}}> ()\nout = Clip(x, l, h)",
            inputs,
            f"{shape} out",
        )
        assert ("Relu" in operators(read(graph, rule), graph)) is fires


def test_an_absent_operand_is_neutral_in_sums():
    rule = "rule r : real\n  (y: Conv(x, w, b?)) + c => Conv(x, w, b + Reshape(c, [-1]), **y)\n  where const(w, c)"
    constants = "w = Constant <value = float[2,1,1] {1, 2}> ()\nc = Constant <value = float[1,2,1] {3, 4}> ()\n"
    bias = "b = Constant <value = float[2] {10, 20}> ()\n"
    for nodes, expected in (
        (constants + "a = Conv(x, w)\nout = Add(a, c)", [3, 4]),
        (constants + bias + "a = Conv(x, w, b)\nout = Add(a, c)", [13, 24]),
    ):
        graph = model(nodes, "float[1,1,5] x", "float[1,2,5] out")
        snap = read(graph, rule)
        eclass = snap.refs[graph.graph.outputs[0]]
        (conv,) = [snap.nodes[n] for n in snap.classes[eclass] if str(snap.nodes[n].op) == "Conv"]
        value = snap.value[conv.children[2]]
        assert value is not None
        assert value.numpy().tolist() == expected


def test_several_roots_at_once():
    graph = model(
        "u = Constant <value = float[2,1] {1, 2}> ()\nv = Constant <value = float[2,2] {1, 2, 3, 4}> ()\n"
        "a = MatMul(x, u)\nb = MatMul(x, v)\nout = Concat <axis = 1> (a, b)",
        "float[3,2] x",
        "float[3,3] out",
    )
    rule = """
    rule share : real
        a = MatMul(x, u), b = MatMul(x, v)
            => (a, b) = Split(MatMul(x, Concat(u, v, axis=1)), axis=1, split=[u.shape[1], v.shape[1]])
        where const(u, v), u.rank == 2, v.rank == 2
    """
    snap = read(graph, rule)
    splits = [n for n in snap.nodes if str(n.op) == "Split"]
    assert splits
    assert all(n.outputs == 2 for n in splits)
    products = [n for n in snap.nodes if str(n.op) == "MatMul"]
    assert {str(snap.types[n.eclass]) for n in products} >= {"float[3, 3]", "float[3, 1]", "float[3, 2]"}


def test_the_rest_of_a_variadic_operator():
    graph = model("out = Sum(x, y, x, y)")
    snap = read(
        graph, "rule r : real\n  Sum(a, b, c, rest...) => Sum(a + b, c, rest...)\nrule s : exact\n  Sum(a, b) => a + b"
    )
    arities = {len(n.children) for n in snap.nodes if str(n.op) == "Sum"}
    assert arities == {4, 3, 2}
    assert "Add" in operators(snap, graph)


def test_operators_as_variables():
    graph = model("a = Transpose <perm = [1,0]> (x)\nb = Sigmoid(a)\nout = Relu(b)", "float[2,3] x", "float[3,2] out")
    rule = "rule r : exact\n  (f: Relu | Sigmoid)(Transpose(x, perm=p)) => Transpose(f(x), perm=p)"
    assert operators(read(graph, rule), graph) == {"Relu", "Transpose"}


def test_alternatives_and_optional_nodes():
    rule = "rule r : exact\n  Relu(maybe(Neg)(x)) | Sigmoid(x) => Abs(x)"
    for body in ("out = Relu(x)", "n = Neg(x)\nout = Relu(n)", "out = Sigmoid(x)"):
        graph = model(body, "float[4] x")
        assert "Abs" in operators(read(graph, rule), graph)


def test_outputs_of_a_tuple_match_by_index():
    graph = model(
        "a, b = Split <axis = 0, num_outputs = 2> (x)\nc = Relu(b)\nout = Concat <axis = 0> (a, c)", "float[4] x"
    )
    snap = read(graph, "rule r : exact\n  Relu(Split(x)[1]) => Abs(Split(x, num_outputs=2)[1])\n  where x.rank == 1")
    assert any(str(n.op) == "Abs" for n in snap.nodes)
    snap = read(graph, "rule r : exact\n  Relu(Split(x)[0]) => Abs(x)")
    assert not any(str(n.op) == "Abs" for n in snap.nodes)


def test_provenance_names_the_rule_that_came_first_and_leaves_the_models_own():
    graph = model("a = Add(x, x)\nout = Relu(a)", "float[4] x")
    snap = read(graph, "rule first : exact\n  x + x => 2 * x\nrule second : exact\n  2 * x => x + x")
    made = {str(n.op): snap.rules[n.rule] for n in snap.nodes if n.kind == "op"}
    assert made == {"Add": "", "Relu": "", "Mul": "first"}


def test_a_composite_is_one_more_way_to_compute_its_root():
    composite = """
        composite add_act : exact
            (act: Relu | Sigmoid)(x + y)
            where x.dtype == float32
    """
    graph = model("a = Add(x, y)\nb = Sigmoid(a)\nout = Mul(a, b)")
    snap = read(graph, targets=NPU + composite)
    (node,) = [n for n in snap.nodes if n.kind == "composite"]
    assert str(node.op) == "npu.add_act"
    assert node.composite is not None
    assert [str(n.op) for n in node.composite.body.nodes] == ["Add", "Sigmoid"]
    assert node.composite.leaves == ("x", "y")


def test_an_exploding_rule_is_held_back_and_named():
    terms = "\n".join(f"t{i} = Add(t{i - 1}, x{i})" for i in range(2, 9))
    inputs = ", ".join(f"float[4] x{i}" for i in range(9))
    graph = model(f"t1 = Add(x0, x1)\n{terms}\nout = Relu(t8)", inputs)
    rules = "rule associate : real\n  (x + y) + z => x + (y + z)\nrule relu : exact\n  Relu(x) => Max(x, 0)"
    saturation = saturated(graph, rules, Limits(iterations=12, nodes=100_000, matches=200))
    by_name = {s.name: s for s in saturation.statistics}
    assert by_name["associate"].held_back > 0
    assert by_name["relu"].held_back == 0
    assert operators(snapshot(saturation), graph) == {"Relu", "Max"}


def test_limits_and_stop_reasons():
    graph = model("a = Add(x, y)\nb = Add(a, x)\nc = Add(b, y)\nout = Add(c, x)")
    rules = "rule associate : real\n  (x + y) + z => x + (y + z)"
    assert saturated(graph, rules).stop_reason == "saturated"
    assert saturated(graph, rules, Limits(iterations=1)).stop_reason == "iteration limit"
    assert saturated(graph, rules, Limits(nodes=1)).stop_reason == "node limit"
    assert saturated(graph, rules, Limits(work=0.0)).stop_reason == "work limit"


def test_only_a_process_that_runs_ends_rounds_early(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = model("a = Add(x, y)\nb = Add(a, x)\nc = Add(b, y)\nout = Add(c, x)")
    rules = read_text("rule associate : real\n  (x + y) + z => x + (y + z)", "test.rules").rules

    def ended(elapsed: float, running: float) -> tuple[str, int, int]:
        """How rounds end if so many seconds have passed, and in so many of them this process has run."""
        saturation = Saturation(graph, rules, [], guard=LastGuard(60.0))
        with monkeypatch.context() as patch:
            clock, cpu = time.perf_counter() + elapsed, time.process_time() + running
            patch.setattr(time, "perf_counter", lambda: clock)
            patch.setattr(time, "process_time", lambda: cpu)
            saturation.run()
        return saturation.stop_reason, saturation.iterations, saturation.enodes

    idle = ended(0.0, 0.0)
    assert idle[0] == "saturated"
    assert ended(1000.0, 0.0) == idle, "other programs keep it from running"
    assert ended(40.0, 40.0)[:2] == ("time limit", 1)
    with pytest.raises(TimeUp):
        ended(100.0, 100.0)


def test_work_is_the_same_in_each_run_and_ends_rounds() -> None:
    graph = model("a = Add(x, y)\nb = Add(a, x)\nc = Add(b, y)\nout = Add(c, x)")
    rules = "rule associate : real\n  (x + y) + z => x + (y + z)"
    whole = saturated(graph, rules)
    assert saturated(graph, rules).work == whole.work > 0
    assert saturated(graph, rules, Limits(work=whole.work)).stop_reason == "saturated"
    part = saturated(graph, rules, Limits(work=whole.work / 2))
    assert (part.stop_reason, 0 < part.iterations < whole.iterations) == ("work limit", True)


def test_products_with_zero_do_not_breed():
    body = ["z = Constant <value = float {0}> ()", "p0 = Mul(x, z)"]
    body += [f"p{i} = Mul(p{i - 1}, {'xy'[i % 2]})" for i in range(1, 12)]
    graph = model("\n".join([*body, "out = Add(p11, y)"]))
    rules = "rule zero : real\n  x * 0 => 0\nrule move : real\n  (x * c) * y => (x * y) * c\n  where const(c)"
    saturation = saturated(graph, rules)
    assert saturation.stop_reason == "saturated"
    assert saturation.enodes < 40


def test_raw_egglog_runs_beside_the_rules():
    graph = model("a = Neg(x)\nout = Neg(a)", "float[4] x")
    raw = ["(rule ((= e (Neg_1 a (Neg_1 b x)))) ((union e x)) :ruleset user)"]
    assert operators(read(graph, raw=raw), graph) == {"Neg", "input"}


@pytest.mark.parametrize("numerics", ["exact", "lsb", "real"])
def test_numerics_gate_the_shipped_rules(numerics):
    from eqsat.rules.selection import select_rules

    kinds = {r.numerics.kind for r in select_rules((), numerics, default_rules=True).rules}
    assert kinds == {"exact": {"exact"}, "lsb": {"exact", "lsb"}, "real": {"exact", "lsb", "real"}}[numerics]


def test_outputs_of_one_pattern_are_outputs_of_one_node():
    rule = """
    rule r : exact
        r: Concat(Split(x, s?, axis=a)[0], Split(x, s?, axis=a)[1], axis=a)  =>  x
        where r.shape == x.shape
    """
    mixed = "a, b = Split <axis = 0, num_outputs = 2> (x)\nc, d, e = Split <axis = 0, num_outputs = 3> (x)\n"
    graph = model(
        mixed + "out = Concat <axis = 0> (a, d)\no2 = Concat <axis = 0> (a, b)",
        "float[3] x",
        "float[3] out, float[3] o2",
    )
    snap = read(graph, rule)
    assert operators(snap, graph, 0) == {"Concat"}
    assert operators(snap, graph, 1) == {"Concat", "input"}


def test_a_composite_may_use_several_outputs_of_a_node():
    composite = """
        composite glu : exact
            Split(x, s?, axis=a)[0] * Sigmoid(Split(x, s?, axis=a)[1])
    """
    graph = model(
        "a, b = Split <axis = 0, num_outputs = 2> (x)\nc = Sigmoid(b)\nout = Mul(a, c)", "float[4] x", "float[2] out"
    )
    (node,) = [n for n in read(graph, targets=NPU + composite).nodes if n.kind == "composite"]
    assert node.composite is not None
    body = node.composite.body
    assert [(str(n.op), n.inputs, n.outputs) for n in body.nodes] == [
        ("Split", (0,), 2),
        ("Sigmoid", (2,), 1),
        ("Mul", (1, 3), 1),
    ]


def test_many_matches_of_many_rules():
    """The 12th fact of the second rule and the 2nd of the twelfth are told apart."""
    body = "".join(f"t{i} = LeakyRelu<alpha={i / 16}>(x)  " for i in range(1, 14))
    graph = model(f"{body} out = Sum({', '.join(f't{i}' for i in range(1, 14))})")
    rules = "\n".join(
        f"rule r{k} : real\n    LeakyRelu(x, alpha=a)  =>  Max(x, x * a)\n    where a < 1 + {k}" for k in range(12)
    )
    snap = read(graph, rules)
    assert sum(node.op.name == "Max" for node in snap.nodes) >= 13


def test_outputs_of_an_operator_whose_later_outputs_are_optional():
    graph = model(
        "a = Abs(x)\nb = Relu(a)\ny, i = MaxPool <kernel_shape = [2]> (b)\nc = Cast <to = 1> (i)\nout = Add(y, c)",
        "float[1,2,8] x",
        "float[1,2,7] out",
    )
    rule = """
    rule through : exact
        (y, i) = p: MaxPool(Relu(x))  =>  (y, i) = MaxPool(x, **p)
    """
    snap = read(graph, rule)
    pools = [n for n in snap.nodes if str(n.op) == "MaxPool" and n.outputs == 2]
    assert len({n.children for n in pools}) == 2


def test_a_name_may_be_read_before_the_node_that_it_names():
    graph = model("a = Relu(x)\nb = Sigmoid(a)\nout = Add(b, a)", "float[4] x", "float[4] out")
    text = f"""{NPU}
        composite later : exact
            d = Sigmoid(s), s = Relu(x)
        composite same : exact
            Sigmoid(c: Relu(x)) + c
    """
    saturation = saturated(graph, targets=text)
    found = {n.op.name: n for n in snapshot(saturation).nodes if n.kind == "composite"}
    assert {name: len(n.children) for name, n in found.items()} == {"later": 1, "same": 1}
    assert [n.op.name for n in found["later"].composite.body.nodes] == ["Relu", "Sigmoid"]


def test_rules_match_operators_that_only_other_rules_make() -> None:
    """egglog gets a clause once its operators have e-nodes, in whatever round that is, and never the others."""
    graph = model("out = Relu(x)", "float[4] x")
    rules = [
        "rule third : exact\n  Abs(Neg(x)) => Exp(x)",
        "rule second : exact\n  Max(x, y) => Abs(Neg(x))",
        "rule first : exact\n  Relu(x) => Max(x, 0)",
        "rule never : exact\n  Tanh(Relu(x)) => x",
    ]
    for order in (rules, rules[::-1]):
        saturation = saturated(graph, "\n".join(order))
        applied = {row.name: row.applied for row in saturation.statistics}
        assert applied["never"] == 0
        assert all(applied[name] for name in ("first", "second", "third"))
        assert {clause.definition.name for clause, _ in saturation.clauses()} == {"first", "second", "third"}
        assert operators(snapshot(saturation), graph) >= {"Relu", "Max", "Abs", "Exp"}


def test_composites_match_operators_that_only_rules_make() -> None:
    graph = model("out = Relu(x)", "float[4] x")
    target = (
        f"{NPU}\n    composite pair : exact\n        Abs(Neg(x))\n    composite other : exact\n        Tanh(Relu(x))\n"
    )
    saturation = saturated(graph, "rule r : exact\n  Relu(x) => Abs(Neg(x))", targets=target)
    assert "npu.pair" in operators(snapshot(saturation), graph)
    assert {clause.definition.name for clause, _ in saturation.clauses()} == {"r", "pair"}
