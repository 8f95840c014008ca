"""Composites that a vendor's library computes: calls where the program is compiled for it, portable kernels elsewhere.

The nodes of such a composite stay together as a group. Nothing is fused across its border, its operands and its result
are dense and row-major, and in the program its kernels stand behind ``#else`` of the call. Marks in the model carry the
groups through inlining: an ``Identity`` for each operand and result of the composite's function.
"""

from __future__ import annotations

import re

import onnx_ir as ir

from eqsat.codegen import dtypes
from eqsat.codegen.program import Group, Tensor
from eqsat.codegen.vendor_calls import trusted_call
from eqsat.partition.emit import CALL, TARGET

GROUP = "codegen.group"
"""Metadata key: number of the group that a node belongs to."""
ROLE = "codegen.role"
"""Metadata key of marks: ``operand`` or ``result``, and which."""


def mark_groups(model: ir.Model) -> tuple[ir.Model, list[Group]]:
    """A copy of a model with marks for what has a vendor's call, and the groups, still empty."""
    calls = [n for scope in (model.graph, *model.functions.values()) for n in scope if CALL in n.metadata_props]
    if not calls:
        return model, []
    copy = model.clone()
    groups: list[Group] = []
    for scope in (copy.graph, *copy.functions.values()):
        for node in list(scope):
            function = copy.functions.get(node.op_identifier())
            if CALL not in node.metadata_props or function is None:
                continue
            target = function.metadata_props.get(TARGET, "vendor")
            text = trusted_call(node, target)
            groups.append(Group(node.name or "", target, text))
            _mark(copy, node, function, len(groups) - 1)
    return copy, groups


def _mark(model: ir.Model, node: ir.Node, function: ir.Function, number: int) -> None:
    """Give a call a function of its own, whose nodes bear the group's number."""
    own = function.clone()
    own.name = f"{function.name}__{number}"
    own.metadata_props.pop(TARGET, None)  # It is no composite any more: what takes these apart leaves it whole.
    for inner in own:
        inner.metadata_props[GROUP] = str(number)
    for i, value in enumerate(own.inputs):
        users = [(user, index) for user, index in value.uses()]
        mark = _identity(value, number, f"operand {i}")
        own.insert_before(own[0], mark)
        for user, index in users:
            user.replace_input_with(index, mark.outputs[0])
    for i, value in enumerate(own.outputs):
        mark = _identity(value, number, f"result {i}")
        own.append(mark)
        own.outputs[i] = mark.outputs[0]
    model.functions[own.identifier()] = own
    node.op_type = own.name


def _identity(value: ir.Value, number: int, role: str) -> ir.Node:
    output = ir.Value(name=f"{value.name}_{role.replace(' ', '_')}", type=value.type, shape=value.shape)
    metadata = {GROUP: str(number), ROLE: role}
    return ir.Node("", "Identity", [value], outputs=[output], metadata_props=metadata, name=output.name)


# ---- C -------------------------------------------------------------------------------------------------


def call_text(group: Group, pointer: dict[int, str], results: dict[int, str]) -> str:
    """The call with the addresses of its tensors."""
    first = next(iter(sorted(results.items())), (0, "NULL"))[1]

    def fill(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        return first if found[1] == "result" else pointer.get(int(found[1]), "NULL")

    return re.sub(r"\{\{|\}\}|\{(\d+|result)\}", fill, group.text)


def header(name: str, target: str, groups: list[Group]) -> str:
    """Declarations of the functions that the calls of a target name, as far as their form shows them.

    Args:
        name: Prefix of the program.
        target: The target as an identifier.
        groups: Its calls.
    """
    declared: dict[str, list[list[str]]] = {}
    for group in groups:
        found = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*;?\s*", group.text, re.DOTALL)
        if found is not None:
            declared.setdefault(found[1], []).append([_parameter(group, a.strip()) for a in _arguments(found[2])])
    upper = name.upper()
    guard = f"{upper}_{target.upper()}_H"
    lines = [
        f"/* Functions of the target {target} that {name}.c calls where {upper}_USE_{target.upper()} is defined. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    for function, calls in sorted(declared.items()):
        if len({len(c) for c in calls}) != 1:
            continue  # A macro or a variadic function: the vendor's own header has to say.
        parameters = [_common(list(kinds)) for kinds in zip(*calls, strict=True)]
        lines.append(f"void {function}({', '.join(parameters) or 'void'});")
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def _arguments(text: str) -> list[str]:
    """Arguments between commas that are in no parentheses, braces or strings."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"' and (i == 0 or text[i - 1] != "\\"):
            quoted = not quoted
        elif not quoted and c in "([{":
            depth += 1
        elif not quoted and c in ")]}":
            depth -= 1
        elif not quoted and c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    rest = text[start:]
    return [*parts, rest] if parts or rest.strip() else []


def _parameter(group: Group, argument: str) -> str:
    """C type of a parameter after one argument; empty for NULL, which fits any pointer."""
    if argument == "{result}":
        first = next((t for _, t in sorted(group.results.items())), None)
        return f"{dtypes.storage(first.dtype)} *" if first is not None else "void *"
    found = re.fullmatch(r"\{(\d+)\}", argument)
    if found is not None:
        operand = group.operands.get(int(found[1]))
        if operand is None:
            return "const void *"
        c = dtypes.storage(operand.dtype) if isinstance(operand, Tensor) else dtypes.c_type(dtypes.as_stored(operand))
        return f"const {c} *"
    if argument == "NULL":
        return ""
    if argument.startswith('"'):
        return "const char *"
    if re.fullmatch(r"[-+]?\d+", argument):
        return "int"
    return "double"


def _common(kinds: list[str]) -> str:
    """One type for all calls."""
    known = sorted({k for k in kinds if k})
    if not known:
        return "const void *"
    if len(known) == 1:
        return known[0]
    if set(known) == {"double", "int"}:
        return "double"
    return "void *" if all(not k.startswith("const") for k in known) else "const void *"
