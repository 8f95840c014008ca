"""A model executed in several worlds at once, by ``onnx.reference`` in float64, to know what rounding may do to it.

- The first world is exact, as far as float64 is: what the model means.
- Some are *shaken*: each operator's operands and results are moved at random by what the type of each tensor rounds.
  How far a world strays from the first is the conditioning of that very program: what two correct executions of it in
  its types may differ by. An operator that jumps (a rounding, a comparison, a quantization) gets operands moved by
  several times what they stray, so that a jump within reach of rounding happens in some world: a tie is known as such.
- The last is *typed*: results are rounded to the type of their tensor, so that what overflows or vanishes in the type
  does so here.

The program of a user of the type may stray as the shaken worlds do; beyond that, something is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from eqsat.schema import opset
from tests.fuzz.flow import executed
from tests.fuzz.operators import implementation
from tests.fuzz.values import Value, step_of
from tests.fuzz.widen import is_float, narrowed, widened

SHAKEN = 6
REACH = 8.0
"""How many times its straying an operand of a jump is moved, and a result may differ."""

MOVEMENT = frozenset(
    (
        "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Concat", "Split", "Slice", "Gather",
        "GatherElements", "GatherND", "Relu", "Max", "Min", "Clip", "MaxPool", "GlobalMaxPool", "Pad", "Tile", "Expand",
        "Neg", "Abs", "Dropout", "Where", "Not", "And", "Or", "Xor", "Shape", "Size", "DepthToSpace", "SpaceToDepth",
        "ReduceMax", "ReduceMin", "ConstantOfShape", "Constant", "ScatterND", "ScatterElements", "Trilu", "Compress",
        "ReverseSequence", "If", "Sign", "Round", "Floor", "Ceil", "EyeLike", "OneHot", "Range", "CastHint",
    )
)  # fmt: skip
"""What rounds nothing."""
JUMPS = frozenset(
    (
        "Round", "Floor", "Ceil", "QuantizeLinear", "DynamicQuantizeLinear", "Greater", "Less", "GreaterOrEqual",
        "LessOrEqual", "Equal", "Sign", "Mod", "ArgMax", "ArgMin", "TopK", "NonZero", "ThresholdedRelu", "Shrink",
        "Hardmax", "Unique", "Cast", "CastLike", "MaxPool", "IsInf", "IsNaN", "NonMaxSuppression", "Loop", "Pow",
    )
)  # fmt: skip
AGAINST_ONE = frozenset(
    ("Sigmoid", "Tanh", "Erf", "Softmax", "LogSoftmax", "Softplus", "Selu", "Elu", "Celu", "HardSigmoid")
)
AGAINST_OPERAND = frozenset(("Gelu", "Swish", "Mish", "HardSwish", "LeakyRelu", "BatchNormalization", "Mod"))
"""Functions whose usual formulas round beside 1, or beside their operand, however small the result is."""
SUMS_OF_PRODUCTS = frozenset(("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "ReduceMean"))
"""Operators whose terms are added in some order: a sum on the way may be much larger than the result, so that it rounds
beside the sum of the magnitudes of the terms, and may overflow though the result does not."""


def execute(
    model: onnx.ModelProto, feeds: Mapping[str, Any], *, seed: int = 0, lsb: float = 0.0, constants: bool = False
) -> dict[str, Value]:
    """All outputs of a model in all worlds.

    Args:
        lsb: By how many steps integers that were quantized may be off, for models rewritten by rules that allow that.
        constants: Whether constants may be off by their rounding.

    Raises:
        UnjudgedError: An operator has no implementation.
    """
    flat = onnx.inliner.inline_local_functions(model) if model.functions else model
    return _Run(flat, np.random.default_rng([seed, 77]), lsb, constants).run(feeds)


def values_of(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Every computed tensor of a model without functions, as it is in its type.

    Raises:
        UnjudgedError: An operator has no implementation.
    """
    run = _Run(model, np.random.default_rng(0), 0.0, False)
    found = run.all_values(feeds)
    return {
        name: narrowed(value.typed, value.dtype)
        for name, value in found.items()
        if isinstance(value.typed, np.ndarray) and value.dtype is not None
    }


class _Run:
    def __init__(self, model: onnx.ModelProto, rng: np.random.Generator, lsb: float, constants: bool) -> None:
        self.model = model
        self.rng = rng
        self.lsb = lsb
        self.constants = constants
        self.opsets = {opset.canonical_domain(o.domain): o.version for o in model.opset_import}
        self.types = _types(model)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Value]:
        values = self.all_values(feeds)
        return {y.name: values[y.name] for y in self.model.graph.output}

    def all_values(self, feeds: Mapping[str, Any]) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for tensor in self.model.graph.initializer:
            array = _array(tensor)
            values[tensor.name] = self._given(array, shaken=self.constants)
        for info in self.model.graph.input:
            if info.name in feeds:
                values[info.name] = self._given(feeds[info.name], shaken=False)
        for node in self.model.graph.node:
            self._node(node, values)
        return values

    def _given(self, array: Any, shaken: bool) -> Value:
        if not isinstance(array, np.ndarray):
            return Value(None, (array,) * (SHAKEN + 2))
        wide = widened(array)
        if not shaken or not is_float(array.dtype):
            return Value(array.dtype, (wide,) * (SHAKEN + 2))
        moved = [self._shaken(wide, array.dtype) for _ in range(SHAKEN)]
        return Value(array.dtype, (wide, *moved, wide))

    # ---- one node -----------------------------------------------------------------------------------

    def _node(self, node: onnx.NodeProto, values: dict[str, Value]) -> None:
        operands = [values[name] if name else None for name in node.input]
        flow = executed(node, operands, lambda graph, inner: self._graph(graph, {**values, **inner}))
        if flow is not None:
            values.update({name: value for name, value in zip(node.output, flow, strict=True) if name})
            return
        captured = {name: values[name] for name in _captured(node) if name in values}
        call = implementation(node, self.opsets)
        name = node.op_type
        rounds = name not in MOVEMENT and any(o is None or o.dtype is None or is_float(o.dtype) for o in operands)
        jumps = name in JUMPS
        results: list[Sequence[Any]] = []
        with np.errstate(all="ignore"):
            for world in range(SHAKEN + 2):
                inputs = []
                for place, operand in enumerate(operands):
                    value = None if operand is None else operand.worlds[world]
                    if operand is not None and 0 < world <= SHAKEN and isinstance(value, np.ndarray):
                        if jumps and operand.dtype is not None and is_float(operand.dtype):
                            value = self._towards_jump(operand, world, place, name)
                        elif rounds and operand.dtype is not None and is_float(operand.dtype):
                            value = self._shaken(value, operand.dtype)
                    inputs.append(value)
                results.append(call(inputs, {k: v.worlds[world] for k, v in captured.items()}))
        dtypes = self._result_types(node, operands, results[0])
        for place, result in enumerate(node.output):
            if not result:
                continue
            dtype = dtypes[place]
            worlds = [r[place] for r in results]
            if dtype is not None and is_float(dtype) and all(isinstance(w, np.ndarray) for w in worlds):
                worlds = [w.astype(np.float64) for w in worlds]
                if rounds:
                    aside = self._aside(node, call, operands, worlds[0])
                    worlds[1:-1] = [self._shaken(w, dtype, aside) for w in worlds[1:-1]]
                with np.errstate(all="ignore"):
                    worlds[-1] = worlds[-1].astype(dtype).astype(np.float64)
            elif self.lsb and dtype is not None and dtype.itemsize == 1 and _quantizes(name):
                worlds[1:-1] = [self._off_by_one(w) for w in worlds[1:-1]]
            left = any(o.left for o in (*operands, *captured.values()) if o is not None)
            left |= dtype == np.float64 and rounds and _leaves(worlds[0], operands)
            left |= name in SUMS_OF_PRODUCTS and dtype is not None and _overflows_between(call, operands, dtype)
            values[result] = Value(dtype, tuple(worlds), bool(left))

    def _graph(self, graph: onnx.GraphProto, known: dict[str, Value]) -> list[Value]:
        values = dict(known)
        for tensor in graph.initializer:
            values[tensor.name] = self._given(_array(tensor), shaken=self.constants)
        for node in graph.node:
            self._node(node, values)
        return [values[y.name] for y in graph.output]

    def _shaken(self, array: np.ndarray, dtype: np.dtype, aside: Any = 0.0) -> np.ndarray:
        half, least, _ = step_of(dtype)
        if dtype == np.float64:
            half *= 4  # or it would often round to no move at all
        size = np.abs(array)
        if np.shape(aside) not in ((), array.shape):
            aside = 0.0  # a shape that depends on what moves
        reach = np.maximum(half * np.maximum(size, aside), np.minimum(least, size))
        with np.errstate(all="ignore"):
            moved = array + reach * self.rng.uniform(-1.0, 1.0, array.shape)
        return np.where(np.isfinite(array), moved, array)

    def _towards_jump(self, operand: Value, world: int, place: int, name: str) -> np.ndarray:
        exact = operand.exact
        if any(w.shape != exact.shape for w in operand.worlds):
            return operand.worlds[world]
        reach = REACH * operand.spread()
        if (
            name in ("QuantizeLinear", "DynamicQuantizeLinear", "Mod", "Pow")
            and operand.dtype is not None
            and place == 0
        ):
            # They divide before they round.
            reach = np.maximum(reach, 4 * step_of(operand.dtype)[0] * np.abs(exact))
        reach = np.where(np.isfinite(reach), reach, 0.0)
        if world <= 2:
            direction: Any = (1.0 if world == 1 else -1.0) * (1.0 if place == 0 else -1.0)
        else:
            direction = self.rng.uniform(-1.0, 1.0, exact.shape)
        return np.where(np.isfinite(exact), exact + reach * direction, exact)

    def _off_by_one(self, array: np.ndarray) -> np.ndarray:
        info = np.iinfo(array.dtype)
        moved = array.astype(np.int64) + np.rint(self.lsb * self.rng.uniform(-1.4, 1.4, array.shape)).astype(np.int64)
        return np.clip(moved, info.min, info.max).astype(array.dtype)

    def _aside(self, node: onnx.NodeProto, call: Any, operands: Sequence[Value | None], result: np.ndarray) -> Any:
        name = node.op_type
        if name in AGAINST_ONE:
            return 1.0
        if name in SUMS_OF_PRODUCTS:
            return _magnitudes(call, operands if name == "Einsum" else operands[:2])
        first = operands[0].exact if operands and operands[0] is not None else None
        if name == "LayerNormalization" and isinstance(first, np.ndarray):
            return _beside_mean(node, first, operands[1])
        if name in AGAINST_OPERAND and isinstance(first, np.ndarray) and first.shape == result.shape:
            return np.abs(np.where(np.isfinite(first), first, 0.0))
        return 0.0

    def _result_types(
        self, node: onnx.NodeProto, operands: Sequence[Value | None], results: Sequence[Any]
    ) -> list[np.dtype | None]:
        found: list[np.dtype | None] = []
        for place, name in enumerate(node.output):
            dtype = self.types.get(name)
            array = results[place] if place < len(results) else None
            to = next((a.i for a in node.attribute if a.name == "to"), 0) if node.op_type == "Cast" else 0
            if dtype is None and to:
                dtype = np.dtype(helper.tensor_dtype_to_np_dtype(to))
            if dtype is None and isinstance(array, np.ndarray):
                dtype = array.dtype
                if dtype == np.float64:
                    floats = [o.dtype for o in operands if o is not None and o.dtype is not None and is_float(o.dtype)]
                    dtype = floats[-1 if node.op_type == "DequantizeLinear" else 0] if floats else np.dtype(np.float32)
            found.append(dtype)
        return found


def _beside_mean(node: onnx.NodeProto, x: np.ndarray, scale: Value | None) -> np.ndarray:
    """What rounding the mean of a layer normalization, relative to its operand, is in the result."""
    start = next((a.i for a in node.attribute if a.name == "axis"), -1) % x.ndim
    epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
    axes = tuple(range(start, x.ndim))
    with np.errstate(all="ignore"):
        most = np.abs(x).max(axes, keepdims=True, initial=0.0) / np.sqrt(x.var(axes, keepdims=True) + epsilon)
        found = most * np.abs(scale.exact if scale is not None else 1.0) * np.ones(x.shape)
    return np.where(np.isfinite(found), found, 0.0)


def _magnitudes(call: Any, operands: Sequence[Value | None]) -> Any:
    """The sum of the magnitudes of the terms, for each element; the terms are products of these operands."""
    known = [None if o is None else np.asarray(o.exact) for o in operands]
    found = np.abs(call([np.abs(x) if x is not None and x.dtype.kind == "f" else x for x in known], {})[0])
    return np.where(np.isfinite(found), found, 0.0)


def _overflows_between(call: Any, operands: Sequence[Value | None], dtype: np.dtype) -> bool:
    """Whether a sum of the magnitudes of all terms overflows though no operand does."""
    if not is_float(dtype):
        return False
    sizes = [
        None if o is None else np.abs(o.exact) if o.dtype is not None and is_float(o.dtype) else o.exact
        for o in operands
    ]
    floats = [s for s, o in zip(sizes, operands, strict=True) if s is not None and o is not None and is_float(o.dtype)]
    if not all(np.isfinite(s).all() for s in floats):
        return False
    most = float(ml_dtypes.finfo(dtype).max)
    bound = np.prod([float(s.max(initial=0.0)) * max(s.size, 1) for s in floats[:2]])
    if bound <= most:
        return False
    with np.errstate(all="ignore"):
        return any(isinstance(r, np.ndarray) and bool((r > most).any()) for r in call(sizes, {}))


def _leaves(result: Any, operands: Sequence[Value | None]) -> bool:
    """Whether finite operands have an infinite result, or some that are not zero a vanishing one."""
    inputs = [
        o.exact for o in operands if o is not None and isinstance(o.exact, np.ndarray) and is_float(o.exact.dtype)
    ]
    if not inputs or not all(np.isfinite(x).all() for x in inputs):
        return False
    size = np.abs(result)
    least = step_of(np.dtype(np.float64))[2]
    vanishes = (size < least) & (size > 0) if any((x == 0).any() for x in inputs) else size < least
    return bool((~np.isfinite(result)).any() or vanishes.any())


def _quantizes(name: str) -> bool:
    return "QLinear" in name or name in ("QuantizeLinear", "Requantize", "QGemm", "DynamicQuantizeLinear")


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    array = numpy_helper.to_array(tensor)
    if tensor.data_type == TensorProto.STRING:
        return np.asarray([s.decode() if isinstance(s, bytes) else s for s in array.ravel()], object).reshape(
            array.shape
        )
    return array


def _types(model: onnx.ModelProto) -> dict[str, np.dtype]:
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except (InferenceError, ValidationError):  # inference is a help only
        typed = model
    found = {}
    for info in (*typed.graph.value_info, *typed.graph.input, *typed.graph.output):
        kind = info.type.tensor_type.elem_type
        if kind:
            found[info.name] = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    return found


def _captured(node: onnx.NodeProto) -> list[str]:
    names: dict[str, None] = {}
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            inner = {i.name for i in graph.input} | {t.name for t in graph.initializer}
            for child in graph.node:
                names.update(dict.fromkeys(n for n in (*child.input, *_captured(child)) if n and n not in inner))
                inner.update(child.output)
            names.update(dict.fromkeys(o.name for o in graph.output if o.name not in inner))
    return list(names)
