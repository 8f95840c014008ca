"""Named sets of operators, which rules and target files may name in the place of a list.

A set holds the operators of one domain, at the pinned opset, that declare a trait. So a new operator is in the sets of
its traits without a change to any other file. All operators of a set must accept the operands and attributes that a
rule gives, which is why ONNX's own operators are apart from those of ``com.microsoft``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from eqsat.ops.operators import declared
from eqsat.ops.traits import Trait
from eqsat.schema.opset import MICROSOFT, find_schema
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True)
class OperatorSet:
    """A set and its name.

    Attributes:
        name: In rules and target files.
        doc: The common property of its operators.
        operators: Sorted by name.
    """

    name: str
    doc: str
    operators: tuple[OpKey, ...]


_SETS = {
    "elementwise": (Trait.ELEMENTWISE, "each element of the result depends only on the elements at the same position"),
    "unary": (Trait.UNARY, "elementwise, of one operand"),
    "commutative": (Trait.COMMUTATIVE, "any order of the operands gives the same result"),
    "elementary": (Trait.ELEMENTARY, "evaluate an elementary function for each element"),
    "reductions": (Trait.REDUCTION, "reduce over the axes given"),
    "movement": (Trait.MOVES, "move, copy, generate or select elements by position, without arithmetic on them"),
    "views": (Trait.FORWARDS, "return their operand, without a copy"),
    "random": (Trait.RANDOM, "draw random numbers"),
}
_OF_MICROSOFT = {"elementwise": (Trait.ELEMENTWISE, "the elementwise operators of ONNX Runtime's own domain")}


@cache
def operator_sets() -> dict[str, OperatorSet]:
    """All sets by name, those of ``com.microsoft`` with the domain before it. Do not modify the result."""
    named = [("", *entry) for entry in _SETS.items()] + [(MICROSOFT, *entry) for entry in _OF_MICROSOFT.items()]
    known = [o for o in declared() if find_schema(o.op) is not None]
    found = (
        OperatorSet(
            str(OpKey(domain, name)), doc, tuple(o.op for o in known if o.op.domain == domain and trait in o.traits)
        )
        for domain, name, (trait, doc) in named
    )
    return {entry.name: entry for entry in found}
