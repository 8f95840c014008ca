"""Which domains the operators of a result may come from: ``ops="onnx"`` keeps to the standard.

An operator with a body, of eqsat or of a user, is a function in the saved file, and so runs everywhere. The others are
operators that the runtime must know. Those of the model itself stay; rules and composites add none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from eqsat.errors import OptimizationError
from eqsat.rules.ast import Build, Composite, Rule, operands
from eqsat.rules.tree import walk
from eqsat.schema.declared_operators import DeclaredOperator, find_function
from eqsat.schema.opset import EQSAT, OPSETS, did_you_mean
from eqsat.schema.types import OpKey

STANDARD = "onnx"
"""The name of ONNX's own domain, which has none in files."""


def domains(ops: str | Sequence[str], declared: Iterable[DeclaredOperator] = ()) -> frozenset[str] | None:
    """The domains that names denote; None for all.

    Args:
        ops: Names of domains, also as one text with commas; empty for all.
        declared: Operators of domains of users.

    Raises:
        OptimizationError: A name is not a domain, or ONNX's own is missing.
    """
    names = [name.strip() for name in ops.split(",")] if isinstance(ops, str) else list(ops)
    if names in ([], [""]):
        return None
    known = sorted({STANDARD, *(d for d in OPSETS if d and d != EQSAT), *(o.op.domain for o in declared)})
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        raise OptimizationError(
            "domains of operators are required",
            place="ops",
            actual=repr(wrong),
            hint=did_you_mean(wrong, known) or f"known are {', '.join(known)}",
        )
    if STANDARD not in names:
        raise OptimizationError(
            f"`{STANDARD}`, ONNX's own domain, is required among the domains",
            place="ops",
            actual=", ".join(names),
            hint=f"for example {STANDARD},{names[0]}",
        )
    return frozenset("" if name == STANDARD else name for name in names)


def makes_only(rule: Rule, allowed: AbstractSet[str] | None) -> bool:
    """Whether all operators that a rule builds are of these domains."""
    built = (part.op for part in walk(rule.right, operands, once=True) if isinstance(part, Build))
    return allowed is None or all(_is_allowed(op, allowed) for op in built if isinstance(op, OpKey))


def writes_only(composite: Composite, allowed: AbstractSet[str] | None) -> bool:
    """Whether the operator as which a composite is written is of these domains."""
    if allowed is None or composite.written is None:
        return True
    op = composite.written.operator.op
    return not isinstance(op, OpKey) or _is_allowed(op, allowed)


def _is_allowed(op: OpKey, allowed: AbstractSet[str]) -> bool:
    return op.domain in allowed or find_function(op) is not None
