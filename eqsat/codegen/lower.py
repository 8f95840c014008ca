"""An ONNX model as a :class:`~eqsat.codegen.program.Program`: functions inlined, constants folded, types known.

Everything that cannot become C is collected and reported in one message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import onnx_ir as ir

from eqsat.backends.read import plain
from eqsat.backends.values import Dequantized
from eqsat.codegen import dtypes
from eqsat.codegen.canonical import canonical, is_known
from eqsat.codegen.family_choice import decide, family_of
from eqsat.codegen.kernels.shared.registry import families, find
from eqsat.codegen.plan_marks import FAMILY, INSIDE, NAME, ORDER, entry_name
from eqsat.codegen.program import IDENTITY, Node, Operand, Program, Tensor
from eqsat.codegen.regions import KERNEL_MARK, REGION_MARK, ROLE, MarkedRegion
from eqsat.codegen.wants import same_order
from eqsat.errors import CodegenError, ExecutionError, LimitError, ModelError
from eqsat.model.definition import definition
from eqsat.model.inference.infer import infer_types
from eqsat.model.load import load
from eqsat.model.normalize import complete
from eqsat.ops.evaluate import fold
from eqsat.ops.properties import is_deterministic
from eqsat.partition.saved import inline
from eqsat.schema.attributes import array_of, op_key, to_attrs
from eqsat.schema.functions import find_reference
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType, tensor_type

_MOST_CAUSES = 20
"""Reasons listed in a message."""


@dataclass
class _Problems:
    """Why operators cannot become C: reason -> the nodes for which it holds."""

    nodes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, name: str) -> None:
        self.nodes.setdefault(reason, []).append(name)

    def check(self, model: str) -> None:
        """Raises CodegenError if there are any."""
        if not self.nodes:
            return
        lines = []
        others = sum(map(len, self.nodes.values()))
        for reason, names in list(self.nodes.items())[:_MOST_CAUSES]:
            shown = ", ".join(repr(n) for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            lines.append(f"{reason}: {shown}")
        if len(self.nodes) > _MOST_CAUSES:
            lines.append(f"and {len(self.nodes) - _MOST_CAUSES} more reasons")
        raise CodegenError(
            "all operators must be expressible in C",
            place=f"model {model!r}",
            actual="1 that is not" if others == 1 else f"{others} that are not",
            excerpt="\n".join(lines),
            hint="`eqsat run` executes them with numpy",
        )


def lower(
    model: ir.Model,
    *,
    dims: Mapping[str, int] | None = None,
    name: str = "",
    regions: Sequence[MarkedRegion] = (),
) -> Program:
    """Lowers a model; regions and composites are taken apart, fusion makes kernels of them again.

    Args:
        model: As loaded; it is not changed.
        dims: Sizes of symbolic dimensions.
        name: For messages.
        regions: The regions that are marked in the model, see :mod:`eqsat.codegen.regions`; their operands and results
        are filled in.

    Raises:
        CodegenError: Operators that have no kernel, tensors of types that C cannot hold, sizes that are not known.
    """
    inlined = load(inline(model), dims=dims)
    return _Lowering(inlined, name or inlined.graph.name or "model", regions).run()


class _Lowering:
    def __init__(self, model: ir.Model, name: str, regions: Sequence[MarkedRegion]) -> None:
        self.graph = model.graph
        self.name = name
        self.regions = regions
        self.values: dict[ir.Value, Operand | None] = {}
        self.nodes: list[Node] = []
        self.dequantized: dict[int, Dequantized] = {}
        self.problems = _Problems()
        self.largest = 0

    def run(self) -> Program:
        graph = self.graph
        inputs = []
        for value in graph.inputs:
            if value.name in graph.initializers:
                continue  # A default that the caller may override is a constant here.
            tensor = self._tensor(value.name or "", tensor_type(value), "input")
            if tensor is not None:
                inputs.append(tensor)
                self.values[value] = tensor
        for value in graph.initializers.values():
            assert value.const_value is not None
            self.values[value] = array_of(value.const_value)
            self.largest = max(self.largest, value.const_value.size)
        for node in self._needed():
            self._node(node)
        outputs = []
        for value in graph.outputs:
            found = self.values.get(value)
            if isinstance(found, np.ndarray):
                found = self._stored_constant(value.name or "", found)
            if isinstance(found, Tensor):
                outputs.append((value.name or "", found))
        program = Program(self.name, inputs, outputs, self.nodes, dequantized=self.dequantized)
        if not self.problems.nodes:
            program.remove_dead()
        self._check_families(program)
        self.problems.check(self.name)
        return program

    def _needed(self) -> list[ir.Node]:
        wanted = set(self.graph.outputs)
        result = []
        for node in reversed(list(self.graph)):
            if wanted.isdisjoint(node.outputs):
                continue
            wanted.update(v for v in node.inputs if v is not None)
            result.append(node)
        return result[::-1]

    def _tensor(self, name: str, known: TensorType | None, what: str) -> Tensor | None:
        if known is None:
            self.problems.add(f"{what} that is not a tensor of known type", name)
        elif not dtypes.is_supported(known.dtype):
            self.problems.add(f"{what} of type {known.dtype.name.lower()}", name)
        elif not known.is_static or known.shape is None:
            self.problems.add(f"{what} of unknown size, {known} (set sizes with --dim)", name)
        else:
            return Tensor(name, known.dtype, tuple(int(d) for d in known.shape if isinstance(d, int)))
        return None

    def _stored_constant(self, name: str, value: np.ndarray) -> Tensor | None:
        """An output that is constant is written by a copy."""
        dtype = ir.DataType.from_numpy(value.dtype) if value.dtype != object else ir.DataType.STRING
        tensor = self._tensor(name, TensorType(dtype, value.shape), "output")
        if tensor is not None:
            self.nodes.append(Node(name, OpKey("", "Identity"), {}, [value], [tensor], tensor.dtype))
        return tensor

    def _node(self, node: ir.Node) -> None:
        op = op_key(node)
        name = (
            node.metadata_props.get(NAME) or node.name or next((v.name for v in node.outputs if v.name), "") or str(op)
        )
        operands: list[Operand | None] = []
        for value in node.inputs:
            if value is None or value.name == "":
                operands.append(None)
            elif self.values.get(value) is None:
                # Its operands were refused already; the operator may have to be refused as well.
                if any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
                    self.problems.add(f"control flow ({op.name})", name)
                elif not is_known(op):
                    self.problems.add(f"no kernel for {op}", name)
                return
            else:
                operands.append(self.values[value])
        marks = node.metadata_props
        kernel = (int(marks[REGION_MARK]), int(marks[KERNEL_MARK])) if REGION_MARK in marks else None
        if kernel is not None and ROLE in marks:
            self.values[node.outputs[0]] = operands[0]
            self._border(marks[ROLE], kernel, operands[0], node.outputs[0].name)
            return
        if ORDER in node.metadata_props:
            self.values[node.outputs[0]] = self._ordered(node, operands[0])
            return
        first = len(self.nodes)
        wanted = list(node.outputs)
        types = [tensor_type(v) for v in wanted]
        used = [bool(v.name) and (bool(v.uses()) or v.is_graph_output()) for v in wanted]
        results = self.apply(op, to_attrs(node), operands, types, used, [v.name or "" for v in wanted], name)
        for value, result in zip(wanted, results, strict=False):
            self.values[value] = result
        family = marks.get(FAMILY, "")
        for made in self.nodes[first:]:
            made.kernel = kernel
            # Fusion forms chains of steps, unless a composite was chosen.
            if family and not (made.is_chain and NAME not in marks):
                for known in families(made.operator):
                    if entry_name(known.name) == family:
                        decide(made, known.name)

    def _ordered(self, mark: ir.Node, operand: Operand | None) -> Operand | None:
        """A conversion between layouts, or an identity that marks the layout of a kernel's operand or result."""
        if not isinstance(operand, Tensor):
            return operand
        rank, last = len(operand.shape), mark.metadata_props[ORDER] == "last"
        rows = tuple(range(rank))
        innermost = (0, *range(2, rank), 1) if rank > 2 else rows
        order = innermost if last else rows
        if INSIDE in mark.metadata_props:
            # A kernel's operand has the layout of its tensor; its result was made by the kernel alone.
            if mark.metadata_props[INSIDE] == "result":
                operand.name, operand.order = mark.outputs[0].name or operand.name, order
            return operand
        if same_order(innermost, rows, operand.shape):
            return operand  # Nothing moves.
        copy = Tensor(mark.outputs[0].name or operand.name, operand.dtype, operand.shape, order)
        self.nodes.append(Node(copy.name, IDENTITY, {}, [operand], [copy], copy.dtype))
        return copy

    def _border(self, role: str, kernel: tuple[int, int], value: Operand | None, name: str | None) -> None:
        """Note an operand or a result of a kernel; a result gets its name in the model."""
        kind, _, index = role.partition(" ")
        region, number = kernel
        marked = self.regions[region].kernels[number]
        if value is not None:
            (marked.operands if kind == "operand" else marked.results)[int(index)] = value
        made = takewhile(lambda node: node.kernel == kernel, reversed(self.nodes))
        if kind == "result" and isinstance(value, Tensor) and any(value in node.writes() for node in made):
            value.name = name or value.name

    def apply(
        self,
        op: OpKey,
        attrs: Attrs,
        operands: list[Operand | None],
        types: list[TensorType | None],
        used: list[bool],
        names: list[str],
        name: str,
        depth: int = 0,
    ) -> list[Operand | None]:
        """One operator: folded, replaced by simpler ones, or kept as a node."""
        count = len(used)
        none: list[Operand | None] = [None] * count
        if any(isinstance(value, GraphAttr) for _, value in attrs):
            self.problems.add(f"control flow ({op.name})", name)
            return none
        given = [_type(x) for x in operands]
        attrs = complete(op, attrs, given, count)
        if op in (OpKey("", "Shape"), OpKey("", "Size")) and isinstance(operands[0], Tensor):
            operands = [np.broadcast_to(np.float32(0), operands[0].shape)]
        constant = all(x is None or isinstance(x, np.ndarray) for x in operands)
        if constant and is_deterministic(op, attrs, training=len(operands) > 2):
            try:
                constants = [x for x in operands if not isinstance(x, Tensor)]
                folded = fold(op, attrs, constants, count, largest=self.largest)
                self._remember(op, constants, folded[0])
                return [*folded]
            except (ExecutionError, LimitError):
                pass  # It is computed in each run instead.
        if any(used[i] and (t is None or not t.is_static) for i, t in enumerate(types)):
            try:
                values = [x if isinstance(x, np.ndarray) else None for x in operands]
                types = [*infer_types(op, attrs, given, values, count, place=f"node {name!r}")]
            except ModelError:
                pass
        outputs: list[Tensor | None] = []
        for i in range(count):
            if not used[i]:
                outputs.append(None)
                continue
            tensor = self._tensor(names[i] or f"{name}_{i}", types[i], f"a result of {op}")
            if tensor is None:
                return none
            outputs.append(tensor)
        node = Node(name, op, plain(attrs), operands, outputs, _anchor_dtype(outputs, types))
        made, results = canonical(node)
        if any(find(n.provisional_task()) is None for n in made):
            expanded = self._expanded(op, attrs, operands, used, name, depth)
            if expanded is not None:
                return expanded
        self.nodes.extend(made)
        return results

    def _remember(self, op: OpKey, values: list[np.ndarray | None], result: np.ndarray | None) -> None:
        """The origin of a float constant: integer products need it."""
        if op.name == "DequantizeLinear" and result is not None and len(values) > 1:
            quantized, scale, zero = (*values, None)[:3]
            if quantized is not None and scale is not None:
                self.dequantized[id(result)] = Dequantized(result, quantized, scale, zero)

    def _expanded(
        self, op: OpKey, attrs: Attrs, operands: list[Operand | None], used: list[bool], name: str, depth: int
    ) -> list[Operand | None] | None:
        """An operator without a kernel by its definition in terms of others, if it has one."""
        if depth > 8:
            return None
        body = definition(op, attrs, [_type(x) for x in operands])
        if body is None:
            return None
        values: list[Operand | None] = [*operands, *[None] * (body.inputs - len(operands))]
        kept, problems = len(self.nodes), {k: list(v) for k, v in self.problems.nodes.items()}
        last = {i: k for k, n in enumerate(body.nodes) for i in n.inputs if i is not None}
        for node in body.nodes:
            inner: list[Operand | None] = [None if i is None else values[i] for i in node.inputs]
            reads = [len(values) + k in last or len(values) + k in body.results for k in range(node.outputs)]
            known = infer_types(
                node.op,
                node.attrs,
                [_type(x) for x in inner],
                [x if isinstance(x, np.ndarray) else None for x in inner],
                node.outputs,
            )
            labels = [f"{name}_{len(values) + k}" for k in range(node.outputs)]
            values += self.apply(node.op, node.attrs, inner, [*known], reads, labels, name, depth + 1)
        results = [values[i] for i in body.results]
        if any(u and r is None for u, r in zip(used, results, strict=False)):
            del self.nodes[kept:]
            self.problems.nodes = problems
            return None
        return results

    def _check_families(self, program: Program) -> None:
        for node in program.nodes:
            if family_of(node) is None:
                if find_reference(node.operator) is not None:
                    self.problems.add(
                        f"{node.operator}, which a Python function computes (in C a backend does, or the `call` of a "
                        "target)",
                        node.name,
                    )
                    continue
                types = ", ".join("-" if x is None else str(_type(x)) for x in node.inputs)
                self.problems.add(f"no kernel for {node.describe()} of ({types})", node.name)


def _type(operand: Operand | None) -> TensorType | None:
    if operand is None:
        return None
    if isinstance(operand, Tensor):
        return TensorType(operand.dtype, operand.shape)
    if operand.dtype == object or operand.dtype.kind in "US":
        return TensorType(ir.DataType.STRING, operand.shape)
    return TensorType(ir.DataType.from_numpy(operand.dtype), operand.shape)


def _anchor_dtype(outputs: list[Tensor | None], types: list[TensorType | None]) -> ir.DataType:
    if outputs and outputs[0] is not None:
        return outputs[0].dtype
    first = next((t for t in types if t is not None), None)
    return first.dtype if first is not None else ir.DataType.FLOAT
