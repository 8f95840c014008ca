"""Lowers operators whose results have sizes that data decides; :mod:`eqsat.codegen.found_sizes` says how."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.agreeing_sizes import agreeing
from eqsat.codegen.data_axes import DataAxes, declared_sizes
from eqsat.codegen.found_sizes import FoundSizes, SizeLimits, Unbounded
from eqsat.codegen.operator_call import OperatorCall, finding_node, in_memory
from eqsat.codegen.program import ProgramNode, ProgramOperand, ProgramOperands, ProgramTensor
from eqsat.codegen.resized_sizes import resized_type
from eqsat.codegen.shape_arithmetic import depends_on_inputs, elements, is_sizes, result_shapes
from eqsat.codegen.shapes import Shapes, operand_type, sizes_operand
from eqsat.schema import opset
from eqsat.schema.attributes import plain
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size import Undecided, bounds
from eqsat.schema.size_choices import largest
from eqsat.schema.size_questions import any_free, as_dim, greatest, is_free
from eqsat.schema.symbol import LARGEST
from eqsat.schema.types import Attrs, OpKey, TensorType

_INT64 = ir.DataType.INT64
_MOST_OF_NOTHING = 1 << 16
"""The greatest size of a reshaped tensor without elements."""
KnownValues = tuple[dict[ProgramTensor, np.ndarray], dict[tuple[frozenset[int], bool], int]]
ApplyOperator = Callable[..., ProgramOperands]


class DataSizes:
    """Lowers operators whose results have sizes that data decides.

    Args:
        shapes: Receives the sizes.
        apply: Lowers an operator.
        nodes: Receives nodes.
        taken: Names that symbols of the model have.
        limits: The caller's bounds of sizes.
    """

    def __init__(
        self, shapes: Shapes, apply: ApplyOperator, nodes: list[ProgramNode], taken: Collection[str], limits: SizeLimits
    ) -> None:
        self._nodes = nodes
        self._apply = apply
        self._agreed: dict[tuple[frozenset[int], bool], int] = {}
        self.sizes = FoundSizes(shapes.free, nodes, taken, limits)
        self._axes = DataAxes(self.sizes, nodes, self._one)

    def remembered(self) -> KnownValues:
        """A snapshot of the sizes known so far, for :meth:`forget`."""
        return self.sizes.remembered(), dict(self._agreed)

    def forget(self, known: KnownValues) -> None:
        """Restores a snapshot: sizes that were read since then are forgotten."""
        self.sizes.forget(known[0])
        self._agreed = known[1]

    def lower(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        """The results of an operator, or the operator with sizes in the place of operands that decide them.

        Raises:
            Unbounded: A size has no greatest value.
        """
        if call.op.domain not in ("", opset.MICROSOFT) or not any(map(depends_on_inputs, call.operands)):
            return call
        if any(isinstance(x, ProgramTensor) and self.sizes.decide(x) for x in call.operands):
            # Types of the model know less of these sizes, or are wrong: ONNX infers equal parts where data says others.
            call = replace(call, types=[None] * len(call.types))
        call = self._agreeing(_without_empty(call))
        name = call.op.name
        by_axes = self._axes.lower(call)
        if by_axes is not None:
            return by_axes
        if name in _COUNTED:
            return _COUNTED[name](self, call)
        if call.op.domain:
            return call
        if name == "Range":
            return self._range(call)
        if name == "Slice":
            return self._slice(call)
        if name == "Resize":
            attributes = plain(call.attrs)
            made = resized_type(call.name, attributes, call.operands, call.types[0], self.sizes, self._nodes)
            return replace(call, types=[made])
        if name == "Reshape" and self._is_open(call):
            return self._reshape(call)
        if name == "TopK":
            self._have_as_many(call)
        number = sizes_operand(call.op)
        deciding = None if number is None else call.operand(number)
        if number is None or deciding is None or (not isinstance(deciding, ProgramTensor) and not is_sizes(deciding)):
            return call
        operands = list(call.operands)
        operands[number] = self.sizes.as_sizes(deciding, call.name, self._most(call))
        if name == "Expand":
            operands = self._expanded(call, operands)
        # If data decides the result's size, the declared type is not compared with it; sizes in the operand are.
        declared = [None] * len(call.types) if isinstance(deciding, ProgramTensor) else call.types
        return replace(call, operands=operands, types=declared)

    def _is_open(self, call: OperatorCall) -> bool:
        """Whether data decides the shape of a Reshape, or the operand of one to a literal shape."""
        x, shape = call.operands
        if isinstance(shape, ProgramTensor):
            return True
        return isinstance(x, ProgramTensor) and self.sizes.decide(x) and shape is not None and not is_sizes(shape)

    def _most(self, call: OperatorCall) -> list[int] | None:
        """Upper bounds of the elements of an operand that decides sizes, None if nothing bounds them."""
        x, name = call.operands[0], call.op.name
        if x is None:
            return None
        if name in ("Split", "TopK"):
            axis = dict(plain(call.attrs))["axis"] % len(x.shape)
            return [greatest(x.shape[axis])] * len(call.used if name == "Split" else [0])
        declared = declared_sizes(call)
        number = sizes_operand(call.op)
        deciding = None if number is None else call.operand(number)
        if declared is None or not isinstance(deciding, ProgramTensor):
            return None
        said = [LARGEST if n is None else n for n in declared]
        count = math.prod(deciding.shape)
        if name == "OneHot":
            return [said[dict(plain(call.attrs))["axis"] % len(said)]] * count
        if name in ("ConstantOfShape", "Expand", "Tile") and count <= len(said):
            # An axis that may be empty can be repeated any number of times.
            least = [bounds(n)[0] for n in x.shape] if name == "Tile" else [1] * len(said)
            says = [max(n, 1) if low > 0 else LARGEST for n, low in zip(said, least, strict=name == "Tile")]
            return says[len(says) - count :]
        return None

    # ---- results of as many elements as data says ------------------------------------------------------

    def _made(
        self,
        operator: str,
        call: OperatorCall,
        attributes: Mapping[str, object],
        inputs: Sequence[ProgramOperand | None],
        outputs: Sequence[ProgramTensor | None],
    ) -> None:
        self._nodes.append(finding_node(operator, call, attributes, inputs, outputs))

    def _one(self, call: OperatorCall, op: str, attrs: Attrs, operands: ProgramOperands, name: str) -> ProgramOperand:
        """The result of an operator of ONNX."""
        (made,) = self._apply(OpKey("", op), attrs, operands, [None], [True], [name], call.name, call.depth + 1)
        assert made is not None
        return made

    def _non_zero(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        x = call.operands[0]
        assert x is not None
        if not isinstance(x, ProgramTensor):
            return call
        rank = len(x.shape)
        (indices,) = self._indices(call, x)
        # Each element is a column of the result.
        return [self._one(call, "Transpose", (("perm", (1, 0)),), [indices], call.label(0))] if rank else [indices]

    def _indices(self, call: OperatorCall, x: ProgramTensor) -> Sequence[ProgramTensor | None]:
        """The indices of elements that are not zero, a row for each."""
        most = math.prod(x.shape)
        every = ProgramTensor(f"{call.label(0)}_all", _INT64, (most, max(len(x.shape), 1)))
        count = ProgramTensor(f"{call.label(0)}_count", _INT64, (1,))
        self._made("NonZero", call, {}, [x], [every, count])
        return self.sizes.counted(call.name, count, most, [(every, 0)])

    def _compress(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        x, condition = call.operands
        if not isinstance(condition, ProgramTensor):
            return call
        attributes = dict(plain(call.attrs))
        axis = attributes.get("axis")
        assert x is not None
        if axis is None and len(x.shape) != 1:
            x = self._one(call, "Reshape", (("allowzero", 0),), [x, np.array([-1])], f"{call.name}_flat")
        (indices,) = self._indices(call, condition)
        rows = self._one(call, "Squeeze", (), [indices, np.array([1])], f"{call.name}_indices")
        place = 0 if axis is None else axis % len(x.shape)
        return [self._one(call, "Gather", (("axis", place),), [x, rows], call.label(0))]

    def _unique(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        x = call.operands[0]
        if not isinstance(x, ProgramTensor):
            return call
        attributes = plain(call.attrs)
        axis = attributes.get("axis")
        if axis is None and len(x.shape) != 1:
            flat = self._one(call, "Reshape", (("allowzero", 0),), [x, np.array([-1])], f"{call.name}_flat")
            assert isinstance(flat, ProgramTensor)
            x = flat
        place = 0 if axis is None else axis % len(x.shape)
        most = x.shape[place]
        kinds = [(x.dtype, x.shape), *[(_INT64, (most,))] * 3]
        microsoft = bool(call.op.domain)
        # com.microsoft's has no first indices.
        numbers = (0, 2, 3) if microsoft else (0, 1, 2, 3)
        made: list[ProgramTensor | None] = [None] * 4
        for k, number in enumerate(numbers[: len(call.used)]):
            if call.used[k]:
                suffix = "" if number == 2 else "_all"
                made[number] = ProgramTensor(f"{call.label(k)}{suffix}", *kinds[number])
        count = ProgramTensor(f"{call.label(0)}_count", _INT64, (1,))
        form = {"axis": place, "sorted": 0 if microsoft else attributes.get("sorted", 1)}
        self._made("Unique", call, form, [x], [*made, count])
        first = [(made[0], place), (made[1], 0), (made[3], 0)]
        values, indices, counts = self.sizes.counted(call.name, count, most, first)
        results = (values, indices, made[2], counts)
        return [results[number] for number in numbers[: len(call.used)]]

    def _suppression(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        boxes, scores, asked = (call.operand(k) for k in range(3))
        if boxes is None or scores is None:
            return call
        each = boxes.shape[1]
        if isinstance(asked, np.ndarray) and not is_sizes(asked):
            limit = max(int(asked.reshape(-1)[0]), 0)
            each = min(limit, greatest(each))
        most = scores.shape[0] * scores.shape[1] * each
        every = ProgramTensor(f"{call.label(0)}_all", _INT64, (most, 3))
        count = ProgramTensor(f"{call.label(0)}_count", _INT64, (1,))
        self._made("NonMaxSuppression", call, plain(call.attrs), call.operands, [every, count])
        return [*self.sizes.counted(call.name, count, most, [(every, 0)])]

    def _agreeing(self, call: OperatorCall) -> OperatorCall:
        """The operator with one size where axes of its operands belong together."""
        if not any(x is not None and any_free(x.shape) for x in call.operands):
            return call

        def common(sizes: Sequence[int], repeats: bool) -> int:
            return self._common(call, sizes, repeats)

        operands = agreeing(call.op, call.attrs, call.operands, common, self._fitted)
        if all(a is b for a, b in zip(operands, call.operands, strict=True)):
            return call
        # Types of the model have the greater one of two sizes.
        return replace(call, operands=operands, types=[None] * len(call.types))

    def _have_as_many(self, call: OperatorCall) -> None:
        """Let the program check that an axis of a size that is not known here has as many elements as a TopK takes."""
        x, asked = call.operands
        assert x is not None and asked is not None
        size = x.shape[dict(plain(call.attrs))["axis"] % len(x.shape)]
        if is_free(size) and not (isinstance(asked, np.ndarray) and bounds(size - elements(asked)[0])[0] >= 0):
            all_of_them = self.sizes.written(f"{call.name}_most", _array([size]))
            left = self._one(call, "Sub", (), [all_of_them, asked], f"{call.name}_left")
            missing = self._one(call, "Min", (), [left, np.zeros(1, np.int64)], f"{call.name}_missing")
            assert isinstance(missing, ProgramTensor)
            self.sizes.reading(missing, [0], self._nodes)

    def _expanded(self, call: OperatorCall, operands: ProgramOperands) -> ProgramOperands:
        """The operands of an Expand; the sizes of an axis are made one size where data decides them, or where it is not
        known which one repeats.
        """
        x, shape = operands
        if not isinstance(x, ProgramTensor) or not isinstance(shape, np.ndarray):
            return operands
        if not self.sizes.decide(x) and result_shapes(call.op, {}, operands, 1) is not None:
            return operands
        sizes, wanted = list(x.shape), elements(shape)
        for back in range(1, min(len(sizes), len(wanted)) + 1):
            n, m = sizes[-back], wanted[-back]
            if n != m and 1 not in (n, m):
                sizes[-back] = wanted[-back] = self._common(call, [n, m], repeats=True)
        return [self._fitted(x, tuple(sizes)), _array(wanted)]

    def _fitted(self, x: ProgramTensor, shape: tuple[int, ...]) -> ProgramTensor:
        """A view in which axes of one element repeat."""
        if shape == x.shape:
            return x
        view = ProgramTensor(f"{x.name}_fitted", x.dtype, shape)
        self._nodes.append(ProgramNode(view.name, OpKey("", "Expand"), {}, [x], [view], x.dtype))
        return view

    def _common(self, call: OperatorCall, sizes: Sequence[int], repeats: bool) -> int:
        """The size that several sizes are at run time, compared by the program."""
        key = (frozenset(sizes), repeats)
        if key not in self._agreed:
            given = self.sizes.written(f"{call.name}_sizes", _array(sizes))
            common = ProgramTensor(f"{call.name}_common", _INT64, (1,))
            self._made("CommonSize", call, {"repeats": repeats}, [given], [common])
            known = [n for n in sizes if not is_free(n) and not (repeats and n == 1)]
            if known:
                self.sizes.reading(common, known[:1], self._nodes)
                self._agreed[key] = known[0]
            else:
                most = max(map(greatest, sizes))
                (self._agreed[key],) = elements(self.sizes.read(common, call.name, [(0, most)]))
        return self._agreed[key]

    # ---- results whose operands say their sizes --------------------------------------------------------

    def _range(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        """The size of a range: an expression if the operands are sizes, otherwise computed by a kernel."""
        dtype = operand_type(call.operands[0])
        assert dtype is not None
        size = self._steps(call)
        if size is None:
            count = ProgramTensor(f"{call.label(0)}_count", _INT64, ())
            self._made("RangeSize", call, {}, self._tensors(call, call.operands), [count])
            declared = call.types[0]
            if declared is not None and declared.shape is not None and isinstance(declared.shape[0], int):
                # The model says how many there are, and the program compares.
                self.sizes.reading(count, [declared.shape[0]], self._nodes)
                return call
            start, limit, delta = (
                self.sizes.ranges.of(x) or (-LARGEST, LARGEST) for x in call.operands if x is not None
            )
            up = limit[1] - start[0] if delta[1] > 0 else 0
            down = start[1] - limit[0] if delta[0] < 0 else 0
            most = min(max(up, down, 0), self.sizes.allowed(declared))
            (size,) = elements(self.sizes.read(count, call.name, [(0, most)]))
        return replace(call, types=[TensorType(dtype.dtype, (as_dim(size),))])

    def _steps(self, call: OperatorCall) -> int | None:
        """The size of a range of integers if they are sizes, otherwise None."""
        delta = call.operands[2]
        if not isinstance(delta, np.ndarray) or delta.dtype != np.int64 or int(delta.reshape(-1)[0]) < 1:
            return None
        begin, end = call.operand(0), call.operand(1)
        assert begin is not None and end is not None
        step = int(delta.reshape(-1)[0])
        try:
            (start,) = elements(self.sizes.as_sizes(begin, call.name, signed=True))
            most = min(bounds(start)[1] + step * self.sizes.allowed(call.types[0]), LARGEST)
            (limit,) = elements(self.sizes.as_sizes(end, call.name, [most], signed=True))
            return (largest(limit - start, 0) + step - 1) // step
        except (Unbounded, Undecided):
            return None

    def _reshape(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        """A reshape to sizes that have the operand's number of elements, or to a shape that a kernel checks."""
        x, shape = call.operands
        assert x is not None and shape is not None
        total = math.prod(x.shape)
        try:
            operands: ProgramOperands = [x, self.sizes.as_sizes(shape, call.name)]
            made = result_shapes(call.op, plain(call.attrs), operands, 1)
            if made is not None and math.prod(made[0]) == total:
                return replace(call, operands=operands, types=[None])
        except Unbounded:
            pass
        count = greatest(shape.shape[0])
        keeps = not dict(plain(call.attrs)).get("allowzero")
        kept = [n if keeps else None for n in x.shape[:count]]
        form = {"total": total, "kept": (*kept, *[None] * (count - len(kept)))}
        sizes = ProgramTensor(f"{call.name}_sizes", _INT64, (count,))
        if isinstance(shape, ProgramTensor):
            self._made("ReshapeSizes", call, form, [shape], [sizes])
            # If there are no elements, the other sizes may be anything.
            ranges = [(0, greatest(total) or _MOST_OF_NOTHING)] * count
            found = elements(self.sizes.read(sizes, call.name, ranges, greatest(total)))
        elif not count:
            found = []
            self._common(call, [total, 1], repeats=False)
        else:
            self._made("ReshapeSizes", call, form, [self.sizes.written(f"{call.name}_shape", shape)], [sizes])
            found = self._said(call, [*map(int, shape)], x.shape if keeps else (), greatest(total))
            self.sizes.reading(sizes, found, self._nodes)
        y = ProgramTensor(call.label(0), to_dtype(x.dtype), tuple(found))
        self._made("Reshape", call, {}, [in_memory(call, x, self._nodes)], [y])
        return [y]

    def _said(self, call: OperatorCall, shape: Sequence[int], kept: Sequence[int], total: int) -> list[int]:
        """The sizes of a literal shape; the program finds the one that follows from the others, and those it keeps."""
        rest = total // max(math.prod(n for n in shape if n > 0), 1)
        most = [n if n > 0 else greatest(kept[i]) if n == 0 and kept else rest for i, n in enumerate(shape)]
        return [n if n > 0 else self.sizes.size(call.name, (0, limit)) for n, limit in zip(shape, most, strict=True)]

    def _slice(self, call: OperatorCall) -> ProgramOperands | OperatorCall:
        """A slice with sizes as bounds, or one whose bounds a kernel computes."""
        x, starts, ends, axes, steps = (call.operand(k) for k in range(5))
        given = [starts, ends, axes, steps]
        if x is None or starts is None or not any(map(depends_on_inputs, given)):
            return call
        try:
            sized = [None if b is None else self.sizes.as_sizes(b, call.name, signed=True) for b in (starts, ends)]
            operands: ProgramOperands = [x, *sized, *given[2:]]
            if result_shapes(call.op, {}, operands, 1) is not None:
                is_data = isinstance(starts, ProgramTensor) or isinstance(ends, ProgramTensor)
                return replace(call, operands=operands, types=[None] if is_data else call.types)
        except Unbounded:
            pass
        if isinstance(axes, ProgramTensor) or isinstance(steps, ProgramTensor) or is_sizes(steps) or is_sizes(axes):
            return call
        count = greatest(starts.shape[0])
        along = range(count) if axes is None else [int(a) % len(x.shape) for a in axes]
        strides = [1] * count if steps is None else [int(s) for s in steps]
        cut = tuple(x.shape[a] for a in along)
        window = ProgramTensor(f"{call.name}_window", _INT64, (2 * count,))
        self._made("SliceWindow", call, {"sizes": cut}, [*self._tensors(call, (starts, ends)), steps], [window])
        most = [greatest(n) for n in cut]
        found = elements(self.sizes.read(window, call.name, [(0, n) for n in most] * 2))
        shape = list(x.shape)
        ends_at = []
        for axis, start, size, stride in zip(along, found[:count], found[count:], strides, strict=True):
            shape[axis] = size
            ends_at.append(start + size * stride)
        x = in_memory(call, x, self._nodes)
        view = ProgramTensor(call.label(0), x.dtype, tuple(shape))
        bounds = [_array(found[:count]), _array(ends_at), np.array(list(along)), np.array(strides)]
        self._nodes.append(ProgramNode(call.name, call.op, {}, [x, *bounds], [view], x.dtype))
        return [view]

    def _tensors(self, call: OperatorCall, operands: Sequence[ProgramOperand | None]) -> ProgramOperands:
        """Arrays of sizes as tensors."""
        return [
            self.sizes.written(f"{call.name}_sizes_{k}", x) if isinstance(x, np.ndarray) and is_sizes(x) else x
            for k, x in enumerate(operands)
        ]


def _without_empty(call: OperatorCall) -> OperatorCall:
    """The operator with constants for operands of integers that have no elements."""
    operands = [
        np.zeros(x.shape, np.int64)
        if k and isinstance(x, ProgramTensor) and x.dtype == _INT64 and x.shape == (0,)
        else x
        for k, x in enumerate(call.operands)
    ]
    return replace(call, operands=operands)


def _array(values: Sequence[int]) -> np.ndarray:
    found = np.empty(len(values), object)
    found[:] = values
    return found


_COUNTED: dict[str, Callable[[DataSizes, OperatorCall], ProgramOperands | OperatorCall]] = {
    "Compress": DataSizes._compress,
    "NonMaxSuppression": DataSizes._suppression,
    "NonZero": DataSizes._non_zero,
    "Unique": DataSizes._unique,
}
