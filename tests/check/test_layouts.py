"""The rules of hosts, such as those about layouts for generated C: executed on random instances like all others."""

from __future__ import annotations

from functools import cache

import pytest

from eqsat.check.outcome import Outcome
from eqsat.check.rule import check_rule
from eqsat.rules.ast import Rule
from eqsat.rules.location import rules_dir
from eqsat.rules.selection import select_rules, shipped_rules
from tests.check.oracle import onnx_runtime
from tests.quantization.runtime import has_exact_products

FILES = sorted((rules_dir() / "kernels").glob("*.rules"))
UNDRAWN = ("channels_last_of_quantized_concat",)
"""Operands in triples are not drawn; tests/codegen/test_select.py executes these."""
RULES = [r for r in select_rules(FILES, "approximate").rules if r.name not in UNDRAWN]

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@cache
def outcome_of(rule: Rule) -> Outcome:
    # ONNX Runtime aborts the process on some shapes of its own quantized operators, and not all of its products of
    # integers are exact on each processor.
    if "quantized" in rule.name or ("integer" in rule.name and not has_exact_products()):
        return check_rule(rule, instances=8)
    return check_rule(rule, instances=8, oracle=onnx_runtime)


@pytest.mark.slow
@each_rule
def test_both_sides_are_equal(rule: Rule) -> None:
    outcome = outcome_of(rule)
    assert outcome.holds, f"\n{outcome}"
    assert outcome.instances >= 2, outcome.why_silent()


def test_they_change_nothing_but_layouts() -> None:
    of_layouts = select_rules([rules_dir() / "kernels" / "layout.rules"], "approximate").rules
    assert of_layouts and all(rule.numerics.kind == "exact" for rule in of_layouts)


def test_no_other_search_has_them() -> None:
    assert not set(FILES) & set(shipped_rules())
