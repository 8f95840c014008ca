"""Sizes that have to agree: which of them follow from the others.

Operators require pairs of sizes to be equal, or equal unless one of them is 1. A pair is an equation of polynomials in
the symbols of a model's inputs. Where one of the symbols stands in it alone, the equation is solved for it: this symbol
*follows* from the others. What cannot be solved (``h // 16 == 2 * (h // 32)``) is a condition on the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import Fit, FreeSize, SizeCondition
from eqsat.schema.size import Size, SizeMonomial, SizeOperation, Undecided, closer_bounds
from eqsat.schema.size_questions import as_dim, substituted, symbols
from eqsat.schema.symbol import Symbol


class Requirement(NamedTuple):
    """Two sizes that have to agree.

    Attributes:
        a, b: Each a number or an expression of symbols.
        fit: How they have to.
        place: The operator that requires it.
        always: Whether the operator is executed in each run.
    """

    a: int | str
    b: int | str
    fit: Fit
    place: str
    always: bool

    @property
    def pair(self) -> tuple[object, Fit]:
        """What is required, wherever that is; most ways of fitting know no order."""
        return (self.a, self.b) if self.fit == "least" else frozenset((self.a, self.b)), self.fit


@dataclass(frozen=True, slots=True)
class Follows:
    """A size that follows from others.

    Attributes:
        size: The size as a polynomial in the independent symbols.
        forced: Whether no other size is possible; otherwise it may be 1, or its operator may not be executed.
        requirement: The requirement from which it follows.
    """

    size: int
    forced: bool
    requirement: Requirement

    @property
    def text(self) -> str:
        return str(as_dim(self.size))


def solved(requirements: Sequence[Requirement], free: Mapping[str, FreeSize]) -> dict[str, Follows]:
    """The symbols that follow from others, those that are forced first.

    Args:
        requirements: Of a model.
        free: The symbols of its inputs, in order: a later one follows from earlier ones.
    """
    return _solve(requirements, free)[0]


def conditions(
    requirements: Sequence[Requirement], free: Mapping[str, FreeSize]
) -> list[tuple[SizeCondition, set[str]]]:
    """The remaining requirements, each with its symbols."""
    follows, left = _solve(requirements, free)
    known = {name: found.size for name, found in follows.items()}
    made: dict[SizeCondition, set[str]] = {}
    for requirement in left:
        pair = _pair(requirement, free, known)
        if pair is None or fit_always(*pair, requirement.fit):
            continue
        a, b = pair
        names = {s.name for size in pair for s in symbols(size)}
        if names:
            made[SizeCondition(str(as_dim(a)), str(as_dim(b)), requirement.fit, requirement.always)] = names
    return list(made.items())


def _solve(
    requirements: Sequence[Requirement], free: Mapping[str, FreeSize]
) -> tuple[dict[str, Follows], list[Requirement]]:
    found: dict[str, Follows] = {}
    left = list(requirements)
    for forced in (True, False):
        while True:
            rest: list[Requirement] = []
            for requirement in left:
                known = {name: follows.size for name, follows in found.items()}
                pair = _pair(requirement, free, known)
                if pair is None or fit_always(*pair, requirement.fit):
                    continue
                solution = _solution(pair[0] - pair[1], list(free)) if _may_solve(pair, requirement, forced) else None
                if solution is None:
                    rest.append(requirement)
                    continue
                name, size = solution
                found = {
                    n: Follows(substituted(f.size, {name: size}), f.forced, f.requirement) for n, f in found.items()
                }
                found[name] = Follows(size, forced, requirement)
            if len(rest) == len(left):
                break
            left = rest
    return found, left


def _pair(requirement: Requirement, free: Mapping[str, FreeSize], known: Mapping[str, int]) -> tuple[int, int] | None:
    """Both sizes with known symbols replaced; None if they are not expressions of sizes of the inputs."""
    try:
        a, b = (substituted(size_of(d, free), known) for d in (requirement.a, requirement.b))
    except Undecided:
        return None
    return a, b


def fit_always(a: int, b: int, fit: Fit) -> bool:
    """Whether two sizes fit each other for all values of the symbols."""
    if a == b or (fit == "broadcast" and 1 in (a, b)):
        return True
    return fit == "least" and closer_bounds(a - b)[0] >= 0


def fits(a: int, b: int, fit: Fit) -> bool:
    """Whether two numbers do."""
    return a == b or (fit == "broadcast" and 1 in (a, b)) or (fit == "least" and a > b)


def _may_solve(pair: tuple[int, int], requirement: Requirement, forced: bool) -> bool:
    """Whether a requirement is an equation, one without exceptions if ``forced``."""
    if requirement.fit == "least":
        return False
    if not forced:
        return True
    return requirement.always and (requirement.fit == "equal" or all(closer_bounds(n)[0] > 1 for n in pair))


def _solution(difference: int, order: Sequence[str]) -> tuple[str, int] | None:
    """A symbol and its value if a polynomial is zero; None if no symbol can be isolated."""
    if not isinstance(difference, Size):
        return None
    divisor = math.gcd(*difference.terms.values())
    terms = {monomial: factor // divisor for monomial, factor in difference.terms.items()}
    best: tuple[tuple[bool, bool, int], str, int] | None = None
    for monomial, factor in terms.items():
        if len(monomial) != 1 or not isinstance(symbol := monomial[0], Symbol) or abs(factor) != 1:
            continue
        rest: dict[SizeMonomial, int] = {m: -factor * k for m, k in terms.items() if m != monomial}
        if symbol.name in set(_names(rest)):
            continue
        size = rest.get((), 0) if rest.keys() <= {()} else Size(rest)
        # A sum is best. An expression that is a valid size only for some of the others is no size.
        rank = (all(k >= 0 for k in rest.values()), closer_bounds(size)[0] >= 0, order.index(symbol.name))
        if closer_bounds(size)[1] >= 0 and (best is None or rank > best[0]):
            best = (rank, symbol.name, size)
    return None if best is None else best[1:]


def _names(terms: Mapping[SizeMonomial, int]) -> Iterator[str]:
    for monomial in terms:
        for atom in monomial:
            if isinstance(atom, SizeOperation):
                yield from (s.name for s in (*symbols(atom.a), *symbols(atom.b)))
            else:
                yield atom.name
