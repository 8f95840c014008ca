"""Sizes in the C calls of kernels and regions, in terms of the dimensions of operands and results.

A call is saved with the model, while the symbols of the model may be bound to numbers, be renamed, or denote sizes that
a body of control flow receives. So a hole of a call names dimensions instead: ``{=256*d0_1}`` is 256 times the second
dimension of operand 0, ``r1_0`` the first one of result 1. A size without a value is ``{?}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.rules.known_facts import NodeFacts, TensorFacts
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import FreeSize, at_sizes, ranges
from eqsat.schema.size import Size, Undecided, closer_bounds, divided, symbol
from eqsat.schema.size_questions import as_dim, substituted, symbols, typical
from eqsat.schema.symbol import Symbol
from eqsat.schema.types import Dim, TensorType

NO_VALUE = "{?}"
"""The hole of an expression that has no value where sizes are not fixed."""
_LONGEST = 400
_HOLE = re.compile(rf"\{{=([0-9A-Za-z_ +*/(),-]{{1,{_LONGEST}}})\}}", re.ASCII)
_DIMENSION = re.compile(r"([dr])(\d{1,4})_(\d{1,4})", re.ASCII)
_NAMES = re.compile(r"[^\W\d]\w*")
_ANY = FreeSize(0, None, 0)
_ALL_HOLES = re.compile(r"\{=([^{}]*)\}")

CallShape = Sequence[int]


class DimensionNames:
    """Gives the free dimensions of a call's operands and results names, and expresses other sizes in these.

    Attributes:
        ranges: By name of a dimension the values that it may have.

    Args:
        operands: Types of the operands that are present, in order.
        results: Types of the results.
    """

    def __init__(self, operands: Sequence[TensorType | None], results: Sequence[TensorType | None]) -> None:
        self.ranges: dict[str, FreeSize] = {}
        self._symbols: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._different: list[int] = []
        dims = [*_dims("d", operands), *_dims("r", results)]
        for name, dim in dims:
            size = _parsed(dim)
            self.ranges[name] = _range(size)
            own = symbol(name, self.ranges[name])
            if dim is None or dim not in self._texts:
                self._different.append(own)
            if dim is not None:
                self._texts.setdefault(dim, own)
            alone = _alone(size)
            if alone is not None:
                self._symbols.setdefault(alone.name, own)
        for name, dim in dims:
            found = _solved(_parsed(dim), symbol(name, self.ranges[name]))
            if found is not None:
                self._symbols.setdefault(*found)

    def type(self, kind: TensorType | None) -> TensorType | None:
        """A type whose dimensions are expressions of the names, as far as they follow from these."""
        if kind is None or kind.shape is None or kind.is_static:
            return kind
        return TensorType(kind.dtype, tuple(self._dim(dim) for dim in kind.shape))

    def facts(self, value: object) -> object:
        """Facts for expressions, with such types."""
        return _with_types(value, self.type)

    def at_usual_sizes(self, value: object) -> object:
        """The same facts with typical numbers instead of the names."""
        usual = {name: max(size.typical, 1) for name, size in self.ranges.items()}
        return _with_types(value, lambda kind: None if kind is None else at_sizes(kind, usual))

    def hole(self, size: Size) -> str:
        """The hole for a size."""
        text = f"{{={as_dim(size)}}}"
        known = all(s.name in self.ranges for s in symbols(size))
        return text if known and is_size_hole(text) else NO_VALUE

    def holes(self) -> list[str]:
        """Holes for all dimensions, in order; one for those that are equal."""
        return [f"{{={as_dim(size)}}}" for size in self._different]

    def _dim(self, dim: Dim) -> Dim:
        if not isinstance(dim, str):
            return dim
        size = _parsed(dim)
        if size is not None and all(s.name in self._symbols for s in symbols(size)):
            try:
                return as_dim(substituted(size, self._symbols))
            except Undecided:
                pass
        return as_dim(self._texts[dim]) if dim in self._texts else dim


def _with_types(value: object, change: Callable[[TensorType | None], TensorType | None]) -> object:
    if isinstance(value, TensorFacts):
        return replace(value, type=change(value.type))
    if isinstance(value, NodeFacts) and value.output is not None:
        return replace(value, output=replace(value.output, type=change(value.output.type)))
    return tuple(_with_types(one, change) for one in value) if isinstance(value, tuple) else value


def _dims(letter: str, types: Sequence[TensorType | None]) -> Iterator[tuple[str, str | None]]:
    """The dimensions that are not numbers, by their names."""
    for k, kind in enumerate(types):
        for axis, dim in enumerate((kind.shape if kind is not None else None) or ()):
            if not isinstance(dim, int):
                yield f"{letter}{k}_{axis}", dim


def _parsed(dim: str | None) -> int | None:
    """A dimension in the symbols of the model; None if it cannot be expressed by them."""
    if dim is None:
        return None
    known = ranges()
    try:
        return size_of(dim, {name: known.get(name, _ANY) for name in _NAMES.findall(dim)})
    except Undecided:
        return None


def _range(size: int | None) -> FreeSize:
    if size is None:
        return _ANY
    low, high = closer_bounds(size)
    return FreeSize(max(low, 0), high, typical(size))


def _alone(size: int | None) -> Symbol | None:
    """The symbol that a size is, if it is one."""
    if not isinstance(size, Size) or list(size.terms.values()) != [1]:
        return None
    ((atom, *others),) = size.terms
    return atom if isinstance(atom, Symbol) and not others else None


def _solved(size: int | None, own: int) -> tuple[str, int] | None:
    """The only symbol of a linear size, and that symbol expressed by the size."""
    if not isinstance(size, Size):
        return None
    terms = dict(size.terms)
    constant = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((monomial, factor),) = terms.items()
    if len(monomial) != 1 or not isinstance(monomial[0], Symbol) or factor < 1:
        return None
    try:
        return monomial[0].name, divided(own - constant, factor)
    except Undecided:
        return None


def with_list(text: str, hole: str, items: Sequence[str]) -> str:
    """A call with a list's items in place of its hole; if there are none, a comma beside it is removed."""

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]  # A doubled brace means one brace of C.
        if items:
            return f"{found[2] or ''}{', '.join(items)}{found[3] or ''}"
        return (found[3] if found[2] and found[3] else "") or ""

    comma = r"(\s*,\s*)"
    return re.sub(rf"\{{\{{|\}}\}}|({comma}?{re.escape(hole)}{comma}?)", one, text)


# ---- reading -------------------------------------------------------------------------------------------


def is_size_hole(text: str) -> bool:
    """Whether a text is the hole of a size, which names nothing but dimensions."""
    found = _HOLE.fullmatch(text)
    if found is None or "**" in found[1]:
        return False
    words = set(re.findall(r"[A-Za-z_]\w*", found[1])) - {"floor", "Mod", "Max", "Min"}
    return all(_DIMENSION.fullmatch(word) for word in words)


def holes(text: str) -> list[str]:
    """The texts in the holes for sizes of a call."""
    return _ALL_HOLES.findall(text)


def size_in(hole: str, operands: Sequence[CallShape], results: Sequence[CallShape]) -> int:
    """The size that a hole denotes.

    Args:
        hole: Text in the hole.
        operands: Shapes of the operands that are present, in order.
        results: Shapes of the results.

    Raises:
        Undecided: The hole names a dimension that does not exist, or is not a size.
    """
    if not is_size_hole(f"{{={hole}}}"):
        raise Undecided(f"{hole[:40]!r} is not a size of a call")
    known: dict[str, int] = {}
    for letter, number, axis in _DIMENSION.findall(hole):
        shapes = operands if letter == "d" else results
        if int(number) >= len(shapes) or int(axis) >= len(shapes[int(number)]):
            raise Undecided(f"the call has no dimension {letter}{number}_{axis}")
        known[f"{letter}{number}_{axis}"] = shapes[int(number)][int(axis)]
    return _substituted(hole, known)


def _substituted(hole: str, known: Mapping[str, int]) -> int:
    return substituted(size_of(hole, {name: _range(size) for name, size in known.items()}), known)
