"""Proofs of rules: both sides as functions of symbols, compared by normal forms and by a solver.

Checks execute a rule on samples; a proof holds for all values. What is not modelled exactly is not proven, and the
reason is named.
"""
