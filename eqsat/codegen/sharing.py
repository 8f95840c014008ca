"""Which kernels threads share, and the C by which they do.

A kernel that is worth it gets two functions beside its own: one that unpacks its arguments for a range of blocks, which
threads of a pool call, and one that packs them and hands the blocks out. Sharing a kernel costs about a microsecond, so
a kernel below :data:`WORTH` stays on one thread, and no thread gets less than :data:`LEAST` of work. A kernel that is
sequential calls the threads for its stages (``kernel_stages.py``), mostly while they are awake: for those, half of that
is enough. Threads that sleep are woken once in a run, which takes the caller several microseconds: a program with less
than :data:`ENOUGH` of such kernels stays on one thread as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.codegen.buffers import ALIGNMENT
from eqsat.codegen.control.control_node import control_of
from eqsat.codegen.kernel import GeneratedKernel, Task, View
from eqsat.codegen.kernel_stages import Stages, in_stages
from eqsat.codegen.parallel import Parts, in_parts
from eqsat.codegen.placed_program import Layout
from eqsat.codegen.predict import Prediction
from eqsat.errors import EqsatError
from eqsat.rules.ast import Target
from eqsat.schema.size import Undecided
from eqsat.schema.size_questions import greatest

WORTH = 6e-6
"""Predicted seconds of a call from which on a kernel is shared."""
LEAST = 3e-6
"""Seconds of work that a thread gets at least."""
ENOUGH = 100e-6
"""Predicted seconds in a run of all kernels that are worth it, from which on any is shared."""

TypedNames = Sequence[tuple[str, str]]
"""C type and name of each parameter of a kernel."""
_RANGE = (("ptrdiff_t ", "begin"), ("ptrdiff_t ", "end"))


@dataclass(frozen=True, slots=True)
class Share:
    """How a call hands out the blocks of a kernel.

    Attributes:
        blocks: C expression of their number.
        least: Blocks of a thread, at least.
        stride: Bytes of scratch memory of each thread; 0 if all have the same.
    """

    blocks: str
    least: int
    stride: int = 0

    @property
    def arguments(self) -> list[str]:
        """Arguments of a call, after the pool."""
        return [str(self.least), *([str(self.stride)] if self.stride else [])]

    @property
    def parameters(self) -> TypedNames:
        """Parameters of the kernel, after its own."""
        return _RANGE

    @property
    def text(self) -> str:
        """Text that can differ between kernels with equal statements, with the names of the called functions."""
        return ""

    @property
    def reads(self) -> str:
        """Text besides the kernel that reads sizes."""
        return self.blocks

    def scratch(self, needed: int, threads: int) -> int:
        """Bytes of scratch memory of all threads together, if one thread needs ``needed``."""
        return threads * self.stride if self.stride else needed

    @property
    def pieces(self) -> int:
        """The number of ranges that the blocks of each thread are cut into: one if each range begins by filling scratch
        memory, otherwise some, so that a slow thread gets fewer.
        """
        return 1 if self.stride else 4


@dataclass(frozen=True, slots=True)
class StageShare:
    """How a kernel hands out the blocks of its stages.

    Attributes:
        before: See :class:`~eqsat.codegen.kernel_stages.Stages`.
        turns: Likewise.
        each: How it does so in each stage.
    """

    before: str
    turns: tuple[str, ...]
    each: tuple[Share, ...]

    @property
    def arguments(self) -> list[str]:
        """Arguments of a call, after the pool."""
        return []

    @property
    def parameters(self) -> TypedNames:
        """Parameters of the kernel, after its own."""
        return (("int ", "stage"), *_RANGE)

    @property
    def text(self) -> str:
        """Text that can differ between kernels with equal statements, with the names of the called functions."""
        return self.caller("share", "part")

    @property
    def reads(self) -> str:
        """Text besides the kernel that reads sizes."""
        return self.text

    def scratch(self, needed: int, threads: int) -> int:
        """Bytes of scratch memory of all threads together, if one thread needs ``needed``."""
        return needed

    def caller(self, share: str, part: str) -> str:
        """The statements that one thread executes.

        Args:
            share: Function that hands out blocks.
            part: Function that computes a range of them.
        """
        lines = [self.before, self.turns[0]]
        for k, (own, turn) in enumerate(zip(self.each, self.turns[1:], strict=True)):
            lines.append(f"given.stage = {k};")
            lines.append(f"{share}(pool, {part}, &given, {own.blocks}, {own.least}, {own.pieces});")
            lines.append(turn)
        return "\n".join(lines)


class Sharing:
    """Decides which kernels threads share.

    Args:
        threads: How many there are at most.
        host: Prices kernels.
        sizes: The greatest values of free sizes, by the names of their variables.
        enough: Whether the program is worth it as a whole.
    """

    def __init__(self, threads: int, host: Target, sizes: Mapping[str, int], enough: bool = True) -> None:
        self.threads = threads
        self._host = host
        self._sizes = sizes
        self._enough = enough

    def of(self, layout: Layout) -> Sharing:
        """The decision for a program with these kernels."""
        return Sharing(self.threads, self._host, self._sizes, self._work(layout) >= ENOUGH)

    def _work(self, layout: Layout) -> float:
        """Predicted seconds in a run of all kernels that are worth sharing."""
        total = 0.0
        for node in layout.nodes:
            control = control_of(node)
            if control is not None:
                total += control.times * sum(self._work(body.layout) for body in control.bodies)
            elif (seconds := self.seconds(layout.task(node), layout.families[node].name)) >= WORTH:
                total += seconds
        return total

    def seconds(self, task: Task, family: str) -> float:
        """Predicted seconds of a call at the greatest sizes."""
        try:
            return Prediction(_at_greatest(task), family, self._host).seconds()
        except (EqsatError, Undecided):
            return math.inf

    def share(self, kernel: GeneratedKernel, seconds: float) -> tuple[str, Share | StageShare] | None:
        """The statements for a range of blocks of a kernel that takes ``seconds``, and how it is shared; None if it
        stays on one thread.
        """
        if not self._enough or seconds < WORTH:
            return None
        parts = in_parts(kernel.body, self._sizes)
        if parts is None:
            stages = in_stages(kernel.body, self._sizes)
            return None if stages is None else self._stages(stages, seconds)
        least = _least(parts, seconds)
        if parts.count < 2 * least:
            return None
        return parts.body, Share(parts.blocks, least, -(-kernel.scratch // ALIGNMENT) * ALIGNMENT)

    def _stages(self, stages: Stages, seconds: float) -> tuple[str, StageShare] | None:
        """The same for a kernel with stages, of which only those worth it are shared."""
        each = []
        for parts, part in stages.each:
            own = 2 * part * seconds
            least = _least(parts, own) if own >= WORTH else parts.count
            each.append(Share(parts.blocks, least))
        if all(parts.count < 2 * own.least for own, (parts, _) in zip(each, stages.each, strict=True)):
            return None
        return stages.body, StageShare(stages.before, stages.turns, tuple(each))


def sharing_functions(
    prefix: str, name: str, parameters: TypedNames, share: Share | StageShare, written: Callable[[str, str, str], str]
) -> str:
    """The functions by which threads share a kernel, after that of the kernel.

    Args:
        prefix: Prefix of the program.
        name: Name of the kernel's function.
        parameters: Parameters of the kernel, without the range.
        share: Its blocks.
        written: Writes a function from its name, parameters and statements, in the form of the kernel's.
    """
    fields = [(c.replace("restrict ", ""), n) for c, n in parameters]
    arguments = [f"g->{n}" for _, n in parameters]
    packed = [n for _, n in parameters]
    more = ""
    if isinstance(share, StageShare):
        fields.append(("int ", "stage"))
        packed.append("0")
        body = (
            f"struct {name}_given given = {{{', '.join(packed)}}};\n{share.caller(f'{prefix}_share', f'{name}_part')}"
        )
        head = ", ".join(f"{c}{n}" for c, n in ((f"{prefix}_pool *", "pool"), *parameters))
        return _part(name, fields, [*arguments, "g->stage"]) + written(f"{name}_shared", head, body)
    if share.stride:
        fields[-1] = ("unsigned char *", "scratch")
        arguments[-1] = "g->scratch + (size_t)worker * g->stride"
        packed[-1] = "(unsigned char *)scratch"
        more = ", size_t stride"
        fields.append(("size_t ", "stride"))
        packed.append("stride")
    head = ", ".join(f"{c}{n}" for c, n in parameters)
    return (
        f"{_part(name, fields, arguments)}"
        f"static void {name}_shared({prefix}_pool *pool, ptrdiff_t least{more}, {head}) {{\n"
        f"    const struct {name}_given given = {{{', '.join(packed)}}};\n"
        f"    {prefix}_share(pool, {name}_part, &given, {share.blocks}, least, {share.pieces});\n"
        "}\n"
    )


def _part(name: str, fields: TypedNames, arguments: Sequence[str]) -> str:
    """The function that threads call: it unpacks the arguments of the kernel."""
    given = "".join(f"    {c}{n};\n" for c, n in fields)
    return (
        f"struct {name}_given {{\n{given}}};\n\n"
        f"static void {name}_part(const void *given, ptrdiff_t begin, ptrdiff_t end, int worker) {{\n"
        f"    const struct {name}_given *const g = (const struct {name}_given *)given;\n"
        f"    (void)worker;\n"
        f"    {name}({', '.join([*arguments, 'begin', 'end'])});\n"
        "}\n\n"
    )


def _least(parts: Parts, seconds: float) -> int:
    """Blocks that a thread gets at least."""
    return max(1, math.ceil(parts.count * LEAST / seconds))


def _at_greatest(task: Task) -> Task:
    def fixed(operand: Any) -> Any:
        if not isinstance(operand, View):
            return operand
        return replace(
            operand, shape=tuple(map(greatest, operand.shape)), strides=tuple(map(greatest, operand.strides))
        )

    operands = tuple(map(fixed, task.epilogue.operands))
    return replace(
        task,
        inputs=tuple(map(fixed, task.inputs)),
        outputs=tuple(map(fixed, task.outputs)),
        epilogue=replace(task.epilogue, operands=operands),
    )
