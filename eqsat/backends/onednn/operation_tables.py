"""Operations as rows of tables in the generated program; tensors are numbered over all regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from eqsat.backends.onednn.description import DTYPES, Memory, Operation, Post, Subregion
from eqsat.text import c_string

Offset = Callable[[np.ndarray], int]
"""Position of a constant in the weights, in bytes."""


class OperationTables:
    """Rows of the tables.

    Args:
        offset: Of constants.
    """

    def __init__(self, offset: Offset) -> None:
        self.offset = offset
        self.tensors: list[str] = []
        self.list: list[int] = []
        self.posts: list[str] = []
        self.operations: list[str] = []
        self.regions: list[str] = []

    def region(self, piece: Subregion) -> None:
        numbers: dict[Memory, int] = {}
        written = {operation.dst for operation in piece.operations}
        inputs = {memory: i for i, memory in enumerate(piece.inputs) if memory is not None}
        used = (m for operation in piece.operations for m in (*operation.reads(), operation.dst))
        for memory in dict.fromkeys(used):
            numbers[memory] = len(self.tensors)
            self.tensors.append(self._tensor(memory, memory in written, inputs))
        first = len(self.operations)
        for operation in piece.operations:
            self.operations.append(self._operation(operation, numbers))
        row = {
            "first": first,
            "count": len(piece.operations),
            "first_output": len(self.list),
            "outputs": len(piece.outputs),
            "inputs": len(piece.inputs),
            "name": c_string(piece.name),
        }
        self.list += [numbers[memory] for memory in piece.outputs]
        self.regions.append(_row(row))

    def _tensor(self, memory: Memory, written: bool, inputs: Mapping[Memory, int]) -> str:
        row: dict[str, object] = {}
        if memory.array is not None:
            row |= {"source": "CONSTANT", "offset": self.offset(memory.array)}
        elif not written:
            row |= {"source": "INPUT", "index": inputs[memory]}
        row |= {"type": DTYPES[memory.dtype], "rank": len(memory.shape), "dims": memory.shape}
        if memory.strides:
            row["strides"] = memory.strides
        return _row(row)

    def _operation(self, operation: Operation, numbers: Mapping[Memory, int]) -> str:
        def at(memory: Memory | None) -> int:
            return -1 if memory is None else numbers[memory]

        row: dict[str, object] = {"name": c_string(operation.name), "kind": operation.kind}
        if operation.algorithm:
            row["algorithm"] = operation.algorithm
        row |= {
            "src": at(operation.src),
            "weights": at(operation.weights),
            "bias": at(operation.bias),
            "dst": at(operation.dst),
            "scales": at(operation.scales),
        }
        if operation.sources:
            row |= {"first": len(self.list), "count": len(operation.sources)}
            self.list += [numbers[memory] for memory in operation.sources]
        row |= {name: number for name, number in operation.numbers.items() if _told(number)}
        if operation.posts:
            row |= {"first_post": len(self.posts), "posts": len(operation.posts)}
            self.posts += [self._post(post, numbers) for post in operation.posts]
        return _row(row)

    def _post(self, post: Post, numbers: Mapping[Memory, int]) -> str:
        row: dict[str, object] = {"algorithm": "PRELU_POST" if post.algorithm == "dnnl_prelu" else post.algorithm}
        row |= {n: v for n, v in (("alpha", float(post.alpha)), ("beta", float(post.beta))) if _told(v)}
        row["tensor"] = -1 if post.operand is None else numbers[post.operand]
        return _row(row)


def _told(number: object) -> bool:
    """Whether it differs from C's default."""
    return any(number) if isinstance(number, tuple) else number != 0


def _row(fields: Mapping[str, object]) -> str:
    return "{" + ", ".join(f".{name} = {_value(v)}" for name, v in fields.items()) + "}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(str(int(v)) for v in value) + "}"
    if isinstance(value, float):
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return "NAN" if math.isnan(value) else f"{float(np.float32(value))!r}f"
    return str(value)
