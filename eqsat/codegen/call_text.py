"""The backends of targets without a library: they execute kernels and regions whose C call the target's file gives.

The author of the text decides whether it may become C. A target file is trusted like a program of its author, and its
calls become C unchanged. A model that eqsat partitioned in this process has its calls from there. A model that was read
from a file may contain calls from anybody. Such a call must be one function of the target, by its name, on tensors and
constants; the calls of most targets have that form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.code import Code, Writer
from eqsat.backends.region import Kernel, Region, RegionOperand, Run, Tensor
from eqsat.errors import CodegenError
from eqsat.partition.call_sizes import NO_VALUE, holes, is_size_hole, size_in
from eqsat.partition.onnx_nodes import CALL, TRUSTED_CALL
from eqsat.schema.size import Undecided, bounds
from eqsat.schema.size_questions import is_free, symbols
from eqsat.text import shown

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fFuUlL]{0,3}"
_STRING = r'"(?:[0-9A-Za-z _.,:;+=()<>-]|\\[0-7]{3})*"'
_NAMES = "INFINITY|-INFINITY|NAN|NULL"
_SYSTEM = re.compile(
    "aio|clock|dl|if|inet|lio|mq|ns|posix|pthread|res|sched|sem|shm|stdc|thrd|timer|tss|wcs", re.IGNORECASE
)
"""Prefixes of system functions whose names contain an underscore; no target has one of these names."""
_LONGEST = 4000
_LARGEST_INT = 2**31 - 1


class CallText(Backend):
    """Executes the kernels of a target by the calls of its file, each by itself.

    Args:
        target: Name of the target.
    """

    joins = False
    free_sizes = True

    def __init__(self, target: str) -> None:
        self.target = target

    def refuse(self, kernel: Kernel) -> str:
        if not kernel.call:
            return "the target's file has no call for it"
        if None in _results(kernel):
            return "the types of its results are not known"
        return VendorCall.of(kernel).refusal()

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        kernels = [run.kernels[0] for run in runs]
        calls = [VendorCall.of(kernel) for kernel in kernels]
        texts = [call.statement(writer, run) for call, run in zip(calls, runs, strict=True)]
        return Code(texts, header=declarations(calls, writer.c_type))


class RegionCallText(Backend):
    """Executes the regions of a target as a whole, by the call that its file gives for one.

    Args:
        target: Name of the target.
        texts: Calls by the name of the region.
    """

    whole = True
    free_sizes = True

    def __init__(self, target: str, texts: Mapping[str, str]) -> None:
        self.target = target
        self.texts = texts

    def refusals(self, region: Region) -> Mapping[Kernel, str]:
        return dict.fromkeys(region.kernels, self._call(region).refusal())

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        calls = [self._call(run.region) for run in runs]
        texts = [call.statement(writer, run) for call, run in zip(calls, runs, strict=True)]
        return Code(texts, header=declarations(calls, writer.c_type))

    def _call(self, region: Region) -> VendorCall:
        return VendorCall(self.texts[region.name], region.inputs, region.outputs)


class VendorCall:
    """A call with its operands and results.

    Args:
        text: With holes: ``{0}``, ``{1}``, ... for operands, ``{result}`` for the first result, ``{result1}``, ... for
            others, ``{=...}`` for sizes (:mod:`eqsat.partition.call_sizes`).
        operands: Those that are present, in order.
        results: Likewise.
    """

    def __init__(self, text: str, operands: Sequence[RegionOperand], results: Sequence[RegionOperand]) -> None:
        self.text = text
        self.operands = operands
        self.results = results

    @staticmethod
    def of(kernel: Kernel) -> VendorCall:
        results = [t for t in _results(kernel) if t is not None]
        return VendorCall(kernel.call, [x for x in kernel.operands if x is not None], results)

    def refusal(self) -> str:
        """Why it cannot be made; empty if it can."""
        if NO_VALUE in self.text:
            return "its call has an expression without a value where sizes are not fixed"
        try:
            sizes = [self.size(hole) for hole in holes(self.text)]
        except Undecided as undecided:
            return f"its call has a size without a value: {undecided}"
        received = {s.name for size in sizes for s in symbols(size)}
        shapes = (x.shape for x in (*self.operands, *self.results))
        needed = dict.fromkeys(s.name for shape in shapes for n in shape for s in symbols(n))
        missing = [f"`{name}`" for name in needed if name not in received]
        return f"its call does not receive the size {' and '.join(missing)}" if missing else ""

    def size(self, hole: str) -> int:
        """The size of a hole.

        Raises:
            Undecided: The hole has no size.
        """
        return size_in(hole, [x.shape for x in self.operands], [y.shape for y in self.results])

    def operand(self, hole: str) -> tuple[RegionOperand | None, bool]:
        """The tensor of a hole, None if it is absent, and whether it is written."""
        is_result = hole.startswith("result")
        known, number = (self.results, hole.removeprefix("result") or "0") if is_result else (self.operands, hole)
        return known[int(number)] if int(number) < len(known) else None, is_result

    def fill(self, address: Callable[[RegionOperand | None], str]) -> str:
        """The text with the addresses of its tensors, and with sizes as expressions of C."""

        def one(found: re.Match[str]) -> str:
            if found[2] is not None:
                size = self.size(found[2])
                return f"({_integer(size)}){size}" if is_free(size) else str(size)
            return found[0][0] if found[1] is None else address(self.operand(found[1])[0])

        return re.sub(r"\{\{|\}\}|\{(\d+|result\d*)\}|\{=([^{}]*)\}", one, self.text)

    def statement(self, writer: Writer, run: Run) -> str:
        """The call in the body of a run."""
        return self.fill(lambda operand: writer.pointer(run, operand)).rstrip().rstrip(";") + ";"


def _results(kernel: Kernel) -> list[Tensor | None]:
    """The results of a kernel, with a place for each result that has no readers."""
    pairs = zip_longest(kernel.results, kernel.unread)
    return [unread if result is None else result for result, unread in pairs]


# ---- declarations --------------------------------------------------------------------------------------


def declarations(calls: Sequence[VendorCall], c_type: Callable[[RegionOperand], str]) -> str:
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
            continue  # A macro or a variadic function: the target's own header has to declare it.
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


def _parameter(call: VendorCall, argument: str, c_type: Callable[[RegionOperand], str]) -> str:
    """C type of a parameter after one argument; empty for NULL, which fits any pointer."""
    found = re.fullmatch(r"\{(\d+|result\d*)\}", argument)
    if found is not None:
        operand, is_written = call.operand(found[1])
        return f"{'' if is_written else 'const '}{'void' if operand is None else c_type(operand)} *"
    if argument == "NULL":
        return ""
    if argument.startswith('"'):
        return "const char *"
    if argument.startswith("{="):
        return _integer(call.size(argument[2:-1]))
    return _integer(int(argument)) if re.fullmatch(r"[-+]?\d+", argument) else "double"


def _integer(size: int) -> str:
    """C type of a number or a size."""
    low, high = bounds(size)
    return "int" if low >= -_LARGEST_INT and high <= _LARGEST_INT else "int64_t"


def _common(kinds: list[str]) -> str:
    """One type for all calls."""
    known = sorted({k for k in kinds if k})
    if not known:
        return "const void *"
    if len(known) == 1:
        return known[0]
    if set(known) <= {"double", "int", "int64_t"}:
        return "double" if "double" in known else "int64_t"
    return "void *" if all(not k.startswith("const") for k in known) else "const void *"


# ---- which calls to trust ------------------------------------------------------------------------------


def trusted_call(text: str, node: ir.Node, target: str) -> str:
    """The text of a call.

    Args:
        text: The call of a kernel or a region.
        node: The node of the kernel or region.
        target: Name of the target.

    Raises:
        CodegenError: The text comes from a file and is more than a call of the target's function.
    """
    if node.meta.get(TRUSTED_CALL) == text or is_plain_call(text, target):
        return text
    raise CodegenError(
        "a call that comes from a file must be one function of its target, with tensors and constants",
        place=f"{CALL} of node {node.name!r}",
        actual=repr(text if len(text) <= 200 else f"{text[:200]}..."),
        hint=f"the function begins with `{shown(target)[:40]}_`; other calls are written only where they come from the "
        "target's file: eqsat.optimize(..., targets=[...]).codegen(...)",
    )


def is_plain_call(text: str, target: str) -> bool:
    """Whether a text calls a function of the target on holes, numbers, names of the target, and harmless strings.

    The text in a hole for a size is parsed as a size; only the parsed size is written as C.

    Args:
        text: The call.
        target: Name of the target.
    """
    if not re.fullmatch(r"[A-Za-z][0-9A-Za-z_]*", target) or _SYSTEM.fullmatch(target) or len(text) > _LONGEST:
        return False
    own = rf"(?i:{target}_)[0-9A-Za-z_]+"
    argument = rf" *(?:\{{(?:\d+|result\d*|\?)\}}|\{{=[^{{}}]+\}}|{_NUMBER}|{_NAMES}|{_STRING}|{own}) *"
    form = re.fullmatch(rf" *{own} *\((?: *|{argument}(?:,{argument})*)\) *;? *", text, re.ASCII)
    return form is not None and all(is_size_hole(f"{{={hole}}}") for hole in holes(text))
