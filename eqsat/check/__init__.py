"""Rules are executed before they are trusted.

For a rule, random instances are drawn (types, shapes, attributes and data that its pattern and conditions accept),
rewritten by a real saturation with this rule alone, and both sides are executed and compared as strictly as the
rule's numerics class claims. A difference is a counterexample, reported in full.
"""

from eqsat.check.checked import CheckedRule, check_rules
from eqsat.check.oracle import Oracle, Undefined, Unsupported
from eqsat.check.outcome import Counterexample, Outcome
from eqsat.check.rule import check_rule

__all__ = [
    "CheckedRule",
    "Counterexample",
    "Oracle",
    "Outcome",
    "Undefined",
    "Unsupported",
    "check_rule",
    "check_rules",
]
