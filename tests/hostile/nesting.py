"""Subgraphs in subgraphs, functions that call each other, brackets in brackets."""

from __future__ import annotations

import itertools

from onnx import ModelProto, helper

from tests.hostile.case import hostile
from tests.hostile.sizes import HEAD


def functions(count: int, calls: int, domain: str = "f", circle: bool = False) -> ModelProto:
    """Functions of which each calls the next some times."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    made = []
    for i in range(count):
        last = i == count - 1
        names = ["x", *(f"t{k}" for k in range(calls - 1)), "y"]
        following = f"f{0 if last else i + 1}"
        nodes = [helper.make_node(following, [a], [b], domain=domain) for a, b in itertools.pairwise(names)]
        if last and not circle:
            nodes = [helper.make_node("Relu", ["x"], ["y"])]
        made.append(helper.make_function(domain, f"f{i}", ["x"], ["y"], nodes, imports))
    values = [helper.make_tensor_value_info(n, 1, [2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain=domain)], "g", values[:1], values[1:])
    return helper.make_model(graph, functions=made, opset_imports=imports, ir_version=8)


@hostile("optimize", "run", "codegen", refused=True)
def functions_that_double() -> ModelProto:
    return functions(30, 2)


@hostile(refused=True)
def own_functions_that_double() -> ModelProto:
    return functions(30, 2, "eqsat.f")


@hostile(refused=True)
def functions_times_1000() -> ModelProto:
    return functions(12, 1000)


@hostile(refused=True)
def chain_of_functions() -> ModelProto:
    return functions(10_000, 1)


@hostile(refused=True)
def circle_of_functions() -> ModelProto:
    return functions(5, 2, circle=True)


@hostile(refused=True)
def function_that_calls_itself() -> ModelProto:
    return functions(1, 1, circle=True)


@hostile(refused=True)
def nested_text() -> str:
    levels = 10_000
    head = "If (c) <then_branch = t () => (float[2] y) { y = "
    tail = "}, else_branch = e () => (float[2] z) { z = Relu(x) }>"
    return f"{HEAD}g (float[2] x, bool c) => (float[2] y) {{ y = {head * levels}Relu(x) {tail * levels} }}"


@hostile(refused=True)
def nested_types() -> str:
    return f"{HEAD}g ({'seq(' * 100_000}float{')' * 100_000} x) => (float[2] y) {{ y = Relu(x) }}"


@hostile(refused=True)
def open_brackets() -> str:
    return f"{HEAD}g (" + "(" * 1_000_000


def _nested_message(levels: int) -> bytes:
    """Graph -> node -> attribute -> graph, in protobuf's wire format."""
    data = b""

    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while True:
            length += bytes([size & 127 | (128 if size > 127 else 0)])
            size >>= 7
            if not size:
                return bytes([number << 3 | 2]) + length + content

    for _ in range(levels):
        data = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, data)))
    return b"\x08\x08" + field(7, data)


@hostile(refused=True)
def nested_messages() -> bytes:
    return _nested_message(5000)


@hostile(refused=True)
def nested_messages_within_protobuf() -> bytes:
    return _nested_message(31)
