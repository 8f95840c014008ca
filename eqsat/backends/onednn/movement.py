"""Data movement: views of a tensor, which cost nothing until a reader needs another layout, and concatenation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.backends.onednn.description import NoPrimitive, Operation
from eqsat.backends.onednn.mapper import ConcatenatedTensor, Mapper, attribute, mapping, tensor, value
from eqsat.backends.region import Operator, Tensor
from eqsat.schema.types import OpKey

_RESHAPE = OpKey("", "Reshape")


@mapping("Reshape")
def reshape(m: Mapper, node: Operator) -> None:
    m.add(Operation("RESHAPE", m.place(node.output), m.memory(tensor(node.inputs[0]))))


@mapping("Transpose")
def transpose(m: Mapper, node: Operator) -> None:
    order = tuple(int(i) for i in np.argsort(np.asarray(node.attributes["perm"])))
    source = m.memory(tensor(node.inputs[0]))
    m.add(Operation("PERMUTE", m.place(node.output), source, numbers={"order": order}))


@mapping("Slice")
def cut(m: Mapper, node: Operator) -> None:
    x = tensor(node.inputs[0])
    starts, _, axes, steps = (None if v is None else value(v).ravel() for v in (*node.inputs[1:], None, None)[:4])
    if starts is None or (steps is not None and (steps != 1).any()):
        raise NoPrimitive("a slice with steps")
    begin = [0] * len(x.shape)
    for k, axis in enumerate(range(len(starts)) if axes is None else axes):
        n, start = x.shape[int(axis)], int(starts[k])
        begin[int(axis) % len(x.shape)] = min(max(start + n if start < 0 else start, 0), n)
    m.add(Operation("SLICE", m.place(node.output), m.memory(x), numbers={"start": tuple(begin)}))


@mapping("Concat")
def concat(m: Mapper, node: Operator) -> None:
    axis = int(attribute(node, "axis")) % len(node.output.shape)
    if any(x is None for x in node.inputs) or len(node.inputs) > 64:
        raise NoPrimitive("a concatenation of more than 64 operands")
    known = [m.quantized.get(x) if isinstance(x, Tensor) else None for x in node.inputs]
    parts = tuple(p for p in known if p is not None)
    if len(parts) == len(known) and all(p.scale.size == 1 for p in parts):
        m.joined[node.output] = ConcatenatedTensor(parts, axis)
        return
    sources = [m.memory(x) for x in node.inputs if x is not None]
    m.add(Operation("CONCAT", m.place(node.output), sources=sources, numbers={"axis": axis}))


def shuffle(m: Mapper, nodes: Sequence[Operator]) -> bool:
    """Channels of groups interleaved, if a kernel's nodes do that."""
    if [n.operator for n in nodes] != [_RESHAPE, nodes[1].operator if len(nodes) == 3 else None, _RESHAPE]:
        return False
    first, middle, last = nodes
    x, split, out = first.inputs[0], first.output.shape, last.output
    if middle.operator.name != "Transpose" or not isinstance(x, Tensor) or x.shape != out.shape:
        return False
    perm = tuple(middle.attributes["perm"])
    if perm != (0, 2, 1, *range(3, len(split))) or (split[0], *split[3:]) != (x.shape[0], *x.shape[2:]):
        return False
    numbers: dict[str, float | int | tuple[int, ...]] = {"axis": 1, "size": split[2]}
    m.add(Operation("SHUFFLE", m.place(out), m.memory(x), numbers=numbers))
    return True
