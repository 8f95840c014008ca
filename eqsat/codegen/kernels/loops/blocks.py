"""Blocks of elements that move: a box of the output, and the source of its elements.

The source position is affine in each axis, or all elements have one value. A reflecting pad has a block for the middle
and one with steps of -1 on each side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.codegen.kernel import GeneratedKernel
from eqsat.codegen.kernel_templates import Template, TemplateResult, TemplateTensor
from eqsat.schema.size_questions import is_free

Places = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Block:
    """A loop nest that fills a part of an output.

    Attributes:
        shape: Bounds of the loops.
        place: Maps indices of the loops to an index of the output.
        source: The operand; None if there is a value.
        index: Maps indices of the loops to an index of the operand.
        value: C expression of the value.
        output: Number of the output.
        order: Of the loops, outermost first.
    """

    shape: tuple[int, ...]
    place: Places
    source: TemplateTensor | None = None
    index: Places = list
    value: str | None = None
    output: int = 0
    order: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class AxisRun:
    """Consecutive places of an axis of the output.

    Attributes:
        start: The first place.
        count: Number of places.
        source: Position of the first in the operand; None without a source.
        step: Distance in the operand between neighbours.
    """

    start: int
    count: int
    source: int | None
    step: int = 1


def runs(places: Sequence[int | None]) -> list[AxisRun]:
    """The fewest runs, from the left, that give each place of an output axis its place in the operand."""
    found: list[AxisRun] = []
    for at, place in enumerate(places):
        last = found[-1] if found else None
        if last is not None and last.count and (place is None) == (last.source is None):
            if place is None or last.source is None:
                found[-1] = AxisRun(last.start, last.count + 1, None)
                continue
            step = place - last.source if last.count == 1 else last.step
            if step in (-1, 0, 1) or last.count > 1:
                if place == last.source + step * last.count:
                    found[-1] = AxisRun(last.start, last.count + 1, last.source, step)
                    continue
            elif last.count == 1 and len(found) == 1:
                found[-1] = AxisRun(last.start, 2, last.source, step)
                continue
        found.append(AxisRun(at, 1, place))
    return found


def affine(i: str, step: int, start: int) -> str:
    """C text of ``i * step + start``."""
    if i == "0" or step == 0:
        return str(start)
    if step == -1:
        return f"{start} - {i}"
    if is_free(start):
        return f"{i if step == 1 else f'{i} * {step}'} + {start}"
    scaled = i if step == 1 else f"{i} * {step}"
    return scaled if start == 0 else f"{scaled} + {start}" if start > 0 else f"{scaled} - {-start}"


def boxes(y: TemplateResult, source: TemplateTensor, axes: Sequence[Sequence[AxisRun]], fill: str = "0") -> list[Block]:
    """A block for each combination of runs; a combination with a run without source has a value."""
    made = []
    for combination in itertools.product(*axes):
        shape = tuple(r.count for r in combination)
        if 0 in shape:
            continue

        def place(i: Sequence[str], combination: tuple[AxisRun, ...] = combination) -> list[str]:
            return [affine(k, 1, r.start) for k, r in zip(i, combination, strict=True)]

        def index(i: Sequence[str], combination: tuple[AxisRun, ...] = combination) -> list[str]:
            return [affine(k, r.step, r.source or 0) for k, r in zip(i, combination, strict=True)]

        empty = any(r.source is None for r in combination)
        made.append(Block(shape, place, None if empty else source, index, fill if empty else None, y.number, y.order))
    return made


def filled(template: Template, blocks: Sequence[Block]) -> GeneratedKernel:
    """The kernel of some blocks."""
    return template.fill("loops/movement.c.jinja", blocks=blocks)


def whole(y: TemplateResult, source: TemplateTensor) -> Block:
    """The whole output from an operand of the same shape."""
    return Block(y.shape, list, source, list, output=y.number, order=y.order)


def first(template: Template) -> tuple[TemplateResult, TemplateTensor]:
    """Output and input 0."""
    return template.result(), template.operand(0)
