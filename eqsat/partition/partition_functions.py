"""Annotations that belong to composites: by the ``annotate`` of a target file, or by a function in Python.

A partition function is called for each composite of the result and annotates its operands and its result:

def keep_apart(call, x, y):
    return op.StopFusion(op.CastHint(call(x, y), dtype="int8"))

Its result becomes the composite's definition, so that the annotations are inside. (TVM has this as ``relay.quantize``'s
``register_partition_function`` with ``QPartitionExpr``.) A partition function replaces the target file's ``annotate``.
Annotations that the model already has at these places are taken over, so that optimizing a result again changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.errors import OptimizationError
from eqsat.model.expression import PendingNode, Tensor, made_so_far
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.partition.make_plan import Assembled
from eqsat.partition.plan import Plan, PlanNode
from eqsat.rules.ast import Target
from eqsat.schema import opset
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import Attrs, OpKey, TensorType

PartitionFunction = Callable[..., Tensor | Sequence[Tensor]]
"""Takes a :class:`RequestedCall` and the composite's operands; returns the call's result, annotated, or all of them."""

_Chain = tuple[tuple[OpKey, Attrs], ...]


class RequestedCall:
    """A composite that a partition function may annotate; calling it gives its result.

    Attributes:
        name: As in the target file, with the target: ``ccompiler.add_subtract_multiply``.
        operators: Names of the operators it computes.
        operands: Its operands; the same that the function is given.
        names: Their names in the pattern of the target file, without absent optional ones.
    """

    def __init__(
        self,
        op: OpKey,
        body: Body,
        operands: Sequence[Tensor | None],
        names: Sequence[str | None],
        results: Sequence[TensorType | None],
    ) -> None:
        self.op = op
        self.name = f"{op.domain}.{op.name}"
        self.operators = tuple(node.op.name for node in body.nodes)
        self.operands = tuple(operands)
        self.names = tuple(names)
        self._results = tuple(results)

    def __call__(self, *operands: Tensor | None) -> Any:
        """The result for the operands, annotated or not, in their order; a tuple if there are several."""
        if len(operands) != len(self.operands):
            raise _only_annotations(self.name, f"{len(operands)} operands instead of {len(self.operands)}")
        step = PendingNode(self.op, (), tuple(operands), len(self._results), None, made_so_far())
        made = tuple(Tensor(known, step=step, index=i) for i, known in enumerate(self._results))
        return made if len(self._results) > 1 else next(iter(made))


@dataclass(frozen=True, slots=True)
class _Notes:
    """Annotations of a composite's operands and results, with the one applied first in front."""

    operands: tuple[_Chain, ...]
    results: tuple[_Chain, ...]


def check_names(functions: Mapping[str, PartitionFunction], targets: Sequence[Target]) -> None:
    """Raises: OptimizationError: A function names a composite that no target has."""
    known = [f"{t.name}.{c.name}" for t in targets for c in t.composites]
    for name in functions:
        if name not in known:
            hint = opset.did_you_mean(name, known) or f"the targets' composites: {', '.join(known) or 'none'}"
            raise OptimizationError("a partition function must be for a composite", actual=f"{name!r}", hint=hint)


def annotate_composites(
    assembled: Assembled, targets: Sequence[Target], functions: Mapping[str, PartitionFunction]
) -> Assembled:
    """The program with the annotations of its composites in their definitions.

    Args:
        assembled: The program.
        targets: The targets whose ``annotate`` clauses apply.
        functions: Partition functions by the name of their composite.

    Raises:
        OptimizationError: A partition function does more than annotate.
    """
    declared = {(t.name, c.name): c.annotations for t in targets for c in t.composites}
    plan = assembled.plan
    notes: dict[int, _Notes] = {}
    for i, node in enumerate(plan.nodes):
        if node.body is None:
            continue
        function = functions.get(f"{node.op.domain}.{node.op.name}")
        if function is not None:
            instance = assembled.enodes[i].composite
            names = instance.leaves if instance is not None else (None,) * len(node.inputs)
            found = _ask(function, node, node.body, names, plan.types)
        else:
            own = declared.get((node.op.domain, node.op.name), ())
            found = _Notes(((),) * len(node.inputs), (own,) * len(node.outputs))
        if any(found.results) or any(found.operands):
            notes[i] = found
    return _Editor(assembled).apply(notes) if notes else assembled


# ---- asking a partition function -----------------------------------------------------------------


def _ask(
    function: PartitionFunction,
    node: PlanNode,
    body: Body,
    names: Sequence[str | None],
    types: Mapping[int, TensorType],
) -> _Notes:
    operands = [
        None if v is None else Tensor(types.get(v), name=name or f"operand_{i}")
        for i, (v, name) in enumerate(zip(node.inputs, names, strict=True))
    ]
    call = RequestedCall(node.op, body, operands, names, [None if v is None else types.get(v) for v in node.outputs])
    step, results = _results_of(function(call, *operands), call.name, node)
    chains: list[_Chain] = []
    for operand, given in zip(operands, step.inputs, strict=True):
        own, leaf = ((), None) if given is None else _peel(given)
        if leaf is not operand:
            raise _only_annotations(call.name, f"{leaf!r} in the place of {operand!r}")
        chains.append(own)
    return _Notes(tuple(chains), results)


def _results_of(returned: object, name: str, node: PlanNode) -> tuple[PendingNode, tuple[_Chain, ...]]:
    """The call that a partition function made, and the annotations around each of its results."""
    several = isinstance(returned, tuple | list) and len(node.outputs) > 1
    found = list(returned) if isinstance(returned, tuple | list) and several else [returned]
    if len(found) != len(node.outputs):
        raise _only_annotations(name, f"{len(found)} of {len(node.outputs)} results")
    steps: list[PendingNode] = []
    chains: list[_Chain] = []
    for i, result in enumerate(found):
        if not isinstance(result, Tensor):
            raise _only_annotations(name, f"{type(result).__name__} as its result")
        chain, inner = _peel(result)
        if inner.step is None or inner.step.op != node.op or inner.index != i:
            raise _only_annotations(name, f"a result of {inner!r}")
        steps.append(inner.step)
        chains.append(chain)
    if any(step is not steps[0] for step in steps):
        raise _only_annotations(name, "results of several calls")
    return steps[0], tuple(chains)


def _peel(tensor: Tensor) -> tuple[_Chain, Tensor]:
    """Annotations on the outside of a tensor, the innermost first, and the annotated tensor."""
    found: list[tuple[OpKey, Attrs]] = []
    while tensor.step is not None and tensor.step.op in ANNOTATIONS:
        found.append((tensor.step.op, tensor.step.attrs))
        inner = tensor.step.inputs[0]
        assert inner is not None
        tensor = inner
    return tuple(reversed(found)), tensor


def _only_annotations(name: str, actual: str) -> OptimizationError:
    return OptimizationError(
        "a partition function must return its call with annotations around it and around its operands",
        place=f"partition function of {name}",
        actual=actual,
        hint='for example `return op.StopFusion(op.CastHint(call(*operands), dtype="int8"))`',
    )


# ---- writing the annotations into the program ----------------------------------------------------


class _Editor:
    """A plan whose composites take over annotations."""

    def __init__(self, assembled: Assembled) -> None:
        self.assembled = assembled
        self.nodes: list[PlanNode | None] = list(assembled.plan.nodes)
        plan = assembled.plan
        self.held = {v for v, _ in plan.outputs} | set(plan.subgraph_names.values())
        """Values with readers other than nodes."""
        self.readers: dict[int, list[int]] = {}
        self.producer: dict[int, int] = {}
        for i, node in enumerate(plan.nodes):
            for v in node.inputs:
                if v is not None:
                    self.readers.setdefault(v, []).append(i)
            self.producer.update({v: i for v in node.outputs if v is not None})

    def apply(self, notes: Mapping[int, _Notes]) -> Assembled:
        for i, found in notes.items():
            node = self.nodes[i]
            assert node is not None and node.body is not None
            results = tuple(self._downstream(v, chain) for v, chain in zip(node.outputs, found.results, strict=True))
            inputs = tuple(self._before(v, chain) for v, chain in zip(node.inputs, found.operands, strict=True))
            body = _annotated(node.body, found)
            self.nodes[i] = replace(node, body=body, inner=(), inputs=inputs, outputs=results)
        kept = [k for k, node in enumerate(self.nodes) if node is not None]
        nodes = tuple(node for node in self.nodes if node is not None)
        plan: Plan = replace(self.assembled.plan, nodes=nodes)
        return Assembled(plan, tuple(self.assembled.enodes[k] for k in kept))

    def _downstream(self, value: int | None, chain: _Chain) -> int | None:
        """The value after those annotations of a chain that already follow a value; these annotations are removed."""
        for annotation in chain:
            readers = self.readers.get(value, []) if value is not None and value not in self.held else []
            reader = self.nodes[readers[0]] if len(readers) == 1 else None
            if reader is None or (reader.op, reader.attrs) != annotation:
                break
            self.nodes[readers[0]] = None
            value = reader.outputs[0]
        return value

    def _before(self, value: int | None, chain: _Chain) -> int | None:
        """The value before those annotations of a chain that already precede a value; these annotations are removed."""
        for annotation in reversed(chain):
            if value is None or value in self.held or len(self.readers.get(value, ())) != 1:
                break
            at = self.producer.get(value)
            producer = None if at is None else self.nodes[at]
            if at is None or producer is None or (producer.op, producer.attrs) != annotation:
                break
            self.nodes[at] = None
            value = producer.inputs[0]
        return value


def _annotated(body: Body, notes: _Notes) -> Body:
    """A composite's definition with annotations on its operands and its results."""
    nodes: list[BodyNode] = []

    def add(node: BodyNode) -> int:
        """Appends a node; its first value's number."""
        first = body.inputs + sum(n.outputs for n in nodes)
        nodes.append(node)
        return first

    def annotate(value: int, chain: _Chain) -> int:
        for op, attrs in chain:
            value = add(BodyNode(op, attrs, (value,)))
        return value

    number = [annotate(i, chain) for i, chain in enumerate(notes.operands)]
    for node in body.nodes:
        first = add(replace(node, inputs=tuple(None if v is None else number[v] for v in node.inputs)))
        number += range(first, first + node.outputs)
    results = tuple(annotate(number[v], chain) for v, chain in zip(body.results, notes.results, strict=True))
    return Body(body.inputs, tuple(nodes), results)
