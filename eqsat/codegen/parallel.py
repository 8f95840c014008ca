"""Kernels in parts: the loops of a kernel's text that threads may share become ranges of numbered blocks.

A family marks a loop nest with a line :data:`MARK` before it. The mark promises that the iterations of the nest (the
loop and each loop that is its whole content) are independent of each other and of all other marked nests of the kernel:
they write different elements, read nothing that another one writes, and do not exchange data through scratch memory.
Everything else in the text is executed by each thread that takes part, with scratch memory of its own.

The blocks of a kernel are the iterations of its marked nests: of as many loops of each as it takes to have enough,
fewer where a nest does little of the work. A range of blocks is the same share of each nest: the nests are often parts
of one result, and a thread that has the same part of it in all kernels finds its operands in its cache. Which thread
computes an iteration has no influence on what it computes, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MARK = "/* parallel */"
STAGES = "/* stages */"
"""Marks a kernel whose stages are shared; one thread executes everything else (``kernel_stages.py``)."""
BLOCK_WITHIN = """\
static inline ptrdiff_t block_within(ptrdiff_t at, ptrdiff_t most) {
    return at < 0 ? 0 : at < most ? at : most;
}

static inline ptrdiff_t block_share(ptrdiff_t at, ptrdiff_t some, ptrdiff_t all) {
    return some == all ? at : all > 0 ? (ptrdiff_t)((int64_t)at * some / all) : 0;
}

static inline ptrdiff_t block_row(ptrdiff_t at, ptrdiff_t size) {
    return size > 0 ? at / size : 0;
}"""
"""Functions that kernels in parts call."""
_ENOUGH = 64
"""Blocks of the largest nest from which on inner loops need not be cut."""
_ALL = "BLOCKS"
"""Placeholder for the number of all blocks until it is known."""
_HEAD = re.compile(
    r"(?P<space>\s*)for \((?P<c>ptrdiff_t|size_t) (?P<name>\w+) = 0; (?P=name) < (?P<extent>.+); "
    r"(?P=name)(?:\+\+|(?: \+= (?P<step>\d+)))\)(?P<brace> \{)?"
)
_ANY_MARK = re.compile(re.escape(MARK) + r"|/\* (?:stages|stage \S+|end of stage) \*/")
_SIZE = re.compile(r"dim_\w+")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/')


@dataclass(frozen=True, slots=True)
class Parts:
    """A kernel that computes a range of its blocks.

    Attributes:
        body: Statements, which read ``begin`` and ``end``.
        blocks: C expression of how many there are.
        count: The same at given sizes.
    """

    body: str
    blocks: str
    count: int


@dataclass(frozen=True, slots=True)
class _Loop:
    space: str
    c: str
    name: str
    extent: str
    step: int
    braced: bool

    @property
    def rounds(self) -> str:
        """How many there are."""
        if self.step == 1:
            return self.extent
        if self.extent.isdigit():
            return str(-(-int(self.extent) // self.step))
        return _product(f"({self.extent} + {self.step - 1}) / {self.step}")

    def at(self, number: str) -> str:
        """The value in a round."""
        return number if self.step == 1 else f"{number} * {self.step}"


def whole(body: str) -> str:
    """A kernel without marks, including those of stages (``kernel_stages.py``)."""
    if MARK not in body:
        return body
    return "\n".join(line for line in body.split("\n") if not _ANY_MARK.fullmatch(line.strip()))


def in_parts(body: str, sizes: Mapping[str, int]) -> Parts | None:
    """A kernel whose marked loops are ranges; None if there is nothing to share.

    Args:
        body: With marks.
        sizes: Values of free sizes, by the names of their variables.
    """
    if MARK not in body or STAGES in body:
        return None
    lines = body.split("\n")
    most = _most(lines, sizes)
    made: list[str] = []
    counts: list[str] = []
    # Whether each block that is open is a loop or a condition, where a mark means nothing.
    inside: list[bool] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.strip() != MARK:
            assert MARK not in line, line
            made.append(line)
            _follow(line, inside)
            continue
        if any(inside):
            continue
        before = _sum(counts)
        nest = _nest(lines, number)
        enough = _ENOUGH * _rounds(nest, sizes) / most
        if nest and enough <= 1:
            rounds = "1"
            made.append(f"{nest[0].space}if (begin <= {before} && {before} < end)")
        elif nest:
            nest = _outer(nest, enough, sizes)
            text, rounds = _range(nest)
            made += text
            inside += [True] * sum(loop.braced for loop in nest)
            number += len(nest)
        elif lines[number].strip() == "{":
            rounds = "1"
            made.append(f"if (begin <= {before} && {before} < end) {{")
            inside.append(True)
            number += 1
        else:
            continue
        counts.append(rounds)
    total = _sum(counts)
    count = _value(total, sizes)
    return Parts("\n".join(made).replace(_ALL, total), total, count) if counts and count > 1 else None


def _most(lines: list[str], sizes: Mapping[str, int]) -> int:
    """Iterations of the largest nest; at least one."""
    most = 1
    inside: list[bool] = []
    for number, line in enumerate(lines, start=1):
        if line.strip() != MARK:
            _follow(line, inside)
        elif not any(inside):
            most = max(most, _rounds(_nest(lines, number), sizes))
    return most


def _rounds(nest: Sequence[_Loop], sizes: Mapping[str, int]) -> int:
    """Iterations of all loops together."""
    return math.prod(_value(loop.rounds, sizes) for loop in nest)


def _outer(nest: list[_Loop], enough: float, sizes: Mapping[str, int]) -> list[_Loop]:
    """The outermost loops, as many as it takes to have enough iterations."""
    return next((nest[:n] for n in range(1, len(nest)) if _rounds(nest[:n], sizes) >= enough), nest)


def _nest(lines: list[str], first: int) -> list[_Loop]:
    """The loops that begin at a line, as far as each is the whole content of the one around it."""
    found: list[_Loop] = []
    for line in lines[first:]:
        match = _HEAD.fullmatch(line)
        if match is None or (found and (not found[-1].braced or match["brace"] is None)):
            break
        if any(loop.name in re.findall(r"\w+", match["extent"]) for loop in found):
            break
        if found and not _is_last(lines[first + len(found) :]):
            break
        step = int(match["step"] or 1)
        found.append(_Loop(match["space"], match["c"], match["name"], match["extent"], step, bool(match["brace"])))
    return found


def _is_last(lines: list[str]) -> bool:
    """Whether nothing but the end of the enclosing block follows the block that the first line opens."""
    depth, closed = 0, False
    for line in lines:
        for character in _TEXT.sub("", line):
            if closed and not character.isspace():
                return character == "}"
            depth += (character == "{") - (character == "}")
            closed = closed or (character == "}" and depth == 0)
    return False


def _range(nest: list[_Loop]) -> tuple[list[str], str]:
    """The loops over their share of a range of blocks; and how many blocks they have."""
    rounds = " * ".join(_product(loop.rounds) for loop in nest)
    if all(loop.rounds.isdigit() for loop in nest):
        rounds = str(math.prod(int(loop.rounds) for loop in nest))
    first = nest[0]
    start, stop = (f"block_share({at}, {rounds}, {_ALL})" for at in ("begin", "end"))
    if len(nest) == 1:
        name, step = first.name, f" += {first.step}" if first.step > 1 else "++"
        stop = stop if first.step == 1 else first.at(stop)
        head = f"for ({first.c} {name} = ({first.c}){first.at(start)}; {name} < ({first.c})({stop}); {name}{step})"
        return [f"{first.space}{head}{' {' if first.braced else ''}"], rounds
    # The innermost loop runs within one row, so only the step to a row divides.
    *rows, last = nest
    number, row = f"block_{first.name}", _product(last.rounds)
    head = f"for (ptrdiff_t {number} = block_row({start}, {row}); {number} * {row} < {stop}; {number}++) {{"
    lines = [f"{first.space}{head}"]
    for k, loop in enumerate(rows):
        inner = " * ".join(_product(other.rounds) for other in rows[k + 1 :])
        text = number if not inner else f"{number} / ({inner})"
        text = f"({text}) % ({loop.rounds})" if k else text
        opening = "{ " if k else ""
        lines.append(f"{loop.space}{opening}const {loop.c} {loop.name} = ({loop.c})({loop.at(f'({text})')});")
    low, high = (last.at(f"block_within({end} - {number} * {row}, {row})") for end in (start, stop))
    move = f" += {last.step}" if last.step > 1 else "++"
    head = f"for ({last.c} {last.name} = ({last.c})({low}); {last.name} < ({last.c})({high}); {last.name}{move}) {{"
    lines.append(f"{last.space}{head}")
    return lines, rounds


def _follow(line: str, inside: list[bool]) -> None:
    """The blocks that are open after a line."""
    text = _TEXT.sub("", line)
    before = ""
    for character in text:
        if character == "{":
            inside.append(bool(before.strip()))
            before = ""
        elif character == "}":
            if inside:
                inside.pop()
            before = ""
        else:
            before += character


def _product(text: str) -> str:
    return text if text.isdigit() or text.isidentifier() else f"({text})"


def _sum(counts: list[str]) -> str:
    known = sum(int(n) for n in counts if n.isdigit())
    terms = [*([str(known)] if known or not counts else []), *(n for n in counts if not n.isdigit())]
    return " + ".join(terms) or "0"


def _value(text: str, sizes: Mapping[str, int]) -> int:
    """An expression of sizes at their values; many where it cannot be read."""
    if text.isdigit():
        return int(text)
    known = _SIZE.sub(lambda match: str(sizes.get(match[0], _ENOUGH)), text).replace("/", "//")
    if not re.fullmatch(r"[\d\s()+*/%-]+", known):
        return _ENOUGH
    try:
        return max(int(eval(known, {"__builtins__": {}})), 0)
    except (SyntaxError, ArithmeticError):
        return _ENOUGH
