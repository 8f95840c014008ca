"""The input and the result as programs over numbered values, and the numbers that mean the same value.

A value of the input has a number of its own; a value of the result is numbered by its class of the e-graph. Every value
of the input lies in a class, and if both programs compute a class their values can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.encode import EncodedNode, Encoding
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError
from eqsat.model.macs import macs
from eqsat.ops.evaluate import TensorValue, evaluate
from eqsat.ops.operators import has
from eqsat.ops.properties import is_commutative, is_deterministic
from eqsat.ops.traits import Trait
from eqsat.partition.plan import Plan, PlanNode
from eqsat.schema.attributes import array_of
from eqsat.schema.dtypes import FLOATS, dtype_name
from eqsat.schema.free_sizes import at_sizes
from eqsat.schema.types import CAST, CAST_LIKE, Attrs, OpKey, TensorType
from eqsat.verify.oracle import Failed
from eqsat.verify.plain_operators import Kernels, flattened

CallOperator = Callable[[OpKey, Attrs, Sequence[TensorValue], int], tuple[TensorValue, ...]]
"""Evaluates one operator."""

MOST_CACHED = 1 << 16
"""Elements of an initializer that is kept as an array."""
HIDES = 1e4
"""Magnitude from which a constant hides the values that it is added to or replaces: that of BERT's masks."""
KEEPS_HIDDEN = (Trait.MOVES, Trait.FORWARDS, Trait.SELECTS, Trait.SUMS)
"""Operators after which such elements still hide others."""
MOST_HIDING = 8
"""Operators that move or add hidden elements, up to which they are followed."""
MOST_SEARCHED = 1 << 22
"""Most elements of a constant that is searched for such numbers."""
ELEMENT_WORK = 16
"""Work of writing an element, in multiplications of a matrix product."""
NODE_WORK = 20_000
"""Work of calling an operator."""

_Operands = tuple[OpKey, Attrs, Sequence[int | None], Sequence[int | None]]
"""An operator, and the classes that it reads and writes."""


@dataclass
class Programs:
    """The input and one result.

    Attributes:
        outputs: Numbers of the input's outputs, in order.
        sizes: Values of symbols for which types are asked; work is counted with them, and pieces are executed.
    """

    encoding: Encoding
    snapshot: Snapshot
    plan: Plan
    outputs: tuple[int, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    _initial: dict[int, TensorValue] = field(default_factory=dict)
    _work: dict[int, int] = field(default_factory=dict)

    # ---- the input --------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[EncodedNode]:
        """Operators of the input, in order."""
        return self.encoding.nodes

    @cached_property
    def classes(self) -> list[int]:
        """Class of each value of the input."""
        return [self.snapshot.refs[v] for v in self.encoding.values]

    @cached_property
    def producer(self) -> dict[int, int]:
        """Value of the input -> the operator that computes it."""
        return {k: i for i, node in enumerate(self.nodes) for k in node.results}

    @cached_property
    def first(self) -> dict[int, int]:
        """Class -> the first value of the input in it."""
        found: dict[int, int] = {}
        for k in (*(self.encoding.number[v] for v in self.encoding.inputs), *range(len(self.classes))):
            found.setdefault(self.classes[k], k)
        return found

    @cached_property
    def inputs(self) -> dict[int, ir.Value]:
        """Numbers of the graph inputs."""
        return {self.encoding.number[v]: v for v in self.encoding.inputs}

    @cached_property
    def dynamic(self) -> list[bool]:
        """Whether a value of the input depends on the inputs of the model."""
        found = [k in self.inputs for k in range(len(self.classes))]
        for i, node in enumerate(self.nodes):
            moves = not self.follows_from_type(i) and any(o is not None and found[o] for o in node.operands)
            for k in node.results:
                found[k] = moves
        return found

    @cached_property
    def folded(self) -> set[int]:
        """Classes that the input computes from constants alone."""
        return {self.classes[k] for k in self.producer if not self.dynamic[k]}

    def is_repeatable(self, index: int) -> bool:
        """Whether an operator of the input is deterministic and known."""
        node = self.nodes[index]
        return is_deterministic(node.constructor.op, node.attrs, training=len(node.operands) > 2)

    def obstacle_to_comparing(self) -> str:
        """Why two runs of the input need not agree; empty if they do."""
        for i, node in enumerate(self.nodes):
            if not self.is_repeatable(i):
                op = node.constructor.op
                return f"{op} is {'random' if op.domain in ('', 'com.microsoft') else 'opaque'}"
        return ""

    def reads(self, index: int) -> list[int]:
        """Operands of an operator of the input that must be present."""
        return [] if self.follows_from_type(index) else [o for o in self.nodes[index].operands if o is not None]

    def follows_from_type(self, index: int) -> bool:
        """Whether an operator of the input asks for a shape, and the shape is known."""
        node = self.nodes[index]
        return has(node.constructor.op, Trait.BY_TYPE) and self.known(self.classes[node.results[0]]) is not None

    def initial(self, k: int) -> TensorValue:
        """A value of the input that is neither computed nor an input: an initializer."""
        if k not in self._initial:
            tensor = self.encoding.values[k].const_value
            if tensor is None:
                return None
            value = array_of(tensor)
            if value.size > MOST_CACHED:
                return value
            self._initial[k] = value
        return self._initial[k]

    def known(self, eclass: int) -> TensorValue:
        """The constant that a class is known to be."""
        constant = self.snapshot.value[eclass]
        return None if constant is None else constant.numpy()

    def name(self, k: int) -> str:
        """The user's name of a value of the input."""
        return self.encoding.values[k].name or f"value {k}"

    def type(self, eclass: int) -> TensorType | None:
        """Type of a class, or of a value inside a composite."""
        return self._type_at(eclass, self.sizes)

    def _type_at(self, eclass: int, sizes: Mapping[str, int]) -> TensorType | None:
        types = self.snapshot.types
        kind = types[eclass] if eclass < len(types) else self.flat.types.get(eclass)
        return None if kind is None else at_sizes(kind, sizes)

    # ---- the result -------------------------------------------------------------------------------

    @cached_property
    def flat(self) -> Kernels:
        """The result without composites."""
        return flattened(self.plan, self.snapshot)

    @property
    def kernels(self) -> list[PlanNode]:
        """Operators of the result, in order."""
        return self.flat.nodes

    @cached_property
    def made_by(self) -> dict[int, int]:
        """Class -> the kernel of the result that computes it."""
        return {c: i for i, node in enumerate(self.kernels) for c in node.outputs if c is not None}

    @cached_property
    def given(self) -> set[int]:
        """Classes of the graph inputs."""
        return {c for c, _ in self.plan.inputs}

    def is_constant(self, eclass: int) -> bool:
        """Whether the result has a class as a constant."""
        return (eclass in self.plan.constants or eclass in self.flat.constants) and eclass not in self.made_by

    def constant(self, eclass: int) -> TensorValue:
        """A constant of the result."""
        found = self.flat.constants.get(eclass)
        return array_of(self.plan.constants[eclass]) if found is None else found

    @cached_property
    def common(self) -> set[int]:
        """Classes that both programs compute at run time: here their values are compared."""
        return {
            c
            for k, c in enumerate(self.classes)
            if self.dynamic[k] and (c in self.made_by or c in self.given) and self.type(c) is not None
        }

    @cached_property
    def cuts(self) -> set[int]:
        """Classes at which the programs can be cut, because any numbers may be drawn for them."""
        return {c for c in self.common if c in self.given or c not in self.hiding}

    @cached_property
    def hiding(self) -> set[int]:
        """Classes in which a large or infinite constant may hide elements, as in scores with a mask, and those that
        are asked for elements without a value.

        No leaf is drawn with such elements, which might hide whole rows. Instead the mask is drawn, before the constant
        is written or added.
        """
        found: dict[int, int] = {}

        def hide(values: Iterable[int], steps: int) -> None:
            for k in values:
                found[self.classes[k]] = min(steps, found.get(self.classes[k], steps))

        for i, node in enumerate(self.nodes):
            if has(node.constructor.op, Trait.FINDS_ENDLESS):
                hide(self.reads(i), MOST_HIDING)
            if not any(has(node.constructor.op, trait) for trait in KEEPS_HIDDEN):
                continue
            steps = [found.get(self.classes[o], 0 if self._hides(o) else MOST_HIDING) for o in self.reads(i)]
            at = min(steps, default=MOST_HIDING) + 1
            if at <= MOST_HIDING:
                hide((k for k in node.results if self.dynamic[k]), at)
        return set(found)

    def _hides(self, k: int) -> bool:
        """Whether a value of the input is a constant with elements of a mask's magnitude."""
        if self.dynamic[k]:
            return False
        value = self.known(self.classes[k])
        value = self.initial(k) if value is None else value
        if not isinstance(value, np.ndarray) or "float" not in value.dtype.name or value.size > MOST_SEARCHED:
            return False
        return bool((np.abs(value.astype(np.float64)) >= HIDES).any())

    def is_same(self, node: EncodedNode, result: int) -> bool:
        """Whether the result computes this value of the input with the same operator as the input."""
        at = self.made_by.get(self.classes[node.results[result]])
        if at is None:
            return False
        kernel, constructor = self.kernels[at], node.constructor
        if kernel.op != constructor.op or kernel.attrs != node.attrs:
            return False
        mine = [None if o is None else self.classes[o] for o in node.operands]
        theirs = list(kernel.inputs)
        if is_commutative(constructor.op):
            mine, theirs = sorted(mine, key=str), sorted(theirs, key=str)
        return mine == theirs and kernel.outputs.index(self.classes[node.results[result]]) == result

    # ---- work -------------------------------------------------------------------------------------

    def work(self, index: int) -> int:
        """Work of an operator of the input: MACs and elements written."""
        key = -1 - index
        if key not in self._work:
            self._work[key] = self._work_at(*self._node_operands(index), self.sizes)
        return self._work[key]

    def kernel_work(self, index: int) -> int:
        """Work of an operator of the result."""
        if index not in self._work:
            self._work[index] = self._work_at(*self._kernel_operands(index), self.sizes)
        return self._work[index]

    def network_work(self, sizes: Mapping[str, int]) -> int:
        """Work of the input and of the result at some values of symbols."""
        of_input = (self._work_at(*self._node_operands(i), sizes) for i in range(len(self.nodes)))
        of_result = (self._work_at(*self._kernel_operands(i), sizes) for i in range(len(self.kernels)))
        return sum(of_input) + sum(of_result)

    def _node_operands(self, index: int) -> _Operands:
        node = self.nodes[index]
        read = [None if o is None else self.classes[o] for o in node.operands]
        return node.constructor.op, node.attrs, read, [self.classes[k] for k in node.results]

    def _kernel_operands(self, index: int) -> _Operands:
        kernel = self.kernels[index]
        return kernel.op, kernel.attrs, kernel.inputs, kernel.outputs

    def _work_at(
        self,
        op: OpKey,
        attrs: Attrs,
        inputs: Sequence[int | None],
        outputs: Sequence[int | None],
        sizes: Mapping[str, int],
    ) -> int:
        read = [None if c is None else self._type_at(c, sizes) for c in inputs]
        written = [None if c is None else self._type_at(c, sizes) for c in outputs]
        try:
            count = macs(op, attrs, read, written)
        except EqsatError:
            count = 0
        elements = sum((t.elements or 0) for t in written if t is not None)
        return count + ELEMENT_WORK * elements + NODE_WORK


def run_nodes(programs: Programs, indices: Sequence[int], values: dict[int, TensorValue], call: CallOperator) -> None:
    """Evaluates operators of the input in order; ``values`` contains their operands and receives their results.

    Raises:
        Failed: An operator cannot be evaluated.
    """
    for i in indices:
        node = programs.nodes[i]
        op = node.constructor.op
        if programs.follows_from_type(i):
            values[node.results[0]] = programs.known(programs.classes[node.results[0]])
            continue
        inputs = [None if o is None else values[o] for o in node.operands]
        results = call(op, node.attrs, inputs, max(node.constructor.outputs, 1))
        for k, result in zip(node.results, results, strict=False):
            values[k] = result


def run_kernels(programs: Programs, indices: Sequence[int], values: dict[int, TensorValue], call: CallOperator) -> None:
    """The same for kernels of the result, with values by class.

    Raises:
        Failed: A kernel cannot be evaluated.
    """
    for i in indices:
        kernel = programs.kernels[i]
        inputs = [None if c is None else values[c] for c in kernel.inputs]
        results = call(kernel.op, kernel.attrs, inputs, len(kernel.outputs))
        for c, result in zip(kernel.outputs, results, strict=False):
            if c is not None:
                values[c] = result


_NARROW = frozenset(dtype_name(dtype) for dtype in FLOATS if dtype != ir.DataType.DOUBLE)


def widened(value: TensorValue) -> TensorValue:
    """A value in float64 where it is a narrower float."""
    if isinstance(value, np.ndarray) and value.dtype.name in _NARROW:
        return value.astype(np.float64)
    return value


def wide(op: OpKey, attrs: Attrs, inputs: Sequence[Any], outputs: int) -> tuple[TensorValue, ...]:
    """eqsat's kernels in float64: both sides of a right rule agree there except for the rounding of constants.

    Raises:
        Failed: The operator cannot be evaluated so.
    """
    if op in (CAST, CAST_LIKE) and isinstance(inputs[0], np.ndarray):
        to = dict(attrs).get("to")
        target = ir.DataType(to) if isinstance(to, int) else None
        if target is not None and target.is_floating_point() and target.bitwidth >= 16 and inputs[0].dtype.kind == "f":
            return (inputs[0],)
    try:
        with np.errstate(all="ignore"):
            results = evaluate(op, attrs, inputs, outputs)
    except Exception as error:
        raise Failed(str(error)) from error
    return tuple(widened(r) for r in results)


def prolonged(value: TensorValue) -> TensorValue:
    """A value in the machine's longest float where it is a float."""
    if isinstance(value, np.ndarray) and (value.dtype.name in _NARROW or value.dtype == np.float64):
        return value.astype(np.longdouble)
    return value


def extended(op: OpKey, attrs: Attrs, inputs: Sequence[Any], outputs: int) -> tuple[TensorValue, ...]:
    """As :func:`wide`, in the machine's longest float: values that overflow in float64 are finite there.

    Raises:
        Failed: The operator cannot be evaluated so.
    """
    return tuple(prolonged(r) for r in wide(op, attrs, inputs, outputs))
