"""Numpy kernels, one operator family a file; importing this package registers all of them."""

from __future__ import annotations

from eqsat.ops.kernels.registry import KERNELS, find

__all__ = ["KERNELS", "find"]
