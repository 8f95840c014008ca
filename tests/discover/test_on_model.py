"""Rules that a model shows: equal classes of its e-graph that no rule joined, with the nodes at which they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import eqsat
from eqsat.cli import cli
from eqsat.discover.classes import ClassValues
from eqsat.discover.cuts import Cuts
from eqsat.discover.find_rules import Discovery, discover_rules
from eqsat.discover.on_model import rules_of_model
from eqsat.discover.spelling import number_text, spellings
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.errors import ExecutionError
from eqsat.model.load import load
from eqsat.rules.ast import Rule
from eqsat.rules.selection import select_rules

op = eqsat.op


def shipped(without: Sequence[str]) -> list[Rule]:
    rules = select_rules((), "real", default_rules=True).rules
    names = {rule.name.removesuffix(".reverse") for rule in rules}
    assert names >= set(without)
    return [rule for rule in rules if rule.name.removesuffix(".reverse") not in without]


def sides(found: Discovery) -> list[str]:
    return [line.strip() for line in found.text.splitlines() if "=>" in line]


def of_model(model: ir.Model, rules: Sequence[Rule]) -> Discovery:
    return discover_rules(model=model, rules=rules, default_rules=False, size=1, constants=[])


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def test_classes_of_equal_values_are_twins() -> None:
    x = eqsat.input("x", (3, 5))
    model = load(eqsat.graph([op.Relu(x, name="a") + op.Relu(op.Neg(x)), op.Abs(x), op.Mul(x, np.float32(0))]))
    saturation = Saturation(model, [], [])
    saturation.run()
    taken = snapshot(saturation)
    values = ClassValues(saturation, taken)
    (twins,) = values.twins()
    of = {value.name: eclass for value, eclass in taken.refs.items()}
    assert {twins.first, twins.second} == {of[value.name] for value in model.graph.outputs[:2]}
    cuts = Cuts(taken, lambda c: c, lambda c: bool(number_text(taken, c)))
    found = [spellings(pair, taken)[0] for pair in cuts.sides(twins.first, twins.second)]
    said = [(spelling.left, spelling.right) for spelling in found]
    assert ("Add(Relu(x), Relu(Neg(x)))", "Abs(x)") in said
    assert sorted(said, key=lambda pair: pair[0].count("(") + pair[1].count("(")) == said


def test_what_follows_from_other_classes_is_no_pair_of_its_own() -> None:
    x = eqsat.input("x", (3, 5))
    model = load(eqsat.graph([op.Exp(op.Neg(op.Neg(x))), op.Exp(x)]))
    found = rules_of_model(model, [], set(), 0, lambda _step, _steps: None)
    assert found.counts.equal == 1
    assert [f.text.splitlines()[1].strip() for f in found.found] == ["Neg(Neg(x))  =>  x"]


@pytest.mark.slow
def test_what_was_removed_is_found_again_in_a_model() -> None:
    x = eqsat.input("x", (2, 6, 8))
    hidden = op.Softmax(op.MatMul(x, weights(8, 8)), axis=-1)
    turned = op.Transpose(op.Transpose(hidden, perm=[0, 2, 1], name="there"), perm=[0, 2, 1], name="back")
    flat = op.Reshape(op.Reshape(turned, np.array([2, 48])), np.array([2, 6, 8]), name="unflat")
    model = eqsat.graph(op.Tanh(flat))
    removed = ["transpose_twice", "transpose_back", "reshape_twice"]
    assert not of_model(model, shipped([])).rules
    found = of_model(model, shipped(removed))
    assert sides(found) == [
        "Transpose(Transpose(x, perm=[0, 2, 1]), perm=[0, 2, 1])  =>  x",
        "whole: Reshape(Reshape(x, y), z)  =>  x",
    ]
    first, second = found.rules
    assert "back" in found.places[first.name]
    assert "unflat" in found.places[second.name]
    assert f"# At {', '.join(found.places[first.name])}" in found.text
    assert found.verdicts[first.name] == "bounded"
    assert found.verdicts[second.name] == "proven"
    # With them, the model becomes what it is with the removed ones.
    better = eqsat.optimize(model, rules=found.rules, default_rules=False)
    assert "Transpose" not in {node.op_type for node in better.model.graph}


@pytest.mark.slow
def test_a_rule_holds_only_with_the_operator_before_it() -> None:
    x = eqsat.input("x", (4, 6))
    model = eqsat.graph(op.Relu(op.Softmax(x, axis=1)) * np.float32(3))
    found = of_model(model, [])
    assert "Relu(Softmax(x, axis=axis))  =>  Softmax(x, axis=axis)" in sides(found)
    assert "Relu(x)  =>  x" not in found.text
    assert found.on_model is not None
    assert found.on_model.refuted


@pytest.mark.slow
def test_layers_that_repeat_are_one_rule_at_several_places() -> None:
    y = eqsat.input("x", (4, 6))
    for k in range(3):
        y = op.Abs(op.Sigmoid(op.MatMul(y, weights(6, 6) + k)), name=f"layer{k}")
    found = of_model(eqsat.graph(y), [])
    assert sides(found) == ["Abs(Sigmoid(x))  =>  Sigmoid(x)"]
    (rule,) = found.rules
    assert {"layer0", "layer1", "layer2"} <= set(found.places[rule.name])
    assert found.uses[rule.name] == 3


@pytest.mark.slow
def test_a_mask_is_not_taken_for_nothing() -> None:
    """No sample masks anything, so that both sides are equal on all of them; the check knows better."""
    x, mask = eqsat.input("x", (2, 4, 4)), eqsat.input("mask", (2, 1, 4), dtype="int64")
    hides = op.Equal(mask, np.array(7, np.int64))
    model = eqsat.graph(op.Softmax(x + op.Where(hides, np.float32(-1e38), np.float32(0)), axis=-1))
    found = of_model(model, shipped([]))
    assert not any("Where" in text for text in sides(found))


@pytest.mark.slow
def test_command_on_a_model(tmp_path: Path) -> None:
    model, known = tmp_path / "model.onnx", tmp_path / "known.rules"
    known.write_text("rule twice : exact\n    Abs(Abs(x))  =>  Abs(x)\n", "utf-8")
    x = eqsat.input("x", ("N", 6))
    eqsat.save(eqsat.graph(op.Abs(op.Sigmoid(x), name="needless")), model)
    command = ["rules", "discover", "--model", str(model), "--size", "1", "--rules", str(known), "--no-default-rules"]
    run = CliRunner().invoke(cli, [*command, "--dim", "N=3", "--json"])
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    (rule,) = (r for r in said["rules"] if "Sigmoid" in r["text"])
    assert "needless" in rule["places"]
    assert rule["proof"] in ("proven", "bounded", "executed")
    assert said["model"]["rules"] == 1
    run = CliRunner().invoke(cli, [*command, "--dim", "N=3"])
    assert "classes of the model compared" in run.stderr
    # A size that is not known has a message of its own.
    assert CliRunner().invoke(cli, command).exit_code
    with pytest.raises(ExecutionError, match="N"):
        discover_rules(model=model, size=1)
