"""Facts about sizes from the model's own nodes: values that follow from shapes, and shapes as literals.

If sizes are free, a shape is not constant, but some of its elements may be: ``x.shape[3]`` of a ``float[N, 4, 197,
64]`` is 64 although N is free, and values computed from it are numbers. Such values become constants. An operand that
holds a shape with free sizes can often still be a literal: ``Reshape`` copies a dimension where it reads 0 and computes
one where it reads -1, ``Expand`` keeps a dimension where it reads 1. Then the node with the literal is another program
of the same value, which needs no arithmetic and which rules can look at.

Traced models compute the same sizes in each layer, from the tensors of that layer. Arrays that hold the same numbers
for all sizes are one value: readers of later ones read the first one instead, so that layers share masks and positions
that are computed from sizes. Their classes are not united: the class of a size would contain expressions of all layers,
and would seem to be computed from itself. Neighboring sizes of one tensor, which exporters pick one by one and join,
are read by one ``Shape`` with a start and an end, if possible of an input of the model. For a single size as a scalar,
both spellings of exporters are added: a view of such a ``Shape``, and an element of the whole shape, which other sizes
of the tensor share.

This follows the nodes in the model's order, before they are written; signatures are answered once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.bindings import bindings
from eqsat.egraph.encode import EncodedNode, Encoding
from eqsat.egraph.engine import SPAN, Engine, call, integer
from eqsat.egraph.intern import Tables
from eqsat.egraph.language import Constructor
from eqsat.egraph.shape_operands import GATHER, RESHAPE, SHAPE, is_whole, literal_operands
from eqsat.errors import EqsatError
from eqsat.model.inference.infer import infer_types
from eqsat.model.inference.shape_values import content_key, dimensions, propagate, sizes_of_shape
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import default_attrs
from eqsat.schema.size import Size
from eqsat.schema.types import GraphAttr, TensorType, type_of

READERS = (VIEW, ELEMENT) = (Constructor(RESHAPE, 2), Constructor(GATHER, 2))
"""The operators that read a single size of a shape."""
NAME = "known_sizes"
"""In the place of a rule's name."""


@dataclass(frozen=True, slots=True)
class SizeRun:
    """Neighboring sizes of a tensor.

    Attributes:
        tensor: A value of the model.
        start, end: The first axis and the one after the last; None after the tensor's last.
    """

    tensor: int
    start: int
    end: int | None


@dataclass
class KnownSizes:
    """Follows sizes through the nodes of one model.

    Attributes:
        tables: Tables of the e-graph.
        sizes: Arrays with free sizes, by value of the model.
        literals: By node, positions and constants of operands that differ from the model.
        parts: By value, neighboring sizes of an input of the model, otherwise of an earlier tensor; one size if the
            value is a scalar.
    """

    tables: Tables
    sizes: dict[int, np.ndarray] = field(default_factory=dict)
    literals: dict[int, dict[int, int]] = field(default_factory=dict)
    parts: dict[int, SizeRun] = field(default_factory=dict)
    _runs: dict[Hashable, SizeRun] = field(default_factory=dict)
    _answers: dict[Hashable, tuple[Sequence[TensorType | None], Sequence[np.ndarray | None]]] = field(
        default_factory=dict
    )

    def follow(self, encoding: Encoding, index: int, types: list[int | None], values: list[int | None]) -> None:
        """Completes the known facts about a node's results.

        Args:
            encoding: The model.
            index: Index of the node.
            types: Type id by value where known; those of the results are changed.
            values: Id of the small constant by value; those of the results are changed.
        """
        node = encoding.nodes[index]
        tables = self.tables
        given = [0 if o is None else types[o] for o in node.operands]
        arrays = [self._array(o, values) for o in node.operands]
        known = [None if k is None else tables.types[k] for k in given]
        if None not in given and not any(isinstance(a, GraphAttr) for _, a in node.attrs):
            vague = any(types[k] is None or _is_vague(tables.types[types[k] or 0]) for k in node.results)
            op, reads = node.constructor.op, any(o in self.sizes for o in node.operands)
            follows = has(op, Trait.BY_TYPE) or (reads and has(op, Trait.SIZES))
            if vague or (follows and any(values[k] is None for k in node.results)):
                self._complete(node, known, tuple(k or 0 for k in given), arrays, types, values)
        for k in node.results:
            said = type_of(encoding.values[k])
            inferred = None if types[k] is None else tables.types[types[k] or 0]
            if said is not None and said.shape is not None and (inferred is None or _is_vaguer(inferred, said)):
                types[k] = tables.types.id(said)
        if known and known[0] is not None and any(o in self.sizes for o in node.operands):
            result = types[node.results[0]]
            found = literal_operands(
                node.constructor.op, known[0], arrays, None if result is None else tables.types[result]
            )
            if found:
                self.literals[index] = {i: self._literal(x, known[i]) for i, x in found.items()}
        self._find_part(encoding, index, types)

    def _find_part(self, encoding: Encoding, index: int, types: Sequence[int | None]) -> None:
        node = encoding.nodes[index]
        result = node.results[0]
        sizes = self.sizes.get(result)
        kind = self.tables.types[types[result] or 0]
        if sizes is None or sizes.ndim > 1 or kind is None or kind.dtype != ir.DataType.INT64:
            return
        if not self._runs:
            for value in encoding.inputs:
                self._read_runs(encoding.number[value], types)
        if node.constructor.op == SHAPE and node.operands[0] is not None:
            self._read_runs(node.operands[0], types)
        found = self._runs.get(content_key(sizes.reshape(-1)))
        if found is not None and (node.constructor.op != SHAPE or found.tensor != node.operands[0]):
            self.parts[result] = found

    def _read_runs(self, tensor: int, types: Sequence[int | None]) -> None:
        """Finds the sizes of a tensor by their contents, where no earlier tensor has them."""
        kind = None if types[tensor] is None else self.tables.types[types[tensor] or 0]
        dims = None if kind is None else dimensions(kind)
        for start in range(len(dims or ())):
            for end in range(start + 1, len(dims or ()) + 1):
                sizes = sizes_of_shape("Shape", (("end", end), ("start", start)), dims or ())
                if _are_known(sizes):
                    self._runs.setdefault(
                        content_key(sizes), SizeRun(tensor, start, None if end == len(dims or ()) else end)
                    )

    def read_first(self, encoding: Encoding, types: Sequence[int | None]) -> None:
        """Lets nodes read the first of equal arrays of sizes.

        Args:
            encoding: The model, whose nodes are changed.
            types: By value the id of its type where known.
        """
        first: dict[Hashable, int] = {}
        same = {
            k: first.setdefault((types[k], content_key(array)), k)
            for k, array in self.sizes.items()
            if types[k] is not None and _are_known(array)
        }
        for index, node in enumerate(encoding.nodes):
            operands = tuple(o if o is None else same.get(o, o) for o in node.operands)
            if operands != node.operands:
                encoding.nodes[index] = replace(node, operands=operands)

    def _complete(
        self,
        node: EncodedNode,
        known: Sequence[TensorType | None],
        ids: tuple[int, ...],
        arrays: Sequence[np.ndarray | None],
        types: list[int | None],
        values: list[int | None],
    ) -> None:
        tables, op = self.tables, node.constructor.op
        key = (node.constructor, node.number, ids, *map(content_key, arrays))
        if key not in self._answers:
            try:
                found = infer_types(op, node.attrs, known, arrays, len(node.results))
                self._answers[key] = found, propagate(op, node.attrs, known, arrays, found)
            except EqsatError:  # Loading reports it.
                self._answers[key] = (), ()
        found, results = self._answers[key]
        for k, kind in zip(node.results, found, strict=False):
            if kind is not None and kind.shape is not None:
                inferred = None if types[k] is None else tables.types[types[k] or 0]
                if inferred is None or _is_vaguer(inferred, kind):
                    types[k] = tables.types.id(kind)
        for k, kind, array in zip(node.results, found, results, strict=False):
            if array is None or kind is None or values[k] is not None:
                continue
            if array.dtype == object:
                self.sizes[k] = array
            else:
                values[k] = tables.constants.of_array(array, kind.dtype)

    def _literal(self, numbers: Sequence[int], kind: TensorType | None) -> int:
        """A constant in the place of an operand, of whose element type the other operands may have to be."""
        dtype = ir.DataType.INT64 if kind is None else kind.dtype
        most = np.iinfo(dtype.numpy()).max
        return self.tables.constants.of_array(np.array([min(n, most) for n in numbers], dtype.numpy()), dtype)

    def _array(self, operand: int | None, values: Sequence[int | None]) -> np.ndarray | None:
        """The known contents of an operand."""
        if operand is None:
            return None
        constant = values[operand]
        return self.sizes.get(operand) if constant is None else self.tables.constants[constant].numpy()


def readers(encoding: Encoding) -> Sequence[Constructor]:
    """The constructors of nodes that are added to those of the model, which must be declared before."""
    return READERS if any(c.op == SHAPE for c in encoding.constructors) else ()


def write_sizes(engine: Engine, encoding: Encoding, known: KnownSizes, rule: int) -> None:
    """Adds the nodes that read literals, and those that read parts of shapes, to the classes of their results.

    Args:
        engine: In which the model is written.
        encoding: The model.
        known: What was followed.
        rule: The rule number of the e-nodes.
    """
    engine.run_in_chunks([*_with_literals(encoding, known, rule), *_parts_of_shapes(encoding, known, rule)])


def _with_literals(encoding: Encoding, known: KnownSizes, rule: int) -> Iterator[Any]:
    for index, literals in known.literals.items():
        node = encoding.nodes[index]
        operands = [
            call("Const", integer(literals[i])) if i in literals else _operand(o) for i, o in enumerate(node.operands)
        ]
        # A literal 0 copies a dimension, which the node's own attributes may forbid.
        number = known.tables.attrs.id(default_attrs(RESHAPE)) if node.constructor.op == RESHAPE else node.number
        yield from _added(node.constructor, node.results[0], [integer(number), *operands], rule)


def _parts_of_shapes(encoding: Encoding, known: KnownSizes, rule: int) -> Iterator[Any]:
    shape = next((c for c in encoding.constructors if c.op == SHAPE), None)
    if shape is None:
        return
    for result, run in known.parts.items():
        part = _sizes_of(known, run.tensor, run.start, run.end)
        if known.sizes[result].ndim:
            yield from _added(shape, result, part, rule)
            continue
        whole = _sizes_of(known, run.tensor, 0, None)
        for constructor, read, at in ((VIEW, part, []), (ELEMENT, whole, run.start)):
            index = known.tables.constants.of_array(np.array(at, np.int64), ir.DataType.INT64)
            number = known.tables.attrs.id(default_attrs(constructor.op))
            args = [integer(number), call(shape.name, *read), call("Const", integer(index))]
            yield _made(shape, read, rule)
            yield from _added(constructor, result, args, rule)


def _sizes_of(known: KnownSizes, tensor: int, start: int, end: int | None) -> list[Any]:
    """The arguments of a ``Shape``."""
    attrs = {"start": start} if end is None else {"end": end, "start": start}
    return [integer(known.tables.attrs.id(tuple(attrs.items()))), _operand(tensor)]


def _added(constructor: Constructor, result: int, args: list[Any], rule: int) -> Iterator[Any]:
    """An e-node in the class of a value."""
    yield _made(constructor, args, rule)
    yield bindings.Union(SPAN, call("ref", integer(result)), call(constructor.name, *args))


def _made(constructor: Constructor, args: list[Any], rule: int) -> Any:
    return bindings.Set(SPAN, f"made_{constructor.name}", args, integer(rule))


def _operand(operand: int | None) -> object:
    return call("Const", integer(0)) if operand is None else call("ref", integer(operand))


def _is_vague(known: TensorType | None) -> bool:
    return known is None or known.shape is None or None in known.shape


def _is_vaguer(known: TensorType, other: TensorType) -> bool:
    """Whether a type says less than another one of the same rank."""
    if known.dtype != other.dtype or other.shape is None:
        return False
    if known.shape is None:
        return True
    return len(known.shape) == len(other.shape) and any(
        a is None and b is not None for a, b in zip(known.shape, other.shape, strict=True)
    )


def _are_known(sizes: np.ndarray) -> bool:
    """Whether each element is a number or a size."""
    return all(isinstance(x, Size) or is_whole(x) for x in sizes.flat)
