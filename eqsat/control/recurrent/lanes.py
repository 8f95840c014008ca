"""A normal form of one round of a loop: rows of a batch as polynomials and products with weights.

A tensor of one round is a batch of rows, and a row consists of blocks of lanes. A lane is a constant, plus products of
lanes (a gate times a state), plus sums of whole rows times weights. Concatenating, splitting and scaling change blocks
and weights only, so that spellings of a cell that differ in them have one normal form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np


@dataclass(frozen=True, order=True)
class LaneAtom:
    """Something that lanes are multiplied by.

    Attributes:
        kind: Lanes of a row that is given (``base``), an activation, an affine expression, or a mask of samples.
        name: Of the row, the activation or the mask.
        start: The first lane of the row.
        key: Of the expression inside.
    """

    kind: str
    name: str
    start: int = 0
    key: str = ""


_Key = TypeVar("_Key", bound=Hashable)
LaneMonomial = tuple[LaneAtom, ...]
"""A product, its factors in order."""


@dataclass(frozen=True, order=True)
class RowSource:
    """A whole row that is multiplied by weights.

    Attributes:
        name: Of a row that is given; empty for one that is computed.
        key: Of the block that is computed.
    """

    name: str = ""
    key: str = ""


@dataclass(frozen=True, eq=False)
class LaneBlock:
    """Lanes next to each other.

    Attributes:
        constant: A number for each lane.
        lanes: By product a factor for each lane.
        linear: By row its weights, (width of the row, lanes).
    """

    constant: np.ndarray
    lanes: Mapping[LaneMonomial, np.ndarray] = field(default_factory=dict)
    linear: Mapping[RowSource, np.ndarray] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return len(self.constant)

    @cached_property
    def key(self) -> str:
        """Equal for equal expressions."""
        # Adding zero makes negative zeros positive.
        digest = hashlib.sha256((self.constant + 0.0).tobytes())
        parts = [*sorted(self.lanes.items(), key=_name), *sorted(self.linear.items(), key=_name)]
        for name, numbers in parts:
            digest.update(repr(name).encode())
            digest.update((np.ascontiguousarray(numbers) + 0.0).tobytes())
        return digest.hexdigest()

    @property
    def is_constant(self) -> bool:
        return not self.lanes and not self.linear

    def scaled(self, factor: np.ndarray) -> LaneBlock:
        """Each lane times its factor."""
        return _block(
            self.constant * factor,
            {m: c * factor for m, c in self.lanes.items()},
            {s: w * factor for s, w in self.linear.items()},
        )

    def plus(self, other: LaneBlock) -> LaneBlock:
        return _block(self.constant + other.constant, _sum(self.lanes, other.lanes), _sum(self.linear, other.linear))


def _name(item: tuple[LaneMonomial | RowSource, np.ndarray]) -> str:
    return repr(item[0])


def _sum(one: Mapping[_Key, np.ndarray], other: Mapping[_Key, np.ndarray]) -> dict[_Key, np.ndarray]:
    return {**one, **{k: one[k] + v if k in one else v for k, v in other.items()}}


def _block(
    constant: np.ndarray, lanes: Mapping[LaneMonomial, np.ndarray], linear: Mapping[RowSource, np.ndarray]
) -> LaneBlock:
    return LaneBlock(
        constant, {m: c for m, c in lanes.items() if c.any()}, {s: w for s, w in linear.items() if w.any()}
    )


Row = tuple[LaneBlock, ...]
"""The blocks of a row."""


def width(row: Row) -> int:
    """Lanes of a row."""
    return sum(block.width for block in row)


def constant_row(numbers: np.ndarray) -> Row:
    return (LaneBlock(np.asarray(numbers, np.float64)),)


def base_row(name: str, lanes: int) -> Row:
    """A row that is given."""
    return (LaneBlock(np.zeros(lanes), {(LaneAtom("base", name),): np.ones(lanes)}),)


def mask_row(name: str, lanes: int) -> Row:
    """1 for samples that take part in the round, otherwise 0."""
    return (LaneBlock(np.zeros(lanes), {(LaneAtom("mask", name),): np.ones(lanes)}),)


class Lanes:
    """Computes with rows; keeps the expressions inside of others.

    Attributes:
        inside: By key, the expression inside an activation or an affine atom, or the expression of a computed row.
        widths: Widths of the given rows.
    """

    def __init__(self) -> None:
        self.inside: dict[str, LaneBlock] = {}
        self.widths: dict[str, int] = {}

    def given(self, name: str, lanes: int) -> Row:
        """A row of the input of the round."""
        self.widths[name] = lanes
        return base_row(name, lanes)

    def concat(self, rows: Sequence[Row]) -> Row:
        return tuple(block for row in rows for block in row)

    def cut(self, row: Row, start: int, stop: int) -> Row:
        """Lanes from ``start`` to before ``stop``."""
        found: list[LaneBlock] = []
        at = 0
        for block in row:
            first, last = max(start - at, 0), min(stop - at, block.width)
            if first < last:
                found.append(block if last - first == block.width else self._cut(block, first, last))
            at += block.width
        return tuple(found)

    def add(self, one: Row, other: Row) -> Row:
        return tuple(a.plus(b) for a, b in self._aligned(one, other))

    def scale(self, row: Row, factor: float) -> Row:
        return tuple(block.scaled(np.full(block.width, factor)) for block in row)

    def multiply(self, one: Row, other: Row) -> Row:
        return tuple(self._product(a, b) for a, b in self._aligned(one, other))

    def activate(self, row: Row, name: str) -> Row:
        """An activation by its name."""
        return tuple(self._atom(block, "activation", name) for block in row)

    def matmul(self, row: Row, weights: np.ndarray) -> Row:
        """A row times weights, (lanes of the row, lanes of the result)."""
        total = LaneBlock(np.zeros(weights.shape[1]))
        at = 0
        for block in row:
            total = total.plus(self._times(block, weights[at : at + block.width]))
            at += block.width
        return (total,)

    def as_weights(self, block: LaneBlock) -> LaneBlock:
        """The block with lanes of given rows expressed as rows times weights."""
        linear, lanes = dict(block.linear), {}
        for monomial, factors in block.lanes.items():
            placed = self._placed(monomial, np.diag(factors))
            if placed is None:
                lanes[monomial] = factors
            else:
                linear = _sum(linear, {RowSource(monomial[0].name): placed})
        return _block(block.constant, lanes, linear)

    # ---- blocks ----------------------------------------------------------------------------------------

    def _aligned(self, one: Row, other: Row) -> list[tuple[LaneBlock, LaneBlock]]:
        """Blocks of equal widths; a row of one lane that is the same for all lanes is repeated."""
        one, other = (_repeated(a, width(b)) for a, b in ((one, other), (other, one)))
        if width(one) != width(other):
            raise ValueError("rows of different widths")
        ends = sorted({*np.cumsum([b.width for b in one]).tolist(), *np.cumsum([b.width for b in other]).tolist()})
        pairs = zip([0, *ends], ends, strict=False)
        return [(self.cut(one, a, b)[0], self.cut(other, a, b)[0]) for a, b in pairs]

    def _cut(self, block: LaneBlock, start: int, stop: int) -> LaneBlock:
        lanes: dict[LaneMonomial, np.ndarray] = {}
        for monomial, factors in block.lanes.items():
            made = tuple(sorted(self._cut_atom(atom, start, stop) for atom in monomial))
            lanes = _sum(lanes, {made: factors[start:stop]})
        return _block(block.constant[start:stop], lanes, {s: w[:, start:stop] for s, w in block.linear.items()})

    def _cut_atom(self, atom: LaneAtom, start: int, stop: int) -> LaneAtom:
        if atom.kind == "base":
            return replace(atom, start=atom.start + start)
        if not atom.key:
            return atom
        return replace(atom, key=self._keep(self._cut(self.inside[atom.key], start, stop)))

    def _keep(self, block: LaneBlock) -> str:
        self.inside.setdefault(block.key, block)
        return block.key

    def _atom(self, block: LaneBlock, kind: str, name: str = "") -> LaneBlock:
        atom = LaneAtom(kind, name, 0, self._keep(block))
        return LaneBlock(np.zeros(block.width), {(atom,): np.ones(block.width)})

    def _product(self, one: LaneBlock, other: LaneBlock) -> LaneBlock:
        if one.is_constant:
            return other.scaled(one.constant)
        if other.is_constant:
            return one.scaled(other.constant)
        one, other = (self._atom(b, "affine") if b.linear else b for b in (one, other))
        lanes: dict[LaneMonomial, np.ndarray] = {}
        for a, p in [((), one.constant), *one.lanes.items()]:
            for b, q in [((), other.constant), *other.lanes.items()]:
                if a or b:
                    # A mask is zero or one, so that its square is itself.
                    masks = {atom for atom in (*a, *b) if atom.kind == "mask"}
                    rest = [atom for atom in (*a, *b) if atom.kind != "mask"]
                    lanes = _sum(lanes, {tuple(sorted([*rest, *masks])): p * q})
        return _block(one.constant * other.constant, lanes, {})

    def _times(self, block: LaneBlock, weights: np.ndarray) -> LaneBlock:
        linear = {source: w @ weights for source, w in block.linear.items()}
        rest: dict[LaneMonomial, np.ndarray] = {}
        for monomial, factors in block.lanes.items():
            placed = self._placed(monomial, factors[:, None] * weights)
            if placed is None:
                rest[monomial] = factors
            else:
                linear = _sum(linear, {RowSource(monomial[0].name): placed})
        if rest:
            key = self._keep(LaneBlock(np.zeros(block.width), rest))
            linear = _sum(linear, {RowSource(key=key): weights})
        return _block(block.constant @ weights, {}, linear)

    def _placed(self, monomial: LaneMonomial, weights: np.ndarray) -> np.ndarray | None:
        """Selection of lanes of a given row, as weights of the whole row; None for other lanes."""
        if len(monomial) != 1 or monomial[0].kind != "base":
            return None
        whole = np.zeros((self.widths[monomial[0].name], weights.shape[1]))
        whole[monomial[0].start : monomial[0].start + len(weights)] = weights
        return whole


def _repeated(row: Row, lanes: int) -> Row:
    if width(row) != 1 or lanes == 1:
        return row
    (block,) = row
    if block.linear or any(atom.kind != "mask" for monomial in block.lanes for atom in monomial):
        raise ValueError("a lane that depends on a row cannot be repeated")
    return (LaneBlock(np.repeat(block.constant, lanes), {m: np.repeat(c, lanes) for m, c in block.lanes.items()}),)


def without_mask(block: LaneBlock, name: str) -> tuple[LaneBlock, LaneBlock]:
    """The value of a block where a mask is one, and where it is zero."""
    mask = LaneAtom("mask", name)
    zero = {m: c for m, c in block.lanes.items() if mask not in m}
    one = {}
    for monomial, factors in block.lanes.items():
        one = _sum(one, {tuple(a for a in monomial if a != mask): factors})
    constant = block.constant + one.pop((), 0.0)
    return _block(constant, one, block.linear), _block(block.constant, zero, block.linear)


def masks(block: LaneBlock) -> set[str]:
    """The masks that occur in a block."""
    return {atom.name for monomial in block.lanes for atom in monomial if atom.kind == "mask"}
