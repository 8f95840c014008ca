"""A model as expressions, the form on which TVM's passes are defined.

Relay and Relax see a program as calls, tuples and projections of values. Their partitioning depends on that form
(a tuple gets a target of its own) and on the order in which it is written down, so the baseline keeps both. An
expression is equal to itself only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.rules.ast import Composite
from eqsat.schema.attributes import captured_values, op_key, subgraphs, to_attrs
from eqsat.schema.types import Attrs, OpKey, TensorType

Kind = Literal["input", "constant", "call", "item", "tuple"]

TUPLE = OpKey("", "")


@dataclass(eq=False, slots=True)
class Expr:
    """One value of the program.

    Attributes:
        kind: An input, a constant, a call of an operator or a composite, one output of a call (``item``), or a tuple.
        op: Of a call; a composite is ``OpKey(target, composite)``.
        args: Operands by position, None where absent. The call itself for an item, the fields for a tuple. A call
            has the values that its subgraphs capture after its own operands, a composite what its members read from
            outside.
        types: Of the outputs; one, except for calls with several outputs.
        name: Of the tensor, empty where there is none.
        index: Of an item: which output.
        value: Of a constant.
        composite: What a composite call calls.
        members: Of a composite call: what it stands for, operands before their readers.
        results: Of a composite call: the members it returns, one for each type.
        names: Of a composite call: what the names of its pattern are bound to, for conditions and costs.
    """

    kind: Kind
    op: OpKey = TUPLE
    attrs: Attrs = ()
    args: tuple[Expr | None, ...] = ()
    types: tuple[TensorType | None, ...] = (None,)
    name: str = ""
    index: int = 0
    value: ir.TensorProtocol | None = None
    composite: Composite | None = None
    members: tuple[Expr, ...] = ()
    results: tuple[Expr, ...] = ()
    names: Mapping[str, object] = field(default_factory=dict)

    @property
    def type(self) -> TensorType | None:
        """Type of the first output."""
        return self.types[0]

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name or self.op}>"


@dataclass(slots=True)
class Program:
    """Expressions in the order in which the model lists them.

    Attributes:
        inputs: Of the graph.
        bindings: Calls and their items, each behind what it reads.
        outputs: Of the graph.
        constants: Initializers.
    """

    inputs: list[Expr]
    bindings: list[Expr]
    outputs: list[Expr]
    constants: list[Expr] = field(default_factory=list)


def tensor_type(value: ir.Value) -> TensorType | None:
    """Type of a value, None for what is not a tensor or is not known."""
    if value.dtype is None:
        return None
    shape = None
    if value.shape is not None:
        shape = tuple(d if isinstance(d, int) else d.value for d in value.shape)
    return TensorType(value.dtype, shape)


def from_model(model: ir.Model) -> Program:
    """The main graph of a model as a program, nodes in their order.

    Raises:
        OptimizationError: A node comes before what it reads.
    """
    graph = model.graph
    exprs: dict[ir.Value, Expr] = {}
    for value in graph.inputs:
        if value.name not in graph.initializers:
            exprs[value] = Expr("input", types=(tensor_type(value),), name=value.name or "")
    inputs = list(exprs.values())
    constants = []
    for value in graph.initializers.values():
        exprs[value] = _constant(value)
        constants.append(exprs[value])

    def of(value: ir.Value | None) -> Expr | None:
        if value is None:
            return None
        if value not in exprs:
            raise OptimizationError("nodes must follow what they read", place=f"tensor {value.name!r}")
        return exprs[value]

    bindings: list[Expr] = []
    for node in graph:
        captured = [v for g in subgraphs(node) for v in captured_values(g)]
        args = tuple(of(v) for v in (*node.inputs, *dict.fromkeys(captured)))
        types = tuple(tensor_type(v) for v in node.outputs)
        call = Expr("call", op_key(node), to_attrs(node), args, types, node.outputs[0].name or "")
        bindings.append(call)
        if len([v for v in node.outputs if v.name]) == 1 and node.outputs[0].name:
            call.types = types[:1]
            exprs[node.outputs[0]] = call
            continue
        for i, value in enumerate(node.outputs):
            item = Expr("item", args=(call,), types=(types[i],), name=value.name or "", index=i)
            exprs[value] = item
            bindings.append(item)
    outputs = [of(v) for v in graph.outputs]
    return Program(inputs, bindings, [o for o in outputs if o is not None], constants)


def _constant(value: ir.Value) -> Expr:
    return Expr("constant", types=(tensor_type(value),), name=value.name or "", value=value.const_value)


def post_order(roots: Iterable[Expr]) -> list[Expr]:
    """All that the roots read, operands before their readers, the first operand's first, then the roots."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        walk: list[tuple[Expr, Iterator[Expr | None]]] = [(root, iter(root.args))]
        while walk:
            expr, rest = walk[-1]
            for arg in rest:
                if arg is not None and arg not in seen:
                    seen.add(arg)
                    walk.append((arg, iter(arg.args)))
                    break
            else:
                walk.pop()
                order.append(expr)
    return order


def users(exprs: Sequence[Expr]) -> dict[Expr, list[Expr]]:
    """Per expression its readers, in the order given, once per use."""
    found: dict[Expr, list[Expr]] = {e: [] for e in exprs}
    for expr in exprs:
        for arg in expr.args:
            if arg is not None:
                found[arg].append(expr)
    return found


def redirect(program: Program, replacement: Mapping[Expr, Expr]) -> None:
    """Lets every reader of some expressions read others instead, members of composites too, but not each other's."""

    def follow(expr: Expr, inside: Collection[Expr] = ()) -> None:
        if any(a in replacement and a not in inside for a in expr.args if a is not None):
            expr.args = tuple(a if a is None or a in inside else replacement.get(a, a) for a in expr.args)

    for expr in dict.fromkeys((*program.bindings, *replacement.values())):
        follow(expr)
        inside = set(expr.members)
        for member in expr.members:
            follow(member, inside)
    program.outputs = [replacement.get(o, o) for o in program.outputs]


def drop_dead(program: Program) -> None:
    """Removes the bindings that no output needs."""
    alive = set(post_order(program.outputs))
    program.bindings = [e for e in program.bindings if e in alive]
