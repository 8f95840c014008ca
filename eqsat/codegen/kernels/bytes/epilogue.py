"""The epilogue of integer kernels, on vectors of 32 bits: bytes, sums, and floats between them, to the bit.

Every rounding of the single operators is kept, as ``eqsat/ops/families`` defines it: a sum of quantized tensors after a
convolution reads the convolution's bytes, not its accumulators. Bounds are applied only when a value is used, so that a
Clip costs nothing. Numbers are parameters, not literals: layers that differ only in scales share their code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.expressions import vector
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Epilogue, Step, View, dense_strides
from eqsat.codegen.kernels.bytes.c_values import Parameters, Value, Vector, four_bytes
from eqsat.codegen.kernels.bytes.epilogue_steps import single_constants
from eqsat.schema.dtypes import BYTES, integer_limits
from eqsat.schema.types import Shape

_MAGIC = 0x4B400000
_MOST = 1 << 22
"""Rounded values are exact up to this one."""
_LEAST_SCALE = 2.0**-60
"""The least scale whose quotients have exact remainders; the greatest is its inverse."""
PADDING = 16
"""Elements after a packed constant that vectors may read."""


class ByteEpilogue:
    """Writes the steps of one kernel's epilogue.

    Args:
        epilogue: An epilogue that ``steps.is_supported`` accepts.
        shape: Shape of the output.
        axis: Axis of the output along which vectors lie.
        isa: Instruction set.
        first_constant: Number of the first free parameter ``w<k>``; those of ``parameters`` come after ``constants``.

    Attributes:
        constants: For ``GeneratedKernel.constants``.
        strides: By parameter (``e0``, ``w2``, ...) the strides along the axes of the output; without operands of one
            element.
        helpers: Declarations that are in no header of this folder.
        result_stride: Stride of the output along ``axis``.
        result: Name of the pointer to the output.
    """

    def __init__(self, epilogue: Epilogue, shape: Shape, axis: int, isa: Isa, first_constant: int) -> None:
        self.epilogue, self.axis, self.isa = epilogue, axis, isa
        self.types = epilogue.dtypes()
        self.constants: list[np.ndarray] = []
        self.strides: dict[str, Shape] = {}
        self.helpers: dict[str, None] = {}
        self._padded: set[str] = set()
        self._single = single_constants(epilogue)
        self._names: dict[int, str] = {}
        self._uniform: set[int] = set()
        self._shape = shape
        for number, operand in enumerate(epilogue.operands, start=1):
            if isinstance(operand, View):
                self._bind(number, f"e{number - 1}", operand.strides)
            elif number not in self._single:
                name = self._names[number] = f"w{first_constant + len(self.constants)}"
                self.strides[name] = self._constant(operand, shape)
                self._padded.add(name)
        self._hoisted: dict[tuple[str, str], str] = {}
        self.parameters = Parameters(first_constant + len(self.constants))
        self._used = {"i": 0, "f": 0}
        self.result_stride = 1
        self.result = "y0"

    def _pointer(self, vector: Vector) -> str:
        """To where a vector is stored."""
        return f"{self.result}p + {vector.offset}" if vector.offset else f"{self.result}p"

    def declarations(self) -> list[str]:
        """Statements that define what does not change within the kernel; at the top of the body, written last."""
        lines = self.parameters.declarations()
        return lines + [f"const {c} {name} = {text};" for (c, text), name in self._hoisted.items()]

    def _hoist(self, c: str, text: str) -> str:
        """A variable that is computed once."""
        return self._hoisted.setdefault((c, text), f"h{len(self._hoisted)}")

    def _bind(self, number: int, name: str, strides: Shape) -> None:
        self._names[number] = name
        if all(s == 0 or n == 1 for s, n in zip(strides, self._shape, strict=True)):
            self._uniform.add(number)
        else:
            self.strides[name] = strides

    def bind_anchor(self, name: str, strides: Shape) -> None:
        """Let value 0 be what lies at a pointer."""
        self._bind(0, name, strides)

    def anchor(self) -> Value:
        """Value 0, loaded."""
        return self._load(0)

    def _constant(self, array: np.ndarray, shape: Shape) -> Shape:
        full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        order = [a for a in range(len(shape)) if a != self.axis] + [self.axis]
        strides = dense_strides(full.shape, tuple(order))
        packed = np.ascontiguousarray(full.transpose(order)).ravel()
        self.constants.append(np.concatenate([packed, np.zeros(PADDING, packed.dtype)]))
        return tuple(0 if n == 1 else s for n, s in zip(full.shape, strides, strict=True))

    def parameter(self, kind: str, value: float | int | np.floating) -> str:
        """A number as a vector; a further vector reuses the numbers of the first, in order."""
        number, known = self._used[kind], self.parameters
        self._used[kind] += 1
        if number < known.count(kind):
            known.check(kind, number, value)
            return f"k{kind}{number}"
        return known.integer(int(value)) if kind == "i" else known.single(value)

    # ---- one vector ------------------------------------------------------------------------------------

    def write(self, vectors: Sequence[Vector]) -> list[str]:
        """Statements that apply the steps to vectors and store them.

        A block for each vector, or for four whose bytes fill a register of the instruction set.
        """
        together = 4 if self._packs else 1
        lines = []
        for start in range(0, len(vectors), together):
            self._lines: list[str] = []
            self._fresh = 0
            group = vectors[start : start + together]
            values = [self._value(vector) for vector in group]
            if self._packs:
                self._store_packed(group, values)
            else:
                self._count = group[0].count
                self._store(values[0], self._pointer(group[0]))
            lines.append("{ " + " ".join(self._lines) + " }")
        return lines

    @property
    def _packs(self) -> bool:
        """Whether four vectors are narrowed at a time."""
        return self.isa.x86 and self.isa.vectors and self.types[-1] in BYTES and self.result_stride == 1

    def _value(self, vector: Vector) -> Value:
        """The result of the steps."""
        self._address, self._count = vector.address, vector.count
        self._used = {"i": 0, "f": 0}
        value = vector.first()
        values: dict[int, Value] = {0: value}
        first_step = len(self.types) - len(self.epilogue.steps)
        for number, step in enumerate(self.epilogue.steps, start=first_step):
            for i in step.inputs:
                if i is not None and i not in values and i not in self._single:
                    values[i] = self._load(i)
            values[number] = replace(self._apply(step, values), dtype=step.dtype)
        return values[len(self.types) - 1]

    def _name(self, c: str, text: str) -> str:
        name = f"v{self._fresh}"
        self._fresh += 1
        self._lines.append(f"const {c}@ {name} = {text};")
        return name

    def _load(self, number: int) -> Value:
        """An operand that is not a single constant."""
        name, dtype = self._names[number], self.types[number]
        integers = dtype != ir.DataType.FLOAT
        if number in self._uniform:
            text = f"{'SPLATI@' if integers else 'SPLAT@'}(*{name})"
            return Value(self._hoist("vi@" if integers else "vf@", text), "i" if integers else "f", dtype)
        pointer, stride = self._address(name), self.strides[name][self.axis]
        if stride == 0:
            text = f"{'SPLATI@' if integers else 'SPLAT@'}(*({pointer}))"
        else:
            full = self._count == self.isa.lanes() or name in self._padded
            kind = "" if dtype in BYTES else "_integers" if integers else ""
            kind = "_unsigned" if dtype == ir.DataType.UINT8 else "_signed" if dtype == ir.DataType.INT8 else kind
            if stride != 1:
                text = f"load{kind}_strided@({pointer}, {stride}, {self._count})"
            elif not full:
                text = f"load{kind}_part@({pointer}, {self._count})"
            elif dtype in BYTES:
                text = f"load{kind}@({pointer})"
            else:
                text = f"{'LDI@' if integers else 'LD@'}({pointer})"
        return Value(self._name("vi" if integers else "vf", text), "i" if integers else "f", dtype)

    # ---- forms -----------------------------------------------------------------------------------------

    def clamped(self, value: Value) -> Value:
        """Bounds applied."""
        if value.bounds is None:
            return value
        low, high = value.bounds
        text = f"LEAST@(MOST@({value.text}, {self.parameter('i', low)}), {self.parameter('i', high)})"
        return Value(self._name("vi", text), value.form, value.dtype)

    def _float(self, number: int | None, values: Mapping[int, Value]) -> str:
        """A step's operand as a vector of floats."""
        assert number is not None
        if number in self._single:
            return self.parameter("f", np.float32(self._single[number]))
        value = self.clamped(values[number])
        if value.form == "f":
            return value.text
        if number in self._uniform:
            return self._hoist("vf@", f"FLOAT@({value.text})")
        return self._name("vf", f"FLOAT@({value.text})")

    def _number(self, step: Step, place: int, default: float | None = None) -> Any:
        """A constant of one element."""
        i = step.inputs[place] if place < len(step.inputs) else None
        return default if i is None else self._single[i][()]

    def rounded(self, text: str, zero: int, dtype: ir.DataType) -> Value:
        """Floats as bytes of a zero point, not clamped yet."""
        offset = self.parameter("i", zero - _MAGIC)
        return Value(self._name("vi", f"ROUND@({text}) + {offset}"), "i", dtype, integer_limits(dtype))

    def floats(self, text: str) -> Value:
        """Floats of an expression."""
        return Value(self._name("vf", text), "f", ir.DataType.FLOAT)

    # ---- steps -----------------------------------------------------------------------------------------

    def _apply(self, step: Step, values: Mapping[int, Value]) -> Value:
        name = step.operator.name
        if name in ("QLinearAdd", "QLinearMul"):
            return self._sum(step, values) if name == "QLinearAdd" else self._product(step, values)
        if name in ("QuantizeLinear", "DequantizeLinear", "Requantize"):
            return self._quantization(step, values)
        if name in ("Clip", "Relu", "Max", "Min") and step.dtype in BYTES:
            return self._clip(step, values)
        if name == "Cast":
            assert step.inputs[0] is not None
            if step.dtype == ir.DataType.FLOAT:
                return Value(self._float(step.inputs[0], values), "f", step.dtype)
            return self.clamped(values[step.inputs[0]])
        arguments = [None if i is None else self._float(i, values) for i in step.inputs]
        found = vector(step.operator, step.attributes, arguments, self.isa)
        assert found is not None
        self.helpers.update(dict.fromkeys(found.helpers))
        return Value(self._name("vf", found.text), "f", step.dtype)

    def _clip(self, step: Step, values: Mapping[int, Value]) -> Value:
        assert step.inputs[0] is not None
        value, (low, high) = values[step.inputs[0]], integer_limits(step.dtype)
        match step.operator.name:
            case "Relu":
                low = max(low, 0)
            case "Max":
                low = int(self._number(step, 1))
            case "Min":
                high = int(self._number(step, 1))
            case _:
                low, high = int(self._number(step, 1, low)), int(self._number(step, 2, high))
        a, b = value.bounds or integer_limits(value.dtype)
        return replace(value, bounds=(min(max(a, low), high), min(max(b, low), high)))

    def _sum(self, step: Step, values: Mapping[int, Value]) -> Value:
        """As ``qlinear_add``: the zero points in one constant, then one fused multiply-add for each operand."""
        single, wide = np.float32, np.float64
        scales = [single(self._number(step, p)) for p in (1, 4, 6)]
        zeros = [int(self._number(step, p, 0)) for p in (2, 5, 7)]
        with np.errstate(all="ignore"):
            ra, rb = scales[0] / scales[2], scales[1] / scales[2]
            offsets = single(wide(ra) * zeros[0] + wide(rb * single(zeros[1])))
            constant = single(zeros[2]) - offsets
        left, right = self._float(step.inputs[0], values), self._float(step.inputs[3], values)
        first = f"EXACT@({right}, {self.parameter('f', rb)}, {self.parameter('f', constant)})"
        return self.rounded(f"EXACT@({left}, {self.parameter('f', ra)}, {first})", 0, step.dtype)

    def _product(self, step: Step, values: Mapping[int, Value]) -> Value:
        """As ``qlinear_mul``: the exact integer product, scaled, offset and then rounded."""
        scales = [np.float32(self._number(step, p)) for p in (1, 4, 6)]
        zeros = [int(self._number(step, p, 0)) for p in (2, 5, 7)]
        left, right = self._float(step.inputs[0], values), self._float(step.inputs[3], values)
        if zeros[0]:
            left = f"({left} - {self.parameter('f', zeros[0])})"
        if zeros[1]:
            right = f"({right} - {self.parameter('f', zeros[1])})"
        with np.errstate(all="ignore"):
            text = f"{left} * {right} * {self.parameter('f', scales[0] * scales[1] / scales[2])}"
        if zeros[2]:
            text = f"{text} + {self.parameter('f', zeros[2])}"
        return self.rounded(text, 0, step.dtype)

    def _quantization(self, step: Step, values: Mapping[int, Value]) -> Value:
        x, scale, zero, *rest = (*step.inputs, None)[: max(3, len(step.inputs))]
        assert x is not None
        if step.operator.name == "QuantizeLinear":
            return self._quantized(step, values)
        real = self._float(x, values)
        if zero is not None and (zero not in self._single or int(self._single[zero])):
            real = f"({real} - {self._float(zero, values)})"
        real = f"{real} * {self._float(scale, values)}"
        if step.operator.name == "DequantizeLinear":
            return Value(self._name("vf", real), "f", step.dtype)
        return self.rounded(f"{real} / {self._float(rest[0], values)}", int(self._number(step, 4)), step.dtype)

    def _quantized(self, step: Step, values: Mapping[int, Value]) -> Value:
        """Replaces NaN by 0, for any zero point."""
        x, scale, zero = (*step.inputs, None)[:3]
        assert x is not None and scale is not None
        real = self._float(x, values)
        quick = self._quotient(real, scale, step.dtype, values)
        ratio = self._name("vf", f"{real} / {self._float(scale, values)}") if quick is None else quick
        if zero is None or zero in self._single:
            offset = self.parameter("i", int(self._number(step, 2, 0)) - _MAGIC)
        elif zero in self._uniform:
            offset = self._hoist("vi@", f"{values[zero].text} + ({-_MAGIC})")
        else:
            offset = f"{self.parameter('i', -_MAGIC)} + {self.clamped(values[zero]).text}"
        text = f"ROUND@({ratio}) + {offset}"
        # If quotients are bounded, NaN becomes the least number, which is 0 in unsigned bytes.
        if quick is None or step.dtype == ir.DataType.INT8:
            text = f"NUMBERS@({text}, {real if quick is not None else ratio})"
        return Value(self._name("vi", text), "i", step.dtype, integer_limits(step.dtype))

    def _quotient(self, real: str, scale: int, dtype: ir.DataType, values: Mapping[int, Value]) -> str | None:
        """A quotient by one number, without a division, between bounds that rounding to bytes does not reach. NaN
        becomes the least number. None if this is not exact or not faster.
        """
        if not (self.isa.x86 and self.isa.vectors):
            return None
        if scale in self._single:
            number = np.float32(self._single[scale])
            if not _LEAST_SCALE < abs(number) < 1 / _LEAST_SCALE:
                return None
            divisor, inverse = self.parameter("f", number), self.parameter("f", np.float32(1) / number)
            most = self.parameter("f", abs(number) * np.float32(_MOST))
            least = self.parameter("f", -abs(number) * np.float32(_MOST))
            return self._name("vf", f"quotient@(below@(above@({real}, {least}), {most}), {divisor}, {inverse})")
        if scale not in self._uniform or dtype != ir.DataType.UINT8:
            return None
        divisor, first = self._float(scale, values), f"fabsf(*{self._names[scale]})"
        inverse, most = self._hoist("vf@", f"1.0f / {divisor}"), self._hoist("vf@", f"abs@({divisor}) * {_MOST}.0f")
        is_exact = self._hoist("int", f"{first} > {_LEAST_SCALE!r}f && {first} < {1 / _LEAST_SCALE!r}f")
        return self._name("vf", f"any_quotient@({real}, {divisor}, {inverse}, {most}, {is_exact})")

    def _store_packed(self, group: Sequence[Vector], values: Sequence[Value]) -> None:
        """Narrows four vectors at a time, with saturation, and stores contiguous results in one piece."""
        kind = "UNSIGNED" if values[0].dtype == ir.DataType.UINT8 else "SIGNED"
        texts = [v.text for v in values] + [values[-1].text] * (4 - len(values))
        packed = f"PACK_{kind}@({', '.join(texts)})"
        bounds, lanes = values[0].bounds, self.isa.lanes()
        if bounds is not None and bounds != integer_limits(values[0].dtype):
            low, high = (self.parameter("i", four_bytes(b)) for b in bounds)
            packed = f"CLAMP_{kind}@({packed}, {low}, {high})"
        self._lines.append(f"const vw@ p = {packed};")
        at = 0
        while at < len(group):
            run = next(n for n in (4, 2, 1) if at % n == 0 and self._is_contiguous(group[at : at + n], n))
            pointer = self._pointer(group[at])
            if group[at].count != lanes:
                self._lines.append(f"STORE_PART@({pointer}, p, {at}, {group[at].count});")
            else:
                self._lines.append(f"STORE{run}@({pointer}, p, {at // run});")
            at += run

    def _is_contiguous(self, group: Sequence[Vector], size: int) -> bool:
        lanes = self.isa.lanes()
        if size == 1:
            return True
        return len(group) == size and all(
            v.count == lanes and v.offset == group[0].offset + k * lanes for k, v in enumerate(group)
        )

    # ---- the result ------------------------------------------------------------------------------------

    def _store(self, value: Value, pointer: str) -> None:
        n, stride = self._count, self.result_stride
        if value.dtype == ir.DataType.FLOAT:
            text, name, plain = self._float_of(value), "store", "ST@"
        elif value.dtype == ir.DataType.INT32:
            text, name, plain = self.clamped(value).text, "store_integers", "STI@"
        else:
            text, name, plain = self.clamped(value).text, "store_bytes", "store_bytes@"
        if stride != 1:
            self._lines.append(f"{name}_strided@({pointer}, {text}, {stride}, {n});")
        elif n != self.isa.lanes():
            self._lines.append(f"{name}_part@({pointer}, {text}, {n});")
        else:
            self._lines.append(f"{plain}({pointer}, {text});")

    def _float_of(self, value: Value) -> str:
        assert value.form == "f"
        return value.text
