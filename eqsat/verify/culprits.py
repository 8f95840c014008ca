"""Finds the rules to blame for a piece that differs, by optimizing the piece alone with fewer and fewer rules.

The result of a rule has the rule's name, but a rule that declares two values of the input equal builds nothing. So the
rules that applied are tried one by one, and if none is wrong alone, each is left out once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import onnx
import onnx_ir as ir

from eqsat.schema import opset
from eqsat.schema.types import GraphAttr
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import Programs

Fails = Callable[[onnx.ModelProto, Collection[str]], bool]
"""Whether a model, optimized only with the rules of these names, computes something else."""

MOST_RULES = 40
"""Number of rules up to which they are tried; each costs a saturation of a small graph."""


def culprits(model: onnx.ModelProto, applied: Sequence[str], fails: Fails) -> tuple[str, ...]:
    """The rules that are wrong alone, otherwise those whose removal makes the difference disappear."""
    if not 1 < len(applied) <= MOST_RULES:
        return tuple(applied) if len(applied) == 1 else ()
    alone = tuple(rule for rule in applied if fails(model, {rule}))
    if alone or not fails(model, set(applied)):
        return alone
    return tuple(rule for rule in applied if not fails(model, set(applied) - {rule}))


def model_of(programs: Programs, piece: ComparedPiece, model: ir.Model) -> onnx.ModelProto | None:
    """The input's side of a piece as a model, with its leaves as inputs; None if it has bodies of control flow."""
    indices = sorted({*piece.before, *piece.left})
    computed = {k for i in indices for k in programs.nodes[i].results}
    sources = list(model.graph)
    inputs: dict[str, ir.Value] = {}
    initializers: dict[str, onnx.TensorProto] = {}
    nodes = []
    for i in indices:
        node = programs.nodes[i]
        if any(isinstance(value, GraphAttr) for _, value in node.attrs):
            return None
        proto = ir.to_proto(sources[i])
        for at, k in enumerate(node.operands):
            if k is None or (k in computed and programs.classes[k] not in piece.leaves):
                continue
            read = programs.first[programs.classes[k]] if programs.dynamic[k] else k
            value = programs.encoding.values[read]
            name = value.name or ""
            if programs.dynamic[k] and read not in computed:
                inputs[name] = value
            elif not programs.dynamic[k] and k not in computed and value.const_value is not None:
                initializers[name] = ir.to_proto(value.const_value)
                initializers[name].name = name
            proto.input[at] = name
        nodes.append(proto)
    graph = onnx.helper.make_graph(
        nodes,
        model.graph.name or "piece",
        [ir.to_proto(value) for value in inputs.values()],
        [ir.to_proto(programs.encoding.values[piece.value])],
        list(initializers.values()),
    )
    imports = {"": opset.PINNED_OPSET, **model.opset_imports}
    return onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in imports.items()],
        ir_version=opset.IR_VERSION,
    )
