"""Fusion: elementwise operators become steps after the operator that computes their operand.

A step joins its producer if no other node reads the intermediate tensor and the producer's family can write the longer
epilogue, unless plain loops would call a function element by element that vectors compute. The joined node runs at the
position of the step, when all its operands are available. Of several producers (a residual sum) the one that runs last
takes the step: the results of the others have to wait in memory anyway. A chain that only one step reads is computed
inside that step. A conversion between layouts after elementwise operators is done by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from eqsat.codegen.c_types import HALVES
from eqsat.codegen.family_choice import family_of
from eqsat.codegen.kernel import Family, Step
from eqsat.codegen.kernels.shared.families import find
from eqsat.codegen.program import Program, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.codegen.view_operators import is_piece
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.types import CAST, OpKey

_CONCAT = OpKey("", "Concat")
_WIDE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
"""Types that have all numbers of half precision."""

MOST_STEPS = 64
"""Steps of one kernel; longer bodies only cost compile time."""


def fuse(program: Program) -> None:
    """Fuse what can be fused; nodes are changed in place."""
    _Fusion(program).run()


class _Fusion:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.returned = {tensor for _, tensor in program.outputs}
        self.uses: dict[ProgramTensor, int] = {}
        for node in program.nodes:
            for tensor in node.reads():
                self.uses[tensor] = self.uses.get(tensor, 0) + 1
        self.producer: dict[ProgramTensor, ProgramNode] = {}
        self.position: dict[ProgramNode, int] = {}
        self.families: dict[ProgramNode, Family] = {}

    def run(self) -> None:
        kept: list[ProgramNode] = []
        for number, node in enumerate(self.program.nodes):
            if node.is_chain and node.steps:
                node = self._absorb_chains(node)
                joined = self._join(node)
                if joined is not None:
                    kept.remove(joined)
                    node = joined
            elif node.is_chain and self._convert_inside(node):
                continue
            kept.append(node)
            self.position[node] = number
            self.producer.update(dict.fromkeys(node.writes(), node))
        # A chain that was fused into another node is still in the list, but has no readers now.
        self.program.nodes = kept
        self.program.remove_dead()

    def _convert_inside(self, conversion: ProgramNode) -> bool:
        """Let the elementwise operators before a conversion write its layout; returns whether they do."""
        producer = self._private(conversion.inputs[0])
        if producer is None or not producer.is_chain or not producer.steps or conversion.boundary:
            return False
        if producer.group != conversion.group or conversion.output.order is None:
            return False
        if producer.dtype in HALVES:
            return False  # In float32, a copy that transposes takes less than what loads half vectors across.
        producer.outputs = [conversion.output]
        self.producer[conversion.output] = producer
        return True

    def _private(self, operand: ProgramOperand | None) -> ProgramNode | None:
        """The node that computes an operand as its first output, if the operand has no other readers."""
        if not isinstance(operand, ProgramTensor) or operand in self.returned or self.uses.get(operand) != 1:
            return None
        found = self.producer.get(operand)
        return found if found is not None and found.outputs[0] is operand else None

    def _absorb_chains(self, node: ProgramNode) -> ProgramNode:
        """Compute operands inside that are chains themselves; not the anchor's, which ``_join`` handles."""
        for operand in list(node.operands):
            producer = self._private(operand)
            if producer is None or not producer.is_chain or not producer.steps or operand is node.inputs[0]:
                continue
            if producer.group != node.group:
                continue
            if producer.output.shape != node.output.shape or len(node.steps) + len(producer.steps) > MOST_STEPS:
                continue
            merged = _inlined(node, node.operands.index(operand), producer)
            if find(merged.provisional_task()) is not None:
                node = merged
        return node

    def _join(self, chain: ProgramNode) -> ProgramNode | None:
        """Appends a chain to the node that computes one of its operands; returns that node, or None."""
        candidates: list[tuple[int, int, ProgramNode]] = []
        for number, operand in enumerate([chain.inputs[0], *chain.operands]):
            producer = self._private(operand)
            if producer is None or producer.group != chain.group:
                continue
            if any(producer.outputs[1:]):
                continue  # Readers of its other outputs do not wait until the step's turn.
            if not producer.steps and (is_piece(producer) or producer.operator == _CONCAT):
                continue  # These cost nothing unless steps are added to them.
            if producer.output.shape == chain.output.shape:
                candidates.append((self.position[producer], -number, producer))
        for _, number, producer in sorted(candidates, key=lambda c: (c[0], c[1]), reverse=True):
            if len(producer.steps) + len(chain.steps) > MOST_STEPS:
                continue
            if not producer.is_chain and _converts(producer.output, chain.output):
                continue
            merged = appended(producer, chain, -number)
            family = self._family(producer)
            if family is None or _slower_inside(family, chain):
                continue
            if family.accepts(merged.provisional_task()):
                producer.operands, producer.steps = merged.operands, merged.steps
                producer.outputs = merged.outputs
                return producer
        return None

    def _family(self, node: ProgramNode) -> Family | None:
        if node not in self.families:
            found = family_of(node)
            if found is None:
                return None
            self.families[node] = found
        return self.families[node]


def _slower_inside(family: Family, chain: ProgramNode) -> bool:
    """Whether plain loops would call functions element by element that a kernel of its own computes in vectors."""
    if family.rank or not any(has(step.operator, Trait.ELEMENTARY) for step in chain.steps):
        return False
    own = find(chain.provisional_task())
    return own is not None and own.rank > 0


def _converts(before: ProgramTensor, after: ProgramTensor) -> bool:
    """Whether the second tensor has, by decision, another order of axes than the first."""
    return before.order is not None and after.order is not None and before.order != after.order


def _add(operands: list[ProgramOperand], operand: ProgramOperand) -> int:
    """Number of an operand (from 1), appended unless it is there."""
    for k, known in enumerate(operands):
        if known is operand:
            return 1 + k
    operands.append(operand)
    return len(operands)


def _renumbered(step: Step, numbers: dict[int, int]) -> Step:
    return replace(step, inputs=tuple(None if i is None else numbers[i] for i in step.inputs))


def appended(first: ProgramNode, chain: ProgramNode, at: int) -> ProgramNode:
    """``first`` followed by the steps of ``chain``; value ``at`` of the chain (0 its anchor) is ``first``'s result.

    The anchor's operand of the chain becomes an operand of the whole if it is not the one that is replaced.
    """
    operands = list(first.operands)
    sources: list[ProgramOperand | None] = [chain.inputs[0], *chain.operands]
    joined = sources[at]
    pending: list[tuple[int, ProgramOperand]] = [
        (i, source) for i, source in enumerate(sources) if source is not None and source is not joined
    ]
    places = {i: _add(operands, source) for i, source in pending}
    before, grown = len(first.operands), len(operands)
    old = {i: i if i <= before else i + grown - before for i in range(1 + before + len(first.steps))}
    steps = [_renumbered(s, old) for s in first.steps]
    result = grown + len(first.steps) if first.steps else 0
    numbers = {i: places.get(i, result) for i in range(len(sources))}
    for k in range(len(chain.steps)):
        numbers[len(sources) + k] = 1 + grown + len(first.steps) + k
    steps += [_renumbered(s, numbers) for s in chain.steps]
    while _returns(steps, 1 + grown):
        del steps[-2:]
    return ProgramNode(
        first.name, first.operator, first.attributes, first.inputs, [chain.outputs[0], *first.outputs[1:]], first.dtype,
        operands, steps, first.group,
    )  # fmt: skip


def _returns(steps: Sequence[Step], first: int) -> bool:
    """Whether the last two steps take a number of half precision to a wider type and back.

    Args:
        steps: All steps.
        first: Number of the first one's value.
    """
    if len(steps) < 3 or any(step.operator != CAST for step in steps[-2:]):
        return False
    end = first + len(steps)
    follow = steps[-1].inputs == (end - 2,) and steps[-2].inputs == (end - 3,)
    return follow and steps[-2].dtype in _WIDE and steps[-1].dtype in HALVES and steps[-3].dtype == steps[-1].dtype


def _inlined(node: ProgramNode, operand: int, producer: ProgramNode) -> ProgramNode:
    """``node`` with one of its operands, a chain, computed inside: its steps come first."""
    gone = node.operands[operand]
    operands: list[ProgramOperand] = [x for x in node.operands if x is not gone]
    sources = [producer.inputs[0], *producer.operands]
    inner = {i: _add(operands, source) for i, source in enumerate(sources) if source is not None}
    grown = len(operands)
    for k in range(len(producer.steps)):
        inner[len(sources) + k] = 1 + grown + k
    steps = [_renumbered(s, inner) for s in producer.steps]
    outer = {0: 0}
    for k, source in enumerate(node.operands):
        outer[1 + k] = grown + len(producer.steps) if source is gone else _add(operands, source)
    for k in range(len(node.steps)):
        outer[1 + len(node.operands) + k] = 1 + grown + len(producer.steps) + k
    steps += [_renumbered(s, outer) for s in node.steps]
    return ProgramNode(
        node.name, node.operator, node.attributes, node.inputs, node.outputs, node.dtype, operands, steps, node.group,
    )  # fmt: skip
