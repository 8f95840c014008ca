"""A clip and a cast after a requantization: the obvious rules are wrong, and the checker says so.

A pass that TVM's Ethos-N backend had dropped both. After a requantization to int32 a cast wraps: 280 becomes 24 where
the clip says 255. After one to uint8, which saturates, a clip may still say more than the type does.
"""

from __future__ import annotations

import re

import pytest

from eqsat.check.rule import check_rule
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_text
from eqsat.rules.selection import select_rules
from tests.check.oracle import onnx_runtime

WIDE = "r: Requantize(x, si, zi, so, zo, dtype=int32)"
NARROW = "Requantize(x, si, zi, so, zo, **r, dtype=uint8)"
WRONG = {
    "the clip alone": f"Cast(Clip({WIDE}, low, high), to=uint8)  =>  Cast(r, to=uint8)\n"
    "    where low.value == 0, high.value == 255, zo.value == 0",
    "the cast alone": f"Cast({WIDE}, to=uint8)  =>  {NARROW}\n    where zo.value == 0",
    "both": f"Cast(Clip({WIDE}, low, high), to=uint8)  =>  {NARROW}\n"
    "    where 0 <= low.value, low.value <= high.value, high.value <= 255, 0 <= zo.value, zo.value <= 255",
}


def wrong(name: str) -> Rule:
    (rule,) = read_text(f"rule drop : exact\n    {WRONG[name]}").rules
    return rule


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", WRONG)
def test_the_obvious_rules_are_wrong(name: str, seed: int) -> None:
    outcome = check_rule(wrong(name), instances=40, seed=seed, oracle=onnx_runtime)
    (counterexample,) = outcome.counterexamples
    assert counterexample.kind == "value"
    text = str(counterexample)
    match = re.search(r"first \[[\d, ]*\]: (\d+) against (\d+)", text)
    assert match is not None, text
    left, right = (int(n) for n in match.groups())
    assert left != right
    if name == "the clip alone":
        assert left in (0, 255), "saturated here, wrapped around there"
    if name == "the cast alone":
        assert right in (0, 255), "wrapped around here, saturated there"
    assert "Requantize" in text
    assert "Cast<to=2>" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cast_of_clipped_requantization", "signed_cast_of_clipped_requantization", "vacuous_clip"]
)
def test_the_two_rules_instead_are_right(name: str) -> None:
    (rule,) = [r for r in select_rules((), "exact", default_rules=True).rules if r.name == name]
    outcome = check_rule(rule, instances=40, seed=5, oracle=onnx_runtime)
    assert outcome.holds, outcome
    assert outcome.instances >= 30
