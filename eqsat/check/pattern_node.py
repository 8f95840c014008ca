"""One operator of a pattern while it is drawn; samplers see it as :class:`eqsat.ops.sampling.node.SampledNode`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from eqsat.check import instance_data
from eqsat.check.draw_state import Drawing
from eqsat.check.instance import Drawn, Leaf
from eqsat.check.instance_data import Pool
from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.ops.sampling.node import Fill, OperandKind
from eqsat.rules.ast import Match, Name, Number, Pattern, Wildcard
from eqsat.schema.declared_operators import find_declared
from eqsat.schema.opset import dtypes, find_schema
from eqsat.schema.types import Shape


@dataclass(frozen=True, slots=True)
class Request:
    """The requirements of an operator on an operand; an operand that was drawn before is not changed.

    Attributes:
        dtype: The element type.
        shape: The shape; None if any will do.
        fill: The values that it must hold.
        values: Makes a leaf a constant of these contents.
        of_size: Only the number of elements matters: the shape may be another one with the same number.
        seen: The operator's attributes decided so far, for conditions.
    """

    dtype: ir.DataType
    shape: Shape | None = None
    fill: Fill = "any"
    values: np.ndarray | None = None
    of_size: bool = False
    seen: Mapping[str, object] = field(default_factory=dict)


class _Asked(Protocol):
    """The interface to the attempt to which a node belongs (:class:`eqsat.check.attempt.Attempt`)."""

    drawing: Drawing
    chance: Chance
    main: ir.DataType
    leaves: dict[str, Leaf]

    def known(self, pattern: Pattern | None) -> Drawn | None: ...

    def attribute(self, pattern: Match, name: str, value: Any, attrs: Mapping[str, Any]) -> Any: ...

    def operand(self, pattern: Pattern, request: Request) -> Drawn: ...

    def seen(self, pattern: Match, attrs: Mapping[str, Any]) -> dict[str, object]: ...

    def wished(self, pattern: Match, dtype: ir.DataType, shape: Shape) -> Shape: ...


class PatternNode:
    """An operator of the pattern; its interface for samplers is described there."""

    def __init__(
        self,
        attempt: _Asked,
        pattern: Match,
        args: Sequence[Pattern | None],
        required: dict[str, Any],
        dtype: ir.DataType | None,
        shape: Shape | None,
        outputs: int,
    ) -> None:
        self.op = op = pattern.ops[0]
        self.chance: Chance = attempt.chance
        self.pool: Pool = attempt.drawing.pool
        self.shape = shape
        self.attrs: dict[str, Any] = dict(required)
        self.required = frozenset(required)
        self.asked = frozenset(bind.attribute for bind in pattern.attrs) | attempt.drawing.wishes.of_node(pattern)
        self.named = attempt.drawing.named
        self._schema = schema = find_schema(op)
        self.outputs = outputs if schema is None else max(outputs, schema.min_output)
        self._attempt = attempt
        self._pattern = pattern
        self._args = list(args)
        self._drawn: dict[int, Drawn] = {}
        self._types: dict[str, ir.DataType] = {}
        self._wished = dtype
        self.count = len(self._args)
        if dtype is not None and schema is not None and schema.outputs:
            self._types[schema.outputs[0].type_str] = dtype
        for i, arg in enumerate(self._args):
            found = attempt.known(arg)
            if found is not None:
                self._note(i, found)

    # ---- operands -----------------------------------------------------------------------------------

    def has(self, i: int) -> bool:
        return i < self.count and self._args[i] is not None

    def kind(self, i: int) -> OperandKind:
        arg = self._args[i]
        if i in self._drawn:
            return "known"
        if isinstance(arg, Match):
            return "node"
        if isinstance(arg, Number):
            return "number"
        assert isinstance(arg, Name | Wildcard)
        demanded = isinstance(arg, Name) and arg.name in self._attempt.drawing.demands.constants
        return "constant" if demanded else "input"

    def known(self, i: int) -> Shape | None:
        drawn = self._drawn.get(i)
        if drawn is None:
            return None
        assert drawn.type.shape is not None
        return tuple(d for d in drawn.type.shape if isinstance(d, int))

    def value(self, i: int) -> np.ndarray | None:
        return self._drawn[i].value if i in self._drawn else None

    def draw(
        self,
        i: int,
        shape: Shape | None = None,
        *,
        fill: Fill = "any",
        values: np.ndarray | list[int] | None = None,
        dtype: ir.DataType | None = None,
        of_size: bool = False,
    ) -> Shape:
        if i not in self._drawn:
            arg = self._args[i]
            if arg is None:
                raise Rejected("an absent operand is needed")
            wanted = self.dtype(i) if dtype is None else dtype
            array = None if values is None else np.asarray(values)
            seen = self._attempt.seen(self._pattern, self.attrs) if isinstance(arg, Name) else {}
            self._note(i, self._attempt.operand(arg, Request(wanted, shape, fill, array, of_size, seen)))
        found = self.known(i)
        assert found is not None
        return found

    def wished(self, shape: Shape) -> Shape:
        result = self.result()
        return shape if result is None else self._attempt.wished(self._pattern, result, shape)

    def operands(self) -> list[Drawn | None]:
        """All operands.

        Raises:
            Rejected: The sampler has left one out.
        """
        for i, arg in enumerate(self._args):
            if arg is not None and i not in self._drawn:
                raise Rejected(f"operand {i} of {self.op} is not drawn")
        return [self._drawn.get(i) for i in range(self.count)]

    def dtype(self, i: int) -> ir.DataType:
        if i in self._drawn:
            return self._drawn[i].type.dtype
        formal = self._formal(i)
        if formal is None:
            allowed = self._declared(i)
            if not allowed:
                return self._attempt.main
        elif formal.type_str in self._types:
            return self._types[formal.type_str]
        else:
            allowed = sorted(dtypes(formal.types), key=int)
        if not allowed:
            raise Rejected(f"{self.op} takes no tensor")
        arg = self._args[i]
        if isinstance(arg, Name) and (required := self._attempt.drawing.required.get(arg.name)):
            allowed = [d for d in allowed if d in required] or allowed
        if self._attempt.main in allowed:
            return self._attempt.main
        usual = self._attempt.drawing.dtypes
        weights = {d: usual[d] for d in allowed if d in usual} or {d: 1.0 for d in allowed if d in instance_data.RARE}
        if not weights:
            raise Rejected(f"{self.op} takes no element type that is drawn")
        return self.chance.weighted(weights)

    def result(self) -> ir.DataType | None:
        schema = self._schema
        if schema is None:
            return self._wished  # A function of ours has no schema.
        return self._types.get(schema.outputs[0].type_str) if schema.outputs else None

    def usual(self, kinds: Sequence[ir.DataType]) -> ir.DataType:
        seen = next((t for leaf in self._attempt.leaves.values() if (t := leaf.type.dtype) in kinds), None)
        return seen if seen is not None and self.chance.happens(0.8) else self.chance.one_of(kinds)

    def _declared(self, i: int) -> list[ir.DataType]:
        """The element types that a declaration allows for an operand, in the order of their numbers."""
        declared = find_declared(self.op)
        dtypes = declared.dtypes if declared is not None else ()
        return sorted(dtypes[i], key=int) if i < len(dtypes) else []

    def _formal(self, i: int) -> Any:
        schema = self._schema
        if schema is None or not schema.inputs:
            return None
        return schema.inputs[min(i, len(schema.inputs) - 1)]

    def _note(self, i: int, drawn: Drawn) -> None:
        self._drawn[i] = drawn
        formal = self._formal(i)
        if formal is None or len(formal.types) == 1:
            return
        if self._types.setdefault(formal.type_str, drawn.type.dtype) != drawn.type.dtype and not _heterogeneous(formal):
            raise Rejected("operands of different element types")

    # ---- attributes ---------------------------------------------------------------------------------

    def attr(self, name: str, value: Any) -> Any:
        if name not in self.attrs:
            self.attrs[name] = self._attempt.attribute(self._pattern, name, value, self.attrs)
        return self.attrs[name]

    def near(self, name: str, *usual: float) -> float:
        if any(0 < n <= 1 for n in self.pool.mentioned) and self.chance.happens(0.5):
            value = abs(self.pool.beside(self.chance))
            if 1e-7 < value <= 1:
                return self.attr(name, value)
        return self.attr(name, self.chance.one_of(usual))

    def real(self, name: str, *usual: float) -> float:
        kind = self.chance.number(0, 3 if self.pool.mentioned else 2)
        if kind == 0:
            value = self.chance.one_of(usual) if usual else float(np.float32(self.chance.rng.uniform(0.1, 2.0)))
        elif kind == 1 and self.pool.numbers:
            value = self.chance.one_of(self.pool.numbers)
        elif kind == 3:
            value = self.pool.beside(self.chance)
        else:
            value = float(np.float16(self.chance.rng.uniform(-2.0, 2.0)))
        return self.attr(name, value)


def _heterogeneous(formal: Any) -> bool:
    return formal.option.name == "Variadic" and not formal.is_homogeneous
