"""Inlines functions in a number of steps that grows with the number of calls, and not with its square.

onnx_ir finds a free name for each inlined value by trying one number after the other, from the first one on for every
call. Functions with many calls are therefore cut into copies with names of their own before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from eqsat.model.unused_names import unused

MOST_CALLS = 64
"""Calls of one copy of a function."""


def inline_calls(model: ir.Model, criteria: Callable[[ir.Function], bool] | None = None) -> None:
    """Inlines functions, also where one calls another.

    Args:
        model: Changed in place.
        criteria: Which functions are inlined, not by their names, which copies do not have; all by default. The
            others stay.
    """
    _spread(model, criteria or (lambda function: True))
    InlinePass(criteria=criteria)(model)


def _spread(model: ir.Model, goes: Callable[[ir.Function], bool]) -> None:
    """Copies functions that are inlined so that none is instantiated much more often than ``MOST_CALLS``, callers
    first.
    """
    calls: dict[ir.OperatorIdentifier, list[tuple[ir.Node, int]]] = {}
    waiting = dict.fromkeys(model.functions, 0)
    for function in model.functions.values():
        for node in _calls(function, model):
            waiting[node.op_identifier()] += 1
    for node in _calls(model.graph, model):
        calls.setdefault(node.op_identifier(), []).append((node, 1))
    taken = {function.name for function in model.functions.values()}
    ready = [identifier for identifier, count in waiting.items() if not count]
    while ready:
        identifier = ready.pop()
        function = model.functions[identifier]
        called = calls.get(identifier, [])
        parts = _parts(called) if goes(function) else [[(node, 0) for node, _ in called]]
        for k, part in enumerate(parts):
            copy = function if k == 0 else _copied(function, k, taken)
            model.functions[copy.identifier()] = copy
            for node, _ in part:
                node.op_type = copy.name
            often = sum(times for _, times in part) if goes(function) else 1
            for node in _calls(copy, model):
                calls.setdefault(node.op_identifier(), []).append((node, often))
        for node in _calls(function, model):
            waiting[node.op_identifier()] -= 1
            if not waiting[node.op_identifier()]:
                ready.append(node.op_identifier())


def _parts(calls: list[tuple[ir.Node, int]]) -> list[list[tuple[ir.Node, int]]]:
    """Calls in groups that are executed at most so often together, unless one alone is."""
    parts: list[list[tuple[ir.Node, int]]] = [[]]
    room = MOST_CALLS
    for node, times in calls:
        if parts[-1] and times > room:
            parts.append([])
            room = MOST_CALLS
        parts[-1].append((node, times))
        room -= times
    return parts


def _calls(scope: ir.Graph | ir.Function, model: ir.Model) -> Iterator[ir.Node]:
    nodes = ir.traversal.RecursiveGraphIterator(scope)
    return (node for node in nodes if node.op_identifier() in model.functions)


def _copied(function: ir.Function, number: int, taken: set[str]) -> ir.Function:
    copy = function.clone()
    copy.name = unused(f"{function.name}_{number}", taken)
    pairs = zip(ir.traversal.RecursiveGraphIterator(function), ir.traversal.RecursiveGraphIterator(copy), strict=True)
    for old, new in pairs:
        new.meta.update(old.meta)
        for named in (new, *new.outputs):
            if named.name:
                named.name = f"{named.name}_{number}"
    return copy
