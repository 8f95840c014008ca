"""Rules that place annotations: obeyed once wherever they match, whatever else is cheaper."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.check.rule import check_rule
from eqsat.model.load import load
from eqsat.partition.place import place, places_annotations
from eqsat.rules.reader import read_text
from tests.fuzz.check import ort_outputs

PRODUCTS = "rule products : exact\n    x * y  =>  StopFusion(CastHint(x * y, dtype=int8))\n"
EXPONENTIALS = "rule exponentials : exact\n    Exp(x)  =>  CastHint(Exp(x), dtype=uint8)\n"
OPERANDS = "rule operands : exact\n    Relu(x)  =>  Relu(StopFusion(x))\n"


def placed(model: ir.Model, text: str) -> ir.Model:
    rules = read_text(text).rules
    assert all(map(places_annotations, rules))
    return place(model, rules).model


def expression(model: ir.Model, value: ir.Value | None = None) -> str:
    """A model's first output as an expression over its inputs."""
    value = model.graph.outputs[0] if value is None else value
    node = value.producer()
    if node is None:
        return str(value.name) if value.const_value is None else f"{value.const_value.numpy().item():g}"
    operands = ", ".join(expression(model, v) for v in node.inputs if v is not None)
    word = {"StopFusion": "stop", "CastHint": "hint"}.get(node.op_type, node.op_type)
    return f"{word}({operands})"


def inputs(*names: str) -> list[eqsat.model.expression.Tensor]:
    return [eqsat.input(name, (4, 4)) for name in names]


def test_each_product_once() -> None:
    x, y, z = inputs("x", "y", "z")
    model = placed(eqsat.graph(op.Tanh(x * y * z)), PRODUCTS)
    assert expression(model) == "Tanh(stop(hint(Mul(stop(hint(Mul(x, y))), z))))"


def test_either_order_of_operands_but_no_other_spelling() -> None:
    x, y = inputs("x", "y")
    text = "rule r : exact\n    x * Exp(y)  =>  StopFusion(x * Exp(y))\n"
    assert expression(placed(eqsat.graph(op.Exp(x) * y), text)).startswith("stop(Mul(")
    assert expression(placed(eqsat.graph(op.Exp(x) / y), text)) == "Div(Exp(x), y)"


def test_every_reader_reads_the_annotated_value_and_outputs_keep_their_names() -> None:
    x, y = inputs("x", "y")
    p = x * y
    model = eqsat.graph({"p": p, "q": op.Exp(p), "r": p - y})
    found = placed(model, PRODUCTS)
    assert [v.name for v in found.graph.outputs] == ["p", "q", "r"]
    p_, q, r = (expression(found, v) for v in found.graph.outputs)
    assert (p_, q, r) == (f"{p_}", f"Exp({p_})", f"Sub({p_}, y)") and p_ == "stop(hint(Mul(x, y)))"


def test_surviving_tensors_keep_their_names() -> None:
    x, y = inputs("x", "y")
    model = eqsat.graph(op.Tanh(op.Mul(x, y, name="layer_1"), name="layer_2"))
    names = {v.name for n in placed(model, PRODUCTS).graph for v in n.outputs}
    assert {"layer_1", "layer_2"} <= names


def test_annotations_on_operands() -> None:
    x, y = inputs("x", "y")
    assert expression(placed(eqsat.graph(op.Relu(op.Relu(x) + y)), OPERANDS)) == "Relu(stop(Add(Relu(stop(x)), y)))"


@pytest.mark.parametrize("order", [(PRODUCTS, OPERANDS, EXPONENTIALS), (EXPONENTIALS, OPERANDS, PRODUCTS)])
def test_several_rules(order: tuple[str, ...]) -> None:
    x, y = inputs("x", "y")
    model = eqsat.graph(op.Relu(op.Exp(x * y)))
    assert expression(placed(model, "".join(order))) == "Relu(stop(hint(Exp(stop(hint(Mul(x, y)))))))"


def test_several_rules_on_one_value_in_their_order() -> None:
    x, y = inputs("x", "y")
    one = "rule one : exact\n    x * y  =>  CastHint(x * y, dtype=int8)\n"
    two = "rule two : exact\n    x * y  =>  StopFusion(x * y)\n"
    assert expression(placed(eqsat.graph(x * y), one + two)) == "stop(hint(Mul(x, y)))"
    assert expression(placed(eqsat.graph(x * y), two + one)) == "hint(stop(Mul(x, y)))"


@pytest.mark.parametrize("text", [PRODUCTS, OPERANDS, PRODUCTS + OPERANDS + EXPONENTIALS])
def test_nothing_is_placed_twice(text: str) -> None:
    x, y = inputs("x", "y")
    once = placed(eqsat.graph(op.Relu(op.Exp(x * y) * op.Exp(y * x))), text)
    twice = placed(once, text)
    assert expression(twice) == expression(once)
    assert ir.to_proto(twice).SerializeToString() == ir.to_proto(load(once)).SerializeToString()


def test_what_bears_a_part_gets_the_rest() -> None:
    x, y = inputs("x", "y")
    assert expression(placed(eqsat.graph(op.Tanh(op.StopFusion(x * y))), PRODUCTS)) in (
        "Tanh(stop(hint(Mul(x, y))))",
        "Tanh(stop(stop(hint(Mul(x, y)))))",
    )
    done = eqsat.graph(op.Tanh(op.StopFusion(op.CastHint(x * y, dtype="int8"))))
    assert expression(placed(done, PRODUCTS)) == "Tanh(stop(hint(Mul(x, y))))"


def test_conditions_attributes_and_bound_nodes() -> None:
    text = """
    rule convolutions : exact
        # Only where a kernel is large enough, and with the type of the weights' neighbours.
        c: Conv(x, w, b?)  =>  StopFusion(CastHint(Conv(CastHint(x, dtype=uint8), w, b, **c), dtype=int8))
        where w.shape[2] == 3, c.group == 1
    """
    rng = np.random.default_rng(0)
    x = eqsat.input("x", (1, 4, 8, 8))
    three, one = (rng.standard_normal((4, 4, k, k)).astype(np.float32) for k in (3, 1))
    model = eqsat.graph(op.Conv(op.Conv(x, three, pads=[1, 1, 1, 1], strides=[2, 2]), one))
    found = placed(model, text)
    assert [n.op_type for n in found.graph] == ["CastHint", "Conv", "CastHint", "StopFusion", "Conv"]
    assert [n.attributes["dtype"].as_int() for n in found.graph if n.op_type == "CastHint"] == [2, 3]
    assert list(found.graph[1].attributes["strides"].as_ints()) == [2, 2]
    assert eqsat.compare(model, found, numerics="exact").agrees


def test_constants_and_several_outputs_on_the_right() -> None:
    text = """
    rule halves : exact
        Relu(x)  =>  Concat(StopFusion(Split(Relu(x), [2, 2], axis=0)[0]), Split(Relu(x), [2, 2], axis=0)[1], axis=0)
        where x.shape[0] == 4
    """
    (x,) = inputs("x")
    model = eqsat.graph(op.Exp(op.Relu(x)))
    found = placed(model, text)
    assert sorted(n.op_type for n in found.graph) == ["Concat", "Exp", "Relu", "Split", "StopFusion"]
    assert eqsat.compare(model, found, numerics="exact").agrees


def test_inside_of_branches_the_annotated_value_is_read() -> None:
    x, y = inputs("x", "y")
    p = x * y
    flag = eqsat.input("flag", (), "bool")
    model = eqsat.graph(op.If(flag, then_branch=lambda: p + x, else_branch=lambda: p - x))
    found = placed(model, PRODUCTS)
    branches = [a.as_graph() for n in found.graph if n.op_type == "If" for a in n.attributes.values()]
    read = {v.name for g in branches for n in g for v in n.inputs if v is not None}
    stop = next(n for n in found.graph if n.op_type == "StopFusion")
    assert stop.outputs[0].name in read
    assert eqsat.compare(model, found, numerics="exact").agrees


def test_what_is_no_instruction() -> None:
    for text in (
        "rule r : exact\n    StopFusion(x)  =>  x",
        "rule r : exact\n    StopFusion(StopFusion(x))  =>  StopFusion(x)",
        "rule r : exact\n    StopFusion(CastHint(x, dtype=d))  =>  CastHint(StopFusion(x), dtype=d)",
        "rule r : exact\n    n: (f: CastHint | StopFusion)(Relu(x))  =>  Relu(f(x, **n))",
        "rule r : exact\n    x * 2  =>  x + x",
    ):
        assert not any(map(places_annotations, read_text(text).rules)), text
    assert [places_annotations(r) for r in read_text("rule r : exact\n    Exp(x)  <=>  StopFusion(Exp(x))").rules] == [
        True,
        False,
    ]


def test_in_the_whole_pipeline() -> None:
    rng = np.random.default_rng(0)
    x, y = inputs("x", "y")
    model = eqsat.graph(op.Exp((x + y) * (x - y)) * np.float32(2))
    rules = list(read_text(PRODUCTS + EXPONENTIALS).rules)
    result = eqsat.optimize(model, targets="ccompiler", rules=rules, default_rules=False)
    content = ir.to_proto(result.model).SerializeToString()
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    arrays = {n: rng.standard_normal((4, 4)).astype(np.float32) for n in ("x", "y")}
    (expected,) = ort_outputs(ir.to_proto(model).SerializeToString(), arrays).values()
    (found,) = ort_outputs(content, arrays).values()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    statistics = {r.name: r.matches for r in result.summary.rules}
    assert statistics["exponentials"] == 1 and statistics["products"] > 0


def test_no_rule_no_work() -> None:
    (x,) = inputs("x")
    model = eqsat.graph(op.Relu(x))
    assert place(model, []).model is model


@pytest.mark.parametrize("text", [PRODUCTS, EXPONENTIALS, OPERANDS])
def test_the_checker_executes_them_as_any_rule(text: str) -> None:
    (rule,) = read_text(text).rules
    outcome = check_rule(rule)
    assert outcome.instances >= 10 and not outcome.counterexamples
    (wrong,) = read_text("rule r : exact\n    Relu(x)  =>  StopFusion(x)").rules
    assert check_rule(wrong).counterexamples
