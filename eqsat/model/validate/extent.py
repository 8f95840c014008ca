"""Limits on the size of models: sizes that no array has, nested subgraphs, functions that multiply.

Models that are refused here would overflow the integers of the libraries below, their stacks, or any memory. For sizes
that some machine can hold see :mod:`eqsat.bounds`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from eqsat import bounds
from eqsat.errors import LimitError, ModelError
from eqsat.schema.types import TensorType

MOST_BYTES = 1 << 62
MOST_DIMENSIONS = 32
"""Dimensions that all of numpy supports."""
MOST_SUBGRAPHS = 30
"""Levels of subgraphs: protobuf reads a hundred levels of messages, and each subgraph is three."""
MOST_CALLS = 100
"""Levels of calls of functions."""
MOST_CHARACTERS = 500
"""Length of an expression that is a dimension."""
MOST_BRACKETS = 300
"""Levels of brackets in ONNX's text format."""

_Key = tuple[str, str, str]


def check_shape(shape: Sequence[object], itemsize: float, place: str) -> None:
    """Checks that an array can have the shape.

    Raises:
        ModelError: It has too many dimensions, negative ones, or too many elements.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise ModelError(
            f"a tensor of at most {MOST_DIMENSIONS} dimensions is required", place=place, actual=f"{len(shape)}"
        )
    known = [d for d in shape if isinstance(d, int)]
    if any(d < 0 for d in known):
        raise ModelError("a shape without negative dimensions is required", place=place, actual=_show(shape))
    # An array without elements has strides as well.
    if math.prod(max(d, 1) for d in known) * max(itemsize, 1) > MOST_BYTES:
        raise ModelError("a tensor of less than 2^62 bytes is required", place=place, actual=f"shape {_show(shape)}")


def check_type(known: TensorType | None, place: str) -> None:
    """As :func:`check_shape`, for a type whose shape may not be known."""
    if known is not None and known.shape is not None:
        check_shape(known.shape, known.itemsize, place)


def _show(shape: Sequence[object]) -> str:
    dims = [str(d) if d is not None else "?" for d in shape]
    return "[" + ", ".join(dims if len(dims) <= 8 else [*dims[:6], "...", dims[-1]]) + "]"


_NUMBER = re.compile(r"\d+")
_POWER = re.compile(r"\*\*|\^")


def check_symbol(text: str, place: str) -> None:
    """Checks that the expression of a dimension can be computed: ``9**9**9**9`` is too large.

    Raises:
        ModelError: It is too long, or has powers or numbers beyond all sizes.
    """
    if not text or text.isidentifier():
        return
    if len(text) > MOST_CHARACTERS or text.count("(") > MOST_SUBGRAPHS:
        raise ModelError(
            f"a dimension of at most {MOST_CHARACTERS} characters and {MOST_SUBGRAPHS} brackets is required",
            place=place,
            actual=f"{len(text)} characters, {text[:40]!r}...",
        )
    large = any(len(n) > 19 for n in _NUMBER.findall(text))
    exponents = _POWER.split(text)[1:]
    if large or len(exponents) > 3 or any(not re.match(r"\s*[0-8](?![\w.(*^])", e) for e in exponents):
        raise ModelError(
            "a dimension with powers up to 8 and numbers below 2^63 is required", place=place, actual=repr(text[:80])
        )


def check_nesting(model: onnx.ModelProto, place: str) -> None:
    """Checks the depth of nested subgraphs and the number of operators, before other code walks over them.

    It works without recursion, because all later code may recurse.

    Raises:
        ModelError: They are nested too deeply.
        LimitError: There are too many operators.
    """
    if len(model.graph.node) > bounds.NODES:
        raise LimitError(
            f"at most {bounds.NODES:,} operators are required",
            place=place,
            actual=f"{len(model.graph.node):,}",
            hint="split the model",
        )
    level: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    for _ in range(MOST_SUBGRAPHS + 1):
        level = [inner for graph in level for node in graph.node for inner in subgraphs_of(node)]
        if not level:
            return
    raise ModelError(f"subgraphs nested at most {MOST_SUBGRAPHS} deep are required", place=place, actual="more levels")


def subgraphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def check_brackets(text: str, place: str) -> None:
    """Checks the nesting in ONNX's text format, whose parser recurses.

    Raises:
        ModelError: There are too many levels of brackets.
    """
    depth = 0
    quoted = False
    for position, character in enumerate(text):
        if character == '"' and (position == 0 or text[position - 1] != "\\"):
            quoted = not quoted
        elif not quoted and character in "([{":
            depth += 1
            if depth > MOST_BRACKETS:
                raise ModelError(
                    f"brackets nested at most {MOST_BRACKETS} deep are required", place=place, actual="more levels"
                )
        elif not quoted and character in ")]}":
            depth -= 1


def check_calls(model: onnx.ModelProto, calls: Mapping[_Key, Sequence[_Key]], place: str) -> None:
    """Checks how large the model will become when functions are inlined.

    Args:
        model: Its functions do not call themselves.
        calls: The calls in each function, with repetitions; callees come first.
        place: For messages.

    Raises:
        ModelError: There would be too many operators, or calls within calls.
    """
    if not calls:
        return
    own = {(f.domain, f.name, f.overload): count_nodes(f.node) for f in model.functions}
    size: dict[_Key, int] = {}
    depth: dict[_Key, int] = {}
    for key, inner in calls.items():
        size[key] = own[key] + sum(size[k] for k in inner)
        depth[key] = 1 + max((depth[k] for k in inner), default=0)
    called = [k for n in all_nodes(model.graph.node) if (k := (n.domain, n.op_type, n.overload)) in size]
    deepest = max((depth[k] for k in called), default=0)
    if deepest > MOST_CALLS:
        raise ModelError(
            f"functions that call each other at most {MOST_CALLS} deep are required", place=place, actual=f"{deepest}"
        )
    total = sum(size[k] for k in called)
    if total > bounds.NODES:
        largest = max(called, key=lambda k: size[k])
        raise ModelError(
            f"at most {bounds.NODES:,} operators are required once functions are inlined",
            place=place,
            actual=f"{total:,} of them, {size[largest]:,} in a call of {largest[0]}.{largest[1]}",
        )


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes and the nodes of their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs_of(node):
            yield from all_nodes(graph.node)


def count_nodes(nodes: Iterable[onnx.NodeProto]) -> int:
    return sum(1 for _ in all_nodes(nodes))
