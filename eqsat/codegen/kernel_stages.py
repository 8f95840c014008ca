"""Sequential kernels that share some of their stages among threads, such as each step of a recurrent network.

A family writes :data:`~eqsat.codegen.parallel.STAGES` after the declarations that the whole kernel reads. Statements
between :data:`STAGE` and :data:`END` are a stage, whose nests are marked as those of a kernel in parts
(``parallel.py``). They read nothing that is declared elsewhere. All threads share the scratch memory of such a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.codegen.parallel import STAGES, Parts, in_parts, whole

STAGE, END = "/* stage {part} */", "/* end of stage */"
"""Marks, each a line of its own; ``part`` is the part of the kernel's time that one execution of the stage takes."""
_STAGE = re.compile(r"\s*/\* stage (\S+) \*/\s*")


@dataclass(frozen=True, slots=True)
class Stages:
    """A kernel with stages.

    Attributes:
        before: The declarations.
        turns: The statements before the first stage, between each and the next, and after the last.
        each: The stages, and the part of the time that each takes.
    """

    before: str
    turns: tuple[str, ...]
    each: tuple[tuple[Parts, float], ...]

    @property
    def body(self) -> str:
        """Statements that compute a range of the blocks of ``stage``."""
        cases = "".join(f"case {k}: {{\n{parts.body}\nbreak;\n}}\n" for k, (parts, _) in enumerate(self.each))
        return f"{self.before}\nswitch (stage) {{\n{cases}default:\nbreak;\n}}"


def in_stages(body: str, sizes: Mapping[str, int]) -> Stages | None:
    """A kernel split into its stages; None if no stage can be shared.

    Args:
        body: With marks.
        sizes: Values of free sizes, by the names of their variables.
    """
    before, begin, rest = body.partition(STAGES)
    if not begin:
        return None
    turns: list[list[str]] = [[]]
    each: list[tuple[Parts, float]] = []
    lines = iter(rest.split("\n"))
    for line in lines:
        match = _STAGE.fullmatch(line)
        if match is None:
            turns[-1].append(line)
            continue
        stage = "\n".join(iter(lambda: next(lines), END))
        each.append((in_parts(stage, sizes) or Parts(whole(stage), "1", 1), float(match[1])))
        turns.append([])
    if all(parts.count == 1 for parts, _ in each):
        return None
    return Stages(before, tuple("\n".join(turn) for turn in turns), tuple(each))
