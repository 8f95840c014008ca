"""The values that composites compute inside, as classes of the e-graph.

A composite's e-node has the pattern's inputs as children; the values between them and the root are only in its body.
But the pattern was found in the e-graph, so each of its operators is an e-node there, and is found again from the
inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.ops.properties import is_commutative
from eqsat.schema.types import Attrs, OpKey

_UNKNOWN = -1
"""Used in place of a class that was not found."""

InnerPlace = tuple[int, tuple[int | None, ...]]
"""A class, and those that its e-node reads."""


class InnerClasses:
    """Finds the classes inside of composites; each composite of a snapshot is examined once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._found: dict[tuple[OpKey, Attrs], list[ENode]] = {}
        for node in snapshot.nodes:
            if node.kind == "op":
                self._found.setdefault((node.op, node.attrs), []).append(node)

    def of(self, node: ENode) -> list[InnerPlace]:
        """The operators of a composite's body that others in it read, those that could be found."""
        if node.composite is None:
            return []
        body = node.composite.body
        classes: list[int | None] = list(node.children)
        inner: list[InnerPlace] = []
        inside = {i for step in body.nodes for i in step.inputs}
        for step in body.nodes:
            made = range(len(classes), len(classes) + step.outputs)
            reads = tuple(None if i is None else classes[i] for i in step.inputs)
            found = None if step.op.name == "Constant" else self._find(step.op, step.attrs, reads)
            classes += [_UNKNOWN if found is None or step.outputs != 1 else found.eclass] * step.outputs
            if found is not None and not inside.isdisjoint(made):
                inner.append((found.eclass, found.children))
        return inner

    def _find(self, op: OpKey, attrs: Attrs, reads: tuple[int | None, ...]) -> ENode | None:
        orders = [_trimmed(reads)]
        if len(reads) == 2 and is_commutative(op):
            orders.append(_trimmed(reads[::-1]))
        for node in self._found.get((op, attrs), ()):
            own = _trimmed(node.children)
            if any(_agree(own, order) for order in orders):
                return node
        return None


def _trimmed(classes: Iterable[int | None]) -> tuple[int | None, ...]:
    found = list(classes)
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def _agree(own: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether operands are the same where they are known; constants of a pattern are not."""
    return len(own) == len(wanted) and all(b in (_UNKNOWN, a) for a, b in zip(own, wanted, strict=True))
