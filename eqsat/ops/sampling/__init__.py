"""Draws operands for which an operator is defined, by family, for the checks of rules.

An operator that declares nothing takes operands of one shape.
"""
