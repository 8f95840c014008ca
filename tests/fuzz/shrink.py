"""Makes a failing case small: fewer outputs, nodes and numbers, as long as it still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from tests.fuzz.generator import Case
from tests.fuzz.operators import UnjudgedError
from tests.fuzz.worlds import values_of

PATIENCE = 300
"""Candidates that are tried."""


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest case found that still fails.

    Args:
        fails: Whether a case with a valid model fails in the way that is being looked at.
    """
    tries = 0
    progress = True
    while progress and tries < PATIENCE:
        progress = False
        for candidate in _candidates(case):
            if not _is_valid(candidate.model):
                continue
            tries += 1
            if fails(candidate):
                case = candidate
                progress = True
                break
            if tries >= PATIENCE:
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    model = shape_inference.infer_shapes(case.model, strict_mode=False, data_prop=True)
    outputs = list(model.graph.output)
    if len(outputs) > 1:
        for output in outputs:
            yield _with(case, outputs=[output])
        for output in outputs:
            yield _with(case, outputs=[o for o in outputs if o is not output])
    known = {v.name: v for v in [*model.graph.value_info, *outputs]}
    # An inner value as the only output cuts everything after it.
    for node in model.graph.node:
        for name in node.output:
            if name in known and [name] != [o.name for o in outputs]:
                yield _with(case, outputs=[known[name]])
    # An inner value as an input cuts everything before it.
    try:
        values = values_of(case.model, case.feeds)
    except UnjudgedError:
        values = {}
    given = {i.name for i in model.graph.input} | {o.name for o in outputs}
    for node in reversed(model.graph.node):
        for name in node.output:
            array = values.get(name)
            if isinstance(array, np.ndarray) and name not in given and name in known:
                yield _cut(case, known[name], array)
    yield from _without_a_node(case, known)
    yield from _simpler_numbers(case)


def _with(case: Case, *, outputs: list[onnx.ValueInfoProto]) -> Case:
    graph = case.model.graph
    return _pruned(case, list(graph.node), list(graph.input), outputs, case.feeds)


def _cut(case: Case, value: onnx.ValueInfoProto, array: np.ndarray) -> Case:
    nodes = []
    for node in case.model.graph.node:
        if value.name not in node.output:
            nodes.append(node)
        elif any(o and o != value.name and not o.endswith("_before") for o in node.output):
            kept = onnx.NodeProto()
            kept.CopyFrom(node)
            kept.output[:] = [f"{o}_before" if o == value.name else o for o in node.output]
            nodes.append(kept)
    info = helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, array.shape)
    graph = case.model.graph
    return _pruned(case, nodes, [*graph.input, info], list(graph.output), {**case.feeds, value.name: array})


def _without_a_node(case: Case, known: Mapping[str, onnx.ValueInfoProto]) -> Iterator[Case]:
    """A node's result replaced by an operand of the same type."""
    graph = case.model.graph
    types = {**{i.name: i for i in graph.input}, **known}
    for number, node in enumerate(graph.node):
        for operand in dict.fromkeys(node.input):
            a, b = types.get(operand), types.get(node.output[0])
            if a is None or b is None or a.type != b.type or any(o.name == node.output[0] for o in graph.output):
                continue
            nodes = []
            for other, held in enumerate(graph.node):
                if other == number:
                    continue
                copy = onnx.NodeProto()
                copy.CopyFrom(held)
                copy.input[:] = [operand if i == node.output[0] else i for i in held.input]
                nodes.append(copy)
            yield _pruned(case, nodes, list(graph.input), list(graph.output), case.feeds)


def _simpler_numbers(case: Case) -> Iterator[Case]:
    """One number everywhere in a tensor, and round ones."""
    for name, array in case.feeds.items():
        for simpler in _simpler(array):
            yield replace(case, feeds={**case.feeds, name: simpler})
    for number, tensor in enumerate(case.model.graph.initializer):
        if tensor.data_type == onnx.TensorProto.STRING:
            continue
        for simpler in _simpler(numpy_helper.to_array(tensor)):
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            model.graph.initializer[number].CopyFrom(numpy_helper.from_array(simpler, tensor.name))
            yield replace(case, model=model)


def _simpler(array: Any) -> Iterator[np.ndarray]:
    if not isinstance(array, np.ndarray) or array.dtype == object or array.dtype == np.bool_ or not array.size:
        return
    first = array.ravel()[0]
    if (array == first).all() and first in (0, 1, 2):
        return
    for value in (0, 1, 2, first):
        found = np.full_like(array, value)
        if found.tobytes() != array.tobytes():
            yield found


def _pruned(
    case: Case,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    feeds: Mapping[str, Any],
) -> Case:
    model = case.model
    needed = {o.name for o in outputs}
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if any(o in needed for o in node.output):
            kept.insert(0, node)
            needed.update(node.input)
            needed.update(_inner_reads(node))
    graph = helper.make_graph(
        kept,
        model.graph.name,
        [i for i in inputs if i.name in needed],
        outputs,
        [t for t in model.graph.initializer if t.name in needed],
    )
    functions = list(model.functions)
    made = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version, functions=functions
    )
    return replace(case, model=made, feeds={n: a for n, a in feeds.items() if n in needed})


def _inner_reads(node: onnx.NodeProto) -> set[str]:
    found: set[str] = set()
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for child in attribute.g.node:
                found.update(child.input)
                found |= _inner_reads(child)
            found.update(o.name for o in attribute.g.output)
    return found


def _is_valid(model: onnx.ModelProto) -> bool:
    if not model.graph.node or not model.graph.output:
        return False
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True
