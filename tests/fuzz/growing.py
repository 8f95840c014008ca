"""A random graph while it grows: every node is executed as it is added, so that the values stay meaningful.

A graph has a main float type. A *tame* one refuses steps that make infinities or amplify; a *wild* one holds numbers
from the whole range of its types, and what may be compared is left to the judge (``judge.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.schema.attributes import make_attrs, to_protos
from eqsat.schema.opset import EQSAT, IR_VERSION, MICROSOFT, PINNED_OPSET
from eqsat.schema.types import Attrs, OpKey
from tests.fuzz.numbers import data, is_float, wild_number

CRASHING = frozenset({"InstanceNormalization", "GroupNormalization"})
"""Operators with which ONNX Runtime writes beyond the end of empty tensors."""
LARGEST = 20_000
"""Elements of the largest value."""
STRONGEST = 1e3
"""Largest magnitude of a float in a tame graph."""


class RefusedError(Exception):
    """The step does not fit here."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: what it holds on the sample input, whether it is exact, whether it is constant."""

    name: str
    array: np.ndarray
    exact: bool
    constant: bool
    floats: np.dtype
    """The main type of the graph."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def is_float(self) -> bool:
        return self.array.dtype == self.floats


EXACT = frozenset(
    (
        "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Concat", "Split", "Slice", "Gather",
        "Relu", "Max", "Min", "Clip", "MaxPool", "Pad", "Tile", "Expand", "Neg", "Abs", "Dropout", "Where", "Cast",
        "Not", "And", "Or", "Equal", "Greater", "Less", "Shape", "DepthToSpace", "SpaceToDepth",
    )
)  # fmt: skip


class Growing:
    """A graph under construction."""

    def __init__(self, rng: np.random.Generator, floats: Any = np.float32, *, wild: bool = False) -> None:
        self.rng = rng
        self.floats = np.dtype(floats)
        self.wild = wild
        self.values: list[Value] = []
        self.inputs: list[Value] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[Value] = []
        self.extra_outputs: list[Value] = []
        self._count = 0

    def kept(self) -> tuple[int, ...]:
        """How much there is, to go back to if a step is refused."""
        return len(self.values), len(self.nodes), len(self.constants), len(self.inputs), len(self.extra_outputs)

    def back(self, kept: tuple[int, ...]) -> None:
        lists = (self.values, self.nodes, self.constants, self.inputs, self.extra_outputs)
        for held, count in zip(lists, kept, strict=True):
            del held[count:]

    # ---- choosing ---------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def size(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, rank: int | None = None, *, exact: bool = False, dtype: Any = None, least: int = 0) -> Value:
        """A run-time value, of the main type by default; later ones more often."""
        dtype = self.floats if dtype is None else dtype
        # The judge knows ties: an inexact value may enter what jumps, too.
        exact = exact and self.chance(0.5)
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

    def input(self, shape: tuple[int, ...], dtype: Any = None, array: np.ndarray | None = None) -> Value:
        dtype = np.dtype(self.floats if dtype is None else dtype)
        held = data(self.rng, shape, dtype, wild=self.wild) if array is None else array
        value = Value(self.name("in"), np.asarray(held), True, False, self.floats)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any, dtype: Any = None) -> Value:
        with np.errstate(all="ignore"):
            held = np.asarray(array).astype(self.floats if dtype is None else dtype)
        value = Value(self.name("c"), held, True, True, self.floats)
        self.constants.append(value)
        return value

    def weights(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Value:
        if self.wild and self.chance(0.25):
            factor = abs(wild_number(self.rng, self.floats))
            with np.errstate(all="ignore"):
                return self.constant(self.rng.standard_normal(shape) * factor)
        return self.constant(self.rng.standard_normal(shape) * scale + shift)

    def op(self, name: str, *inputs: Value | None, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        """Adds a node; returns its output, or a list of them.

        Raises:
            RefusedError: It cannot be executed, or its result is too large or too wild.
        """
        key = OpKey(domain, name)
        try:
            bundle = make_attrs(key, attrs)
        except EqsatError as error:
            raise RefusedError(str(error)) from error
        given = tuple((k, v) for k, v in bundle if k in attrs)
        made = self.add(key, bundle, given, inputs, outputs)
        return made[0] if outputs == 1 else made

    def add(
        self, key: OpKey, bundle: Attrs, given: Attrs, inputs: Sequence[Value | None], outputs: int = 1
    ) -> list[Value]:
        """Adds a node.

        Args:
            bundle: All its attributes.
            given: Those that are written.
        """
        if key.name in CRASHING and any(v is not None and not v.array.size for v in inputs):
            raise RefusedError("ONNX Runtime may crash")
        try:
            with np.errstate(all="ignore"):
                results = evaluate(key, bundle, [None if v is None else v.array for v in inputs], outputs)
        except EqsatError as error:
            raise RefusedError(str(error)) from error
        node = helper.make_node(
            key.name, [v.name if v is not None else "" for v in inputs], [self.name(key.name.lower()) for _ in results],
            domain=key.domain,
        )  # fmt: skip
        node.attribute.extend(to_protos(given, key))
        present = [v for v in inputs if v is not None]
        exact = all(v.exact for v in present) and key.name in EXACT
        return self.results(node, results, exact, bool(present) and all(v.constant for v in present))

    def results(
        self, node: onnx.NodeProto, results: Sequence[Any], exact: bool = False, constant: bool = False
    ) -> list[Value]:
        """Adds a node that has been executed."""
        made = []
        for name, array in zip(node.output, results, strict=True):
            if array is None or array.size > LARGEST:
                raise RefusedError("size")
            if is_float(array.dtype) and array.size:
                numbers = array.astype(np.float64)
                if np.isnan(numbers).any() or not np.isfinite(numbers).any():
                    raise RefusedError("no numbers")
                if not self.wild and not np.abs(numbers).max() <= STRONGEST:
                    raise RefusedError("magnitude")
            made.append(Value(name, np.asarray(array), exact, constant, self.floats))
        self.nodes.append(node)
        self.values += made
        return made

    # ---- finishing --------------------------------------------------------------------------------

    def model(self, spell: Any = None) -> onnx.ModelProto:
        """The graph with all sinks and a few inner values as outputs, some of them inputs and constants.

        Args:
            spell: Writes constants: of each, a tensor or a node; tensors by default.
        """
        read = {i for n in self.nodes for i in n.input}
        made = {o for n in self.nodes for o in n.output}
        computed = [v for v in self.values if v.name in made]
        outputs = [v for v in computed if v.name not in read and not v.constant]
        outputs += [v for v in computed if v.name in read and self.chance(0.05)]
        if not outputs:
            raise RefusedError("nothing is computed")
        if len(outputs) > 1 and self.chance(0.1):
            # Multi-output operators of which only some results are read.
            outputs.pop(int(self.rng.integers(len(outputs))))
        if self.chance(0.04):
            outputs.append(self.one_of(self.inputs))
        if self.constants and self.chance(0.04):
            outputs.append(self.one_of(self.constants))
        outputs += self.extra_outputs
        outputs = list({v.name: v for v in outputs}.values())
        nodes, tensors = [], []
        for value in self.constants:
            spelt = (spell or tensor_of)(value)
            (nodes if isinstance(spelt, onnx.NodeProto) else tensors).append(spelt)
        domains = sorted({n.domain for n in self.nodes})
        graph = helper.make_graph(
            [*nodes, *self.nodes], "fuzz", [_info(v) for v in self.inputs], [_info(v) for v in outputs], tensors
        )
        opsets = [helper.make_opsetid("", PINNED_OPSET), helper.make_opsetid(MICROSOFT, 1)]
        if EQSAT in domains:
            opsets.append(helper.make_opsetid(EQSAT, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def feeds(self) -> Mapping[str, np.ndarray]:
        """The data with which it grew."""
        return {v.name: v.array for v in self.inputs}


def tensor_of(value: Value) -> onnx.TensorProto:
    """A constant as a tensor."""
    kind = ir.DataType.STRING if value.array.dtype == object else ir.DataType.from_numpy(value.array.dtype)
    if kind == ir.DataType.STRING:
        return helper.make_tensor(value.name, int(kind), value.shape, [str(s).encode() for s in value.array.ravel()])
    return ir.to_proto(ir.Tensor(value.array, dtype=kind, name=value.name))


def _info(value: Value) -> onnx.ValueInfoProto:
    strings = value.array.dtype == object
    dtype = int(ir.DataType.STRING if strings else ir.DataType.from_numpy(value.array.dtype))
    return helper.make_tensor_value_info(value.name, dtype, value.shape)


__all__ = ["Growing", "RefusedError", "Value", "tensor_of"]
