"""Names for unknown sizes: those of results that data decides.

A named size can be traced: an elementwise result has the size of its operand. The name is the one that the exporter
declares, or a fresh one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import onnx_ir as ir

from eqsat.schema.dimension import dimension
from eqsat.schema.size_questions import as_dim
from eqsat.schema.types import Dim, OpKey, TensorType, tensor_type

_ONE_SIZE = frozenset({OpKey("", "TopK"), OpKey("", "Unique")})
"""Operators all of whose unknown sizes are the same one."""


def dims_of(value: ir.Value) -> tuple[Dim, ...]:
    """The dimensions of a value; empty if it is not a tensor of known rank."""
    known = tensor_type(value)
    return () if known is None else known.shape or ()


class SizeNames:
    """Names sizes of one model.

    Args:
        model: With the declared types.
    """

    def __init__(self, model: ir.Model) -> None:
        self._received = {
            name
            for v in model.graph.inputs
            for d in v.shape or ()
            if not isinstance(d, int)
            for name in d.free_symbols()
        }
        nodes = ir.traversal.RecursiveGraphIterator(model.graph)
        declared = {d for node in nodes for v in node.outputs for d in dims_of(v) if isinstance(d, str)}
        self._taken = self._received | declared
        self._made: dict[str, Dim] = {}
        self._next = 0

    def of(
        self,
        op: OpKey,
        values: Sequence[ir.Value],
        found: Sequence[TensorType | None],
        declared: Mapping[ir.Value, TensorType],
    ) -> list[TensorType | None]:
        """The types of a node's results with a name, or the declared number, for each unknown size.

        Args:
            op: The operator.
            values: Its results.
            found: Their inferred types.
            declared: Types that the model declares.
        """
        named: list[TensorType | None] = []
        one: Dim = None
        for value, known in zip(values, found, strict=True):
            said = declared.get(value)
            if known is None or known.shape is None:
                same = said is not None and said.shape is not None and (known is None or known.dtype == said.dtype)
                known = said if same else known
            if known is not None and known.shape is not None:
                numbers = () if said is None or said.shape is None else said.shape
                numbers = numbers if len(numbers) == len(known.shape) else (None,) * len(known.shape)
                dims: list[Dim] = []
                for d, wanted in zip(known.shape, numbers, strict=True):
                    if d is None:
                        d = one if one is not None and op in _ONE_SIZE else self._name(wanted)
                        one = d
                    elif isinstance(d, str) and self._made.get(d, d) is None and self._is_name(wanted):
                        self._made[d] = wanted
                    dims.append(d)
                known = TensorType(known.dtype, tuple(dims)) if None in known.shape else known
            named.append(known)
        return named

    def settle(self, graph: ir.Graph) -> None:
        """Replaces invented names by the numbers and names that later results with the same size declare.

        Args:
            graph: With all types, changed in place.
        """
        names = {name: str(wanted) for name, wanted in self._made.items() if wanted is not None}
        if not names:
            return
        pattern = re.compile(rf"\b(?:{'|'.join(names)})\b")
        for node in ir.traversal.RecursiveGraphIterator(graph):
            for value in node.outputs:
                dims = dims_of(value)
                if any(isinstance(d, str) and pattern.search(d) for d in dims):
                    texts = [pattern.sub(lambda m: names[m[0]], d) if isinstance(d, str) else d for d in dims]
                    value.shape = ir.Shape([_evaluated(d) if isinstance(d, str) else d for d in texts])

    def _name(self, wanted: Dim) -> Dim:
        """The declared number or name; a new name if the declared one belongs to a size that the model receives."""
        if self._is_name(wanted):
            return wanted
        name = next(n for k in itertools.count(self._next) if (n := f"_d{k}") not in self._taken)
        self._next = int(name[2:]) + 1
        self._taken.add(name)
        self._made[name] = None
        return name

    def _is_name(self, wanted: Dim) -> TypeGuard[int | str]:
        return isinstance(wanted, int) or (
            wanted is not None and wanted.isidentifier() and wanted not in self._received and wanted not in self._made
        )


def _evaluated(dim: str) -> Dim:
    size = dimension(dim)
    return dim if size is None else as_dim(size)
