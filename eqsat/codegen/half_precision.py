"""float16 and bfloat16 are types of memory only: operators on them are computed in float32, by the kernels for float32.

A tensor that a kernel computes then exists in float32, rounded to its own type after each operator, as the model
demands. So its values equal those of kernels that load and store halves, and only elementwise kernels know of these
types. A tensor is converted to its own type where something reads it in that type: the caller, a body of control flow,
a region that stays whole. Operators that only move elements stay in the type in which they find their operands: nothing
is converted only to be moved.

ONNX Runtime runs such models in float32 on the CPU as well, but does not round between the operators.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.c_types import HALVES
from eqsat.codegen.control.control_node import CONTROL
from eqsat.codegen.elementwise_spelling import spell
from eqsat.codegen.kernel import Step
from eqsat.codegen.kernels.shared.families import find
from eqsat.codegen.program import (
    FINDING,
    IDENTITY,
    RESHAPE,
    ROUNDS,
    Program,
    ProgramNode,
    ProgramOperand,
    ProgramTensor,
)
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.types import CAST, OpKey

_FLOAT = ir.DataType.FLOAT
_REINTERPRETS = OpKey("", "BitCast")
_SCATTERS = frozenset({OpKey("", "ScatterND"), OpKey("", "ScatterElements")})
_Copies = dict[tuple[ProgramTensor, int | None], ProgramTensor]


class HalfPrecision:
    """Lowers the tensors of half precision of one program."""

    def __init__(self) -> None:
        self._constants: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def is_computable(self, node: ProgramNode) -> bool:
        """Whether a kernel family computes a node, in its own type or in float32."""
        if find(node.provisional_task()) is not None:
            return True
        return _is_half(node) and find(self._in_float32(node, {}, None).provisional_task()) is not None

    def lower(self, program: Program) -> None:
        """Computes in float32 what a program computes in half precision; its list of nodes is replaced."""
        if not any(_is_half(node) for node in program.nodes):
            return
        copies: _Copies = {}
        nodes: list[ProgramNode] = []
        for node in program.nodes:
            region = None if node.kernel is None else node.kernel[0]
            is_plain = region is None or program.regions[region].backend is None
            wide = self._wide(node, copies, region) if is_plain and _is_half(node) else None
            nodes += [node] if wide is None else self._replacement(node, wide, copies, region)
        program.nodes = nodes

    def _wide(self, node: ProgramNode, copies: _Copies, region: int | None) -> ProgramNode | None:
        """The node in float32; None if it stays as it is."""
        if _moves(node) and not any((x, region) in copies for x in node.reads()):
            return None
        wide = self._in_float32(node, copies, region)
        return None if find(wide.provisional_task()) is None else wide

    def _in_float32(self, node: ProgramNode, copies: _Copies, region: int | None) -> ProgramNode:
        """A node with operands and results in float32, and with the roundings between its steps."""

        def given(x: ProgramOperand | None) -> ProgramOperand | None:
            if isinstance(x, ProgramTensor):
                return copies.get((x, region)) or _like(x)
            return x if x is None else self._constant(x)

        inputs = [given(x) for x in node.inputs]
        operands = [y for x in node.operands if (y := given(x)) is not None]
        outputs = [None if y is None else _like(y) for y in node.outputs]
        dtype = _FLOAT if node.dtype in HALVES else node.dtype
        return replace(node, inputs=inputs, outputs=outputs, dtype=dtype, operands=operands, steps=_rounded_steps(node))

    def _constant(self, x: np.ndarray) -> np.ndarray:
        """A constant in float32, the same array for the same constant."""
        if x.dtype == object or ir.DataType.from_numpy(x.dtype) not in HALVES:
            return x
        if id(x) not in self._constants:
            self._constants[id(x)] = x, x.astype(np.float32)
        return self._constants[id(x)][1]

    def _replacement(
        self, node: ProgramNode, wide: ProgramNode, copies: _Copies, region: int | None
    ) -> list[ProgramNode]:
        """The nodes in the place of one: conversions of its operands, itself, roundings and conversions of results."""
        before: list[ProgramNode] = []
        for old, new in zip((*node.inputs, *node.operands), (*wide.inputs, *wide.operands), strict=True):
            if isinstance(old, ProgramTensor) and isinstance(new, ProgramTensor) and old.dtype in HALVES:
                known = copies.get((old, region))
                if known is None:
                    copies[old, region] = new
                    before.append(_converted(node, old, new, _FLOAT))
                elif known is not new:
                    wide.replace_reads(new, known)
        after: list[ProgramNode] = []
        for i, (old, new) in enumerate(zip(node.outputs, wide.outputs, strict=True)):
            if old is None or new is None or old.dtype not in HALVES:
                wide.outputs[i] = old
                continue
            if not (i == 0 and node.steps) and not _is_exact(node.operator):
                exact, new = new, _like(old)
                after.append(_converted(node, exact, new, old.dtype, _FLOAT))
            copies[old, region] = new
            after.append(_converted(node, new, old, old.dtype))
        return [*before, *_spelled(wide), *after]


def _spelled(wide: ProgramNode) -> list[ProgramNode]:
    """The nodes that replace a node in float32, as if the model had that type."""
    made = [wide] if wide.is_chain or wide.steps else spell(wide)
    for node in made:
        node.kernel, node.family = wide.kernel, wide.family if node.operator == wide.operator else ""
    return made


def _is_half(node: ProgramNode) -> bool:
    """Whether a node computes with numbers of half precision."""
    if node.operator == _REINTERPRETS or node.operator.domain == FINDING or CONTROL in node.attributes:
        return False
    types = [x.dtype if isinstance(x, ProgramTensor) else _type(x) for x in (*node.inputs, *node.operands)]
    return not HALVES.isdisjoint(types) or any(step.dtype in HALVES for step in node.steps)


def _type(x: np.ndarray | None) -> ir.DataType | None:
    return None if x is None or x.dtype == object else ir.DataType.from_numpy(x.dtype)


def _moves(node: ProgramNode) -> bool:
    """Whether the node only moves elements. Conversions between layouts are excluded: they are fast only in float32."""
    if node.steps or (node.is_chain and node.output.order is not None):
        return False
    moves = node.is_chain or node.operator == RESHAPE or has(node.operator, Trait.MOVES)
    if node.operator in _SCATTERS:
        moves = node.attributes.get("reduction", "none") == "none"
    return moves and not has(node.operator, Trait.ROUNDS)


def _is_exact(operator: OpKey) -> bool:
    """Whether results computed from numbers of half precision are numbers of half precision."""
    if operator.domain or has(operator, Trait.ROUNDS):
        return False
    return any(has(operator, trait) for trait in (Trait.EXACT, Trait.MOVES, Trait.SELECTS))


def _like(x: ProgramTensor) -> ProgramTensor:
    """A tensor in float32 in the place of one of half precision; another one is itself."""
    return ProgramTensor(x.name, _FLOAT, x.shape, x.order) if x.dtype in HALVES else x


def _rounded_steps(node: ProgramNode) -> list[Step]:
    """The steps of a node in float32, and the roundings of their results."""
    types = [node.dtype, *(x.dtype if isinstance(x, ProgramTensor) else _type(x) for x in node.operands)]
    numbers, steps = list(range(len(types))), list[Step]()

    def add(step: Step) -> int:
        steps.append(step)
        return len(node.operands) + len(steps)

    def rounded(number: int, dtype: ir.DataType) -> int:
        for to in (dtype, _FLOAT):
            number = add(_cast(number, to, ROUNDS))
        return number

    if node.steps and not node.is_chain and node.dtype in HALVES and not _is_exact(node.operator):
        numbers[0] = rounded(0, node.dtype)
    for step in node.steps:
        inputs = tuple(None if i is None else numbers[i] for i in step.inputs)
        kinds = [None if i is None else types[i] for i in step.inputs]
        types.append(step.dtype)
        moved = replace(step, inputs=inputs, attributes=_as_before(step, kinds))
        if step.dtype not in HALVES:
            numbers.append(add(moved))
        elif step.operator == CAST and kinds[0] != step.dtype:
            numbers.append(add(_cast(add(moved), _FLOAT)))
        else:
            number = add(replace(moved, dtype=_FLOAT))
            numbers.append(number if _is_exact(step.operator) else rounded(number, step.dtype))
    return steps


def _as_before(step: Step, kinds: list[ir.DataType | None]) -> dict[str, object]:
    """The attributes of a step, with the precision that the type of an operand said."""
    attributes = dict(step.attributes)
    scale = kinds[1] if step.operator.name == "QuantizeLinear" and len(kinds) > 1 else None
    if scale is not None and scale in HALVES:
        attributes["precision"] = attributes.get("precision") or scale.value
    return attributes


def _cast(number: int, dtype: ir.DataType, *marks: str) -> Step:
    return Step(CAST, {"to": int(dtype), "saturate": 1, **dict.fromkeys(marks, 1)}, (number,), dtype)


def _converted(node: ProgramNode, x: ProgramTensor, y: ProgramTensor, *types: ir.DataType) -> ProgramNode:
    """A node that converts a tensor through some types; it belongs where another node does."""
    marks = (ROUNDS,) if x.dtype == y.dtype else ()
    steps = [_cast(i, dtype, *marks) for i, dtype in enumerate(types)]
    return ProgramNode(node.name, IDENTITY, {}, [x], [y], x.dtype, [], steps, kernel=node.kernel)
