"""Cuts both programs into pieces, one pair for every value that the result computes in another way.

A piece computes one value from *leaves*: values that both programs compute, and that are drawn freely. If both pieces
compute the same for every value and for any leaves, the programs are equal. Leaves in the middle of a deep network can
be drawn such that the thresholds after them are reached.

Such leaves may hold values that the network never computes, and a rule may rely on that: after a Relu, a second one has
no effect. So a difference does not count at once. :func:`deepened` moves the leaves backwards, with the operators of
the input between the new leaves and the old ones, and the difference must persist.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

from eqsat.ops.properties import is_data_movement
from eqsat.verify.programs import Programs


@dataclass(frozen=True)
class ComparedPiece:
    """The same value computed twice.

    Attributes:
        value: The value of the input.
        eclass: Its class.
        leaves: Classes that are drawn.
        before: Operators of the input between moved leaves and the first ones.
        fed: Classes that both sides read: the first leaves.
        left: Operators of the input, in order.
        right: Kernels of the result, in order; empty if the result has the value as a leaf or as a constant.
    """

    value: int
    eclass: int
    leaves: tuple[int, ...]
    before: tuple[int, ...]
    fed: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]

    def rules(self, programs: Programs) -> tuple[str, ...]:
        """The rules that made kernels of the result's side."""
        return tuple(dict.fromkeys(r for i in self.right if (r := programs.kernels[i].rule)))

    def work(self, programs: Programs) -> int:
        """Work of executing both sides once."""
        own = sum(programs.work(i) for i in (*self.before, *self.left))
        return own + sum(programs.kernel_work(i) for i in self.right)


MOST_NODES = 400
"""Operators on one side of a piece; beyond that, cutting has not helped."""


def find_pieces(programs: Programs) -> list[ComparedPiece]:
    """A piece for each value of the input that the result computes, but not with the same operator."""
    found = []
    for node in programs.nodes:
        for at, k in enumerate(node.results):
            eclass = programs.classes[k]
            if not programs.dynamic[k] or programs.is_same(node, at):
                continue
            if eclass in programs.common or programs.is_constant(eclass):
                piece = _piece(programs, k)
                if piece is not None:
                    found.append(piece)
    return found


def _piece(programs: Programs, k: int) -> ComparedPiece | None:
    eclass = programs.classes[k]
    left, own = _input_cone(programs, [programs.producer[k]])
    right: set[int] = set()
    theirs: dict[int, None] = {}
    if eclass not in own and not programs.is_constant(eclass):
        if eclass in programs.given:
            theirs[eclass] = None
        else:
            right, theirs = _result_cone(programs, programs.made_by[eclass])
    if len(left) > MOST_NODES or len(right) > MOST_NODES:
        return None
    fed = tuple(dict.fromkeys([*own, *theirs]))
    piece = ComparedPiece(k, eclass, fed, (), fed, tuple(sorted(left)), tuple(sorted(right)))
    return _consistent(programs, piece, own, theirs)


def _consistent(programs: Programs, piece: ComparedPiece, own: Iterable[int], theirs: Iterable[int]) -> ComparedPiece:
    """Leaves that only one side reads are computed from earlier ones, where both sides read those."""
    sides = {c: {"input"} for c in own}
    for c in theirs:
        sides.setdefault(c, set()).add("result")
    if not sides or all(len(s) == 2 for s in sides.values()) or "result" not in set().union(*sides.values()):
        return piece
    before: set[int] = set()
    leaves = dict.fromkeys(piece.leaves)
    for _ in range(16):
        single = [c for c in leaves if len(sides[c]) == 1 and c not in programs.given and c in programs.first]
        if not single:
            return replace(piece, leaves=tuple(leaves), before=tuple(sorted(before)))
        latest = max(single, key=lambda c: programs.first[c])
        cone, reached = _input_cone(programs, [programs.producer[programs.first[latest]]])
        before |= cone
        del leaves[latest]
        for c in reached:
            leaves.setdefault(c)
            sides.setdefault(c, set()).update(sides[latest])
    # One side does not use some leaf.
    return piece


def deepened(programs: Programs, piece: ComparedPiece) -> ComparedPiece | None:
    """The piece with its leaves moved backwards past an operator that computes; None if all are graph inputs."""
    before = set(piece.before)
    leaves = dict.fromkeys(piece.leaves)
    moved = False
    for leaf in piece.leaves:
        todo = [leaf]
        while todo:
            c = todo.pop()
            if c in programs.given or c not in leaves:
                continue
            at = programs.producer[programs.first[c]]
            if not programs.is_repeatable(at):
                # Its results are unknown.
                continue
            cone, reached = _input_cone(programs, [at])
            before |= cone
            del leaves[c]
            leaves.update(dict.fromkeys(reached))
            moved = True
            if all(is_data_movement(programs.nodes[i].constructor.op) for i in cone):
                todo += reached
    if not moved:
        return None
    # A leaf that is now computed is no longer a leaf.
    computed = {programs.classes[k] for i in before for k in programs.nodes[i].results}
    kept = tuple(c for c in leaves if c not in computed or c in programs.given)
    return replace(piece, leaves=kept, before=tuple(sorted(before)))


def uncut(programs: Programs, piece: ComparedPiece) -> ComparedPiece | None:
    """Both programs back to the graph inputs, value by value; None if the piece already does that.

    A piece that is cut at classes does not know how the input computes a value of a class. That computation may round
    by more than the difference: if ``(x + 5) - 5`` is x, ``((x + 5) - 5) + 1e-20`` is x as well.
    """
    left, own = _input_cone(programs, [programs.producer[piece.value]], whole=True)
    right: set[int] = set()
    theirs: dict[int, None] = {}
    if piece.eclass in programs.given:
        theirs[piece.eclass] = None
    elif not programs.is_constant(piece.eclass):
        right, theirs = _result_cone(programs, programs.made_by[piece.eclass], programs.given)
    if left == {*piece.before, *piece.left} and right == set(piece.right):
        return None
    inputs = tuple(dict.fromkeys([*own, *theirs]))
    return replace(piece, leaves=inputs, before=(), fed=inputs, left=tuple(sorted(left)), right=tuple(sorted(right)))


def _input_cone(programs: Programs, start: Iterable[int], *, whole: bool = False) -> tuple[set[int], dict[int, None]]:
    """Operators of the input back to values that both programs compute, and the classes of these values.

    Args:
        whole: Whether to go back to the graph inputs.
    """
    cone: set[int] = set()
    leaves: dict[int, None] = {}
    todo = list(start)
    while todo:
        i = todo.pop()
        if i in cone:
            continue
        cone.add(i)
        for k in programs.reads(i):
            if k in programs.inputs or (not whole and programs.dynamic[k] and programs.classes[k] in programs.cuts):
                leaves[programs.classes[k]] = None
            elif k in programs.producer:
                todo.append(programs.producer[k])
    return cone, leaves


def _result_cone(
    programs: Programs, start: int, leaves_at: Container[int] | None = None
) -> tuple[set[int], dict[int, None]]:
    """Kernels of the result back to values that both programs compute, and the classes of these values.

    Args:
        leaves_at: Other classes to stop at.
    """
    stops = programs.cuts if leaves_at is None else leaves_at
    cone: set[int] = set()
    leaves: dict[int, None] = {}
    todo = [start]
    while todo:
        i = todo.pop()
        if i in cone:
            continue
        cone.add(i)
        for c in programs.kernels[i].inputs:
            if c is None or programs.is_constant(c):
                continue
            if c in stops:
                leaves[c] = None
            else:
                todo.append(programs.made_by[c])
    return cone, leaves
