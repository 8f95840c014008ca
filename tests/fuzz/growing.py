"""A random graph while it grows: every node is executed as it is added, so that the values stay meaningful.

Steps that would make infinities, amplify rounding beyond what can be compared, or blow up in size are refused.
Whether a value is *exact* (no rounding between the inputs and it) is remembered: only such values may enter
operators that jump (rounding, comparisons, quantization).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from eqsat.errors import EqsatError
from eqsat.model.attributes import make_attrs, to_protos
from eqsat.model.opset import IR_VERSION, MICROSOFT, PINNED_OPSET
from eqsat.model.types import OpKey
from eqsat.ops.evaluate import evaluate

LARGEST = 20_000
"""Elements of the largest value."""
STRONGEST = 1e3
"""Largest magnitude of a float."""


class RefusedError(Exception):
    """The step does not fit here."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: what it holds on the sample input, whether it is exact, whether it is constant."""

    name: str
    array: np.ndarray
    exact: bool
    constant: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def is_float(self) -> bool:
        return self.array.dtype == np.float32


EXACT = frozenset(
    (
        "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Concat", "Split", "Slice", "Gather",
        "Relu", "Max", "Min", "Clip", "MaxPool", "Pad", "Tile", "Expand", "Neg", "Abs", "Dropout", "Where", "Cast",
        "Not", "And", "Or", "Equal", "Greater", "Less", "Shape", "DepthToSpace", "SpaceToDepth",
    )
)  # fmt: skip


class Growing:
    """A graph under construction."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.values: list[Value] = []
        self.inputs: list[Value] = []
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._count = 0

    # ---- choosing ---------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def size(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, rank: int | None = None, *, exact: bool = False, dtype: Any = np.float32, least: int = 0) -> Value:
        """A run-time value, later ones more often."""
        fits = [
            v
            for v in self.values
            if not v.constant
            and v.array.dtype == dtype
            and (rank is None or v.array.ndim == rank)
            and (v.exact or not exact)
            and v.array.ndim >= least
        ]
        if not fits:
            raise RefusedError("no such value")
        return fits[min(int(self.rng.geometric(0.3)), len(fits)) * -1]

    # ---- adding -----------------------------------------------------------------------------------

    def name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def input(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Value:
        if np.dtype(dtype).kind == "f":
            array = self.rng.standard_normal(shape).astype(dtype)
        elif dtype == np.bool_:
            array = self.rng.random(shape) < 0.5
        else:
            info = np.iinfo(dtype)
            array = self.rng.integers(max(info.min, -100), min(info.max, 100) + 1, shape).astype(dtype)
        value = Value(self.name("in"), np.asarray(array), True, False)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any, dtype: Any = np.float32) -> Value:
        value = Value(self.name("c"), np.asarray(array, dtype=dtype), True, True)
        self.initializers.append(numpy_helper.from_array(value.array, value.name))
        return value

    def weights(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Value:
        return self.constant(self.rng.standard_normal(shape) * scale + shift)

    def op(self, name: str, *inputs: Value | None, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        """Adds a node; returns its output, or a list of them.

        Raises:
            RefusedError: It cannot be executed, or its result is too large or too wild.
        """
        key = OpKey(domain, name)
        try:
            bundle = make_attrs(key, attrs)
            with np.errstate(all="ignore"):
                results = evaluate(key, bundle, [None if v is None else v.array for v in inputs], outputs)
        except EqsatError as error:
            raise RefusedError(str(error)) from error
        present = [v for v in inputs if v is not None]
        exact = all(v.exact for v in present) and name in EXACT
        made = []
        for array in results:
            if array is None or array.size > LARGEST or array.size == 0:
                raise RefusedError("size")
            if array.dtype.kind == "f" and not (np.isfinite(array).all() and np.abs(array).max() <= STRONGEST):
                raise RefusedError("magnitude")
            constant = bool(present) and all(v.constant for v in present)
            made.append(Value(self.name(name.lower()), np.asarray(array), exact, constant))
        node = helper.make_node(
            name, [v.name if v is not None else "" for v in inputs], [v.name for v in made], domain=domain
        )
        node.attribute.extend(to_protos(tuple((k, v) for k, v in bundle if k in attrs), key))
        self.nodes.append(node)
        self.values += made
        return made[0] if outputs == 1 else made

    # ---- finishing --------------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        """The graph with all sinks and a few inner values as outputs; what no output needs is left out."""
        read = {i for n in self.nodes for i in n.input}
        run_time = [v for v in self.values if not v.constant]
        made = {o for n in self.nodes for o in n.output}
        outputs = [v for v in run_time if v.name in made and v.name not in read]
        inner = [v for v in run_time if v.name in made and v.name in read]
        outputs += [v for v in inner if self.chance(0.05)]
        if not outputs:
            raise RefusedError("nothing is computed")
        if self.chance(0.03):
            outputs.append(self.inputs[0])
        graph = helper.make_graph(
            self.nodes, "fuzz", [_info(v) for v in self.inputs], [_info(v) for v in outputs], self.initializers
        )
        opsets = [helper.make_opsetid("", PINNED_OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _info(value: Value) -> onnx.ValueInfoProto:
    dtype = int(ir.DataType.from_numpy(value.array.dtype))
    return helper.make_tensor_value_info(value.name, dtype, value.shape)
