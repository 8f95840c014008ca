"""Look-ups of facts about operators in the table that the families fill; every file of their folder is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

import eqsat.ops.own_operators  # noqa: F401  # Declares our own operators.
from eqsat.ops import families
from eqsat.ops.equal_axes import EqualAxesRule, alone, broadcasting
from eqsat.ops.registry import TABLE, OperatorFacets
from eqsat.ops.sampling.node import Sampler
from eqsat.ops.sampling.plain import plain
from eqsat.ops.traits import Trait
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import OpKey

for _name in sorted(module.name for module in iter_modules(families.__path__)):
    import_module(f"{families.__name__}.{_name}")


def operator(op: OpKey) -> OperatorFacets:
    """The facts about an operator; for one that is not declared, those that hold for most."""
    found = TABLE.get(op)
    return OperatorFacets(op=op) if found is None else found


def has(op: OpKey, trait: Trait) -> bool:
    """Whether an operator is of a kind."""
    found = TABLE.get(op)
    return found is not None and trait in found.traits


def all_with(trait: Trait) -> tuple[OpKey, ...]:
    """The operators of a kind, sorted."""
    return tuple(o.op for o in declared() if trait in o.traits)


def sampler(op: OpKey) -> Sampler:
    """The sampling of its operands; an operator of ONNX Runtime shares that of its ONNX namesake."""
    found = operator(op).sampling
    if found is None and op.domain == MICROSOFT:
        found = operator(OpKey("", op.name)).sampling
    return plain if found is None else found


def together(op: OpKey) -> EqualAxesRule:
    """The axes of its operands that have one size."""
    return operator(op).together or (broadcasting if has(op, Trait.ELEMENTWISE) else alone)


def declared() -> Iterator[OperatorFacets]:
    """All declared operators, sorted."""
    return (TABLE[op] for op in sorted(TABLE))


def standard() -> Iterator[OperatorFacets]:
    """The operators of ONNX's own domain."""
    return (o for o in declared() if not o.op.domain)
