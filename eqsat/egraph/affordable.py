"""Decides which constant expressions are computed in advance and stored: those that are not too large.

To the rules, an expression of constants is a constant. This module decides whether to compute it, before anything is
computed, because a model of a few bytes may require 10^12 elements. Other expressions stay operators of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat import bounds
from eqsat.egraph.enode import ENode
from eqsat.egraph.intern import InternedConstant
from eqsat.ops.evaluate import may_fold, try_need
from eqsat.ops.need import SLOW, Need
from eqsat.ops.schemas import defaults
from eqsat.schema.types import GraphAttr, TensorType

FOLD_TOTAL = 16 * bounds.FOLD_ELEMENTS
"""Elements of all constants that are computed, unless the model itself has many."""
_VARIANTS = 64
"""Stored elements may be needed in this many other layouts and types by rules; a program uses few of them."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The known facts about an operand with unknown contents."""

    shape: tuple[int, ...]


def unaffordable(
    nodes: Sequence[ENode],
    classes: Sequence[Sequence[int]],
    types: Sequence[TensorType | None],
    constant: Sequence[bool],
    value: Sequence[InternedConstant | None],
    leaf: Callable[[ENode], InternedConstant],
) -> tuple[frozenset[int], frozenset[int]]:
    """Constant expressions that are not computed in advance.

    Args:
        nodes: E-nodes.
        classes: E-nodes of each class.
        types: Type of each class.
        constant: Whether each class is a constant expression.
        value: Small constant that each class equals.
        leaf: Returns the constant of an e-node that is one.

    Returns:
        The e-nodes that are too large, and the constant classes that are not computed.
    """
    expressions = [c for c, fixed in enumerate(constant) if fixed and value[c] is None]
    stored = [_elements(leaf(n).type) for n in nodes if n.kind == "const"]
    largest = max(stored, default=0)
    limit = max(FOLD_TOTAL, _VARIANTS * sum(stored))
    needs = {n: _need(nodes[n], types, value) for c in expressions for n in classes[c]}
    unfit = frozenset(n for n, need in needs.items() if need is None or not may_fold(need, largest))
    if not unfit and sum(need.elements for need in needs.values() if need is not None) <= limit:
        return unfit, frozenset()
    known = {c for c, v in enumerate(value) if v is not None}
    readers: dict[int, list[int]] = {}
    for c in expressions:
        for child in dict.fromkeys(k for n in classes[c] for k in nodes[n].children if k is not None):
            readers.setdefault(child, []).append(c)
    waiting, total = expressions, 0
    while waiting:
        made = []
        for c in waiting:
            ready = [n for n in classes[c] if n not in unfit and _derivable(nodes[n], known)]
            least = min((_elements(types[c]) if types[c] else _of(needs[n]) for n in ready), default=0)
            if ready and total + least <= limit:
                known.add(c)
                made.append(c)
                total += least
        # Only readers of a constant that has become known can become known in the next round.
        waiting = sorted({r for c in made for r in readers.get(c, ()) if r not in known})
    return unfit, frozenset(c for c in expressions if c not in known)


def _of(need: Need | None) -> int:
    return 0 if need is None else need.elements


def _elements(known: TensorType | None) -> int:
    return (known.elements or 0) if known is not None else 0


def _derivable(node: ENode, known: set[int]) -> bool:
    return node.kind == "const" or (node.kind in ("op", "part") and all(c is None or c in known for c in node.children))


def _need(node: ENode, types: Sequence[TensorType | None], value: Sequence[InternedConstant | None]) -> Need | None:
    """The memory and work for computing an e-node; None if it is not computed, or its needs are unknown."""
    if node.kind in ("const", "part"):
        return Need(0, 0)
    if node.kind != "op" or any(isinstance(v, GraphAttr) for _, v in node.attrs):
        return None
    made = types[node.eclass]
    operands: list[Any] = []
    for child in node.children:
        known = None if child is None else value[child]
        kind = None if child is None else types[child]
        if child is None:
            operands.append(None)
        elif known is not None:
            operands.append(known.numpy())
        elif kind is not None and kind.is_static:
            operands.append(_Shape(tuple(int(d) for d in kind.shape or () if isinstance(d, int))))
        else:
            operands.append(None)
    need = try_need(node.op, {**defaults(node.op), **dict(node.attrs)}, operands)
    if need is None:
        # A parameter whose value is not known, or operands of unknown size: only the type of the result is used.
        return None if made is None or made.elements is None else Need(made.elements, SLOW * made.elements)
    return Need(max(need.elements, _elements(made)), need.operations)
