"""Names in the bodies of control flow that clash with names around them: ONNX allows no shadowing."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from eqsat.schema.attributes import subgraphs


def defined_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Values that a graph and the graphs inside it define."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for body in subgraphs(node):
            yield from defined_values(body)


def defined_names(graph: ir.Graph) -> tuple[str, ...]:
    """Names that a graph and the graphs inside it define, each once."""
    return tuple(dict.fromkeys(v.name for v in defined_values(graph) if v.name))


def rename_defined(graph: ir.Graph, outer: AbstractSet[str]) -> None:
    """Renames, in place, values that a body defines under a name of an enclosing scope."""
    own = list(dict.fromkeys(defined_values(graph)))
    inner = {v.name for v in own if v.name}
    for value in own:
        if value.name and value.name in outer:
            k = 1
            while (name := f"{value.name}_{k}") in outer or name in inner:
                k += 1
            value.name = name
            inner.add(name)


def unshadow(graph: ir.Graph) -> None:
    """Renames values in the bodies of control flow that clash with names of inlined functions."""
    outer = {v.name for v in (*graph.inputs, *graph.initializers.values()) if v.name}
    outer.update(v.name for node in graph for v in node.outputs if v.name)
    for node in graph:
        for body in subgraphs(node):
            rename_defined(body, outer)
