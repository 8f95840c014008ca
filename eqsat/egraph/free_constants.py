"""Which sums and products have a constant that may move out of them, so that constants meet and nothing else moves.

A constant in the middle of a sum may float to its outside, and each subset of several constants may float alone: the
e-graph would hold a class for each subset. Two facts of a class prevent that. It has a *free term* if it is a sum with
a constant inside, and a *free factor* if it is a product with one. A rule moves a constant out of a sum only if the
rest has no free term, so the constants of a sum are gathered one after the other, and each class has one such form.

A sum that something other than a sum reads is *pinned*: its value is needed as it is, and moving its constant further
would save nothing. The residual stream of a network, which each layer's normalisation reads, is a chain of pinned sums.
So constants move within a layer and never from layer to layer, and the work does not depend on how many layers follow.

The facts are functions of egglog, 0 or 1, and 2 where a class is pinned. They are derived with the types, before rules
look at them, and for floating-point numbers only: rules move no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.egraph.encode import Encoding
from eqsat.egraph.language import Constructor
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True)
class Gathering:
    """An operator that gathers constants.

    Attributes:
        fact: Name of the function in egglog and of the column of a signature.
        op: The operator.
        neutral: The constant that has no effect and therefore is no reason to move anything.
        readers: Operators that read an operand only as a part of a larger one of the kind.
    """

    fact: str
    op: OpKey
    neutral: int
    readers: frozenset[OpKey]

    @property
    def matters(self) -> str:
        """The relation of numbers that are not neutral."""
        return f"matters_{self.fact}"


GATHERINGS = (
    Gathering("free_term", OpKey("", "Add"), 0, frozenset(OpKey("", n) for n in ("Add", "Sub", "Neg", "Sum"))),
    Gathering("free_factor", OpKey("", "Mul"), 1, frozenset(OpKey("", n) for n in ("Mul", "Div", "Neg"))),
)
"""Both; :mod:`eqsat.rules.kinds` has the names by which rules ask."""
PINNED = 2


def declarations() -> Iterator[str]:
    """Of the facts, and what holds without regard to operators."""
    yield "(relation is_float (i64))"
    for g in GATHERINGS:
        yield f"(function {g.fact} (T) i64 :merge (max old new))"
        yield f"(relation {g.matters} (i64))"
        yield f'(rule ((live e)) ((set ({g.fact} e) 0)) :ruleset analysis :name "live {g.fact}")'
        yield f'(rule ((isc e)) ((set ({g.fact} e) 0)) :ruleset analysis :name "constant {g.fact}")'
        yield (
            f"(rule ((isc e) (= n (nums e)) ({g.matters} n)) ((set ({g.fact} e) 1)) "
            f':ruleset analysis :name "{g.fact} of constant")'
        )


def propagation(c: Constructor) -> Iterator[str]:
    """Rules that derive the fact of a constructor's e-nodes from its operands'."""
    for g in GATHERINGS:
        if c.op == g.op and c.inputs == 2 and not c.outputs and not c.composite:
            node = f"(= e {c.call('a', c.operands)}) (= t (type e)) (is_float t)"
            for x in c.operands:
                yield f"(rule ({node} (= 1 ({g.fact} {x}))) ((set ({g.fact} e) 1)) :ruleset analysis)"


def pinned(encoding: Encoding) -> Mapping[Gathering, list[int]]:
    """The numbers of values that are needed as they are."""
    return {g: _pinned(encoding, g) for g in GATHERINGS}


def _pinned(encoding: Encoding, gathering: Gathering) -> list[int]:
    """Operators that only move data pass on how their result is read."""
    found = {k for k, value in enumerate(encoding.values) if value.is_graph_output()}
    for node in reversed(encoding.nodes):
        op = node.constructor.op
        if op in gathering.readers:
            continue
        if has(op, Trait.MOVES) and found.isdisjoint(node.results):
            continue
        found.update(o for o in node.operands if o is not None and not _is_constant(encoding.values[o]))
    return sorted(found)


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and value.is_initializer()
