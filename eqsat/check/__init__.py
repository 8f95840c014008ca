"""Rules are executed before they are trusted.

For a rule, random instances are drawn (types, shapes, attributes and data that its pattern and conditions accept),
rewritten by a real saturation with this rule alone, and both sides are executed and compared as strictly as the
rule's numerics class claims. A difference is a counterexample, reported in full.
"""
