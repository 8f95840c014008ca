"""Pairs of small programs for two classes of an e-graph, cut at classes that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.egraph.language import COMMUTED
from eqsat.egraph.snapshot import Snapshot
from eqsat.ops.properties import is_deterministic
from eqsat.schema.types import Attrs, GraphAttr, OpKey

MOST_OPERATORS = 4
"""Operators of a program."""
MOST_PROGRAMS = 120
"""Programs of a class that are looked at."""
_NO_OP = OpKey("", "")


@dataclass(frozen=True)
class Cut:
    """A program whose leaves are classes.

    Attributes:
        leaf: The class of a leaf.
        op: The operator if it is not a leaf.
        output: Number of the operator's result.
        outputs: Number of results, 0 for a single one.
        made: Number of its e-nodes that rules have made.
    """

    leaf: int | None = None
    op: OpKey = _NO_OP
    attrs: Attrs = ()
    operands: tuple[Cut | None, ...] = ()
    output: int = 0
    outputs: int = 0
    made: int = 0

    @cached_property
    def size(self) -> int:
        """The number of its operators."""
        return (self.leaf is None) + sum(o.size for o in self.operands if o is not None)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """In the order in which they first occur."""
        if self.leaf is not None:
            return (self.leaf,)
        return tuple(dict.fromkeys(leaf for o in self.operands if o is not None for leaf in o.leaves))

    @cached_property
    def operators(self) -> tuple[Cut, ...]:
        """Its operators, from the root down."""
        if self.leaf is not None:
            return ()
        return (self, *(inner for o in self.operands if o is not None for inner in o.operators))

    def at(self, new: Callable[[int], int]) -> Cut:
        """The same program with other numbers of its leaves."""
        if self.leaf is not None:
            return Cut(new(self.leaf))
        operands = tuple(None if o is None else o.at(new) for o in self.operands)
        return Cut(None, self.op, self.attrs, operands, self.output, self.outputs, self.made)


@dataclass(frozen=True)
class Sides:
    """Two programs; ``left`` has all leaves of ``right`` but those that are numbers."""

    left: Cut
    right: Cut


class Cuts:
    """The programs of the classes of a snapshot.

    Args:
        known: Representative of each class among those known to be equal.
        is_number: Whether a class is a constant that a rule can spell.
    """

    def __init__(self, taken: Snapshot, known: Callable[[int], int], is_number: Callable[[int], bool]) -> None:
        self._taken = taken
        self._known = known
        self._is_number = is_number

    def are_alike(self, first: int, second: int) -> bool:
        """Whether one operator with equal operands computes both classes."""
        return bool(self._spellings(first) & self._spellings(second))

    def sides(self, first: int, second: int) -> list[Sides]:
        """Programs of both classes over shared leaves: the smallest first, and of these the model's own."""
        found: dict[Sides, None] = {}
        programs = [[p.at(self._known) for p in self._programs(c)] for c in (first, second)]
        for one in programs[0]:
            for other in programs[1]:
                for left, right in ((one, other), (other, one)):
                    unbound = set(right.leaves) - set(left.leaves)
                    if left.size and left.size >= right.size and left != right and all(map(self._is_number, unbound)):
                        found[Sides(left, right)] = None
        return sorted(found, key=_rank)

    def _spellings(self, eclass: int) -> set[tuple[object, ...]]:
        nodes = (self._taken.nodes[n] for n in self._taken.classes[eclass])
        return {
            (n.kind, n.op, n.attrs, n.number, tuple(None if c is None else self._known(c) for c in n.children))
            for n in nodes
            if n.children and (n.kind == "part" or is_deterministic(n.op, n.attrs))
        }

    def _programs(self, eclass: int) -> list[Cut]:
        found: dict[Cut, None] = {Cut(eclass): None}
        for size in range(1, MOST_OPERATORS + 1):
            for program in self._of_size(eclass, size):
                if eclass not in program.leaves:
                    found[program] = None
                if len(found) >= MOST_PROGRAMS:
                    return list(found)
        return list(found)

    def _of_size(self, eclass: int, size: int) -> Iterator[Cut]:
        if size == 0:
            yield Cut(eclass)
            return
        for n in self._taken.classes[eclass]:
            node = self._taken.nodes[n]
            if node.kind == "part" and node.children[0] is not None:
                yield from self._operators(node.children[0], size, node.number)
        yield from self._operators(eclass, size, 0)

    def _operators(self, eclass: int, size: int, output: int) -> Iterator[Cut]:
        """Programs whose last operator is an e-node of a class."""
        for n in self._taken.classes[eclass]:
            node = self._taken.nodes[n]
            if node.kind != "op" or not node.children or any(isinstance(v, GraphAttr) for _, v in node.attrs):
                continue
            if is_deterministic(node.op, node.attrs):
                for operands in self._operands(node.children, size - 1):
                    made = (node.rule > COMMUTED) + sum(o.made for o in operands if o is not None)
                    yield Cut(None, node.op, node.attrs, operands, output, node.outputs, made)

    def _operands(self, children: Sequence[int | None], size: int) -> Iterator[tuple[Cut | None, ...]]:
        if not children:
            if not size:
                yield ()
            return
        first, rest = children[0], children[1:]
        for own in range(size + 1):
            heads = [None] if first is None and not own else [] if first is None else list(self._of_size(first, own))
            for head in heads:
                for tail in self._operands(rest, size - own):
                    yield (head, *tail)


def _rank(sides: Sides) -> tuple[int, int, int, int]:
    left, right = sides.left, sides.right
    return left.size + right.size, left.made, right.made, len(left.leaves)
