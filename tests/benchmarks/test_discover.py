"""The benchmark of discovery looks for each rule in a type that its variables may have."""

from __future__ import annotations

from benchmarks.discover import FILES, _expressible, _row
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_file

EXPRESSIBLE = {
    rule.name: (rule, pair, dtype)
    for rule, pair, dtype in _expressible([rule for name in FILES for rule in read_file(rules_dir() / name).rules])
}


def test_each_rule_has_a_type() -> None:
    types = {name: dtype for name, (_, _, dtype) in EXPRESSIBLE.items()}
    assert types["not_of_not"] == types["or_absorbs_and"] == "bool"
    assert types["double"] == types["less_turned"] == "float32"


def test_rules_of_truth_values_are_found_again() -> None:
    row = _row(*EXPRESSIBLE["or_of_or"])
    assert (row.operators, row.dtype, row.found) == (("Or",), "bool", True)
