"""The sides of ``A or B`` in a rule's conditions that its instances met: other sides were not tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsat.rules.ast import Binary, Condition, Expr
from eqsat.rules.evaluation import holds
from eqsat.rules.print_term import flat


def sides(conditions: Sequence[Condition]) -> dict[str, Expr]:
    """The sides that the author wrote, by their text with its place."""
    return {f"`{flat(side)}` ({side.place})": side for c in conditions for side in _sides(c.expr)}


def met(conditions: Sequence[Condition], env: Mapping[str, object]) -> frozenset[str]:
    """The sides that hold.

    Args:
        env: Facts about an instance for conditions.
    """
    found = sides(conditions)
    return frozenset(text for text, side in found.items() if holds([Condition(side, None, side.place)], env) is None)


def _sides(expr: Expr) -> Iterator[Expr]:
    if not isinstance(expr, Binary):
        return
    if expr.op == "and":
        yield from _sides(expr.left)
        yield from _sides(expr.right)
    elif expr.op == "or" and expr.sign != expr.place:
        # Those that reading a rule adds have no sign of their own.
        for side in (expr.left, expr.right):
            nested = list(_sides(side)) if isinstance(side, Binary) and side.op == "or" else []
            yield from nested or [side]
