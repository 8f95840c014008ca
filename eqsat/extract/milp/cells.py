"""Finds sets of classes that can share a region more sharply than zones do: the *cells* of a zone.

A class that runs only off a target is a *wall*. Take walls each of which needs the one before. A class of a zone that
needs the first i walls, and that is below the wall after the first j in every program that has both, lies in the
*levels* i to j. No region has two classes without a common level, for there is a wall between them. Intervals that
overlap in pairs have a level in common, so a region lies within one level, and there within one connected piece. These
pieces are the cells, if no other one contains them. A step of a recurrent network is a cell, although its result is
joined with those of all other steps in the end, and although its product with the input could be computed long before.

Cells can overlap. Each region is counted in one of those that contain it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.reduce.class_dominators import members

MOST_STEPS = 3_000_000
"""Walls times readings; with more, walls are left out."""
MOST_PLACES = 200_000
"""Classes of a zone times levels; with more, walls are left out."""
DEEPEST = 3
"""How often cells are cut along further walls."""


@dataclass(frozen=True)
class Wall:
    """A class that runs only off a target.

    Attributes:
        klass: The class.
        needs: Mask of the classes that it needs, itself included.
        above: Mask of the classes on the target that need it.
        below: Mask of the classes on the target that are below it in every program that has both.
    """

    klass: int
    needs: int
    above: int
    below: int


def find_walls(formulation: Formulation, target: int) -> list[Wall]:
    """The walls that every program contains and that have classes on the target on both sides, inputs first."""
    sets = formulation.dominators.of_class
    able = mask_of(c for c, column in enumerate(formulation.made[:, target].tolist()) if column >= 0)
    above = {w: 0 for w in formulation.must.tolist() if not able >> w & 1}
    outside = mask_of(above)
    for c in members(able, len(sets)).tolist():
        for w in members(sets[c] & outside, len(sets)).tolist():
            above[w] |= 1 << c
    order = sorted((w for w in above if above[w]), key=lambda w: (sets[w].bit_count(), w))
    order = order[:: 1 + len(order) * len(formulation.edge_child) // MOST_STEPS]
    walls = [Wall(w, sets[w], above[w], _certainly_below(formulation, w) & able) for w in order]
    return [wall for wall in walls if wall.below]


def _certainly_below(formulation: Formulation, wall: int) -> int:
    """Mask of the classes that are below a wall in every program that has both.

    Such a class is read, directly or not, by a root. No root reaches it except through what the wall needs.
    """
    dominators = formulation.dominators
    children = formulation.problem.children
    passed = dominators.of_class[wall]
    todo = [root for root in set(formulation.problem.roots) if not passed >> root & 1]
    passed |= mask_of(todo)
    reached = mask_of(todo)
    while todo:
        for node in dominators.options[todo.pop()]:
            for child in children[node]:
                if not passed >> child & 1:
                    passed |= 1 << child
                    reached |= 1 << child
                    todo.append(child)
    return ~reached & ~(1 << wall)


def find_cells(zone: int, walls: Sequence[Wall], near: Sequence[Sequence[int]], deepest: int = DEEPEST) -> list[int]:
    """The cells of a zone, as masks; the zone itself if no wall cuts it.

    Args:
        zone: Mask of its classes.
        walls: Inputs first.
        near: Per class those with which it can share a region directly, in both directions.
        deepest: How often cells are cut again.
    """
    chain = _chain([wall for wall in walls if wall.above & zone and wall.below & zone], zone)
    if not chain or not deepest:
        return [zone]
    cells: list[int] = []
    for piece in _pieces(zone, chain, near):
        cells += find_cells(piece, walls, near, deepest - 1) if piece != zone else [zone]
    return [cell for i, cell in enumerate(cells) if not _is_covered(cell, i, cells)]


def _is_covered(cell: int, place: int, cells: Sequence[int]) -> bool:
    return any(
        cell & other == cell and (cell != other or before < place)
        for before, other in enumerate(cells)
        if before != place
    )


def _chain(walls: Sequence[Wall], zone: int) -> list[Wall]:
    """The longest sequence of walls each of which needs the one before and cuts the zone in another way."""
    # Of walls with the same classes below them, the lowest has the most above it, and the other way round.
    lowest: list[Wall] = []
    for wall in walls:
        if not any(w.below & zone == wall.below & zone and wall.needs >> w.klass & 1 for w in lowest):
            lowest.append(wall)
    kept: list[Wall] = []
    for wall in reversed(lowest):
        if not any(w.above & zone == wall.above & zone and w.needs >> wall.klass & 1 for w in kept):
            kept.append(wall)
    kept.reverse()
    length: list[int] = []
    before: list[int] = []
    for i, wall in enumerate(kept):
        best = max((j for j in range(i) if wall.needs >> kept[j].klass & 1), key=lambda j: (length[j], -j), default=-1)
        length.append(1 + (length[best] if best >= 0 else 0))
        before.append(best)
    chain: list[Wall] = []
    at = max(range(len(kept)), key=lambda i: (length[i], -i), default=-1)
    while at >= 0:
        chain.append(kept[at])
        at = before[at]
    chain.reverse()
    step = 1 + zone.bit_count() * len(chain) // MOST_PLACES
    return chain[::step]


def _pieces(zone: int, chain: Sequence[Wall], near: Sequence[Sequence[int]]) -> Iterator[int]:
    """The connected pieces of all levels, without those that a piece of a level beside theirs contains."""
    classes = members(zone, zone.bit_length()).tolist()
    first = {c: sum(wall.above >> c & 1 for wall in chain) for c in classes}
    last = {c: len(chain) - sum(wall.below >> c & 1 for wall in chain) for c in classes}
    starting: list[list[int]] = [[] for _ in range(len(chain) + 1)]
    for c in classes:
        starting[first[c]].append(c)
    here: list[int] = []
    before: list[int] = []
    pending: list[int] = []
    for level in range(len(chain) + 1):
        here = [c for c in here if last[c] >= level] + starting[level]
        now = _connected(here, near)
        yield from (piece for piece in pending if not any(piece & other == piece for other in now))
        pending = [piece for piece in now if not any(piece & other == piece and piece != other for other in before)]
        before = now
    yield from pending


def _connected(classes: Sequence[int], near: Sequence[Sequence[int]]) -> list[int]:
    """The connected pieces of some classes, as masks."""
    left = set(classes)
    found: list[int] = []
    for start in classes:
        if start not in left:
            continue
        left.discard(start)
        todo = [start]
        for c in todo:
            for other in near[c]:
                if other in left:
                    left.discard(other)
                    todo.append(other)
        found.append(mask_of(todo))
    return found


def mask_of(classes: Iterator[int] | Sequence[int] | dict[int, int]) -> int:
    """The mask of some classes."""
    mask = 0
    for c in classes:
        mask |= 1 << c
    return mask
