"""Kernels for which the target's file gives a C call: the backend of targets that have no other.

Whether such a text may become C depends on who has written it. A target file is its author's program, and its calls are
C as they stand. A model that eqsat has partitioned in this process has them from there. A model that was read from a
file may have them from anybody: there a call must be one function of the target, by its name, on tensors and constants,
which is what the calls of most targets are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.code import Code, Writer
from eqsat.backends.values import Kernel, Operand, Run
from eqsat.errors import CodegenError
from eqsat.partition.emit import CALL, TRUSTED_CALL
from eqsat.text import shown

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fFuUlL]{0,3}"
_STRING = r'"(?:[0-9A-Za-z _.,:;+=()<>-]|\\[0-7]{3})*"'
_NAMES = "INFINITY|-INFINITY|NAN|NULL"
_SYSTEM = re.compile(
    "aio|clock|dl|if|inet|lio|mq|ns|posix|pthread|res|sched|sem|shm|stdc|thrd|timer|tss|wcs", re.IGNORECASE
)
"""What functions of systems begin with whose names have an underscore; no target is called like that."""
_LONGEST = 4000


class CallText(Backend):
    """Executes the kernels of a target by the calls of its file, each by itself.

    Args:
        target: Name of the target.
    """

    joins = False

    def __init__(self, target: str) -> None:
        self.target = target

    def refuse(self, kernel: Kernel) -> str:
        if not kernel.call:
            return "the target's file gives no call for it"
        return "" if sum(t is not None for t in kernel.results) == 1 else "a call has one result"

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        kernels = [run.kernels[0] for run in runs]
        calls = [_filled(writer, run, kernel) for run, kernel in zip(runs, kernels, strict=True)]
        return Code(calls, header=declarations([Call.of(kernel) for kernel in kernels], writer.c_type))


class Call:
    """A call and what it is made on: the operands that are present, in order, and the result."""

    def __init__(self, text: str, operands: Sequence[Operand], result: Operand | None) -> None:
        self.text = text
        self.operands = operands
        self.result = result

    @staticmethod
    def of(kernel: Kernel) -> Call:
        result = next((t for t in kernel.results if t is not None), None)
        return Call(kernel.call, [x for x in kernel.operands if x is not None], result)

    def fill(self, operands: Sequence[str], result: str) -> str:
        """The text with the addresses of its tensors."""

        def one(found: re.Match[str]) -> str:
            if found[0] in ("{{", "}}"):
                return found[0][0]
            if found[1] == "result":
                return result
            return operands[int(found[1])] if int(found[1]) < len(operands) else "NULL"

        return re.sub(r"\{\{|\}\}|\{(\d+|result)\}", one, self.text)


def _filled(writer: Writer, run: Run, kernel: Kernel) -> str:
    call = Call.of(kernel)
    text = call.fill([writer.pointer(run, x) for x in call.operands], writer.pointer(run, call.result))
    return f"{text.rstrip().rstrip(';')};"


# ---- declarations --------------------------------------------------------------------------------------


def declarations(calls: Sequence[Call], c_type: Callable[[Operand], str]) -> str:
    """Declarations of the functions that calls name, as far as the form of these shows them."""
    declared: dict[str, list[list[str]]] = {}
    for call in calls:
        found = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*;?\s*", call.text, re.DOTALL)
        if found is not None:
            parameters = [_parameter(call, a.strip(), c_type) for a in _arguments(found[2])]
            declared.setdefault(found[1], []).append(parameters)
    lines = []
    for function, uses in sorted(declared.items()):
        if len({len(u) for u in uses}) != 1:
            continue  # A macro or a variadic function: the target's own header has to say.
        parameters = [_common(list(kinds)) for kinds in zip(*uses, strict=True)]
        lines.append(f"void {function}({', '.join(parameters) or 'void'});\n")
    return "".join(lines)


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


def _parameter(call: Call, argument: str, c_type: Callable[[Operand], str]) -> str:
    """C type of a parameter after one argument; empty for NULL, which fits any pointer."""
    if argument == "{result}":
        return f"{c_type(call.result)} *" if call.result is not None else "void *"
    found = re.fullmatch(r"\{(\d+)\}", argument)
    if found is not None:
        known = int(found[1]) < len(call.operands)
        return f"const {c_type(call.operands[int(found[1])])} *" if known else "const void *"
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


# ---- whom to believe -----------------------------------------------------------------------------------


def trusted_call(node: ir.Node, target: str) -> str:
    """The text of a node's call.

    Args:
        node: With a call.
        target: Whose kernel it is.

    Raises:
        CodegenError: The text comes from a file and is more than a call of the target's function.
    """
    text = node.metadata_props[CALL]
    if node.meta.get(TRUSTED_CALL) == text or is_plain_call(text, target):
        return text
    raise CodegenError(
        "what a file has for a call is one function of its target, with tensors and constants",
        place=f"{CALL} of node {node.name!r}",
        actual=repr(text if len(text) <= 200 else f"{text[:200]}..."),
        hint=f"the function begins with `{shown(target)[:40]}_`; other calls are written only where they come from the "
        "target's file: eqsat.optimize(..., targets=[...]).codegen(...)",
    )


def is_plain_call(text: str, target: str) -> bool:
    """Whether a text calls a function of the target on holes, numbers, names of the target, and harmless strings."""
    if not re.fullmatch(r"[A-Za-z][0-9A-Za-z_]*", target) or _SYSTEM.fullmatch(target) or len(text) > _LONGEST:
        return False
    own = rf"(?i:{target}_)[0-9A-Za-z_]+"
    argument = rf" *(?:\{{(?:\d+|result)\}}|{_NUMBER}|{_NAMES}|{_STRING}|{own}) *"
    return re.fullmatch(rf" *{own} *\((?: *|{argument}(?:,{argument})*)\) *;? *", text, re.ASCII) is not None
