"""Symbolic shapes and positions, for tensors of any rank and size.

A shape is a name; conditions of a rule make names equal. A position denotes an element of a tensor, starting from the
position in the result: fitted to a broadcast operand, through a view, or through a map that depends on an operator's
attributes and shapes.
"""

from __future__ import annotations

from collections.abc import Hashable

SymbolicShape = Hashable
ElementPosition = tuple[Hashable, ...]
SOLE: ElementPosition = ("sole",)
"""The shape of a tensor with one element."""
SCALAR: SymbolicShape = ("scalar",)


class EqualShapes:
    """The shapes, sizes and ranks that are known to be equal.

    Attributes:
        not_empty: Shapes whose size is known to be greater than zero.
        within: Pairs of shapes; the rank of the first is not greater than that of the second.
    """

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}
        self.not_empty: set[SymbolicShape] = set()
        self.within: set[tuple[SymbolicShape, SymbolicShape]] = set()

    # ---- equality ---------------------------------------------------------------------------------

    def find(self, key: Hashable) -> Hashable:
        """The representative of all equal names."""
        while key in self._parents:
            key = self._parents[key]
        return key

    def unite(self, a: Hashable, b: Hashable) -> None:
        """States that two shapes, or two of ``("size", shape)`` or ``("rank", shape)``, are equal."""
        a, b = self.find(a), self.find(b)
        if a != b:
            # A broadcast shape is named by its parts.
            a, b = (b, a) if _weight(b) < _weight(a) else (a, b)
            self._parents[b] = a

    def same_size(self, a: SymbolicShape, b: SymbolicShape) -> bool:
        return self.find(self.size(a)) == self.find(self.size(b))

    def size(self, shape: SymbolicShape) -> Hashable:
        """The number of elements; for a view that of its operand."""
        shape = self.find(shape)
        while isinstance(shape, tuple) and shape[0] == "view":
            shape = self.find(shape[1])
        return self.find(("size", shape))

    # ---- shapes -----------------------------------------------------------------------------------

    def stretched(self, *shapes: SymbolicShape) -> SymbolicShape:
        """The shape of the elementwise result of tensors of these shapes."""
        parts: set[SymbolicShape] = set()
        for shape in map(self.find, shapes):
            if isinstance(shape, tuple) and shape[0] == "stretched":
                assert isinstance(shape[1], frozenset)
                parts |= {self.find(part) for part in shape[1]}
            elif shape != SCALAR:
                parts.add(shape)
        if not parts:
            return SCALAR
        if len(parts) == 1:
            return next(iter(parts))
        return self.find(("stretched", frozenset(parts)))

    # ---- positions --------------------------------------------------------------------------------

    def whole(self, shape: SymbolicShape) -> ElementPosition:
        """Any position in a tensor of a shape."""
        return SOLE if self.find(shape) == SCALAR else ("at", self.find(shape))

    def fit(self, shape: SymbolicShape, position: ElementPosition) -> ElementPosition:
        """The position of an operand of a shape from that in the result, which it is stretched to."""
        shape = self.find(shape)
        if shape == SCALAR or position == SOLE:
            return SOLE
        of = self.shape_of(position)
        if of == shape:
            return position
        if position[0] == "fit":
            inner = position[2]
            assert isinstance(inner, tuple)
            return self.fit(shape, inner)
        if self.same_size(shape, of) and self.find(self.size(of)) in {self.size(s) for s in self.not_empty}:
            # Nothing is repeated: there are further dimensions of size 1 at most.
            return self.view(shape, of, position)
        return ("fit", shape, position)

    def view(self, shape: SymbolicShape, of: SymbolicShape, position: ElementPosition) -> ElementPosition:
        """The position in a tensor of ``shape`` of the element at a position of its view of shape ``of``."""
        shape, of = self.find(shape), self.find(of)
        if shape == of:
            return position
        if shape == SCALAR:
            return SOLE
        if position[0] == "view":
            inner = position[3]
            assert isinstance(inner, tuple)
            return self.view(shape, self.find(position[1]), inner)
        return ("view", of, shape, position)

    def through(self, key: Hashable, shape: SymbolicShape, position: ElementPosition) -> ElementPosition:
        """The position in an operand of a shape, by a map that ``key`` decides."""
        return ("through", key, self.find(shape), position)

    def shape_of(self, position: ElementPosition) -> SymbolicShape:
        """The shape of the tensor in which a position lies."""
        match position:
            case (
                ("at", shape)
                | ("fit", shape, _)
                | ("entry", shape, _)
                | ("view", _, shape, _)
                | ("through", _, shape, _)
            ):
                return self.find(shape)
            case _:
                return SCALAR


def _weight(key: Hashable) -> tuple[int, str]:
    return (1 if isinstance(key, tuple) and key[0] in ("stretched", "view") else 0, repr(key))
