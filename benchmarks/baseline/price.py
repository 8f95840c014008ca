"""What a partitioned program costs under eqsat's cost model: kernels, copies through the host, starts of regions.

The same prices as :mod:`eqsat.extract.program_cost` charges: a value is copied once into each memory that reads it,
constants lie everywhere beforehand, each region of an accelerator is started once. Only the cut into regions is the
partitioner's own; where Relay joins pieces by nothing but the tuple of their results, each piece is started, because a
region of eqsat's is connected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.baseline.expr import Expr, Program
from benchmarks.baseline.partition import HOST, Partition
from benchmarks.baseline.tables import Facts, operator_cost
from eqsat.errors import OptimizationError
from eqsat.extract.graph import DisjointSets
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import Attrs, OpKey, TensorAttr, TensorType
from eqsat.targets.kernel_cost import CostModel
from eqsat.targets.tensor_bytes import size_in_bytes, static

_CONSTANT = OpKey("", "Constant")


@dataclass(frozen=True)
class Price:
    """Seconds by part."""

    kernels: float
    copies: float
    dispatch: float

    @property
    def total(self) -> float:
        return self.kernels + self.copies + self.dispatch


def price(partition: Partition, costs: CostModel) -> Price:
    """The cost of a partitioned program."""
    index = {t.name: i for i, t in enumerate(costs.targets) if not t.is_host} | {HOST: 0}
    facts = Facts()
    kernels = []
    where: dict[Expr, int] = dict.fromkeys(partition.program.inputs, 0)
    for expr in partition.program.bindings:
        if expr.kind == "call":
            where[expr] = index[partition.target_of[expr]]
            kernels.append(_kernel(expr, where[expr], costs, facts))
        elif expr.kind == "item" and expr.args[0] is not None:
            where[expr] = where[expr.args[0]]
    read: dict[Expr, set[int]] = {e: set() for e in where}
    for expr in partition.program.bindings:
        if expr.kind == "call":
            for arg in _values(expr.args):
                if arg in read:
                    read[arg].add(where[expr])
    for output in _values(partition.program.outputs):
        if output in read:
            read[output].add(0)
    copies = [c for expr, targets in read.items() for c in _copies(expr, where[expr], targets, costs)]
    dispatch = [costs.dispatch(index[name]) for name, members in partition.regions for _ in range(_pieces(members))]
    return Price(math.fsum(kernels), math.fsum(copies), math.fsum(dispatch))


def _pieces(members: Iterable[Expr]) -> int:
    """Number of connected pieces of a region; a tuple connects nothing."""
    calls = [e for e in members if e.kind == "call"]
    sets = DisjointSets(len(calls))
    place = {e: i for i, e in enumerate(calls)}
    for i, call in enumerate(calls):
        for value in _values(call.args):
            source = value.args[0] if value.kind == "item" else value
            if source in place:
                sets.union(i, place[source])
    return len({sets.find(i) for i in range(len(calls))})


def host_price(program: Program, costs: CostModel) -> Price:
    """The cost of a program that runs wholly on the host."""
    facts = Facts()
    calls = [e for e in program.bindings if e.kind == "call"]
    return Price(math.fsum(operator_cost(costs, 0, e, facts) for e in calls), 0.0, 0.0)


def _kernel(call: Expr, target: int, costs: CostModel, facts: Facts) -> float:
    if call.composite is None:
        seconds = operator_cost(costs, target, call, facts)
        if math.isinf(seconds):
            raise OptimizationError(f"{costs.targets[target].name} must run {call.op}", place=call.name)
        return seconds
    first, *more = call.types
    assert first is not None
    inputs = facts.operands(call.args)
    seconds = costs.composite(target, call.composite, call.names, body_of(call), inputs, first, place=call.name)
    # The cost model knows composites with one result; Relax's may have more, each of which is written to memory.
    return seconds + sum(_bytes(t, costs) for t in more if t is not None) / costs.targets[target].bandwidth


def _values(exprs: Iterable[Expr | None]) -> Iterable[Expr]:
    """What is read, tuples taken apart."""
    for expr in exprs:
        if expr is not None and expr.kind == "tuple":
            yield from _values(expr.args)
        elif expr is not None:
            yield expr


def _copies(expr: Expr, source: int, targets: set[int], costs: CostModel) -> Iterable[float]:
    elsewhere = sorted(targets - {source})
    if elsewhere and expr.type is None:
        raise OptimizationError("the type of a tensor that moves must be known", place=f"tensor {expr.name!r}")
    for target in elsewhere:
        if target and expr.type is not None:
            yield costs.copy_in(target, expr.type)
    if elsewhere and source and expr.type is not None:
        yield costs.copy_out(source, expr.type)


def body_of(call: Expr) -> Body:
    """The definition of a composite call over its operands."""
    values: dict[Expr, int] = {arg: i for i, arg in enumerate(call.args) if arg is not None}
    nodes: list[BodyNode] = []
    count = len(call.args)

    def emit(op: OpKey, attrs: Attrs, inputs: tuple[int | None, ...], outputs: int = 1) -> int:
        nonlocal count
        nodes.append(BodyNode(op, attrs, inputs, outputs))
        count += outputs
        return count - outputs

    for member in call.members:
        for arg in _values(member.args):
            if arg not in values and arg.kind == "constant" and arg.value is not None:
                tensor = TensorAttr(arg.value.numpy(), arg.value.dtype)
                values[arg] = emit(_CONSTANT, (("value", tensor),), ())
        if member.kind == "item" and member.args[0] is not None:
            values[member] = values[member.args[0]] + member.index
        elif member.kind == "call":
            operands = tuple(None if a is None else values[a] for a in _flat(member.args))
            values[member] = emit(member.op, member.attrs, operands, len(member.types))
    return Body(len(call.args), tuple(nodes), tuple(values[r] for r in call.results))


def _flat(args: tuple[Expr | None, ...]) -> tuple[Expr | None, ...]:
    return args[0].args if len(args) == 1 and args[0] is not None and args[0].kind == "tuple" else args


def _bytes(kind: TensorType, costs: CostModel) -> float:
    return size_in_bytes(static(kind, costs.unknown_elements, what="a result", place="composite"))
