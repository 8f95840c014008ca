"""The operators of ONNX's default domain as methods, for editors and type checkers.

The methods are in ``default_operators.pyi``, which ``python -m tests.model.operator_stubs`` generates.
"""

from __future__ import annotations


class DefaultOperators:
    """Has a method for each operator of the default domain, as far as type checkers see."""
