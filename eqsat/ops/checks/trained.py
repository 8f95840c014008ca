"""Checks trained models: lists that belong together, children and targets that exist, rows that are wide enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eqsat.ops.checks.check import Check, CheckedNode, Mismatch
from eqsat.ops.ensemble import ensemble, listed


def _rows(node: CheckedNode) -> int | None:
    """The number of features, where it is known."""
    rank = node.rank(0)
    if rank is not None and rank not in (1, 2):
        raise Mismatch(f"X has rank {rank}, not 1 or 2")
    return node.dim(0, -1)


def trees(node: CheckedNode) -> None:
    """The attributes are those of trees, and rows have all features that the trees compare."""
    try:
        found = ensemble(dict(node.attrs), np.float64)
    except ValueError as error:
        raise Mismatch(str(error)) from None
    width = _rows(node)
    if width is not None and width < found.features:
        raise Mismatch(f"X has {width} features, and the trees compare feature {found.features - 1}")
    size = len(listed(dict(node.attrs), "base_values", np.float64))
    if size not in (0, 1, found.targets):
        raise Mismatch(f"base_values has {size} elements, not {found.targets}")


def support_vectors(machine: Callable[[Mapping[str, Any]], Any]) -> Check:
    """A check that attributes are those of a machine, and that rows are as wide as its vectors."""

    def check(node: CheckedNode) -> None:
        try:
            found = machine(dict(node.attrs))
        except ValueError as error:
            raise Mismatch(str(error)) from None
        width = _rows(node)
        if found is not None and width is not None and width != found.vectors.shape[1]:
            raise Mismatch(f"X has {width} features, and the support vectors {found.vectors.shape[1]}")

    return check
