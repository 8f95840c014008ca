"""Free sizes with the facts that operators imply: which sizes follow from others, and which conditions they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat.errors import ModelError
from eqsat.schema.agreement import Follows, Requirement, conditions, fits, solved
from eqsat.schema.chosen_sizes import fitting
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import FreeSize, FreeSizes
from eqsat.schema.size import Undecided, closer_bounds, value_at
from eqsat.schema.size_questions import as_dim, substituted, symbols


def related(
    sizes: FreeSizes, requirements: Sequence[Requirement], given: Mapping[str, FreeSize], place: str = ""
) -> dict[str, FreeSize]:
    """The same sizes; typical ones fit each other, unless the caller gave them.

    Args:
        sizes: Each with its range and a typical size.
        requirements: Requirements of the model.
        given: The values that the caller gives.
        place: The file, for messages.

    Raises:
        ModelError: The range of a size contains none of the values that it may have.
    """
    found = dict(sizes)
    if not requirements:
        return found
    for name, follows in solved(requirements, sizes).items():
        found[name] = _following(name, sizes[name], follows, place)
    for condition, names in conditions(requirements, sizes):
        last = max(names, key=list(found).index)
        found[last] = replace(found[last], conditions=(*found[last].conditions, condition))
    fit = fitting(found, {name: size.typical for name, size in found.items()})
    for name, size in found.items():
        is_given = name in given and given[name].typical and not size.follows
        found[name] = size if is_given else replace(size, typical=fit[name])
    return found


def _following(name: str, size: FreeSize, follows: Follows, place: str) -> FreeSize:
    least, most = closer_bounds(follows.size)
    if follows.forced:
        least, most = max(least, size.least), most if size.most is None else min(most, size.most)
        if least > most:
            a, b = _sides(follows)
            raise ModelError(
                f"{a} and {b} have to agree",
                place=f"{place}: {follows.requirement.place}" if place else follows.requirement.place,
                actual=f"{size.least}..{'' if size.most is None else size.most} for `{name}`, which is {follows.text}",
                hint=f"leave `{name}` out: it follows from the others",
            )
        size = replace(size, least=least, most=None if most >= _NO_LIMIT else most)
    return replace(size, follows=follows.text, forced=follows.forced)


_NO_LIMIT = 1 << 62


def _sides(follows: Follows) -> tuple[str, str]:
    return _quoted(follows.requirement.a), _quoted(follows.requirement.b)


def _quoted(size: int | str) -> str:
    return f"`{size}`" if isinstance(size, str) else str(size)


def disagreement(requirements: Sequence[Requirement], sizes: Mapping[str, int], free: FreeSizes) -> Requirement | None:
    """The first requirement that does not hold at some sizes.

    Args:
        requirements: Of the model.
        sizes: Values of symbols.
        free: All symbols.
    """
    for requirement in requirements:
        pair = sides_at(requirement, sizes, free)
        if pair is None or not requirement.always or any(True for size in pair for _ in symbols(size)):
            continue
        if not fits(*pair, requirement.fit):
            return requirement
    return None


def sides_at(requirement: Requirement, sizes: Mapping[str, int], free: FreeSizes) -> tuple[int, int] | None:
    """Both sides of a requirement for given sizes, None where they are unknown."""
    try:
        a, b = (substituted(size_of(side, free), sizes) for side in (requirement.a, requirement.b))
    except Undecided:
        return None
    return a, b


def said(requirement: Requirement, sizes: Mapping[str, int], free: FreeSizes) -> str:
    """``P + S = 7 and T = 9``, or ``M = 2, less than 3`` if a size is too small."""
    pair = sides_at(requirement, sizes, free)
    assert pair is not None
    texts = []
    for side, size in zip((requirement.a, requirement.b), pair, strict=True):
        number = as_dim(size) if any(True for _ in symbols(size)) else value_at(size, {})
        texts.append(str(side) if str(side) == str(number) else f"{side} = {number}")
    return (", less than " if requirement.fit == "least" else " and ").join(texts)
