"""Compiles a graph to a program.

Everything that can be decided once is decided here: kernels are chosen, attributes and functions bound, constant
expressions folded, and lifetimes computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import EqsatError, ExecutionError, LimitError
from eqsat.execute import control_flow
from eqsat.execute.compiled_graph import CompiledGraph, Instruction
from eqsat.ops.evaluate import EvaluateOperator, TensorValue, evaluate_body, operation
from eqsat.ops.operators import has
from eqsat.ops.properties import is_deterministic
from eqsat.ops.traits import Trait
from eqsat.schema import opset
from eqsat.schema.attributes import array_of, captured_values, plain_value, subgraphs
from eqsat.schema.declared_operators import find_declared, function_body
from eqsat.schema.types import CONSTANT, OpKey

if TYPE_CHECKING:
    from eqsat.backends.backend import Backend
    from eqsat.execute.backend_regions import Compile

Bindings = Mapping[str, ir.Attr]
"""Attributes with which a function was called."""

_ABSENT = 0
"""The slot that is always None."""


@dataclass
class ModelContext:
    """Data that all graphs of a model share.

    Attributes:
        functions: The model's functions.
        active: Functions being compiled, to find recursion.
        programs: Compiled functions by identity and attributes.
        room: Bytes that folded constants may still take; larger ones are computed in each run.
        backends: The backends that execute regions, by target.
    """

    functions: Mapping[tuple[str, str, str], ir.Function]
    active: list[tuple[str, str, str]] = field(default_factory=list)
    programs: dict[Any, CompiledGraph] = field(default_factory=dict)
    room: int = 16 * bounds.FOLD_ELEMENTS
    backends: Mapping[str, Backend] = field(default_factory=dict)

    @staticmethod
    def of(model: ir.Model, backends: Mapping[str, Backend] | None = None) -> ModelContext:
        """The context of a model; its own weights decide how much memory constants may take."""
        stored = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
        return ModelContext(model.functions, room=max(ModelContext.room, 16 * stored), backends=backends or {})


def compile_graph(
    graph: ir.Graph | ir.Function,
    outputs: Sequence[ir.Value],
    opsets: Mapping[str, int],
    context: ModelContext,
    *,
    bindings: Bindings | None = None,
    variable: Iterable[ir.Value] = (),
) -> CompiledGraph:
    """Compiles a graph, or the part of it that some outputs need.

    Args:
        graph: Graph, subgraph or function.
        outputs: The values to return.
        opsets: Opset by domain.
        context: Functions of the model.
        bindings: Attributes of the function around it.
        variable: Initializers that are inputs as well and given in each run.

    Raises:
        ExecutionError: An operator without opset, a recursive function, a missing body.
    """
    return _Compiler(graph, opsets, context, bindings or {}).compile(outputs, frozenset(variable))


def compile_node(node: ir.Node, opsets: Mapping[str, int], context: ModelContext) -> CompiledGraph:
    """Compile one node alone: the program's arguments are the values that it captures, including all its operands.

    Raises:
        ExecutionError: As of :func:`compile_graph`.
    """
    empty = ir.Graph([], [], nodes=[])
    return _Compiler(empty, opsets, context, {}, [node]).compile(tuple(node.outputs), frozenset())


class _Compiler:
    def __init__(
        self,
        graph: ir.Graph | ir.Function,
        opsets: Mapping[str, int],
        context: ModelContext,
        bindings: Bindings,
        nodes: Iterable[ir.Node] | None = None,
    ) -> None:
        self._graph = graph
        self._nodes = graph if nodes is None else nodes
        self._opsets = {opset.canonical_domain(domain): version for domain, version in opsets.items()}
        self._context = context
        self._bindings = bindings
        self._slots: dict[ir.Value, int] = {}
        self._initial: list[TensorValue] = [None]
        self._constant: set[int] = {_ABSENT}
        self._captured: list[ir.Value] = []

    def compile(self, outputs: Sequence[ir.Value], variable: frozenset[ir.Value]) -> CompiledGraph:
        for value in self._graph.inputs:
            self._new(value)
        initializers = self._graph.initializers.values() if isinstance(self._graph, ir.Graph) else ()
        for value in initializers:
            slot = self._slots[value] if value in self._slots else self._new(value)
            self._initial[slot] = None if value.const_value is None else array_of(value.const_value)
            if value not in variable:
                self._constant.add(slot)
        steps: list[tuple[EvaluateOperator, tuple[int, ...], tuple[int, ...]]] = []
        for node in self._needed(outputs):
            call, inputs, foldable = self._operation(node)
            slots = tuple(self._read(v) for v in inputs)
            written = tuple(self._new(v) for v in node.outputs)
            if not (foldable and self._fold(call, slots, written)):
                steps.append((call, slots, written))
        results = tuple(self._read(v) for v in outputs)
        arguments = tuple(self._slots[v] for v in self._graph.inputs) + tuple(self._slots[v] for v in self._captured)
        live = self._with_lifetimes(steps, results)
        self._forget_constants(live, results)
        constants = frozenset(id(x) for x in self._initial if x is not None)
        return CompiledGraph(self._initial, arguments, tuple(self._captured), live, results, tuple(outputs), constants)

    def _new(self, value: ir.Value) -> int:
        slot = len(self._initial)
        self._slots[value] = slot
        self._initial.append(None)
        return slot

    def _read(self, value: ir.Value | None) -> int:
        if value is None or value.name == "":
            return _ABSENT
        if value not in self._slots:
            self._captured.append(value)
            return self._new(value)
        return self._slots[value]

    def _needed(self, outputs: Sequence[ir.Value]) -> list[ir.Node]:
        """Nodes that the outputs depend on, in order."""
        wanted = set(outputs)
        needed = []
        for node in reversed(list(self._nodes)):
            if wanted.isdisjoint(node.outputs):
                continue
            needed.append(node)
            wanted.update(v for v in node.inputs if v is not None)
            for body in subgraphs(node):
                wanted.update(captured_values(body))
        return needed[::-1]

    def _fold(self, call: EvaluateOperator, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> bool:
        """Compute a node now if all its operands are constant.

        A node that fails stays a step, because it may be in a branch that is never taken.
        """
        if not all(slot in self._constant for slot in inputs):
            return False
        try:
            limit = bounds.current().held + self._context.room
            with np.errstate(all="ignore"), bounds.metered(memory=limit, operations=bounds.FOLD_OPERATIONS):
                results = call([self._initial[i] for i in inputs])
        except (ExecutionError, LimitError):
            return False
        self._context.room -= sum(x.nbytes for x in results if isinstance(x, np.ndarray) and x.base is None)
        for slot, value in zip(outputs, results, strict=False):
            self._initial[slot] = value
            self._constant.add(slot)
        return True

    @staticmethod
    def _with_lifetimes(
        steps: list[tuple[EvaluateOperator, tuple[int, ...], tuple[int, ...]]], results: tuple[int, ...]
    ) -> tuple[Instruction, ...]:
        kept = set(results) | {_ABSENT}
        seen: set[int] = set(kept)
        done: list[Instruction] = []
        for call, inputs, outputs in reversed(steps):
            dead = tuple(sorted({s for s in (*inputs, *outputs) if s not in seen}))
            seen.update(dead)
            done.append(Instruction(call, inputs, outputs, dead))
        return tuple(reversed(done))

    def _forget_constants(self, steps: tuple[Instruction, ...], results: tuple[int, ...]) -> None:
        """Drop folded operands that no step reads."""
        read = set(results).union(*(s.inputs for s in steps))
        for slot in self._constant - read:
            self._initial[slot] = None

    def _served(self, node: ir.Node, identity: ir.OperatorIdentifier) -> EvaluateOperator | None:
        """The part of a call that a backend executes."""
        from eqsat.execute.backend_regions import ServedRegion
        from eqsat.partition.read_plan import read_region, region_target

        context, function = self._context, self._context.functions[identity]
        backend = context.backends.get(region_target(function) or "")
        if backend is None:
            return None
        compile_nodes = _nodes_with(function.opset_imports or self._opsets, context)
        return ServedRegion(node, read_region(function, context.functions), backend, compile_nodes)

    def _operation(self, node: ir.Node) -> tuple[EvaluateOperator, list[ir.Value | None], bool]:
        """How to compute a node, the values it reads, and whether it may be folded."""
        domain = opset.canonical_domain(node.domain)
        inputs = list(node.inputs)
        while inputs and (inputs[-1] is None or inputs[-1].name == ""):
            inputs.pop()
        identity = (node.domain, node.op_type, node.overload)
        place = _place(node)
        if identity in self._context.functions:
            served = self._served(node, identity) if self._context.backends else None
            if served is not None:
                return _named(served, place), inputs, False
            return self._call(identity, self._attributes(node), place), inputs, False
        op = OpKey(domain, node.op_type)
        if has(op, Trait.HAS_BODIES):
            if node.op_type == "Loop":
                inputs += [None] * (2 - len(inputs))
            call, captured = self._control(node, len(inputs), place)
            return call, [*inputs, *captured], False
        attributes = self._attributes(node)
        if op == CONSTANT and "value" in attributes:
            array = array_of(attributes["value"].as_tensor())
            return (lambda given: (array,)), inputs, True
        plain = {name: plain_value(attr) for name, attr in attributes.items()}
        bundle = tuple(sorted(plain.items()))
        body = function_body(op, bundle)
        if body is not None:
            results = len(node.outputs)
            return (lambda given: evaluate_body(body, given)[:results]), inputs, True
        implied = 1 if domain == opset.MICROSOFT or find_declared(op) is not None else None
        version = self._opsets.get(domain, implied)
        if version is None:
            raise ExecutionError(
                f"an opset import for domain {domain or 'ai.onnx'!r} is required",
                place=place,
                actual=", ".join(f"{d or 'ai.onnx'} {v}" for d, v in self._opsets.items()) or "none",
                hint="the model has no function of this name either" if domain else "",
            )
        protos = [ir.to_proto(attr) for attr in attributes.values() if attr.type != ir.AttributeType.TENSOR]
        if len(protos) == len(attributes):
            call = operation(op, plain, version, len(node.outputs), lambda: protos, place)
        else:
            kept = list(attributes.values())
            call = operation(op, plain, version, len(node.outputs), lambda: [ir.to_proto(a) for a in kept], place)
        return call, inputs, is_deterministic(op, bundle, training=len(inputs) > 2)

    def _attributes(self, node: ir.Node) -> dict[str, ir.Attr]:
        """Attributes with references to the enclosing function's resolved; unbound ones are absent."""
        found: dict[str, ir.Attr] = {}
        for name, attr in sorted(node.attributes.items()):
            if not attr.ref_attr_name:
                found[name] = attr
            elif attr.ref_attr_name in self._bindings:
                bound = self._bindings[attr.ref_attr_name]
                found[name] = ir.Attr(name, bound.type, bound.value)
        return found

    def _call(self, identity: tuple[str, str, str], attributes: dict[str, ir.Attr], place: str) -> EvaluateOperator:
        """Call of a model-local function, compiled for its attributes."""
        function = self._context.functions[identity]
        if identity in self._context.active:
            raise ExecutionError("functions that do not call themselves are required", place=place)
        bindings = {name: a for name, a in function.attributes.items() if a.value is not None} | attributes
        key = (identity, tuple(sorted((name, plain_value(a)) for name, a in bindings.items())))
        program = self._context.programs.get(key)
        if program is None:
            self._context.active.append(identity)
            try:
                opsets = function.opset_imports or self._opsets
                program = compile_graph(function, function.outputs, opsets, self._context, bindings=bindings)
            except ExecutionError as error:
                raise _within(place, error) from error
            finally:
                self._context.active.pop()
            self._context.programs[key] = program
        if program.captured:
            raise _undefined(program.captured[0], place)
        run = program.run
        return _named(lambda inputs: tuple(run(inputs)), place)

    def _control(self, node: ir.Node, inputs: int, place: str) -> tuple[EvaluateOperator, list[ir.Value]]:
        """Operation of a control-flow node, and the values that its bodies capture."""
        attributes = self._attributes(node)

        def body(name: str) -> CompiledGraph:
            attr = attributes.get(name)
            if attr is None or attr.type != ir.AttributeType.GRAPH:
                raise ExecutionError(f"a graph is required for attribute {name!r}", place=place)
            graph = attr.as_graph()
            try:
                return compile_graph(graph, graph.outputs, self._opsets, self._context, bindings=self._bindings)
            except ExecutionError as error:
                raise _within(place, error) from error

        def ints(name: str) -> tuple[int, ...]:
            attr = attributes.get(name)
            return tuple(attr.as_ints()) if attr is not None else ()

        if node.op_type == "If":
            then, otherwise = body("then_branch"), body("else_branch")
            call = control_flow.if_operation(then, otherwise)
            return _named(call, place), [*then.captured, *otherwise.captured]
        inner = body("body")
        if node.op_type == "Loop":
            call = control_flow.loop_operation(inner, max(inputs - 2, 0))
        elif node.op_type == "SequenceMap":
            call = control_flow.sequence_map_operation(inner, inputs)
        else:
            scans = attributes["num_scan_inputs"].as_int()
            if self._opsets.get("", 0) < 9:
                call = control_flow.batched_scan_operation(inner, inputs - 1 - scans, scans, ints("directions"))
            else:
                lists = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
                in_axes, in_reverse, out_axes, out_reverse = (ints(name) for name in lists)
                call = control_flow.scan_operation(
                    inner, inputs - scans, scans, in_axes, in_reverse, out_axes, out_reverse
                )
        return _named(call, place), list(inner.captured)


def _nodes_with(opsets: Mapping[str, int], context: ModelContext) -> Compile:
    """Compiles single nodes that a backend refuses."""

    def compile_nodes(
        nodes: Sequence[ir.Node], results: Sequence[ir.Value]
    ) -> tuple[EvaluateOperator, Sequence[ir.Value]]:
        empty = ir.Graph([], [], nodes=[])
        program = _Compiler(empty, opsets, context, {}, nodes).compile(results, frozenset())
        return lambda given: tuple(program.run(given)), program.captured

    return compile_nodes


def _place(node: ir.Node) -> str:
    name = node.name or next((v.name for v in node.outputs if v.name), "")
    domain = opset.canonical_domain(node.domain)
    return f"node {name!r} ({domain + '.' if domain else ''}{node.op_type})"


def _named(call: EvaluateOperator, place: str) -> EvaluateOperator:
    """Adds the call or body to the place of an error inside it."""

    def named(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        try:
            return call(inputs)
        except (ExecutionError, LimitError) as error:
            raise _within(place, error) from error
        except EqsatError:
            raise
        except MemoryError as error:
            raise bounds.out_of_memory(place) from error
        except RecursionError as error:
            raise bounds.too_deep(place) from error
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ExecutionError("inputs that fit the body are required", place=place, hint=reason[:300]) from error

    return named


def _within(place: str, error: ExecutionError | LimitError) -> EqsatError:
    """The same error, with the place of the enclosing node."""
    inner = f"{place}, {error.place}" if error.place else place
    return type(error)(error.requirement, place=inner, actual=error.actual, hint=error.hint)


def _undefined(value: ir.Value, place: str) -> ExecutionError:
    return ExecutionError(
        "every value must be an input, a constant, or computed before its use", place=place, actual=f"{value.name!r}"
    )
