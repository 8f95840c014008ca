"""The meaning of operators for all ranks and sizes: their result at any position, as a term.

Elementwise operators read their operands at that position, fitted to their shapes; operators that move elements read
their first operand at another position, by a map that depends only on attributes and shapes. For any other operator, a
proof only uses that equal operands and attributes give equal results. This file names the operators of which more is
known: how positions of a result map to positions of operands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.proofs import conditions
from eqsat.proofs.clause_names import AttributeTerm, ClauseNames, Denotation
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, TermAttributes, apply, number
from eqsat.proofs.symbolic_shapes import SCALAR, ElementPosition, SymbolicShape
from eqsat.rules import ast
from eqsat.rules.expand import Clause
from eqsat.schema.opset import EQSAT, MICROSOFT
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """One use of an operator.

    Attributes:
        operands: Operands, None for absent ones.
        output: Number of the result.
        node: Distinguishes a node of the pattern from equal ones; None in templates.
    """

    op: OpKey
    attributes: Mapping[str, AttributeTerm]
    operands: Sequence[Any]
    output: int = 0
    node: Hashable = None

    @property
    def given(self) -> list[Denotation]:
        """The operands that are present."""
        return [x for x in self.operands if x is not None]

    @property
    def data(self) -> TermAttributes:
        return _data(self.attributes)

    def operand(self, index: int) -> Denotation | None:
        return self.operands[index] if index < len(self.operands) else None


class OperatorsOfEveryRank(ClauseNames):
    """The meaning of operators.

    Attributes:
        parts: The assumptions.
    """

    def __init__(self, clause: Clause, parts: list[ast.Expr]) -> None:
        super().__init__(clause)
        self.parts = parts

    def applied(self, call: OperatorUse) -> Denotation:
        """The result of an operator.

        Raises:
            NotModelled: It draws random numbers.
        """
        if has(call.op, Trait.RANDOM):
            raise NotModelled(f"{call.op}: draws random numbers")
        meaning = _MEANINGS.get(call.op)
        if meaning is None and not call.op.domain and has(call.op, Trait.ELEMENTWISE):
            meaning = OperatorsOfEveryRank._broadcast
        found = meaning(self, call) if meaning is not None and call.given else None
        return self._opaque(call) if found is None else found

    # ---- meanings; None if only the name of an operator is known --------------------------------------

    def _same(self, call: OperatorUse) -> Denotation | None:
        return call.given[0]

    def _broadcast(self, call: OperatorUse) -> Denotation | None:
        return self._elementwise(call.op.name, call.data, call.given)

    def _clip(self, call: OperatorUse) -> Denotation | None:
        # The term only needs to know which bounds the call has.
        present = tuple(call.operand(i) is not None for i in (1, 2))
        bounds = (Denotation(SCALAR, o.element, True) for o in call.given[1:])
        return self._elementwise(call.op.name, (("present", present),), [call.given[0], *bounds])

    def _quantizing(self, call: OperatorUse) -> Denotation | None:
        x, *parameters = call.given
        if not all(o.single for o in parameters):
            return None
        data = tuple((k, v) for k, v in call.data if k not in ("axis", "block_size"))

        zero_point = (number(0),) if len(parameters) == 1 else ()  # the meaning of an absent one

        def element(position: ElementPosition) -> ScalarTerm:
            given = (x.element(position), *(o.sole() for o in parameters), *zero_point)
            return apply(str(call.op), given, data)

        return Denotation(x.shape, element, x.single)

    def _view(self, call: OperatorUse) -> Denotation | None:
        shapes, (x, *rest) = self.shapes, call.given
        name = call.op.name
        shape: SymbolicShape = ("view", x.shape, name, call.data, tuple(self.key(o) for o in rest), call.node)
        if x.single and name == "Reshape" and self._is_empty_list(rest[0]):
            shape = SCALAR
        return Denotation(shape, lambda p: x.element(shapes.view(x.shape, shape, p)), x.single)

    def _expanded(self, call: OperatorUse) -> Denotation | None:
        shapes, (x, target, *_) = self.shapes, call.given
        shape = shapes.stretched(x.shape, ("target", self.key(target)))
        return Denotation(shape, lambda p: x.element(shapes.fit(x.shape, p)), False)

    def _gathered(self, call: OperatorUse) -> Denotation | None:
        table, indices, *_ = call.given
        return self._looked_up(table, indices) if self._is_table(table) else self._moved(call)

    def _split(self, call: OperatorUse) -> Denotation | None:
        if len(call.given) > 1:  # The sizes say how many results there are.
            attributes = {k: v for k, v in call.attributes.items() if k != "num_outputs"}
            call = OperatorUse(call.op, attributes, call.operands, call.output, call.node)
        return self._moved(call)

    def _concatenated(self, call: OperatorUse) -> Denotation | None:
        return call.given[0] if len(call.given) == 1 else self._pieces(call, call.given, ())

    def _padded(self, call: OperatorUse) -> Denotation | None:
        if len(call.operands) < 2:
            return None
        zero, value = number(0), call.operand(2)
        outside = Denotation(SCALAR, (lambda _: zero) if value is None else value.element, True)
        return self._pieces(call, [call.given[0], outside], (call.operand(1), call.operand(3)))

    def _resized(self, call: OperatorUse) -> Denotation | None:
        copies = self._copies(call.attributes)
        return self._pieces(call, call.given[:1], tuple(call.operands[1:])) if copies else None

    # ---- parts of meanings ----------------------------------------------------------------------------

    def _elementwise(self, name: str, data: TermAttributes, given: list[Denotation]) -> Denotation:
        shapes = self.shapes
        # A single element of a rank that is no greater stretches nothing.
        stretching = [
            o
            for o in given
            if not (o.single and any((o.shape, other.shape) in shapes.within for other in given if other is not o))
        ]
        shape = shapes.stretched(*(o.shape for o in stretching or given))

        def element(position: ElementPosition) -> ScalarTerm:
            return apply(name, (o.element(shapes.fit(o.shape, position)) for o in given), data)

        return Denotation(shape, element, all(o.single for o in given))

    def _moved(self, call: OperatorUse) -> Denotation | None:
        shapes, (x, *others) = self.shapes, call.given
        own = (str(call.op), call.data, call.output, tuple(self.key(o) for o in others))

        def key() -> Hashable:
            return ("moved", own, shapes.find(x.shape), tuple(shapes.find(o.shape) for o in others))

        return Denotation(key(), lambda p: x.element(shapes.through(key(), x.shape, p)), False)

    def _pieces(self, call: OperatorUse, given: Sequence[Denotation], rest: Sequence[Denotation | None]) -> Denotation:
        """An operator that moves elements: each result is an element of one of its operands."""
        shapes = self.shapes
        own = (str(call.op), call.data, tuple(None if o is None else self.key(o) for o in rest))

        def key() -> Hashable:
            return ("pieces", own, tuple(shapes.find(o.shape) for o in given))

        def element(position: ElementPosition) -> ScalarTerm:
            places = (shapes.through((key(), k), o.shape, position) for k, o in enumerate(given))
            elements = [o.sole() if o.single else o.element(p) for o, p in zip(given, places, strict=True)]
            return apply("Piece", elements, (("which", (key(), position)),))

        return Denotation(key(), element, False)

    def _copies(self, attributes: Mapping[str, AttributeTerm]) -> bool:
        """Whether a Resize copies elements: it takes the nearest one, and none outside of its operand."""
        if attributes.get("mode") != "nearest":
            return False
        mode = attributes.get("coordinate_transformation_mode")
        if isinstance(mode, str):
            return mode != "tf_crop_and_resize"
        return any(
            sign == "!="
            and self.value(left) == mode
            and isinstance(right, ast.String)
            and right.value == "tf_crop_and_resize"
            for left, sign, right in conditions.comparisons(self.parts)
            if isinstance(left, ast.Member) and isinstance(left.of, ast.Name) and left.of.name in self.nodes
        )

    def _is_table(self, x: Denotation) -> bool:
        shape = self.shapes.find(x.shape)
        return isinstance(shape, tuple) and shape[0] == "table" and isinstance(shape[2], tuple) and len(shape[2]) == 1

    def _is_empty_list(self, target: Denotation) -> bool:
        return isinstance(target.shape, tuple) and target.shape[:2] == ("table", ())

    def _looked_up(self, table: Denotation, indices: Denotation) -> Denotation:
        def element(position: ElementPosition) -> ScalarTerm:
            return table.element(("entry", self.shapes.find(table.shape), indices.element(position)))

        return Denotation(indices.shape, element, indices.single)

    def _opaque(self, call: OperatorUse) -> Denotation:
        keys = tuple(None if o is None else self.key(o) for o in call.operands)
        own = ("result", str(call.op), call.output, call.data, keys)
        return Denotation(own, lambda p: apply(f"element of {call.op}", (), (("of", (own, p)),)), False)


_Meaning = Callable[[OperatorsOfEveryRank, OperatorUse], Denotation | None]
_Any = OperatorsOfEveryRank


def _meanings(*rows: tuple[str, _Meaning, str]) -> dict[OpKey, _Meaning]:
    return {OpKey(domain, name): meaning for domain, meaning, names in rows for name in names.split()}


_MEANINGS = _meanings(
    ("", _Any._same, "Identity"),
    (EQSAT, _Any._same, "CastHint StopFusion ChannelsLast ChannelsFirst"),
    ("", _Any._clip, "Clip"),
    ("", _Any._quantizing, "QuantizeLinear DequantizeLinear"),
    (MICROSOFT, _Any._quantizing, "QuantizeLinear DequantizeLinear"),
    ("", _Any._view, "Reshape Flatten Squeeze Unsqueeze"),
    ("", _Any._expanded, "Expand"),
    ("", _Any._gathered, "Gather"),
    ("", _Any._moved, "Transpose Slice GatherElements GatherND Tile DepthToSpace SpaceToDepth"),
    ("", _Any._split, "Split"),
    ("", _Any._concatenated, "Concat"),
    ("", _Any._padded, "Pad"),
    ("", _Any._resized, "Resize"),
)
"""The meaning of each operator; elementwise operators that are not listed fit all operands to each other."""


def _data(attributes: Mapping[str, AttributeTerm]) -> TermAttributes:
    return tuple(sorted(attributes.items(), key=lambda item: item[0]))
