"""Ensembles of decision trees as arrays, made from the attributes of the operators that have them.

``TreeEnsembleRegressor`` and ``TreeEnsembleClassifier`` list nodes of all trees, leaves among them, and name children
by numbers within a tree. ``TreeEnsemble`` lists inner nodes and leaves apart. Here they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

COMPARISONS = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""Comparisons with the threshold by their number; ``TreeEnsemble`` has ``BRANCH_MEMBER`` after them."""
_EQUAL, _MEMBER = 4, 6
LEAF = "LEAF"
_ROWS_AT_ONCE = 1 << 18
"""Pairs of a row and a tree that are evaluated together."""


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Trees whose inner nodes are numbered; a reference to a leaf ``k`` is ``-1 - k``.

    Attributes:
        feature: The feature that a node compares.
        threshold: The number that it is compared with.
        mode: The comparison, a position in :data:`COMPARISONS`.
        missing: Whether a feature that is not a number leads to the true child.
        true: The child for a true comparison.
        false: The child for a false comparison.
        roots: Roots of the trees, in the order in which their results are added up.
        first: The first entry of each leaf, and the end of the last leaf's entries.
        target: The target of each entry.
        weight: The number that the entry adds to its target.
        targets: Number of targets.
    """

    feature: np.ndarray
    threshold: np.ndarray
    mode: np.ndarray
    missing: np.ndarray
    true: np.ndarray
    false: np.ndarray
    roots: np.ndarray
    first: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    targets: int

    @property
    def features(self) -> int:
        """The least number of features that a row must have."""
        return int(self.feature.max(initial=-1)) + 1

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """The leaf that each row of ``x`` reaches in each tree: rows, trees."""
        trees, step = len(self.roots), max(1, _ROWS_AT_ONCE // max(1, len(self.roots)))
        modes = np.unique(self.mode).tolist()
        found = np.empty((len(x), trees), np.int64)
        for begin in range(0, len(x), step):
            rows = x[begin : begin + step]
            at = np.tile(self.roots, len(rows))
            going = np.flatnonzero(at >= 0)
            while going.size:
                node = at[going]
                value = rows[going // trees, self.feature[node]]
                holds = self._holds(value, node, modes)
                following = np.where(holds, self.true[node], self.false[node])
                at[going] = following
                going = going[following >= 0]
            found[begin : begin + step] = (-1 - at).reshape(len(rows), trees)
        return found

    def _holds(self, value: np.ndarray, node: np.ndarray, modes: list[int]) -> np.ndarray:
        """Whether comparisons of nodes, which have some of the modes, hold for values."""
        threshold, mode = self.threshold[node], self.mode[node]
        holds = self.missing[node] & np.isnan(value)
        for number in modes:
            holds |= (mode == number) & _COMPARE[number](value, threshold)
        return holds

    def results(self, x: np.ndarray, aggregate: str) -> np.ndarray:
        """The joint result of the trees for each row: rows, targets, in the type of the weights.

        Args:
            x: Rows of at least as many features as the nodes compare.
            aggregate: ``SUM``, ``AVERAGE``, ``MIN`` or ``MAX``; a target that no tree names is 0.
        """
        leaves = self.leaves(x)
        counts = np.diff(self.first)
        total = np.zeros((len(x), self.targets), self.weight.dtype)
        if aggregate in ("SUM", "AVERAGE") and self.targets == 1 and len(counts) and (counts == 1).all():
            # The order of the trees, as everywhere, so that results are equal to the bit.
            total[:, 0] = np.add.accumulate(self.weight[self.first[leaves]], axis=1)[:, -1]
        else:
            self._gather(leaves, counts, total, aggregate)
        return total / total.dtype.type(len(self.roots)) if aggregate == "AVERAGE" else total

    def _gather(self, leaves: np.ndarray, counts: np.ndarray, total: np.ndarray, aggregate: str) -> None:
        choose = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate)
        seen = np.zeros(total.shape, np.bool_)
        rows = np.arange(len(total))
        for tree in range(leaves.shape[1]):
            leaf = leaves[:, tree]
            for entry in range(int(counts[leaf].max(initial=0))):
                here = rows[counts[leaf] > entry]
                at = self.first[leaf[here]] + entry
                target, weight = self.target[at], self.weight[at]
                if choose is None:
                    total[here, target] += weight
                else:
                    before = total[here, target]
                    total[here, target] = np.where(seen[here, target], choose(before, weight), weight)
                    seen[here, target] = True


_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)


class _Same:
    """Attributes as a key that is compared by identity: their content may be millions of numbers."""

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = attrs

    def __hash__(self) -> int:
        return id(self.attrs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.attrs is self.attrs


def ensemble(attrs: Mapping[str, Any], dtype: Any) -> Ensemble:
    """The ensemble of an operator with complete attributes, which may not be modified afterwards.

    Args:
        attrs: Attributes of ``TreeEnsembleRegressor``, ``TreeEnsembleClassifier`` or ``TreeEnsemble``.
        dtype: Type of thresholds and weights: float32 or float64.

    Raises:
        ValueError: They do not describe an ensemble of trees.
    """
    return _ensemble(_Same(attrs), np.dtype(dtype))


@lru_cache(maxsize=16)
def _ensemble(same: _Same, dtype: np.dtype) -> Ensemble:
    attrs = same.attrs
    with np.errstate(all="ignore"):
        found = _of_leaves_apart(attrs, dtype) if "tree_roots" in attrs else _of_node_lists(attrs, dtype)
    _check(found)
    return found


def listed(attrs: Mapping[str, Any], name: str, dtype: Any = np.int64) -> np.ndarray:
    """A list of numbers, empty where it is absent.

    Args:
        attrs: Attributes; tensors among them may be arrays.
        name: Of the list; ``<name>_as_tensor`` may have the numbers instead.
        dtype: Element type of the result.
    """
    for key in (name, f"{name}_as_tensor"):
        given = np.asarray(getattr(attrs.get(key), "array", attrs.get(key, ())))
        if given.size:
            return given.astype(dtype).reshape(-1)
    return np.zeros(0, dtype)


def _as_long(name: str, found: np.ndarray, length: int, *, optional: bool = False) -> np.ndarray:
    if optional and not found.size:
        return np.zeros(length, found.dtype)
    if len(found) != length:
        raise ValueError(f"{name} has {len(found)} elements, not {length}")
    return found


def _of_node_lists(attrs: Mapping[str, Any], dtype: np.dtype) -> Ensemble:
    trees, numbers = listed(attrs, "nodes_treeids"), listed(attrs, "nodes_nodeids")
    count = len(trees)
    for name in ("nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids"):
        _as_long(name, listed(attrs, name), count)
    words = attrs.get("nodes_modes", ())
    if len(words) != count:
        raise ValueError(f"nodes_modes has {len(words)} elements, not {count}")
    known = {LEAF: -1, **{word: number for number, word in enumerate(COMPARISONS)}}
    other = next((word for word in words if word not in known), None)
    if other is not None:
        raise ValueError(f"nodes_modes has {other!r}, not one of {', '.join(known)}")
    mode = np.array([known[word] for word in words], np.int64).reshape(-1)
    values = _as_long("nodes_values", listed(attrs, "nodes_values", dtype), count)
    missing = listed(attrs, "nodes_missing_value_tracks_true")
    missing = _as_long("nodes_missing_value_tracks_true", missing, count, optional=True)
    places = dict(zip(zip(trees.tolist(), numbers.tolist(), strict=True), range(count), strict=True))
    if len(places) < count:
        raise ValueError("two nodes have the same number in the same tree")
    inner, leaves = np.flatnonzero(mode >= 0), np.flatnonzero(mode < 0)
    new = np.empty(count, np.int64)
    new[inner], new[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))

    def child(name: str) -> np.ndarray:
        given = listed(attrs, name)[inner].tolist()
        found = [places.get(key, -1) for key in zip(trees[inner].tolist(), given, strict=True)]
        lost = next((k for k, place in enumerate(found) if place < 0), None)
        if lost is not None:
            node = inner[lost]
            raise ValueError(f"{name} of node {numbers[node]} of tree {trees[node]} is {given[lost]}, which is no node")
        return new[np.array(found, np.int64)]

    # The first node of a tree is its root.
    order, first = np.unique(trees, return_index=True)
    prefix = "class" if "class_ids" in attrs or "class_nodeids" in attrs else "target"
    entries = _entries(attrs, prefix, dtype, places, mode)
    at, target, weight = entries
    leaf = -1 - new[at]
    sorting = np.argsort(leaf, kind="stable")
    starts = np.searchsorted(leaf[sorting], np.arange(len(leaves) + 1))
    found = Ensemble(
        feature=listed(attrs, "nodes_featureids")[inner],
        threshold=values[inner],
        mode=mode[inner].astype(np.uint8),
        missing=missing[inner] != 0,
        true=child("nodes_truenodeids"),
        false=child("nodes_falsenodeids"),
        roots=new[first] if len(order) else np.zeros(0, np.int64),
        first=starts,
        target=target[sorting],
        weight=weight[sorting],
        targets=int(attrs.get("n_targets", 0)),
    )
    if prefix == "class":
        labels = attrs.get("classlabels_int64s") or attrs.get("classlabels_strings") or ()
        found = replace(found, targets=max(1, len(labels)))
    return found


def _entries(
    attrs: Mapping[str, Any], prefix: str, dtype: np.dtype, places: Mapping[tuple[int, int], int], mode: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Node, target and weight of all entries of leaves."""
    target = listed(attrs, f"{prefix}_ids")
    trees = _as_long(f"{prefix}_treeids", listed(attrs, f"{prefix}_treeids"), len(target)).tolist()
    numbers = _as_long(f"{prefix}_nodeids", listed(attrs, f"{prefix}_nodeids"), len(target)).tolist()
    weight = _as_long(f"{prefix}_weights", listed(attrs, f"{prefix}_weights", dtype), len(target))
    at = np.array([places.get(key, -1) for key in zip(trees, numbers, strict=True)], np.int64).reshape(-1)
    lost = np.flatnonzero(at < 0)
    if lost.size:
        raise ValueError(
            f"{prefix}_nodeids names node {numbers[lost[0]]} of tree {trees[lost[0]]}, which does not exist"
        )
    # Entries for nodes that are no leaves have no effect.
    kept = mode[at] < 0
    return at[kept], target[kept], weight[kept]


def _of_leaves_apart(attrs: Mapping[str, Any], dtype: np.dtype) -> Ensemble:
    true, false = listed(attrs, "nodes_truenodeids"), listed(attrs, "nodes_falsenodeids")
    count = len(true)
    lists = {name: listed(attrs, f"nodes_{name}") for name in ("featureids", "falsenodeids", "trueleafs", "falseleafs")}
    for name, found in lists.items():
        _as_long(f"nodes_{name}", found, count)
    mode = _as_long("nodes_modes", listed(attrs, "nodes_modes"), count)
    if mode.size and not 0 <= mode.min() <= mode.max() <= _MEMBER:
        raise ValueError(f"nodes_modes has {mode[(mode < 0) | (mode > _MEMBER)][0]}, not one of 0 to {_MEMBER}")
    target = listed(attrs, "leaf_targetids")
    weight = _as_long("leaf_weights", listed(attrs, "leaf_weights", dtype), len(target))
    missing = listed(attrs, "nodes_missing_value_tracks_true")
    missing = _as_long("nodes_missing_value_tracks_true", missing, count, optional=True) != 0
    ends = []
    for name, child, is_leaf in (("true", true, lists["trueleafs"]), ("false", false, lists["falseleafs"])):
        limit = np.where(is_leaf != 0, len(target), count)
        outside = np.flatnonzero((child < 0) | (child >= limit))
        if outside.size:
            k = outside[0]
            what = "leaf" if is_leaf[k] else "node"
            raise ValueError(f"nodes_{name}nodeids of node {k} is {child[k]}, and there are {limit[k]} such {what}s")
        ends.append(np.where(is_leaf != 0, -1 - child, child))
    roots = listed(attrs, "tree_roots")
    if roots.size and not 0 <= roots.min() <= roots.max() < count:
        raise ValueError(f"tree_roots has {roots[(roots < 0) | (roots >= count)][0]}, and there are {count} nodes")
    made = Ensemble(
        feature=lists["featureids"],
        threshold=_as_long("nodes_splits", listed(attrs, "nodes_splits", dtype), count),
        mode=mode.astype(np.uint8),
        missing=missing,
        true=ends[0],
        false=ends[1],
        roots=roots,
        first=np.arange(len(target) + 1),
        target=target,
        weight=weight,
        targets=int(attrs.get("n_targets", 0)),
    )
    return _without_sets(made, listed(attrs, "membership_values", dtype))


def _without_sets(given: Ensemble, values: np.ndarray) -> Ensemble:
    """Nodes that ask whether a feature is in a set, as one comparison after the other with the members of the set."""
    askers = np.flatnonzero(given.mode == _MEMBER)
    if not askers.size:
        return given
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != len(askers):
        raise ValueError(f"membership_values has {len(ends)} sets, each with NaN after it, not {len(askers)}")
    sets = np.split(values, ends + 1)
    made = {name: [getattr(given, name)] for name in ("feature", "threshold", "mode", "missing", "true", "false")}
    following = len(given.mode)
    mode, threshold, false = (getattr(given, name).copy() for name in ("mode", "threshold", "false"))
    for node, members in zip(askers, sets, strict=False):
        members = members[~np.isnan(members)]
        # No number is equal to NaN.
        mode[node], threshold[node] = _EQUAL, members[0] if members.size else np.nan
        rest = len(members) - 1
        if rest < 1:
            continue
        false[node] = following
        made["feature"].append(np.full(rest, given.feature[node]))
        made["threshold"].append(members[1:])
        made["mode"].append(np.full(rest, _EQUAL, np.uint8))
        made["missing"].append(np.full(rest, given.missing[node]))
        made["true"].append(np.full(rest, given.true[node]))
        made["false"].append(np.append(np.arange(following + 1, following + rest), given.false[node]))
        following += rest
    made["mode"][0], made["threshold"][0], made["false"][0] = mode, threshold, false
    return replace(given, **{name: np.concatenate(parts) for name, parts in made.items()})


def _check(found: Ensemble) -> None:
    """Every way from a root ends at a leaf, and numbers are within their bounds.

    Raises:
        ValueError: They are not.
    """
    if not len(found.roots):
        raise ValueError("there is no tree")
    if found.targets < 1:
        raise ValueError(f"n_targets is {found.targets}")
    if found.target.size and not 0 <= found.target.min() <= found.target.max() < found.targets:
        outside = found.target[(found.target < 0) | (found.target >= found.targets)]
        raise ValueError(f"a leaf has target {outside[0]}, and targets are counted from 0 to {found.targets - 1}")
    if found.feature.size and found.feature.min() < 0:
        raise ValueError(f"nodes_featureids has {found.feature.min()}")
    # Nodes are taken away once all nodes that lead to them are: what cannot be taken is on a cycle, or never reached.
    children = np.concatenate((found.true, found.false))
    inner = children[children >= 0]
    waiting = np.bincount(inner, minlength=len(found.feature))
    ready, done = np.flatnonzero(waiting == 0), 0
    while ready.size:
        done += ready.size
        following = np.concatenate((found.true[ready], found.false[ready]))
        following, counts = np.unique(following[following >= 0], return_counts=True)
        waiting[following] -= counts
        ready = following[waiting[following] == 0]
    if done < len(found.feature):
        raise ValueError("a node leads back to itself")
