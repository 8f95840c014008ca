"""The greatest values that the operators of a model allow for sizes that data decides; memory is planned for them.

For example, the length of a mask is the maximum of lengths in the data. But the mask is added to scores of 20 columns,
so it has at most 20: with more, the operator fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir

from eqsat.model.inference.requirements import of_graph
from eqsat.ops.equal_axes import broadcasting
from eqsat.ops.operators import together
from eqsat.schema.agreement import Requirement, solved
from eqsat.schema.attributes import op_key
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import FreeSize, FreeSizes, within
from eqsat.schema.size import Undecided, bounds
from eqsat.schema.symbol import LARGEST
from eqsat.schema.types import OpKey, tensor_type

_EXPAND = OpKey("", "Expand")
_MOST_ROUNDS = 8
"""How often limits are derived from each other."""


def allowed_sizes(model: ir.Model, free: FreeSizes) -> dict[str, int]:
    """The greatest values of sizes that data decides, by the symbol in the types of the model, where there are any.

    Args:
        model: With types.
        free: The sizes of its inputs, each with a greatest value.
    """
    names = {s for node in model.graph for value in node.outputs for d in value.shape or () for s in _symbols(d)}
    found = dict.fromkeys(sorted(names - free.keys()), LARGEST)
    if not found:
        return {}
    required = [r for r in of_graph(model.graph, free) if r.always]
    stretched = list(dict.fromkeys(_stretched(model.graph)))
    for _ in range(_MOST_ROUNDS):
        before = dict(found)
        sizes = {**free, **{name: FreeSize(0, None if n == LARGEST else n, 0) for name, n in found.items()}}
        with within(sizes):
            for name, most in (*_equal(required, sizes), *_below(stretched, sizes)):
                if name in found:
                    found[name] = min(found[name], most)
        if found == before:
            break
    return {name: most for name, most in found.items() if most < LARGEST}


def _symbols(d: int | ir.SymbolicDim) -> Collection[str]:
    return () if isinstance(d, int) or d.value is None else d.free_symbols()


def _equal(required: Collection[Requirement], sizes: FreeSizes) -> Iterator[tuple[str, int]]:
    """Limits of sizes that have to be equal to others."""
    for name, follows in solved(list(required), sizes).items():
        least, most = bounds(follows.size)
        # A size that is broadcast with another is equal to it or 1; broadcast with 1 it may be any.
        if follows.forced or least > 1:
            yield name, most


def _below(stretched: Collection[tuple[str, int | str]], sizes: FreeSizes) -> Iterator[tuple[str, int]]:
    """Limits of sizes that results have as well, unless they are 1."""
    for name, result in stretched:
        try:
            yield name, max(bounds(size_of(result, sizes))[1], 1)
        except Undecided:
            continue


def _stretched(graph: ir.Graph) -> Iterator[tuple[str, int | str]]:
    """Axes of operands that are broadcast, each with the size of the result."""
    for node in graph:
        op = op_key(node)
        result = tensor_type(node.outputs[0]) if node.outputs else None
        if (op != _EXPAND and together(op) is not broadcasting) or result is None or result.shape is None:
            continue
        for value in node.inputs[: 1 if op == _EXPAND else None]:
            kind = None if value is None else tensor_type(value)
            for d, n in zip(reversed(kind.shape if kind and kind.shape else ()), reversed(result.shape), strict=False):
                if isinstance(d, str) and n is not None and d != n:
                    yield d, n
