"""Which sums and products have a constant that may move out of them, so that constants meet and nothing else moves.

A constant in the middle of a sum may float to its outside, and each subset of several constants may float alone: the
e-graph would hold a class for each subset. Two facts of a class prevent that. It has a *free term* if it is a sum with
a constant inside, and a *free factor* if it is a product with one. A rule moves a constant out of a sum only if the
rest has no free term, so the constants of a sum are gathered one after the other, and each class has one such form.

A sum is *pinned* if it has a reader that is neither a sum nor a constant scale: then its value is needed, and moving
its constant further would save nothing. The residual stream of a network, which each layer's normalisation reads, is a
chain of pinned sums. So constants move within a layer and never from layer to layer, and the work does not depend on
how many layers follow.

Only sums and products matter here, so both are listed here with their readers, and not among the traits of operators.

The facts are functions of egglog, 0 or 1, and 2 where a class is pinned. They are derived with the types, before rules
look at them, and for floating-point numbers only: rules move no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat.egraph.encode import Encoding, constant_values
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
        neutral: The constant that has no effect and therefore is not a reason to move anything.
        readers: Operators that pass on an operand's constant as a constant of their result.
        affine: Readers that do so if their other operand is constant, after a rule for affine maps.
        carriers: Those of ``affine`` whose result then has such a constant inside.
    """

    fact: str
    op: OpKey
    neutral: int
    readers: frozenset[OpKey]
    affine: frozenset[OpKey]
    carriers: frozenset[OpKey] = frozenset()

    @property
    def matters(self) -> str:
        """The relation of numbers that are not neutral."""
        return f"matters_{self.fact}"


def _operators(*names: str) -> frozenset[OpKey]:
    return frozenset(OpKey("", name) for name in names)


_SCALES = _operators("Mul", "Div")
GATHERINGS = (
    Gathering("free_term", OpKey("", "Add"), 0, _operators("Add", "Sub", "Neg", "Sum"), _SCALES, _SCALES),
    Gathering("free_factor", OpKey("", "Mul"), 1, _operators("Mul", "Div", "Neg"), _operators("Add", "Sub")),
)
"""Both; :mod:`eqsat.rules.kinds` has the names by which rules ask."""
PINNED = 2


def declarations() -> Iterator[str]:
    """Commands that declare the facts, and rules that do not depend on operators."""
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
    if c.inputs != 2 or c.outputs or c.composite:
        return
    for g in GATHERINGS:
        if c.op != g.op and c.op not in g.carriers:
            continue
        node = f"(= e {c.call('a', c.operands)}) (= t (type e)) (is_float t)"
        for x, other in (("x0", "x1"), ("x1", "x0")):
            premises = f"{node} (= 1 ({g.fact} {x})){f' (isc {other})' if c.op in g.carriers else ''}"
            yield f"(rule ({premises}) ((set ({g.fact} e) 1)) :ruleset analysis)"


def pinned(encoding: Encoding) -> Mapping[Gathering, list[int]]:
    """The numbers of pinned values, which are needed unchanged."""
    return {g: _pinned(encoding, g) for g in GATHERINGS}


def _pinned(encoding: Encoding, gathering: Gathering) -> list[int]:
    """Operators that only move data pass on how their result is read."""
    constant = constant_values(encoding)
    found = {k for k, value in enumerate(encoding.values) if value.is_graph_output()}
    for node in reversed(encoding.nodes):
        op = node.constructor.op
        if op in gathering.readers:
            continue
        if has(op, Trait.MOVES) and found.isdisjoint(node.results):
            continue
        if op in gathering.affine and any(o in constant for o in node.operands):
            continue
        found.update(o for o in node.operands if o is not None and o not in constant)
    return sorted(found - constant)
