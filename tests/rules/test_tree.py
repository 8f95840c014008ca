"""The one way to walk and change trees of the rule language."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from eqsat.rules.ast import Match, Name, Number, operands, plain
from eqsat.rules.tree import parts, replaced, walk, without_places
from tests.rules.reading import pattern, rule


def test_nodes_come_before_their_parts() -> None:
    (condition,) = rule("Relu(x) => x where x.rank + 1 < 4").where
    assert [type(node).__name__ for node in walk(condition)] == [
        "Condition", "Compare", "Binary", "Member", "Name", "Number", "Number"
    ]  # fmt: skip


def test_operands_are_walked_without_attributes() -> None:
    found = pattern("Transpose(Softmax(x, axis=k), perm=[0, k])")
    assert {node.name for node in walk(found, operands) if isinstance(node, Name)} == {"x"}
    assert {node.name for node in walk(found) if isinstance(node, Name)} == {"x", "k"}


def test_an_object_is_met_once() -> None:
    lets = "".join(f"let t{i} = Add(t{i - 1}, t{i - 1})\n        " for i in range(1, 9))
    found = pattern(f"let t0 = Relu(x)\n        {lets}Neg(t8)")
    assert sum(isinstance(node, Match) for node in walk(found, operands, once=True)) == 10
    assert sum(isinstance(node, Match) for node in walk(found, operands)) == 2**9


def test_parts_are_direct() -> None:
    found = pattern("Add(Relu(x), 2)")
    assert [type(part) for part in parts(found)] == [Match, Number]


def test_replacing_leaves_the_rest() -> None:
    found = pattern("Add(Relu(x), y)")
    changed = replaced(
        found, lambda node: Name("z", node.place) if isinstance(node, Name) and node.name == "x" else None
    )
    assert without_places(changed) == without_places(pattern("Add(Relu(z), y)"))
    assert without_places(found) == without_places(pattern("Add(Relu(x), y)"))


def test_plain_patterns_of_alternatives() -> None:
    negation = pattern("Neg(Relu(x) | (Tanh(x) | x))")
    assert isinstance(negation, Match)
    (operand,) = negation.args
    assert operand is not None
    assert [p.ops[0].name if isinstance(p, Match) else "" for p in plain(operand)] == ["Relu", "Tanh", ""]


def test_equal_trees_have_one_hash() -> None:
    found, same = (pattern("Add(Relu(x), y)") for _ in range(2))
    assert found is not same
    assert found == same
    assert hash(found) == hash(same) == hash(found)
    assert hash(found) != hash(pattern("Add(Relu(x), z)"))
    assert hash(replaced(found, lambda node: node)) == hash(found)


def test_a_stored_tree_does_not_bring_its_hash() -> None:
    """Strings have other hashes in another process."""
    tree = pattern("Add(Relu(x), y)")
    hash(tree)
    program = (
        "import pickle, sys; from tests.rules.reading import pattern; "
        "tree = pickle.load(sys.stdin.buffer); assert tree in {pattern('Add(Relu(x), y)')}"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program], input=pickle.dumps(tree), env=environment, check=True)
