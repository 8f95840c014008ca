"""Equality saturation for ONNX models: optimize, place on accelerators, run, compare.

The names below load what they need when they are first used, so that ``import eqsat`` and
``eqsat --help`` cost nothing (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.later import defer_sympy, imported
from eqsat.version import __version__

if TYPE_CHECKING:
    from eqsat import errors
    from eqsat.api import Result, compare, compile, load, optimize, prove, quantize, run, save, write_c
    from eqsat.backends import Backend
    from eqsat.check.checked import check_rules
    from eqsat.codegen.compiled import CompiledModel
    from eqsat.discover.find_rules import discover_rules
    from eqsat.errors import EqsatError
    from eqsat.model.builder import graph, input, op
    from eqsat.proofs.proved import prove_rules
    from eqsat.quantization.result import QuantizationResult
    from eqsat.reasons import explain_placement, explain_rule
    from eqsat.rules.user_operators import declarations, operator
    from eqsat.schema.types import TensorType

__all__ = [
    "Backend",
    "CompiledModel",
    "EqsatError",
    "QuantizationResult",
    "Result",
    "TensorType",
    "__version__",
    "check_rules",
    "compare",
    "compile",
    "declarations",
    "discover_rules",
    "errors",
    "explain_placement",
    "explain_rule",
    "graph",
    "input",
    "load",
    "op",
    "operator",
    "optimize",
    "prove",
    "prove_rules",
    "quantize",
    "run",
    "save",
    "write_c",
]

_HOME = {
    "Backend": "eqsat.backends",
    "CompiledModel": "eqsat.codegen.compiled",
    "EqsatError": "eqsat.errors",
    "QuantizationResult": "eqsat.quantization.result",
    "Result": "eqsat.api",
    "TensorType": "eqsat.schema.types",
    "api": "eqsat.api",
    "check_rules": "eqsat.check.checked",
    "compare": "eqsat.api",
    "compile": "eqsat.api",
    "declarations": "eqsat.rules.user_operators",
    "discover_rules": "eqsat.discover.find_rules",
    "errors": "eqsat.errors",
    "explain_placement": "eqsat.reasons",
    "explain_rule": "eqsat.reasons",
    "graph": "eqsat.model.builder",
    "input": "eqsat.model.builder",
    "load": "eqsat.api",
    "op": "eqsat.model.builder",
    "operator": "eqsat.rules.user_operators",
    "optimize": "eqsat.api",
    "prove_rules": "eqsat.proofs.proved",
    "prove": "eqsat.api",
    "quantize": "eqsat.api",
    "run": "eqsat.api",
    "save": "eqsat.api",
    "write_c": "eqsat.api",
}


defer_sympy()


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'eqsat' has no attribute {name!r}")
    module = imported(home)
    value = module if home == f"eqsat.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
