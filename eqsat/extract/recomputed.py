"""A relaxation in which long networks fall into parts: e-nodes that compute a separator once more do not read past it.

A fused kernel may take in the sum ``s = x + y`` on which the next layer starts, and compute it again from ``x`` and
``y``. Its e-node reads past ``s``, which so is no separator, although what else the e-node reads needs ``s``. Here such
an e-node reads neither ``x`` nor ``y``. That forgets that they have to lie in the right memory and nothing else: they
are computed anyway, for the sake of ``s``, and a region that has them and the e-node also has all that lies between,
which ties it together. So the cheapest program costs no less than here, and mostly the same, because it seldom computes
``s`` twice.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.extract.indirect_search import IndirectSearch
from eqsat.extract.problem import Problem
from eqsat.extract.reduce.class_dominators import Dominators
from eqsat.extract.shared import SharedSearch


class RelaxedSearch(IndirectSearch):
    """Search the relaxed problem part by part; its best program gets its exact price."""

    def run(self) -> bool:
        """Searches if the relaxed problem has a context and smaller parts; returns whether it has."""
        fewer = recomputed(self.problem, Dominators(self.problem))
        if not fewer:
            return False
        children = [fewer.get(node, read) for node, read in enumerate(self.problem.children)]
        relaxed = replace(self.problem, children=tuple(children))
        search = SharedSearch(relaxed, self.effort, self.gap, self.seed, joining=True)
        if not search.run():
            return False
        self.count(search.seconds)
        if search.choices is not None:
            self.offer(search.choices)
        self.bound = min(search.bound, self.cost)
        return True


def recomputed(problem: Problem, dominators: Dominators) -> dict[int, tuple[int, ...]]:
    """The e-nodes that compute something again, each with the further classes that it reads."""
    found: dict[int, tuple[int, ...]] = {}
    for options in dominators.options:
        for node in options:
            for other in options:
                extra = _extra(problem, dominators, node, other)
                if extra:
                    found[node] = tuple(k for k in problem.children[node] if k not in extra)
                    break
    return found


def _extra(problem: Problem, dominators: Dominators, node: int, other: int) -> set[int]:
    """The further classes that an e-node reads to recompute the class that another one reads, if it needs that
    anyway.
    """
    own, read = set(problem.children[node]), set(problem.children[other])
    if len(read - own) != 1 or not read & own:
        return set()
    (once,) = read - own
    below = dominators.of_class[once]
    is_needed = any(dominators.of_class[k] >> once & 1 for k in own & read)
    extra = own - read
    return extra if is_needed and all(below >> k & 1 for k in extra) else set()
