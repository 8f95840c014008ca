"""How operands of an operator are drawn that it is defined for, by family: what the checks of rules sample with.

An operator that declares nothing takes operands of one shape.
"""
