"""Two programs over classes as the two sides of a rule, from the most general spelling to the most special one.

A class is a variable at first, and a number where that does not hold. An attribute may have any value at first, unless
the right side has it as well; then attributes of the left side that are equal in the model must be equal; in the last
spelling all have the values of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from eqsat.discover.cuts import Cut, Sides
from eqsat.egraph.snapshot import Snapshot
from eqsat.schema.attributes import default_attrs
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.opset import find_schema, input_names, is_variadic
from eqsat.schema.types import AttrValue, TensorType

MOST_ELEMENTS = 8
"""Elements of a list of integers that is spelled out."""
_VARIABLES = "xyzuvwabcdefgh"
_Attributes = Literal["free", "equal", "fixed"]
_TYPES = ("to", "dtype", "output_dtype")
"""Attributes whose values are element types."""


class Unspeakable(Exception):
    """The rule language has no words for it."""


@dataclass(frozen=True)
class Spelling:
    """A rule without its head.

    Attributes:
        left: The pattern.
        right: The template.
        variables: Names by class.
    """

    left: str
    right: str
    variables: Mapping[int, str]


def spellings(sides: Sides, taken: Snapshot) -> list[Spelling]:
    """The spellings of two programs, the most general first; empty if the rule language cannot express them."""
    found: dict[tuple[str, str], Spelling] = {}
    levels: tuple[_Attributes, ...] = ("free", "equal", "fixed")
    for attributes in levels:
        for numbers in (False, True):
            try:
                spelling = _Writer(sides, taken, attributes, numbers).spelling()
            except Unspeakable:
                continue
            if spelling.left != spelling.right:  # They differ by an attribute that is not said.
                found.setdefault((spelling.left, spelling.right), spelling)
    return list(found.values())


def number_text(taken: Snapshot, eclass: int) -> str:
    """A constant in the syntax of rules: one number, or a short list; empty if that is not possible."""
    known = taken.value[eclass]
    array = None if known is None else known.numpy()
    if array is None or not array.size or array.dtype.kind not in "iuf":
        return ""
    flat = np.asarray(array).ravel()
    if (flat == flat[0]).all() and np.isfinite(flat[0]):
        return f"{flat[0].item():.9g}" if array.dtype.kind == "f" else str(flat[0].item())
    if array.ndim == 1 and array.size <= MOST_ELEMENTS and array.dtype.kind in "iu":
        return str([int(v) for v in flat])
    return ""


class _Writer:
    def __init__(self, sides: Sides, taken: Snapshot, attributes: _Attributes, numbers: bool) -> None:
        self._sides = sides
        self._taken = taken
        self._level = attributes
        self._fixed = attributes == "fixed"
        self._texts: dict[int, str] = {}
        self._variables: dict[int, str] = {}
        for leaf in sides.left.leaves:
            number = number_text(taken, leaf) if numbers else ""
            if not number:
                if len(self._variables) == len(_VARIABLES):
                    raise Unspeakable
                self._variables[leaf] = _VARIABLES[len(self._variables)]
            self._texts[leaf] = number or self._variables[leaf]
        for leaf in sides.right.leaves:
            self._texts.setdefault(leaf, number_text(taken, leaf))
        self._shared = dict(self._shared_attributes())

    def spelling(self) -> Spelling:
        left, right = self._term(self._sides.left, pattern=True), self._term(self._sides.right, pattern=False)
        return Spelling(left, right, self._variables)

    def _shared_attributes(self) -> Iterator[tuple[tuple[str, AttrValue], str]]:
        """Attributes of the left side that occur twice, or on the right side as well, and their variables."""
        left = Counter(attr for node in self._sides.left.operators for attr in node.attrs)
        right = {attr for node in self._sides.right.operators for attr in node.attrs}
        names: Counter[str] = Counter()
        for attr, count in left.items():
            if attr in right or (self._level == "equal" and count > 1):
                names[attr[0]] += 1
                yield attr, attr[0] if names[attr[0]] == 1 else f"{attr[0]}_{names[attr[0]]}"

    def _term(self, cut: Cut, *, pattern: bool) -> str:
        if cut.leaf is not None:
            return self._texts[cut.leaf]
        if cut.op.domain not in ("", "com.microsoft") and find_schema(cut.op) is not None:
            raise Unspeakable
        inside = [*self._operands(cut, pattern), *self._attributes(cut, pattern)]
        return f"{cut.op}({', '.join(inside)})" + (f"[{cut.output}]" if cut.outputs else "")

    def _operands(self, cut: Cut, pattern: bool) -> Iterator[str]:
        named = False
        for i, operand in enumerate(cut.operands):
            if operand is None:
                named = True
                continue
            text = self._term(operand, pattern=pattern)
            if named and (find_schema(cut.op) is None or is_variadic(cut.op)):
                raise Unspeakable
            yield f"{input_names(cut.op)[i]}={text}" if named else text

    def _attributes(self, cut: Cut, pattern: bool) -> Iterator[str]:
        defaults = dict(default_attrs(cut.op))
        for name, value in cut.attrs:
            if not self._fixed and (name, value) in self._shared:
                yield f"{name}={self._shared[name, value]}"
            elif (pattern and self._fixed) or (not pattern and defaults.get(name) != value):
                yield f"{name}={_attribute(name, value)}"


def _attribute(name: str, value: AttrValue) -> str:
    if name in _TYPES and isinstance(value, int):
        return dtype_name(ir.DataType(value))
    if isinstance(value, str):
        if '"' in value or "\\" in value or "\n" in value:
            raise Unspeakable
        return f'"{value}"'
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple) and all(isinstance(v, int | float) for v in value):
        return f"[{', '.join(_attribute('', v) for v in value)}]"
    raise Unspeakable


def words(cut: Cut) -> list[str]:
    """The names of its operators, from the root down."""
    return [node.op.name for node in cut.operators]


def conditions(spelling: Spelling, taken: Snapshot) -> list[str]:
    """Possible conditions on a rule's first variable, from those that are always true to those of the model."""
    leaf = next(iter(spelling.variables), None)
    kind = None if leaf is None else taken.types[leaf]
    if leaf is None or kind is None:
        return [""]
    name = spelling.variables[leaf]
    group = "floats" if kind.dtype.is_floating_point() else "integers" if kind.dtype.is_integer() else ""
    found = ["", f"{name}.dtype in {group}"] if group else [""]
    found.append(f"{name}.dtype == {dtype_name(kind.dtype)}")
    asked = [*_lists(spelling, taken), *(_ones(v, taken.types[c]) for c, v in spelling.variables.items())]
    for text in filter(None, asked):
        found.append(f"{found[-1]}, {text}")
    return found


def _lists(spelling: Spelling, taken: Snapshot) -> Iterator[str]:
    """That constants are the shapes of tensors, where they are."""
    shapes = {v: kind.shape for c, v in spelling.variables.items() if (kind := taken.types[c]) is not None}
    for eclass, variable in spelling.variables.items():
        value = taken.value[eclass]
        array = None if value is None else value.numpy()
        if array is not None and array.ndim == 1 and array.dtype == np.int64:
            same = next((v for v, shape in shapes.items() if shape == tuple(array.tolist())), None)
            if same is not None:
                yield f"{variable}.value == {same}.shape"


def _ones(name: str, kind: TensorType | None) -> str:
    """That the dimensions of size 1 are those of the model; empty if there are none."""
    if kind is None or kind.shape is None or 1 not in kind.shape:
        return ""
    ones = [f"{name}.shape[{i}] == 1" for i, size in enumerate(kind.shape) if size == 1]
    return ", ".join([f"{name}.rank == {len(kind.shape)}", *ones])
