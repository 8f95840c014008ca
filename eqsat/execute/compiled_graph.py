"""A compiled graph: a list of steps over numbered slots, and its execution.

For each step the tensors without later readers are known, so that they are freed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat import bounds
from eqsat.ops.evaluate import EvaluateOperator, TensorValue


@dataclass(frozen=True, slots=True)
class Instruction:
    """One node.

    Attributes:
        call: Computes it.
        inputs: Slots read.
        outputs: Slots written.
        dead: Slots that no later step reads.
    """

    call: EvaluateOperator
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dead: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A compiled graph.

    Attributes:
        initial: Slots before a run: constants, otherwise None.
        arguments: Slots of the inputs, then of the captured values.
        captured: The outer values that the graph reads.
        steps: In execution order.
        results: Slots of the outputs.
        outputs: The values returned.
        constants: Identities of the arrays that all runs share.
    """

    initial: list[TensorValue]
    arguments: tuple[int, ...]
    captured: tuple[ir.Value, ...]
    steps: tuple[Instruction, ...]
    results: tuple[int, ...]
    outputs: tuple[ir.Value, ...]
    constants: frozenset[int]

    @property
    def captures(self) -> int:
        """Number of captured values."""
        return len(self.captured)

    def run(self, arguments: Sequence[TensorValue]) -> list[TensorValue]:
        """Run on inputs (missing ones at the end are absent) followed by captured values.

        Raises:
            LimitError: The work exceeds the limits of the execution.
        """
        bounds.current().step(len(self.steps) + 1)
        values = self.initial.copy()
        for slot, value in zip(self.arguments, arguments, strict=False):
            values[slot] = value
        for step in self.steps:
            results = step.call([values[i] for i in step.inputs])
            for slot, value in zip(step.outputs, results, strict=False):
                values[slot] = value
            for slot in step.dead:
                values[slot] = None
        return [values[i] for i in self.results]
