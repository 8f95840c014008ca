"""The epilogue on vectors of float32: operands through strides, steps as vector expressions, lane by lane elsewhere.

Vectors lie along one axis of the output. An operand that has stride 1 there is loaded as a vector, stride 0 is one
element in all lanes, another stride is gathered. Constants of one element are literals, larger ones parameters with
their elements in the order of the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.c_types import HALVES
from eqsat.codegen.expressions import scalar, vector
from eqsat.codegen.expressions.expression_table import Argument, Expression
from eqsat.codegen.isa import AVX2, Isa
from eqsat.codegen.kernel import Epilogue, Step, View, dense_strides
from eqsat.schema.types import OpKey, Shape

_FLOAT = ir.DataType.FLOAT
_CAST = OpKey("", "Cast")
SLACK = 16
"""Floats after a packed constant that vectors may read."""


def is_vector_epilogue(epilogue: Epilogue, *, halves: bool = False) -> bool:
    """Whether every step is known, and all values are float32; for a family's ``accepts``.

    Args:
        epilogue: Between its steps, values may be rounded to half precision: cast to such a type, and back.
        halves: Whether the anchor's result, operands and the last result may have such a type, too.
    """
    types = epilogue.dtypes()
    last, first = len(types) - 1, len(types) - len(epilogue.steps)
    for number, dtype in enumerate(types):
        if dtype != _FLOAT and not (dtype in HALVES and (halves or first <= number < last)):
            return False
    for step in epilogue.steps:
        if step.operator != _CAST and not HALVES.isdisjoint(
            [step.dtype, *(types[i] for i in step.inputs if i is not None)]
        ):
            return False
        if _expression(step, ["v" for _ in step.inputs], AVX2) is None:
            return False
    return True


def preceded(epilogue: Epilogue, extra: Sequence[tuple[str, View | np.ndarray]]) -> Epilogue:
    """The epilogue after binary operators that are applied first; their operands come after its own."""
    if not extra:
        return epilogue
    own, more = len(epilogue.operands), len(extra)
    first = 1 + own + more
    steps = [
        Step(OpKey("", name), {}, (0 if k == 0 else first + k - 1, 1 + own + k), ir.DataType.FLOAT)
        for k, (name, _) in enumerate(extra)
    ]

    def moved(i: int | None) -> int | None:
        if i is None or 0 < i <= own:
            return i
        return first + more - 1 if i == 0 else i + 2 * more

    steps += [replace(s, inputs=tuple(moved(i) for i in s.inputs)) for s in epilogue.steps]
    return replace(epilogue, operands=(*epilogue.operands, *(o for _, o in extra)), steps=tuple(steps))


class VectorEpilogue:
    """Writes the steps of one kernel's epilogue.

    Args:
        epilogue: All values float32, or of half precision, which are floats in registers.
        shape: Of the output.
        axis: Of the output, along which vectors lie.
        isa: Instruction set.
        first_constant: Number of the first free parameter ``w<k>``.
        names: Pointers of operands that are not called ``e<k>``, by index.

    Attributes:
        constants: For ``GeneratedKernel.constants``.
        strides: By parameter (``e0``, ``w2``, ...) the strides along the axes of the output.
        types: By parameter the element type.
        helpers: Declarations that the steps need and that are not in ``vectors.h.jinja``; complete after the last
        ``write``.
    """

    def __init__(
        self,
        epilogue: Epilogue,
        shape: Shape,
        axis: int,
        isa: Isa,
        first_constant: int = 0,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.epilogue, self.axis, self.isa = epilogue, axis, isa
        self.constants: list[np.ndarray] = []
        self.strides: dict[str, Shape] = {}
        self.helpers: dict[str, None] = {}
        self._padded: set[str] = set()
        self.types: dict[str, ir.DataType] = {}
        self._operands: list[str | float] = []  # a pointer, or the value of a constant
        for index, operand in enumerate(epilogue.operands):
            if isinstance(operand, View):
                name = (names or {}).get(index, f"e{index}")
                self.strides[name] = operand.strides
                self.types[name] = operand.dtype
            elif operand.size == 1:
                self._operands.append(float(operand.reshape(())))
                continue
            else:
                name = f"w{first_constant + len(self.constants)}"
                self.strides[name] = self._constant(operand, shape)
                self.types[name] = _FLOAT
                self._padded.add(name)
            self._operands.append(name)

    def _constant(self, array: np.ndarray, shape: Shape) -> Shape:
        full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        order = [a for a in range(len(shape)) if a != self.axis] + [self.axis]
        strides = dense_strides(full.shape, tuple(order))
        packed = np.ascontiguousarray(full.transpose(order), dtype=np.float32).ravel()
        self.constants.append(np.concatenate([packed, np.zeros(SLACK, np.float32)]))
        return tuple(0 if n == 1 else s for n, s in zip(full.shape, strides, strict=True))

    def write(self, value: str, address: Callable[[str], str], count: int) -> tuple[list[str], str]:
        """Statements that apply the steps to a vector, and the variable of the result.

        Args:
            value: Variable that holds the anchor's result; a scope of its own is expected around.
            address: Pointer of the first lane's element, by parameter.
            count: Lanes in use.
        """
        if not self.epilogue.steps:
            return [], value
        lines: list[str] = []
        names = {0: value}
        first_step = 1 + len(self._operands)
        result = self._unrounded(first_step)
        needed = self._needed(result, first_step)
        for number, step in enumerate(self.epilogue.steps, start=first_step):
            if number not in needed:
                continue
            for i in step.inputs:
                if i is not None and i not in names:
                    names[i] = f"o{i - 1}"
                    lines.append(f"const vf@ {names[i]} = {self._load(self._operands[i - 1], address, count)};")
            names[number] = f"s{number - first_step}"
            found = _expression(step, [None if i is None else names[i] for i in step.inputs], self.isa)
            assert found is not None
            self.helpers.update(dict.fromkeys(found.helpers))
            text = found.text.replace("$R", names[number])
            lines.append(text if "$R" in found.text else f"const vf@ {names[number]} = {text};")
        if result not in names:
            names[result] = f"o{result - 1}"
            lines.append(f"const vf@ {names[result]} = {self._load(self._operands[result - 1], address, count)};")
        return lines, names[result]

    def _unrounded(self, first_step: int) -> int:
        """The value to store: casts to half precision at the end are left to the store, which rounds."""
        steps = self.epilogue.steps
        result, last = first_step + len(steps) - 1, steps[-1].dtype
        while last in HALVES and result >= first_step:
            step = steps[result - first_step]
            before = step.inputs[0] if step.operator == _CAST and step.dtype in (last, _FLOAT) else None
            if before is None:
                break
            result = before
        return result

    def _needed(self, result: int, first_step: int) -> set[int]:
        """The steps that a value depends on."""
        found: set[int] = set()
        pending = [result]
        while pending:
            number = pending.pop()
            if number >= first_step and number not in found:
                found.add(number)
                pending += [i for i in self.epilogue.steps[number - first_step].inputs if i is not None]
        return found

    def _load(self, operand: str | float, address: Callable[[str], str], count: int) -> str:
        if not isinstance(operand, str):
            return f"SPLAT@({c_types.literal(operand, ir.DataType.FLOAT)})"
        stride, dtype = self.strides[operand][self.axis], self.types[operand]
        return load(address(operand), stride, count, self.isa, operand in self._padded, dtype)


def load(
    pointer: str, stride: int, count: int, isa: Isa, padded: bool = False, dtype: ir.DataType = ir.DataType.FLOAT
) -> str:
    """Expression of a vector whose first ``count`` lanes are read; with ``padded`` the others may be as well."""
    if dtype in HALVES:
        return f"load_{c_types.converted(dtype)}@({pointer}, {stride}, {count})"
    if stride == 0:
        return f"SPLAT@(*({pointer}))"
    if stride != 1:
        return f"load_strided@({pointer}, {stride}, {count})"
    return f"LD@({pointer})" if padded or count == isa.lanes() else f"load_part@({pointer}, {count})"


def store(pointer: str, value: str, stride: int, count: int, isa: Isa, dtype: ir.DataType = ir.DataType.FLOAT) -> str:
    """Statement that stores the first ``count`` lanes, rounded to half precision if the memory has it."""
    if dtype in HALVES:
        return f"store_{c_types.converted(dtype)}@({pointer}, {value}, {stride}, {count});"
    if stride != 1:
        return f"store_strided@({pointer}, {value}, {stride}, {count});"
    return f"ST@({pointer}, {value});" if count == isa.lanes() else f"store_part@({pointer}, {value}, {count});"


def _expression(step: Step, arguments: list[str | None], isa: Isa) -> Expression | None:
    """The step as an expression, or as statements that declare the variable ``$R``."""
    if step.operator == _CAST:
        return Expression(
            f"round_{c_types.converted(step.dtype)}@({arguments[0]})" if step.dtype in HALVES else str(arguments[0])
        )
    found = vector(step.operator, step.attributes, arguments, isa)
    if found is not None:
        return found
    single = [None if a is None else Argument(f"{a}_l", ir.DataType.FLOAT) for a in arguments]
    entry = scalar(step.operator, step.attributes, single, ir.DataType.FLOAT)
    if entry is None:
        return None
    lanes = isa.lanes()
    given = list(dict.fromkeys(a for a in arguments if a is not None))
    stores = " ".join(f"float {a}_a[{lanes}]; ST@({a}_a, {a});" for a in given)
    loads = " ".join(f"const float {a}_l = {a}_a[l];" for a in given)
    text = (
        f"vf@ $R; {{ float r_a[{lanes}]; {stores} for (int l = 0; l < {lanes}; l++) "
        f"{{ {loads} r_a[l] = {entry.text}; }} $R = LD@(r_a); }}"
    )
    return Expression(text, entry.helpers)
