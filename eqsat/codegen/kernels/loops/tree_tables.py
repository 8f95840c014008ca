"""Trees as small tables for generated C: nodes in one list, and each table in the smallest type that holds it.

The child for a false comparison follows its node; the distance to the other child is stored in the node, 0 in a leaf.
Trees follow one another, so that distances are short. Leaves with equal entries share these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eqsat.ops.ensemble import Ensemble

MOST_COPIES = 4
"""A node with several parents may have to be repeated; a table with more than this many copies per node is too
large.
"""


class TooMany(Exception):
    """Nodes have to be repeated too often."""


@dataclass(frozen=True, slots=True, eq=False)
class EnsembleTables:
    """An ensemble as tables.

    Attributes:
        root: First node of each tree.
        jump: Distance to the child for a true comparison; 0 for a leaf.
        feature: Feature that a node compares; for a leaf, its only target, or the number of its list of entries.
        threshold: Number that the feature is compared with; for a leaf, the weight of its only target.
        mode: The comparison; None if all nodes have ``modes[0]``.
        modes: The comparisons that there are, by their numbers in :data:`eqsat.ops.ensemble.COMPARISONS`.
        missing: Whether the comparison is true for NaN; None if it is for no node.
        first: Where each list of entries begins; None if each leaf has one target.
        target, weight: The entries.
    """

    root: np.ndarray
    jump: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    mode: np.ndarray | None
    modes: tuple[int, ...]
    missing: np.ndarray | None
    first: np.ndarray | None
    target: np.ndarray
    weight: np.ndarray


def small(array: np.ndarray) -> np.ndarray:
    """The numbers in the smallest type that holds them, none of them negative."""
    return array.astype(np.min_scalar_type(int(array.max(initial=0))))


@lru_cache(maxsize=16)
def tables(trees: Ensemble) -> EnsembleTables:
    """The tables of an ensemble.

    Raises:
        TooMany: Nodes have to be repeated too often.
    """
    order, jump, root = _order(trees)
    is_leaf = order < 0
    node, leaf = np.where(is_leaf, 0, order), np.where(is_leaf, -1 - order, 0)
    counts = np.diff(trees.first)
    single = bool((counts == 1).all())
    number, first, target, weight = _entries(trees, counts)
    at_leaf = trees.target[trees.first[leaf]] if single else number[leaf]
    of_node = (
        (lambda values: values[node]) if len(trees.feature) else (lambda values: np.zeros(len(order), values.dtype))
    )
    modes, missing = np.unique(trees.mode), np.where(is_leaf, False, of_node(trees.missing))
    return EnsembleTables(
        small(root),
        small(jump),
        small(np.where(is_leaf, at_leaf, of_node(trees.feature))),
        np.where(is_leaf, trees.weight[trees.first[leaf]] if single else 0, of_node(trees.threshold)).astype(
            trees.threshold.dtype
        ),
        small(np.where(is_leaf, 0, of_node(trees.mode))) if len(modes) > 1 else None,
        tuple(int(m) for m in modes),
        missing.astype(np.uint8) if missing.any() else None,
        None if single else small(first),
        small(target),
        weight,
    )


def _order(trees: Ensemble) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """References to the nodes and leaves in the order of the tables, their jumps, and where each tree begins."""
    true, false = trees.true.tolist(), trees.false.tolist()
    limit = MOST_COPIES * (2 * len(true) + len(trees.roots))
    order: list[int] = []
    jumps: list[int] = []
    roots = []
    for root in trees.roots.tolist():
        roots.append(len(order))
        last: dict[int, int] = {}
        pending = [(-1, root)]
        while pending:
            origin, current = pending.pop()
            if origin >= 0:
                place = last.get(current, -1)
                jumps[origin] = (place if place > origin else len(order)) - origin
                if place > origin:
                    continue
            while True:
                if len(order) > limit:
                    raise TooMany
                last[current] = len(order)
                order.append(current)
                jumps.append(0)
                if current < 0:
                    break
                pending.append((len(order) - 1, true[current]))
                current = false[current]
    return np.array(order, np.int64), np.array(jumps, np.int64), np.array(roots, np.int64)


def _entries(trees: Ensemble, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each leaf the number of its entries among those that differ, and these: first, target, weight."""
    known: dict[tuple[bytes, bytes], int] = {}
    number = np.zeros(len(counts), np.int64)
    kept = []
    for k, (begin, end) in enumerate(zip(trees.first[:-1].tolist(), trees.first[1:].tolist(), strict=True)):
        key = (trees.target[begin:end].tobytes(), trees.weight[begin:end].tobytes())
        if key not in known:
            known[key] = len(known)
            kept.append(np.arange(begin, end))
        number[k] = known[key]
    first = np.cumsum([0, *map(len, kept)])
    chosen = np.concatenate(kept) if kept else np.zeros(0, np.int64)
    return number, first, trees.target[chosen], trees.weight[chosen]
