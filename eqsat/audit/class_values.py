"""A value for each class on one sample, and its uncertainty by rounding.

Floats are computed in a wider type than the model's, so that values between that would overflow do not hide anything,
and only constants are as the model has them. How far roundings in the model's type could move a value is measured
and not guessed: the sample is computed in several worlds, in each of which every result is disturbed by about one unit
in the last place (stochastic arithmetic: Vignes, 1993).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx_ir as ir

from eqsat.check.oracle import require_defined
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import EqsatError
from eqsat.ops.properties import is_deterministic
from eqsat.ops.undefined import Undefined
from eqsat.ops.wide import wide_type, wide_values
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import CAST, GraphAttr, OpKey, TensorType

POW = OpKey("", "Pow")
WORLDS = 4
"""The undisturbed one, and three that are disturbed."""

ValueOfWorlds = tuple[np.ndarray, ...]
"""One array a world."""

ClassParts = tuple[ValueOfWorlds | None, ...]
"""The value of a class, or the values of a tuple; None for an output without readers."""


class Values:
    """The values of the classes on one sample.

    Args:
        inputs: Arrays by the name of the graph input.
        elements: Largest number of elements of a class; e-nodes of larger ones are skipped.
        worlds: How many; a single one is not disturbed.

    Attributes:
        of: Class -> its value.
        skipped: E-nodes that could not be computed, by reason.
    """

    def __init__(
        self, snapshot: Snapshot, inputs: Mapping[str, np.ndarray], seed: int, elements: int, worlds: int = WORLDS
    ) -> None:
        self.snapshot = snapshot
        self._worlds = worlds
        self.of: dict[int, ClassParts] = {}
        self.skipped: Counter[str] = Counter()
        self._inputs = inputs
        self._elements = elements
        self._rng = np.random.default_rng(seed)
        self._outputs: dict[int, dict[int, int]] = {}
        for node in snapshot.nodes:
            if node.kind == "part" and node.children[0] is not None:
                self._outputs.setdefault(node.children[0], {})[node.number] = node.eclass

    def ready(self, node: ENode) -> bool:
        """Whether all operands have a value."""
        return all(c is None or c in self.of for c in node.children)

    def shape(self, eclass: int) -> tuple[int, ...] | None:
        """Shape of the first value of a class."""
        value = self.of[eclass][0]
        return None if value is None else value[0].shape

    def compute(self, node: ENode) -> ClassParts | None:
        """The value of an e-node from the values of its operands' classes; None if it is skipped."""
        reason = self._refusal(node)
        if reason:
            self.skipped[reason] += 1
            return None
        if node.kind == "part":
            assert node.children[0] is not None
            return (self.of[node.children[0]][node.number],)
        try:
            with np.errstate(all="ignore"):
                worlds = [self._run(node, world) for world in range(self._worlds)]
        except EqsatError:
            self.skipped["it cannot be evaluated"] += 1
            return None
        except Undefined:
            self.skipped["the standard does not define its result"] += 1
            return None
        if any(len({a.shape for a in part if a is not None}) > 1 for part in zip(*worlds, strict=True)):
            # How many elements there are depends on a comparison that rounding decides.
            self.skipped["its shape depends on rounding"] += 1
            return None
        return tuple(_value(part) for part in zip(*worlds, strict=True))

    def _refusal(self, node: ENode) -> str:
        kinds = [self.snapshot.types[node.eclass], *(self.snapshot.types[c] for c in node.children if c is not None)]
        if any(k is not None and (k.elements or 0) > self._elements for k in kinds):
            return "too many elements"
        if any(k is not None and not k.dtype.is_floating_point() and k.dtype.numpy().kind not in "iub" for k in kinds):
            return "no numbers"
        if any(isinstance(v, GraphAttr) for _, v in node.attrs):
            return "control flow"
        if node.kind == "op" and not is_deterministic(node.op, node.attrs):
            return "random or unknown operator"
        return ""

    def _run(self, node: ENode, world: int) -> list[np.ndarray | None]:
        if node.kind == "input":
            value = self.snapshot.inputs[node.number]
            return [_widened(np.asarray(self._inputs[value.name or ""]), self.snapshot.types[node.eclass])]
        if node.kind == "const":
            constant = self.snapshot.tables.constants[node.number]
            array = constant.numpy()
            assert array is not None
            return [self._disturbed(_widened(array, constant.type), constant.type, world, stored=True)]
        arguments = [self._argument(c, world) for c in node.children]
        if node.op == POW and world:
            # Powers of negative numbers have values for whole exponents only.
            exact, disturbed = self._argument(node.children[1], 0), arguments[1]
            if exact is not None and disturbed is not None:
                arguments[1] = np.where(exact == np.round(exact), exact, disturbed)
        kinds = self._types(node)
        if node.composite is None:
            require_defined(node.op, node.attrs, arguments)
            found = list(wide_values(node.op, node.attrs, arguments, kinds))
        else:
            found = self._body(node, arguments)
        return [
            None if a is None else self._disturbed(_widened(np.asarray(a), k), k, world)
            # For operators with optional outputs, some implementations return all of them.
            for a, k in zip(found, kinds, strict=False)
        ]

    def _argument(self, eclass: int | None, world: int) -> np.ndarray | None:
        value = None if eclass is None else self.of[eclass][0]
        return None if value is None else value[world]

    def _body(self, node: ENode, arguments: list[np.ndarray | None]) -> list[np.ndarray | None]:
        """A composite by its definition; the results of its nodes are not perturbed, because it is one kernel."""
        assert node.composite is not None
        body = node.composite.body
        values: list[np.ndarray | None] = [*arguments]
        for inner in body.nodes:
            operands = [None if i is None else values[i] for i in inner.inputs]
            to = dict(inner.attrs).get("to") if inner.op == CAST else None
            kind = TensorType(ir.DataType(to), None) if isinstance(to, int) else None
            values.extend(wide_values(inner.op, inner.attrs, operands, [kind] * inner.outputs))
        return [values[result] for result in body.results]

    def _types(self, node: ENode) -> list[TensorType | None]:
        types = self.snapshot.types
        if not node.outputs:
            return [types[node.eclass]]
        parts = self._outputs.get(node.eclass, {})
        return [types[parts[k]] if k in parts else None for k in range(node.outputs)]

    def _disturbed(self, array: np.ndarray, kind: TensorType | None, world: int, *, stored: bool = False) -> np.ndarray:
        """A value with possible roundings; a stored one has only those of its type, including subnormal ones."""
        if world == 0 or kind is None or kind.dtype not in FLOATS:
            return array
        info = ml_dtypes.finfo(kind.dtype.numpy())
        reach = float(info.eps) * np.abs(array)
        if stored:
            size = np.abs(array)
            tiny = (size > 0) & (size < float(info.smallest_normal))
            reach = np.where(tiny, np.minimum(float(info.smallest_subnormal), size), reach)
        return array + reach * self._rng.uniform(-1, 1, array.shape).astype(array.dtype)


def _value(worlds: tuple[np.ndarray | None, ...]) -> ValueOfWorlds | None:
    arrays = tuple(a for a in worlds if a is not None)
    return arrays if len(arrays) == len(worlds) else None


def _widened(array: np.ndarray, kind: TensorType | None) -> np.ndarray:
    if kind is None or not kind.dtype.is_floating_point():
        return array
    return array.astype(wide_type(kind.dtype))


def spread(value: ValueOfWorlds) -> np.ndarray:
    """By how much roundings move each element of a value; infinite where they decide whether there is a number."""
    base = value[0].astype(np.float64)
    with np.errstate(all="ignore"):
        moved = np.max([np.abs(v.astype(np.float64) - base) for v in value[1:]], axis=0)
    known = np.isfinite(moved)
    # By chance an element may not have moved; the others show the usual change.
    usual = moved[known].mean() if known.any() else 0.0
    return np.where(known, np.maximum(moved, usual), np.where(np.isfinite(base), np.inf, usual))
