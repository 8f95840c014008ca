"""The C call of a kernel, with the expressions of its target file evaluated for one use of it.

Addresses of tensors are left open: ``{0}``, ``{1}``, ... are the operands of the call in the partitioned model,
``{result}`` is its result, or ``{result0}``, ``{result1}``, ... of several. Free sizes are left open as well
(:mod:`eqsat.partition.call_sizes`). Braces of C are doubled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.answer import CompositeInstance
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import TargetError
from eqsat.partition.call_sizes import NO_VALUE, DimensionNames
from eqsat.partition.written_operators import facts_of_class
from eqsat.rules import ast
from eqsat.rules.ast import RESULT, Expr, Target
from eqsat.rules.evaluation import TensorFacts, Unknown, evaluate, holds
from eqsat.rules.signatures import signature
from eqsat.schema.free_sizes import ranges, within
from eqsat.schema.size import Size
from eqsat.schema.types import TensorType, TensorTypes
from eqsat.targets.condition_names import bind_operands
from eqsat.text import c_bytes

RESULT_HOLE = "{result}"
ABSENT = "NULL"
_INFINITY = ("-INFINITY", "INFINITY")


def vendor_call(node: ENode, snapshot: Snapshot, target: Target, outputs: TensorTypes) -> str | None:
    """Text of the call for a chosen kernel; None if its target's file gives none.

    Args:
        node: The call of a composite, or a plain operator.
        snapshot: The e-graph.
        target: The target that runs it.
        outputs: Types of its results, None for one without readers.

    Raises:
        TargetError: An expression of the call has no value here.
    """
    if node.composite is not None:
        return _of_composite(node.composite, node, snapshot, outputs) if node.composite.composite.call_parts else None
    entries = [s for s in target.supports if not s.ops or node.op in s.ops]
    if node.kind != "op" or node.outputs or not any(entry.call_parts for entry in entries):
        return None
    facts = [None if child is None else facts_of_class(snapshot, child) for child in node.children]
    env = bind_operands(node.op, node.attrs, facts, [snapshot.types[node.eclass]])
    entry = next((entry for entry in entries if holds(entry.where, env) is None), None)
    if entry is None or not entry.call_parts:
        return None
    numbers: list[str] = []
    for child in node.children:
        numbers.append(ABSENT if child is None else f"{{{sum(n != ABSENT for n in numbers)}}}")
    names = DimensionNames(_types(node, snapshot), [snapshot.types[node.eclass]])
    found = signature(node.op)
    holes = {"x": numbers[0] if numbers else ABSENT, "y": RESULT_HOLE}
    for i, parameter in enumerate(() if found is None else found.inputs):
        holes[parameter.name] = ", ".join(numbers[i:]) if parameter.variadic else (*numbers[i : i + 1], ABSENT)[0]
    for parameter in () if found is None else found.outputs[:1]:
        holes[parameter.name] = RESULT_HOLE
    return _Filling(env, holes, names, str(entry.place), f"{target.name}.{node.op}").text(entry.call_parts)


def _of_composite(instance: CompositeInstance, node: ENode, snapshot: Snapshot, outputs: TensorTypes) -> str:
    if instance.results:
        holes = {name: f"{{result{k}}}" for name, k in instance.results}
    else:
        holes = {name: RESULT_HOLE for name, _, _ in instance.nodes} | {RESULT: RESULT_HOLE}
    written = set(holes.values())
    env = instance.names(outputs)
    if not instance.results:
        env.setdefault(RESULT, TensorFacts(outputs[0]))
    number = 0
    for name, child in zip(instance.leaves, node.children, strict=True):
        if child is None:
            continue
        if name is not None:
            env[name] = facts_of_class(snapshot, child)
            if name not in holes or holes[name] in written:
                holes[name] = f"{{{number}}}"
        number += 1
    names = DimensionNames(_types(node, snapshot), outputs)
    place, kernel = str(instance.composite.place), f"{instance.target}.{instance.composite.name}"
    return _Filling(env, holes, names, place, kernel).text(instance.composite.call_parts)


def _types(node: ENode, snapshot: Snapshot) -> list[TensorType | None]:
    """Types of the operands that are present."""
    return [snapshot.types[child] for child in node.children if child is not None]


class _Filling:
    """Fills the holes of a call.

    Args:
        env: What its expressions are evaluated over.
        holes: The text for a tensor.
        names: Of the free dimensions of its operands and results.
        place: Of the call, for messages.
        kernel: Likewise.
    """

    def __init__(
        self, env: Mapping[str, object], holes: Mapping[str, str], names: DimensionNames, place: str, kernel: str
    ) -> None:
        self.env = {name: names.facts(value) for name, value in env.items()} if names.ranges else env
        self.holes = holes
        self.names = names
        self.place = place
        self.kernel = kernel

    def text(self, call: Sequence[str | Expr]) -> str:
        """The text of a call, with the values of its expressions and the numbers of its tensors.

        Raises:
            TargetError: An expression has no value for any sizes.
        """
        made = ""
        for k, part in enumerate(call):
            if isinstance(part, str):
                made += part.replace("{", "{{").replace("}", "}}")
            elif isinstance(part, ast.Name) and part.name in self.holes:
                made += self.holes[part.name]
            elif isinstance(part, ast.Name) and part.name not in self.env:
                made += ABSENT
            else:
                value, after = self._value(part), "".join(p for p in call[k + 1 : k + 2] if isinstance(p, str))
                made += value if _is_argument(made, value, after) else NO_VALUE
        return made

    def _value(self, part: Expr) -> str:
        try:
            with within({**ranges(), **self.names.ranges}):
                return self._text(evaluate(part, self.env, sizes=True))
        except Unknown as error:
            if self._has_value_somewhere(part):
                return NO_VALUE
            raise TargetError(
                "the expressions of a call must have values", place=self.place, actual=f"{self.kernel}: {error}"
            ) from error

    def _has_value_somewhere(self, part: Expr) -> bool:
        """Whether an expression has a value where all sizes are numbers."""
        try:
            self._text(evaluate(part, {name: self.names.at_usual_sizes(value) for name, value in self.env.items()}))
        except Unknown:
            return False
        return bool(self.names.ranges)

    def _text(self, value: Any) -> str:
        """A value as a C expression, or as a hole for a size; several are separated by commas.

        Raises:
            Unknown: The value cannot be expressed in C.
        """
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, ir.DataType):
            return str(int(value))
        if isinstance(value, str):
            return c_bytes(value)
        if isinstance(value, np.ndarray):
            return ", ".join(self._text(v) for v in value.ravel().tolist())
        if isinstance(value, tuple | list):
            return ", ".join(self._text(v) for v in value)
        if isinstance(value, Size):
            return self.names.hole(value)
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else "NAN" if math.isnan(value) else _INFINITY[value > 0]
        raise Unknown(f"{type(value).__name__} is not a value of C")


def _is_argument(before: str, value: str, after: str) -> bool:
    """Whether a value may be at this place in C: a size becomes an expression, so it cannot be part of a name or a
    string.
    """
    if not re.search(r"\{[=?]", value):
        return True
    in_name = re.search(r"\w$", before) or re.match(r"\w", after)
    return not in_name and len(re.findall(r'(?<!\\)"', before)) % 2 == 0
