"""The first tensors of two models that are not joined, in order of execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsat.equivalence.tensors import ModelNode, Tensors
from eqsat.equivalence.verdict import DivergencePoint
from eqsat.schema.types import AttrValue


def first_apart(tensors: Tensors, ends: Iterable[tuple[int, int]], cuts: Mapping[int, int]) -> list[DivergencePoint]:
    """For each pair of ends the first tensors before it that have no counterpart.

    Args:
        tensors: Tensors of both models.
        ends: Outputs that are not joined, or differ.
        cuts: Groups of tensors that are assumed to be equal here, besides joined ones, by tensor.
    """
    found: list[DivergencePoint] = []
    for left, right in ends:
        a, b = _first(tensors, left, cuts), _first(tensors, right, cuts)
        place = DivergencePoint(
            "" if a is None else tensors.name(a),
            "" if b is None else tensors.name(b),
            ("" if a is None else tensors.operator(a), "" if b is None else tensors.operator(b)),
            _reason(tensors, a, b, cuts),
        )
        if place not in found:
            found.append(place)
    return found


def _meets(tensors: Tensors, k: int, cuts: Mapping[int, int]) -> int:
    """The representative of all tensors that count as equal to one."""
    return -1 - cuts[k] if k in cuts else tensors.joined.find(k)


def _first(tensors: Tensors, end: int, cuts: Mapping[int, int]) -> int | None:
    """The first operation before an end, or the end's own, whose operands all have counterparts and whose result has
    none.
    """
    other = 1 - tensors.side[end]
    known = {_meets(tensors, k, cuts) for k in range(len(tensors.values)) if tensors.side[k] == other}
    waiting, seen, fronts = [end], {end}, set[int]()
    while waiting:
        k = waiting.pop()
        maker = tensors.maker(k)
        below = [] if maker is None else [o for o in maker.operands if o is not None]
        apart = [o for o in below if not tensors.fixed[o] and (_meets(tensors, o, cuts) not in known)]
        if not apart:
            fronts.add(k)
        fresh = [o for o in apart if o not in seen]
        seen.update(fresh)
        waiting += fresh
    return min(fronts, default=None)


def _reason(tensors: Tensors, a: int | None, b: int | None, cuts: Mapping[int, int]) -> str:
    """The difference between two operations, in words."""
    left = None if a is None else tensors.maker(a)
    right = None if b is None else tensors.maker(b)
    if left is None or right is None or left.op != right.op:
        return ""
    for name, values in _attributes(left, right).items():
        if values[0] != values[1] and all(isinstance(v, int | float | str | tuple) for v in values):
            return f"attribute {name} is {values[0]!r} and {values[1]!r}"
    if len(left.operands) != len(right.operands):
        return f"{len(left.operands)} and {len(right.operands)} operands"
    for i, (x, y) in enumerate(zip(left.operands, right.operands, strict=True)):
        if x is None or y is None:
            if x is not y:
                return f"operand {i} is missing in one of them"
        elif _meets(tensors, x, cuts) != _meets(tensors, y, cuts):
            what = "constants" if tensors.fixed[x] and tensors.fixed[y] else "tensors"
            return f"operand {i} is one of different {what}, {tensors.name(x)!r} and {tensors.name(y)!r}"
    return ""


def _attributes(left: ModelNode, right: ModelNode) -> dict[str, tuple[AttrValue | None, AttrValue | None]]:
    a, b = dict(left.attrs), dict(right.attrs)
    return {name: (a.get(name), b.get(name)) for name in sorted({*a, *b})}
