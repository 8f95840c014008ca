"""Contradictions in the standard's Attention: heads, their sizes, and the lengths of keys and values.

See :mod:`eqsat.ops.checks.check`.
"""

from __future__ import annotations

from eqsat.ops.checks.check import CheckedNode, Mismatch, require_broadcast, require_rank, same
from eqsat.schema.types import Dim

_QUERY, _KEY, _VALUE, _MASK, _PAST_KEY, _PAST_VALUE = range(6)
_NAMES = ("Q", "K", "V", "attn_mask", "past_key", "past_value")


def attention(node: CheckedNode) -> None:
    """Queries, keys and values fit, as four dimensions or as three with the numbers of heads as attributes."""
    rank = node.rank(_QUERY)
    for i in (_QUERY, _KEY, _VALUE):
        require_rank(node, i, *((3, 4) if rank is None or i == _QUERY else (rank,)), what=_NAMES[i])
    q, k, v = (_heads(node, i) for i in (_QUERY, _KEY, _VALUE))
    past_k, past_v = (node.shape(i) for i in (_PAST_KEY, _PAST_VALUE))
    _equal("batch", 0, (_QUERY, q), (_KEY, k), (_VALUE, v), (_PAST_KEY, past_k), (_PAST_VALUE, past_v))
    _equal("number of heads", 1, (_KEY, k), (_VALUE, v), (_PAST_KEY, past_k), (_PAST_VALUE, past_v))
    _equal("number of rows", 2, (_KEY, k), (_VALUE, v))
    _equal("number of rows", 2, (_PAST_KEY, past_k), (_PAST_VALUE, past_v))
    _equal("size of a head", 3, (_QUERY, q), (_KEY, k), (_PAST_KEY, past_k))
    _equal("size of a head", 3, (_VALUE, v), (_PAST_VALUE, past_v))
    if q is None or k is None:
        return
    if isinstance(q[1], int) and isinstance(k[1], int) and (k[1] == 0 or q[1] % k[1]):
        raise Mismatch(f"Q has {q[1]} heads and K has {k[1]}: the first is not a multiple of the second")
    mask = node.shape(_MASK)
    if mask is not None and past_k is None and len(mask) >= 2:
        # Keys beyond the mask's last column are hidden.
        require_broadcast(mask[:-1], q[:3], what="attn_mask without its columns")


def _heads(node: CheckedNode, i: int) -> tuple[Dim, ...] | None:
    """The shape with four dimensions, where it is known."""
    shape = node.shape(i)
    if shape is None or len(shape) == 4:
        return shape
    name = "q_num_heads" if i == _QUERY else "kv_num_heads"
    heads, width = node.int_attr(name), shape[2]
    if heads < 1:
        raise Mismatch(f"{name} is needed for three dimensions, and positive; it is {heads}")
    if not isinstance(width, int):
        return (shape[0], heads, shape[1], None)
    if width % heads:
        raise Mismatch(f"{_NAMES[i]} has {width} columns, which {name} = {heads} does not divide evenly")
    return (shape[0], heads, shape[1], width // heads)


def _equal(what: str, axis: int, *operands: tuple[int, tuple[Dim, ...] | None]) -> None:
    known = [(i, shape[axis]) for i, shape in operands if shape is not None and len(shape) == 4]
    for i, dim in known[1:]:
        if not same(dim, known[0][1]):
            raise Mismatch(f"the {what} of {_NAMES[known[0][0]]} is {known[0][1]}, that of {_NAMES[i]} is {dim}")
