"""A tutorial on ``QPartitionExpr``: exp((x + y)(x - y)), its composite, annotations inside and outside, x² - y².

The document merges the product into ``ccompiler.add_subtract_multiply``, realises a ``QPartitionExpr`` of the body of
each function (a cast hint to int8 and a stop of fusion after the composite's product and after the exponential), and
rewrites the product to x² - y² with the annotations in place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from eqsat.model.load import load
from eqsat.partition.partition_functions import RequestedCall
from eqsat.partition.saved import inline
from eqsat.rules.location import rules_dir
from tests.explain.saved import without_origins
from tests.seeds.helpers import check_values, dear, function, listing, operators, rule

ANNOTATED = ["CastHint", "StopFusion", "Exp", "CastHint", "StopFusion"]
"""What follows the product in the annotated program."""
COMPOSITE = "ccompiler.add_subtract_multiply"
OUTSIDE = rule("rule outside : exact\n    Exp(x)  =>  StopFusion(CastHint(Exp(x), dtype=int8))")
SQUARES = rule("rule squares : real\n    (x + y) * (x - y)  =>  x * x - y * y")


def realize(call: RequestedCall, *operands: Tensor) -> Tensor:
    """``QPartitionExpr(call).realize()``."""
    return op.StopFusion(op.CastHint(call(*operands), dtype="int8"))


def product(outer: bool = True) -> ir.Model:
    x, y = eqsat.input("x", (10,)), eqsat.input("y", (10,))
    z = (x + y) * (x - y)
    return eqsat.graph(op.Exp(z) if outer else z)


def annotated() -> ir.Model:
    """The document's program, annotated by hand."""
    x, y = eqsat.input("x", (10,)), eqsat.input("y", (10,))
    inner = op.StopFusion(op.CastHint((x + y) * (x - y), dtype="int8"))
    return eqsat.graph(op.StopFusion(op.CastHint(op.Exp(inner), dtype="int8")))


# ---- MergeComposite and PartitionGraph ---------------------------------------------------------------


def test_the_product_is_merged_and_the_exponential_stays() -> None:
    model = product()
    result = eqsat.optimize(model, targets="ccompiler")
    assert listing(result.model.graph) == ["mul = ccompiler_0(x, y)", "output = Exp(mul)"]
    assert operators(function(result.model, "ccompiler_0")) == ["add_subtract_multiply"]
    assert listing(function(result.model, "add_subtract_multiply")) == [
        "add = Add(a, b)",
        "sub = Sub(a, b)",
        "mul = Mul(add, sub)",
    ]
    check_values(model, result)


@pytest.mark.parametrize(
    "spelling", ["(y + x) * (x - y)", "(x - y) * (x + y)", "(x - y) * (y + x)", "(x + y) * (y - x)"]
)
@pytest.mark.parametrize("of", ["inputs", "exponentials"])
def test_spellings_that_a_matcher_misses(spelling: str, of: str) -> None:
    # TVM's pattern is not commutative where its operands are bound, and its `is_var` takes no computed values.
    x, y = eqsat.input("x", (64, 64)), eqsat.input("y", (64, 64))
    operands = {"x": x, "y": y} if of == "inputs" else {"x": op.Exp(x), "y": op.Exp(y)}
    model = eqsat.graph((op.Exp if of == "inputs" else op.Sqrt)(op.Abs(eval(spelling, operands))))
    result = eqsat.optimize(model, targets="ccompiler")
    kernels = [k for region in result.regions if region.target == "ccompiler" for k in region.nodes]
    assert kernels == [COMPOSITE]
    check_values(model, result)


def test_a_match_whose_inside_is_read_elsewhere_does_not_cost_more() -> None:
    # TVM's merging turns five operators into seven here.
    x, y = eqsat.input("x", (64, 64)), eqsat.input("y", (64, 64))
    s, d = x + y, x - y
    model = eqsat.graph({"p": s * d, "s": op.Exp(s), "d": op.Exp(d)})
    result = eqsat.optimize(model, targets="ccompiler")
    alone = eqsat.optimize(model)
    assert result.cost < alone.cost and result.stop_reason == "optimal"
    check_values(model, result, alone)


# ---- annotations --------------------------------------------------------------------------------------


def assert_as_in_the_document(model: ir.Model) -> None:
    """The composite's annotations inside it, the exponential's outside."""
    assert operators(model.graph) == ["ccompiler", "Exp", "CastHint", "StopFusion"]
    assert operators(function(model, "ccompiler_0")) == ["add_subtract_multiply"]
    inside = function(model, "add_subtract_multiply")
    assert operators(inside) == ["Add", "Sub", "Mul", "CastHint", "StopFusion"]
    hints = [n for n in (*inside, *model.graph) if n.op_type == "CastHint"]
    assert [n.attributes["dtype"].as_int() for n in hints] == [ir.DataType.INT8, ir.DataType.INT8]
    assert [listing(f) for f in model.functions.values() if f.domain == "eqsat"] == [["identity = Identity(x)"]] * 2


def test_a_partition_function_annotates_the_composite_and_a_rule_the_exponential() -> None:
    model = product()
    result = eqsat.optimize(
        model, targets="ccompiler", rules=[OUTSIDE], default_rules=False, partition_functions={COMPOSITE: realize}
    )
    assert_as_in_the_document(result.model)
    check_values(model, result, rtol=1e-6)


def test_the_target_file_annotates_the_composite(tmp_path: Path) -> None:
    text = (rules_dir() / "targets" / "ccompiler.target").read_text("utf-8")
    path = tmp_path / "ccompiler.target"
    path.write_text(text + "        annotate CastHint(dtype=int8), StopFusion\n", "utf-8")
    model = product()
    result = eqsat.optimize(model, targets=[path], rules=[OUTSIDE], default_rules=False)
    assert_as_in_the_document(result.model)
    check_values(model, result, rtol=1e-6)


def test_annotations_by_hand_lie_around_the_composite() -> None:
    model = annotated()
    result = eqsat.optimize(model, targets="ccompiler")
    kernels = [k for region in result.regions for k in region.nodes if not k.startswith("eqsat.")]
    assert kernels == [COMPOSITE, "Exp"]
    assert result.summary.after.operators == 4, "an annotation is not work"
    assert result.cost == eqsat.optimize(product(), targets="ccompiler").cost
    plain = operators(inline(result.model, operators=False).graph)
    assert plain == ["Add", "Sub", "Mul", *ANNOTATED]
    check_values(model, result)
    # A partition function takes over what is there already.
    result = eqsat.optimize(model, targets="ccompiler", partition_functions={COMPOSITE: realize})
    assert_as_in_the_document(result.model)
    check_values(model, result)


def test_annotations_survive_saving_loading_and_optimizing_again(tmp_path: Path) -> None:
    options = {
        "targets": "ccompiler",
        "rules": [OUTSIDE],
        "default_rules": False,
        "partition_functions": {COMPOSITE: realize},
    }
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    eqsat.optimize(product(), **options).save(first)
    onnx.checker.check_model(onnx.load(first), full_check=True)
    result = eqsat.optimize(first, **options)
    assert_as_in_the_document(result.model)
    result.save(second)
    assert without_origins(first) == without_origins(second)
    check_values(product(), result)
    # Also where nobody asks for annotations any more: they lie in the model.
    again = eqsat.optimize(first, targets=[], default_rules=False)
    assert operators(again.model.graph) == ["Add", "Sub", "Mul", *ANNOTATED]
    assert {n.attributes["dtype"].as_int() for n in again.model.graph if n.op_type == "CastHint"} == {ir.DataType.INT8}


# ---- x² - y² ------------------------------------------------------------------------------------------


def test_the_product_becomes_a_difference_of_squares_with_its_annotations(tmp_path: Path) -> None:
    model = annotated()
    result = eqsat.optimize(model, targets=[dear(tmp_path, "Add")], rules=[SQUARES], default_rules=False)
    assert operators(result.model.graph) == ["Mul", "Mul", "Sub", *ANNOTATED]
    lines = [line.split(" = ")[1] for line in listing(result.model.graph)]
    assert lines[:2] == ["Mul(x, x)", "Mul(y, y)"]
    check_values(model, result, rtol=1e-5)


def test_the_composite_becomes_a_difference_of_squares_with_its_annotations(tmp_path: Path) -> None:
    """``DefuseOps`` and ``rewrite``: the partitioned file as plain operators, then the rule."""
    path = tmp_path / "partitioned.onnx"
    eqsat.optimize(
        product(), targets="ccompiler", rules=[OUTSIDE], default_rules=False, partition_functions={COMPOSITE: realize}
    ).save(path)
    defused = inline(load(path), operators=False)
    assert operators(defused.graph) == ["Add", "Sub", "Mul", *ANNOTATED]
    result = eqsat.optimize(defused, targets=[dear(tmp_path, "Add")], rules=[SQUARES], default_rules=False)
    assert operators(result.model.graph) == ["Mul", "Mul", "Sub", *ANNOTATED]
    check_values(product(), result, rtol=1e-5)


def test_whichever_kernel_there_is(tmp_path: Path) -> None:
    # The same annotated model, on a chip that has the other kernel: no rewriting by hand.
    text = (
        (rules_dir() / "targets" / "ccompiler.target").read_text("utf-8").replace("(x + y) * (x - y)", "x * x - y * y")
    )
    path = tmp_path / "ccompiler.target"
    path.write_text(
        text.replace("add_subtract_multiply", "squares") + "        annotate CastHint(dtype=int8), StopFusion\n",
        "utf-8",
    )
    model = product()
    result = eqsat.optimize(model, targets=[path])
    assert operators(function(result.model, "squares")) == ["Mul", "Mul", "Sub", "CastHint", "StopFusion"]
    check_values(model, result, rtol=1e-5)


def test_values_of_the_document() -> None:
    model = annotated()
    x, y = (np.random.default_rng(i).standard_normal(10).astype(np.float32) for i in (0, 1))
    result = eqsat.optimize(model, targets="ccompiler", partition_functions={COMPOSITE: realize})
    np.testing.assert_allclose(result.run({"x": x, "y": y})["output"], np.exp(x * x - y * y), rtol=2e-6)
