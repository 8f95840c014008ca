"""Rules of several roots, and of operators with several outputs: named, built, asked in conditions, executed."""

from __future__ import annotations

import pytest

from eqsat.check.rule import check_rule
from eqsat.rules.reader import read_text
from tests.check.oracle import onnx_runtime
from tests.rules.printing import pattern_text, shown

RULES = {
    "all attributes of a node with two named outputs": """
        (a, b) = n: Split(Neg(x), s)  =>  a = Neg(t[0]), b = Neg(t[1])
        let t = Split(x, s, **n)""",
    "a node that is a root by another name": """
        a = n: Transpose(x), b = Neg(x)  =>  a = Neg(Neg(Transpose(x, **n))), b = Neg(x)
        where a.rank == 2, n.perm == [1, 0]""",
    "one node, built where each output is needed": """
        (a, b) = Split(Neg(x), axis=k, num_outputs=2)
            =>  a = Neg(Split(x, axis=k, num_outputs=2)[0]), b = Neg(Split(x, axis=k, num_outputs=2)[1])""",
    "the number of outputs with all attributes": """
        (a, b) = n: Split(Neg(x), axis=k)  =>  a = Neg(Split(x, **n)[0]), b = Neg(Split(x, **n)[1])""",
    "the number of outputs with the matched sizes": """
        (a, b) = Split(Neg(x), s, axis=k)  =>  a = Neg(Split(x, s, axis=k)[0]), b = Neg(Split(x, s, axis=k)[1])""",
    "the first of two equal parts": """
        Neg(Abs(x))  =>  Neg(Split(Abs(Concat(x, x, axis=0)), num_outputs=2, axis=0)[0])
        where x.rank >= 1, x.dtype in (float32, float64)""",
    "the second of three parts": """
        Neg(Abs(x))  =>  Neg(Split(Abs(Concat(x, x, x, axis=0)), [n, n, n], axis=0)[1])
        let n = x.shape[0]
        where x.rank >= 1, x.dtype in (float32, float64)""",
    "conditions on both outputs": """
        (a, b) = Split(Neg(x), s, axis=k)  =>  a = Neg(t[0]), b = Neg(t[1])
        let t = Split(x, s, axis=k)
        where a.shape[k] < b.shape[k], b.rank >= 2""",
    "conditions on two operators": """
        a = Neg(x), b = Abs(x)  =>  a = Neg(x), b = Abs(Neg(x))
        where a.dtype == float32, b.rank == 2""",
    "the least of a scalar": """
        Clip(x, z)  =>  Clip(Clip(x, z), z)
        where min(z.value) == max(z.value), x.dtype in (float32, float64)""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_it_fires_and_holds(name: str) -> None:
    (rule,) = read_text(f"rule r : exact{RULES[name]}").rules
    outcome = check_rule(rule, instances=20, oracle=onnx_runtime)
    assert outcome.holds, outcome
    assert outcome.instances >= 15, outcome.why_silent()
    assert outcome.mismatch is None, outcome.mismatch


@pytest.mark.parametrize("name", RULES)
def test_what_is_shown_reads_back_as_the_same_rule(name: str) -> None:
    (rule,) = read_text(f"rule r : exact{RULES[name]}").rules
    text = pattern_text(rule)
    conditions = "".join(f"\n    where {shown(c.expr)}" for c in rule.where)
    (again,) = read_text(f"rule r : exact\n    {text}{conditions}").rules
    assert pattern_text(again) == text
    outcome = check_rule(again, instances=5, oracle=onnx_runtime)
    assert outcome.holds, outcome
