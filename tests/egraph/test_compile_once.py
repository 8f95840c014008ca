"""Rules are compiled for the operators that occur, and once in a process: both leave every clause as it is."""

from __future__ import annotations

import pytest

from eqsat.egraph import compile_rules as compiling
from eqsat.egraph.compile_rules import CompiledClause, Compiler
from eqsat.egraph.language import Constructor
from eqsat.egraph.vocabulary import Vocabulary
from eqsat.rules.ast import Composite, Rule
from eqsat.rules.expand import expand
from eqsat.rules.selection import select_rules
from eqsat.schema.types import OpKey
from eqsat.targets.find_targets import load_targets

OPERATORS = {
    "convolution": [("Conv", 3), ("Relu", 1), ("Add", 2), ("Sigmoid", 1), ("Mul", 2), ("BatchNormalization", 5)],
    "attention": [("MatMul", 2), ("Softmax", 1), ("Div", 2), ("Add", 2), ("Transpose", 1), ("Reshape", 2), ("Gelu", 1)],
    "integers": [("QuantizeLinear", 3), ("DequantizeLinear", 3), ("Conv", 2), ("Conv", 3), ("MatMul", 2), ("Clip", 3)],
    "sums": [("Sum", 1), ("Sum", 4), ("Add", 2), ("Mul", 2), ("Neg", 1), ("Sub", 2), ("Split", 1), ("Identity", 1)],
    "nothing": [],
}
RULES = tuple(select_rules((), "real", True).rules)
TARGETS = tuple(load_targets(["dnnl", "ethos_n"], "c"))
COMPOSITES = tuple((target, composite) for target in TARGETS for composite in target.composites)


def constructors(name: str) -> dict[OpKey, list[Constructor]]:
    found: dict[OpKey, list[Constructor]] = {}
    for operator, inputs in OPERATORS[name]:
        outputs = 2 if operator == "Split" else 0
        found.setdefault(OpKey("", operator), []).append(Constructor(OpKey("", operator), inputs, outputs))
    return found


def text(clauses: list[CompiledClause]) -> list[str]:
    """All that egglog and Python read of clauses."""
    found = []
    for number, clause in enumerate(clauses):
        clause.key = f"x{number}_"
        found.append("\n".join([*clause.commands(), repr(clause.columns), repr(clause.built), repr(clause.aliases)]))
    return found


def every_clause(definition: Rule | Composite, target: str, known: dict[OpKey, list[Constructor]]) -> list:
    """Without what was compiled before, and without looking at operators first."""
    patterns = definition.left if isinstance(definition, Rule) else definition.patterns
    return [c for clause in expand(patterns) for c in Compiler(known).plain(definition, 7, target, clause)]


@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_clauses_as_of_all_patterns(name: str) -> None:
    known = constructors(name)
    compiled = 0
    for _ in range(2):  # The second time they are known.
        for rule in RULES:
            found = text(list(Compiler(known).rule(rule, 7)))
            assert found == text(every_clause(rule, "", known)), rule.name
            compiled += len(found)
        for target, composite in COMPOSITES:
            found = text(list(Compiler(known).composite(composite, target.name, 7)))
            assert found == text(every_clause(composite, target.name, known)), composite.name
            compiled += len(found)
    assert (compiled > 40) == (name != "nothing")


def test_an_earlier_model_changes_nothing() -> None:
    """Neither its other arities nor what its e-graph asks of clauses."""

    def clauses(name: str) -> list[CompiledClause]:
        vocabulary = Vocabulary()
        for constructor in (c for of in constructors(name).values() for c in of):
            vocabulary.add(constructor)
        return vocabulary.compile_rules(RULES, range(2, len(RULES) + 2))

    compiling._compiled_once.cache_clear()
    compiling._clause_once.cache_clear()
    alone = text(clauses("convolution"))
    for other in ("integers", "sums", "attention", "convolution"):
        for clause in clauses(other):
            clause.watch()
            clause.record()
    again = clauses("convolution")
    assert text(again) == alone and len(alone) > 40
    assert not any(clause.watched or clause.recorded for clause in again)
