"""The choices of a proof at bounded sizes: shapes of leaves, attributes, and operands that shapes depend on.

Which contents of an operand are worth trying depends on how a proof counts its cases; sampling, which draws operands
for executed checks, is a facet of the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations, product
from math import prod
from typing import Any

import numpy as np

from eqsat.proofs.scalar_terms import NotModelled
from eqsat.schema.types import OpKey, Shape


@dataclass(frozen=True)
class SizeBounds:
    """How large the tensors are that are tried: all shapes of at most ``rank`` dimensions of 1 to ``size``."""

    rank: int
    size: int

    def __str__(self) -> str:
        return f"ranks up to {self.rank}, sizes from 1 to {self.size}"


LEVELS = (SizeBounds(2, 2), SizeBounds(3, 2), SizeBounds(4, 2), SizeBounds(3, 3))
"""From the narrowest on."""


@cache
def shapes(bounds: SizeBounds) -> tuple[Shape, ...]:
    """All shapes within bounds."""
    sizes = range(1, bounds.size + 1)
    return tuple(s for rank in range(bounds.rank + 1) for s in product(sizes, repeat=rank))


_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp")
SHAPING = {
    "Reshape": (1,),
    "Expand": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "Tile": (1,),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
    "Split": (1,),
    "Gather": (1,),
    "Dropout": (2,),
    **{f"Reduce{name}": (1,) for name in _REDUCTIONS},
}
"""By operator, operands whose contents are tried."""

_ENOUGH = 800
"""Contents of the operands of one node."""


def operands(op: OpKey, x: Shape, wanted: Sequence[int], outputs: int, bounds: SizeBounds) -> Iterator[tuple[Any, ...]]:
    """Contents of the operands ``wanted`` of an operator on a tensor of shape ``x``, as arrays.

    Raises:
        NotModelled: There are too many contents.
    """
    found = list(_operands(op.name, x, len(wanted), outputs, bounds))
    if len(found) > _ENOUGH:
        raise NotModelled(f"{op}: too many operands to try")
    for values in found:
        yield tuple(np.asarray(v, bool if op.name == "Dropout" else np.int64) for v in values)


def _operands(name: str, x: Shape, count: int, outputs: int, bounds: SizeBounds) -> Iterator[tuple[Any, ...]]:
    rank = len(x)
    if name == "Reshape":
        yield from ((s,) for s in shapes(SizeBounds(max(bounds.rank, 2), prod(x))) if prod(s) == prod(x))
    elif name == "Expand":
        yield from ((s,) for s in shapes(bounds))
    elif name == "Squeeze":
        ones = [d for d in range(rank) if x[d] == 1]
        yield from ((axes,) for k in range(1, len(ones) + 1) for axes in combinations(ones, k))
    elif name == "Unsqueeze":
        yield from ((axes,) for k in (1, 2) for axes in combinations(range(rank + k), k))
    elif name == "Tile":
        yield from ((times,) for times in product((1, 2), repeat=rank))
    elif name == "Slice":
        yield from _slices(x, count)
    elif name == "Pad":
        every = [axes for k in range(1, rank + 1) for axes in combinations(range(rank), k)]
        for axes in every if count > 1 else [tuple(range(rank))]:
            yield from ((widths, axes)[:count] for widths in product((0, 1, -1), repeat=2 * len(axes)))
    elif name == "Split":
        limit = max(x, default=0)
        yield from ((sizes,) for sizes in product(range(1, limit + 1), repeat=outputs) if sum(sizes) <= limit)
    elif name == "Gather":
        yield from ((list(chosen),) for k in (1, 2) for chosen in product(range(-1, 2), repeat=k))
        yield from ((i,) for i in range(-1, 2))
    elif name == "Dropout":
        yield from ((False,), (True,))
    else:
        yield from ((axes,) for k in range(rank + 1) for axes in combinations(range(rank), k))


def _slices(x: Shape, count: int) -> Iterator[tuple[Any, ...]]:
    every: list[tuple[int, ...]] = [tuple(range(len(x)))]
    every += [(d,) for d in range(len(x))] if count > 2 else []
    for axes in every:
        for start, end, step in product((0, 1, -1), (1, 2, 9, 1 - 2**63), (1, 2, -1) if count > 3 else (1,)):
            values = ([start] * len(axes), [end] * len(axes), list(axes), [step] * len(axes))
            yield values[:count]


def fits(op: OpKey, index: int, shape: Shape, first: Shape) -> bool:
    """Whether the operator's standard allows an operand to have a shape beside the shape of the first one."""
    name, rank = op.name, len(first)
    if op.domain:
        return True
    if name in ("BatchNormalization", "InstanceNormalization", "GroupNormalization"):
        return rank >= 2 and shape == (first[1],)
    if name in ("Conv", "ConvTranspose") and index == 1:
        return rank >= 3 and len(shape) == rank and _channels(name, shape, first)
    if name in ("Conv", "ConvTranspose"):
        return len(shape) == 1
    if name == "MatMul":
        inner = shape[-2] if len(shape) > 1 else shape[-1] if shape else 0
        return bool(first) and inner == first[-1]
    if name == "Gemm" and index == 1:
        return rank == len(shape) == 2
    if name == "Attention" and index < 3:
        same = index == 2 or rank == 3 or shape[-1:] == first[-1:]
        return len(shape) == rank >= 3 and shape[0] == first[0] and same
    if name in ("LayerNormalization", "RMSNormalization"):
        return len(shape) <= rank and all(a in (1, b) for a, b in zip(reversed(shape), reversed(first), strict=False))
    return True


def _channels(name: str, w: Shape, x: Shape) -> bool:
    return w[0] == x[1] if name == "ConvTranspose" else x[1] in (w[1], 2 * w[1])


def is_valid(op: OpKey, attrs: Mapping[str, Any], given: Sequence[Shape | None]) -> bool:
    """Whether an operator is defined for attributes, beyond what the inference of types requires."""
    x = given[0]
    if op.name == "Attention" and not op.domain:
        return _attends(given)
    if op.domain or op.name not in _WINDOWS or x is None:
        return True
    if op.name != "ConvTranspose" and not _meets(attrs, x):
        return False
    w, group = given[1] if len(given) > 1 else None, attrs.get("group", 1)
    if w is None:
        return True
    if op.name == "Conv":
        return x[1] == w[1] * group and w[0] % group == 0
    return w[0] == x[1] and x[1] % group == 0


def _attends(given: Sequence[Shape | None]) -> bool:
    """Whether queries, keys, values and a mask belong together; the numbers of heads of three dimensions are known."""
    q, k, v, *rest = given
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) or len(q) not in (3, 4):
        return False
    if not q[0] == k[0] == v[0] or k[-2] != v[-2]:
        return False
    if len(q) == 4 and (k[1] != v[1] or q[1] % k[1] or q[3] != k[3]):
        return False
    mask, scores = rest[0] if rest else None, (q[0], q[1] if len(q) == 4 else 1, q[-2], k[-2])
    return mask is None or (
        2 <= len(mask) <= 4 and all(a in (1, b) for a, b in zip(reversed(mask), reversed(scores), strict=False))
    )


_WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")


def _meets(attrs: Mapping[str, Any], x: Shape) -> bool:
    """Whether a window fits into the padded tensor."""
    n = len(x) - 2
    kernel, pads = attrs.get("kernel_shape") or [1] * n, attrs.get("pads") or [0] * (2 * n)
    spread = attrs.get("dilations") or [1] * n
    return all(x[2 + d] + pads[d] + pads[n + d] >= spread[d] * (kernel[d] - 1) + 1 for d in range(n))


# ---- attributes -----------------------------------------------------------------------------------------------------


def _spatial(values: Sequence[int], per: int = 1) -> Callable[[Shape], list[Any]]:
    return lambda x: [list(v) for v in product(values, repeat=per * max(len(x) - 2, 0))]


ATTRIBUTES: Mapping[str, Callable[[Shape], list[Any]]] = {
    "perm": lambda x: [list(p) for p in permutations(range(len(x)))],
    "axis": lambda x: list(range(len(x))),
    "keepdims": lambda x: [0, 1],
    "strides": _spatial((1, 2)),
    "dilations": _spatial((1, 2)),
    "pads": _spatial((0, 1), 2),
    "kernel_shape": _spatial((1, 2)),
    "group": lambda x: [1, 2],
    "num_groups": lambda x: [1, 2],
    "transA": lambda x: [0, 1],
    "transB": lambda x: [0, 1],
    "count_include_pad": lambda x: [0, 1],
    "ceil_mode": lambda x: [0, 1],
    "noop_with_empty_axes": lambda x: [0, 1],
    "mode": lambda x: ["constant", "edge"],
    "to": lambda x: [1, 7, 10, 11],
}
"""Values to try by name of the attribute, given the shape of the first operand."""

OFF = ("softcap",)
"""Numbers whose default turns a feature off, so that it is always tried as well."""
SETTLED = {
    "allowzero": 0,
    "seed": None,
    "auto_pad": "NOTSET",
    "stash_type": 1,
    "storage_order": 0,
    "is_causal": 0,
    "qk_matmul_output_mode": 0,
    "training_mode": 0,
    "batch_dims": 0,
    "saturate": 1,
    "round_mode": "up",
    "output_dtype": 0,
    "left_window_size": -1,
    "right_window_size": -1,
    "precision": 0,
    "block_size": 0,
    "approximate": "none",
}
"""Attributes that have no effect on these models, or of which no other values are tried."""
