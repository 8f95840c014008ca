"""A plan as a :class:`~eqsat.codegen.program.Program`: composites taken apart, constants folded, types known.

Everything that cannot become C is collected and reported in one message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.backends.region import Dequantized
from eqsat.codegen import c_types
from eqsat.codegen.call_text import CallText
from eqsat.codegen.canonical import canonical, is_known
from eqsat.codegen.control.lower_control import SUPPORTED, lower_control
from eqsat.codegen.control.lowering import BodyPlanner, ControlNode
from eqsat.codegen.data_sizes import DataSizes
from eqsat.codegen.family_choice import check_families, decide_entry
from eqsat.codegen.found_sizes import SizeLimits, Unbounded, names_in
from eqsat.codegen.half_precision import HalfPrecision
from eqsat.codegen.lowered_scope import Scope
from eqsat.codegen.operator_call import OperatorCall
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import (
    IDENTITY,
    Program,
    ProgramNode,
    ProgramOperand,
    ProgramOperands,
    ProgramTensor,
    WholeKernel,
    WholeRegion,
    elsewhere,
)
from eqsat.codegen.results import anchor_dtype, present, result_places
from eqsat.codegen.shape_arithmetic import computed, is_sizes
from eqsat.codegen.shapes import KNOWING_SIZES, Shapes, operand_type
from eqsat.codegen.wants import converted_order, usual_orders
from eqsat.codegen.whole_regions import ModelRegions
from eqsat.errors import ExecutionError, LimitError
from eqsat.model.normalize import complete
from eqsat.model.onnx_definitions import definition
from eqsat.ops.evaluate import fold
from eqsat.ops.own_operators import CHANNELS_LAST, LAYOUTS
from eqsat.ops.properties import is_deterministic
from eqsat.partition.onnx_nodes import has_subgraphs
from eqsat.partition.plan import Plan, PlanNode
from eqsat.partition.read_plan import SavedFunction
from eqsat.partition.subgraphs import captured_ids, operands, reads
from eqsat.partition.value_names import output_name, value_names
from eqsat.schema import opset
from eqsat.schema.attributes import array_of, plain
from eqsat.schema.body import Body
from eqsat.schema.declared_operators import function_body
from eqsat.schema.free_sizes import FreeSizes, within
from eqsat.schema.integer_ranges import IntegerRange
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType, tensor_type


def lower(
    plan: Plan,
    pieces: ModelRegions,
    name: str,
    bodies: BodyPlanner,
    problems: Problems,
    *,
    decided: bool = False,
    sizes: FreeSizes | None = None,
    limits: SizeLimits | None = None,
    ranges: Sequence[IntegerRange | None] = (),
) -> Program:
    """Lowers a plan; regions and composites are taken apart, fusion makes kernels of them again.

    Args:
        plan: The plan of a model, chosen by a search or read back.
        pieces: The regions that it calls.
        name: Of the model.
        bodies: Plans the bodies of control flow.
        problems: Receives operators that have no kernel, tensors of types that C cannot hold, sizes that are not known.
        decided: Whether the families of its kernels, and its conversions between layouts, are decisions for C.
        sizes: The free sizes, each with a greatest value, that the program receives.
        limits: The caller's bounds of sizes that data decides.
        ranges: Ranges of the elements of the inputs, as far as they are known.
    """
    return _Lowering(plan, pieces, name, bodies, problems, decided, sizes or {}, limits or SizeLimits()).run(ranges)


class _Lowering:
    def __init__(
        self,
        plan: Plan,
        pieces: ModelRegions,
        name: str,
        bodies: BodyPlanner,
        problems: Problems,
        decided: bool,
        sizes: FreeSizes,
        limits: SizeLimits,
    ) -> None:
        self.shapes = Shapes(sizes)
        self.plan = plan
        self.pieces = pieces
        self.name = name
        self.decided = decided
        self.nodes: list[ProgramNode] = []
        self.regions: list[WholeRegion] = []
        self.dequantized: dict[int, Dequantized] = {}
        self.bodies = bodies
        self.problems = problems
        plans = (plan, *(f.scope.plan for f in pieces.regions.values()))
        kinds = (kind for p in plans for kind in p.types.values())
        self.found = DataSizes(self.shapes, self.apply, self.nodes, names_in(kinds) | sizes.keys(), limits)
        self.has_backend = False
        self.halves = HalfPrecision()
        self.largest = max((t.size for p in plans for t in p.constants.values()), default=0)

    def run(self, ranges: Sequence[IntegerRange | None]) -> Program:
        plan = self.plan
        given = [self._tensor(x.name or "", plan.types.get(vid) or tensor_type(x), "input") for vid, x in plan.inputs]
        inputs = [tensor for tensor in given if tensor is not None]
        self.found.sizes.ranges.known.update({x: r for x, r in zip(given, ranges, strict=False) if x is not None and r})
        with within(self.shapes.free):
            values = self._walk(plan, given)
        outputs = []
        for i, (vid, _) in enumerate(plan.outputs):
            found = values.get(vid)
            name = output_name(plan, i)
            if isinstance(found, np.ndarray):
                found = self._stored_constant(name, found)
            if isinstance(found, ProgramTensor):
                outputs.append((name, found))
        program = Program(self.name, inputs, outputs, self.nodes, self.regions, dequantized=self.dequantized)
        self.halves.lower(program)
        if not self.problems.nodes:
            program.remove_dead()
        check_families(program, self.problems)
        return program

    def _walk(
        self, plan: Plan, inputs: Sequence[ProgramOperand | None], region: int | None = None
    ) -> dict[int, ProgramOperand | None]:
        """Lowers a plan; returns what its values became."""
        read = {vid for vid, _ in plan.outputs}
        needed: list[PlanNode] = []
        for node in reversed(plan.nodes):
            if not read.isdisjoint(v for v in node.outputs if v is not None):
                read.update(reads(plan, node))
                needed.append(node)
        scope = Scope(plan, {}, value_names(plan).of, read, region)
        scope.values.update({vid: array_of(tensor) for vid, tensor in plan.constants.items()})
        scope.values.update({vid: x for (vid, _), x in zip(plan.inputs, inputs, strict=False)})
        for node in reversed(needed):
            self._node(scope, node)
        return scope.values

    def _tensor(self, name: str, known: TensorType | None, what: str) -> ProgramTensor | None:
        if known is None:
            self.problems.add(f"{what} that is not a tensor of known type", name)
        elif not c_types.is_supported(known.dtype):
            self.problems.add(f"{what} of type {known.dtype.name.lower()}", name)
        else:
            shape = self.shapes.of(known)
            if not isinstance(shape, str):
                return ProgramTensor(name, known.dtype, shape)
            self.problems.add(f"{what} {shape}", name)
        return None

    def _stored_constant(self, name: str, value: np.ndarray) -> ProgramTensor | None:
        """An output that is constant is written by a copy."""
        if is_sizes(value):
            return self.found.sizes.written(name, value)
        tensor = self._tensor(name, operand_type(value), "output")
        if tensor is not None:
            self.nodes.append(ProgramNode(name, IDENTITY, {}, [value], [tensor], tensor.dtype))
        return tensor

    def _node(self, scope: Scope, node: PlanNode) -> None:
        kernel = self.pieces.alone.get(node.op)
        target = scope.plan.targets[node.target] if kernel is None else kernel.target
        node = node if kernel is None else kernel.called(node)
        given = [None if v is None else scope.values.get(v) for v in operands(node)]
        name = node.name or next((scope.names[v] for v in node.outputs if v is not None), "") or str(node.op)
        piece = self.pieces.regions.get(node.op)
        if piece is not None:
            results = self._region(piece, node, given)
        elif any(v is not None and x is None for v, x in zip(operands(node), given, strict=True)):
            self._refused(node, name)
            return
        elif scope.region is not None:
            results = self._kernel(scope, node, given, name, scope.region)
        elif node.call is not None and not has_subgraphs(node.attrs):
            self.regions.append(WholeRegion(node.name, target, CallText(target)))
            results = self._kernel(scope, node, given, name, len(self.regions) - 1, node.call)
        elif self.decided and node.op in LAYOUTS:
            results = [self._converted(node, given[0], name)]
        else:
            results = self._operator(scope, node, given, name, decided=self.decided)
        scope.values.update({v: x for v, x in zip(node.outputs, results, strict=False) if v is not None})

    def _refused(self, node: PlanNode, name: str) -> None:
        """A node whose operands were refused already; its operators may have to be refused as well."""
        if has_subgraphs(node.attrs) and node.op not in SUPPORTED:
            self.problems.add(f"control flow ({node.op.name})", name)
        for op in (node.op,) if node.body is None else (inner.op for inner in node.body.nodes):
            if not is_known(op) and not has_subgraphs(node.attrs):
                self.problems.add_operator(op, name)

    def _region(self, piece: SavedFunction, call: PlanNode, given: ProgramOperands) -> ProgramOperands:
        number = None
        if call.op in self.pieces.whole:
            number = len(self.regions)
            self.regions.append(WholeRegion(piece.name, piece.target, self.pieces.whole[call.op]))
        plan = piece.scope.plan
        values = self._walk(plan, given, number)
        results = [values.get(vid) for vid, _ in plan.outputs]
        if number is not None:
            self.regions[number].inputs, self.regions[number].outputs = given, results
        return results

    def _kernel(
        self, scope: Scope, node: PlanNode, given: ProgramOperands, name: str, region: int, call: str = ""
    ) -> ProgramOperands:
        """A kernel of a region that stays whole."""
        whole, first, attrs, label = self.regions[region], len(self.nodes), node.attrs, node.name or node.op.name
        if not has_subgraphs(attrs):
            attrs = complete(node.op, attrs, [operand_type(x) for x in given], len(node.outputs))
        places = result_places(node, given, label, self.shapes)
        kernel = WholeKernel(label, str(node.op), plain(attrs), list(given), places, call)
        self.has_backend = whole.backend is not None
        results = self._operator(scope, node, given, name)
        self.has_backend = False
        kernel.results = [x if v in scope.read else None for v, x in zip(node.outputs, results, strict=False)]
        for made in self.nodes[first:]:
            made.kernel = (region, len(whole.kernels))
        whole.kernels.append(kernel)
        return results

    def _operator(
        self, scope: Scope, node: PlanNode, given: ProgramOperands, name: str, *, decided: bool = False
    ) -> ProgramOperands:
        """A plain operator or a composite; ``decided`` where the plan says how C computes it."""
        first = len(self.nodes)
        used = [v is not None and v in scope.read for v in node.outputs]
        names = ["" if v is None else scope.names[v] for v in node.outputs]
        types = [None if v is None else scope.plan.types.get(v) for v in node.outputs]
        is_chosen = decided and node.body is not None and node.target == 0
        if has_subgraphs(node.attrs):
            outside = {n: scope.values.get(v) for n, v in captured_ids(scope.plan, node).items()}
            made = lower_control(
                ControlNode(name, node.op, node.attrs, given, outside, types, used, names),
                self.bodies,
                self.problems,
                self.found.sizes,
            )
            self.nodes += made[0]
            results = made[1]
        elif node.body is None:
            count = present(node, used)
            results = self.apply(node.op, node.attrs, given, types[:count], used[:count], names[:count], name)
        else:
            results = self._body(node.body, given, types, used, names, name, layouts=is_chosen)
        if decided and node.family:
            for made in self.nodes[first:]:
                # Fusion forms chains of steps, unless a composite was chosen.
                if is_chosen or not made.is_chain:
                    decide_entry(made, node.family, bool(self.shapes.received))
        return results

    def _converted(self, node: PlanNode, operand: ProgramOperand | None, name: str) -> ProgramOperand | None:
        """A conversion between layouts."""
        if not isinstance(operand, ProgramTensor):
            return operand
        order = converted_order(operand, innermost=node.op == CHANNELS_LAST.op)
        if order is None:
            return operand
        copy = ProgramTensor(name, operand.dtype, operand.shape, order)
        self.nodes.append(ProgramNode(copy.name, IDENTITY, {}, [operand], [copy], copy.dtype))
        return copy

    def apply(
        self,
        op: OpKey,
        attrs: Attrs,
        operands: ProgramOperands,
        types: list[TensorType | None],
        used: list[bool],
        names: list[str],
        name: str,
        depth: int = 0,
    ) -> ProgramOperands:
        """One operator: folded, replaced by simpler ones, or kept as a node."""
        count = len(used)
        none: ProgramOperands = [None] * count
        while operands and operands[-1] is None:
            operands = operands[:-1]
        if any(isinstance(value, GraphAttr) for _, value in attrs):
            self.problems.add(f"control flow ({op.name}) in a function", name)
            return none
        if op.domain == opset.EQSAT:
            own = function_body(op, attrs)
            if own is not None:
                return self._body(own, operands, types, used, names, name, depth)
        given = [operand_type(x) for x in operands]
        attrs = complete(op, attrs, given, count)
        try:
            sized = self.found.lower(OperatorCall(op, attrs, operands, types, used, names, name, depth))
        except Unbounded as size:
            self.problems.add(size.reason, name)
            return none
        if isinstance(sized, list):
            return sized
        operands, types = sized.operands, sized.types
        if self.shapes.free:
            sizes = computed(op, attrs, operands, count)
            if sizes is not None:
                return [*sizes]
            types, operands = self.shapes.as_results(op, attrs, operands, types)
            if op.domain or op.name not in KNOWING_SIZES:
                operands = [
                    self.found.sizes.written(f"{name}_sizes_{i}", x) if isinstance(x, np.ndarray) and is_sizes(x) else x
                    for i, x in enumerate(operands)
                ]
        elif op in (OpKey("", "Shape"), OpKey("", "Size")) and operands and isinstance(operands[0], ProgramTensor):
            operands = [np.broadcast_to(np.float32(0), operands[0].shape)]
        constant = all(x is None or isinstance(x, np.ndarray) for x in operands)
        if constant and is_deterministic(op, attrs, training=len(operands) > 2):
            try:
                constants = [x for x in operands if not isinstance(x, ProgramTensor)]
                folded = fold(op, attrs, constants, count, largest=self.largest)
                if not any(isinstance(x, list) for x in folded):  # Sequences are no operands of C.
                    self._remember(op, constants, folded[0])
                    return [*folded]
            except (ExecutionError, LimitError):
                pass  # It is computed in each run instead.
        types = self.shapes.completed(op, attrs, operands, types, used, f"node {name!r}")
        if not self.shapes.are_known(types, used):
            expanded = self._expanded(op, attrs, operands, used, name, depth, is_only=True)
            if expanded is not None:
                return expanded
        outputs: list[ProgramTensor | None] = []
        for i in range(count):
            if not used[i]:
                outputs.append(None)
                continue
            tensor = self._tensor(names[i] or f"{name}_{i}", types[i], f"a result of {op}")
            if tensor is None:
                return none
            outputs.append(tensor)
        node = ProgramNode(name, op, plain(attrs), operands, outputs, anchor_dtype(outputs, types))
        self.found.sizes.note(op, node.attributes, operands, outputs)
        made, results = canonical(node)
        if not all(self.halves.is_computable(n) for n in made):
            expanded = self._expanded(op, attrs, operands, used, name, depth)
            if expanded is not None:
                return expanded
            if self.has_backend:
                self.nodes.append(elsewhere(node))
                return [*outputs]
        self.nodes.extend(made)
        return results

    def _remember(self, op: OpKey, values: list[np.ndarray | None], result: np.ndarray | None) -> None:
        """The origin of a float constant: integer products need it."""
        if op.name == "DequantizeLinear" and result is not None and len(values) > 1:
            quantized, scale, zero = (*values, None)[:3]
            if quantized is not None and scale is not None:
                self.dequantized[id(result)] = Dequantized(result, quantized, scale, zero)

    def _expanded(
        self,
        op: OpKey,
        attrs: Attrs,
        operands: ProgramOperands,
        used: list[bool],
        name: str,
        depth: int,
        is_only: bool = False,
    ) -> ProgramOperands | None:
        """An operator without a kernel, lowered by its definition in terms of others, if it has one.

        Args:
            op, attrs, operands, used, name, depth: The operator.
            is_only: Whether there is no other way, so that a problem of the definition is one of the operator.
        """
        if depth > 8:
            return None
        body = definition(op, attrs, [operand_type(x) for x in operands])
        if body is None:
            return None
        kept, sizes = len(self.nodes), self.found.remembered()
        problems = {k: list(v) for k, v in self.problems.nodes.items()}
        results = self._body(body, operands, [None] * len(used), used, [""] * len(used), name, depth)
        if not is_only and any(u and r is None for u, r in zip(used, results, strict=False)):
            del self.nodes[kept:]
            self.found.forget(sizes)
            self.problems.nodes = problems
            return None
        return results

    def _body(
        self,
        body: Body,
        operands: ProgramOperands,
        types: list[TensorType | None],
        used: list[bool],
        names: list[str],
        name: str,
        depth: int = 0,
        *,
        layouts: bool = False,
    ) -> ProgramOperands:
        """The operators of a body.

        Args:
            types, used, names: Of its results; a name is empty where the result has none of its own.
            layouts: Whether its conversions decide the layouts of a kernel's operands and results.
        """
        values: ProgramOperands = [*operands, *[None] * (body.inputs - len(operands))]
        refused: set[int | None] = set()
        result = {v: k for k, v in enumerate(body.results) if k < len(used)}
        read = body.needed([v for v, is_used in zip(body.results, used, strict=False) if is_used])
        for node in body.nodes:
            numbers = range(len(values), len(values) + node.outputs)
            if read.isdisjoint(numbers):
                values += [None] * node.outputs
                continue
            inner = [None if i is None else values[i] for i in node.inputs]
            if not refused.isdisjoint(node.inputs):
                refused.update(numbers)
                values += [None] * node.outputs
                continue
            if layouts and node.op in LAYOUTS:
                values.append(inner[0])
                continue
            labels = [(names[result[v]] if v in result else "") or f"{name}_{v}" for v in numbers]
            known = [types[result[v]] if v in result else None for v in numbers]
            reads = [v in read for v in numbers]
            made = self.apply(node.op, node.attrs, inner, known, reads, labels, name, depth + 1)
            refused.update(v for v, is_read, x in zip(numbers, reads, made, strict=True) if is_read and x is None)
            values += made
        results = [values[i] for i in body.results]
        orders = [n.op for n in body.nodes if n.op in LAYOUTS] if layouts else []
        if orders and isinstance(found := results[0], ProgramTensor):
            # A kernel's operand has the layout of its tensor; its result was made by the kernel alone.
            rows, innermost = usual_orders(found)
            found.name, found.order = names[0] or found.name, innermost if CHANNELS_LAST.op in orders else rows
        return results
