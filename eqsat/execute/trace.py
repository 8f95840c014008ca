"""Runs a model and observes every tensor, or keeps all tensors so that parts can be run again.

Calibration observes tensors; each is freed after its last reader, so that memory is that of one run. Measuring the
effect of a change in one tensor on the outputs runs only the steps again that depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import ExecutionError
from eqsat.execute.compile_graph import ModelContext, compile_graph
from eqsat.execute.feeds import Feed, Symbols
from eqsat.ops.blas import one_thread

TensorValues = list[Any]
"""The values of all tensors after a run, by slot."""


class Trace:
    """A compiled model whose tensors can be seen.

    These are tensors of the main graph only, not those inside bodies of control flow and functions.

    Args:
        model: Any valid model; it must not change while the trace is in use.
    """

    def __init__(self, model: ir.Model) -> None:
        graph = model.graph
        values = dict.fromkeys([*graph.inputs, *graph.initializers.values()])
        values |= dict.fromkeys(v for node in graph for v in node.outputs if v.name)
        program = compile_graph(graph, list(values), model.opset_imports, ModelContext.of(model))
        if program.captured:
            raise ExecutionError(
                "every value must be an input, a constant, or computed before its use",
                place=f"graph {graph.name or ''!r}",
                actual=repr(program.captured[0].name),
            )
        self._program = program
        self._slots = {v.name or "": slot for v, slot in zip(program.outputs, program.results, strict=True)}
        self._outputs = tuple(v.name or "" for v in graph.outputs)
        self._feeds = [Feed(v, has_default=v.name in graph.initializers) for v in graph.inputs]
        # Results are kept by a program; a trace releases tensors without further readers.
        last = {slot: i for i, step in enumerate(program.steps) for slot in (*step.inputs, *step.outputs)}
        self._dead: list[list[int]] = [[] for _ in program.steps]
        for slot, i in last.items():
            if slot and program.initial[slot] is None:
                self._dead[i].append(slot)
        names = {slot: name for name, slot in self._slots.items()}
        self._written = [[(s, names[s]) for s in step.outputs if s in names] for step in program.steps]
        self._affected: dict[int, list[int]] = {}

    @property
    def output_names(self) -> tuple[str, ...]:
        """Outputs of the model, in order."""
        return self._outputs

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Tensors that no input changes: initializers, and values computed only from them."""
        initial = self._program.initial
        return {n: initial[s] for n, s in self._slots.items() if isinstance(initial[s], np.ndarray)}

    def observe(
        self,
        inputs: Mapping[str, Any],
        see: Callable[[str, Any], None],
        change: Callable[[Any], Any] | None = None,
    ) -> None:
        """Runs the model and passes every tensor that depends on the inputs to ``see``, as soon as it is computed;
        inputs come first.

        Args:
            inputs: Array by input name; other names are ignored.
            see: Receives name and value, which it must neither keep nor change.
            change: Returns the value that later operators read instead of a result.

        Raises:
            ExecutionError: An input is missing or unfit, or an operator cannot be executed.
        """
        values = self._start(inputs)
        for feed in self._feeds:
            if not feed.has_default:
                see(feed.name, values[self._slots[feed.name]])
        with bounds.metered(), np.errstate(all="ignore"), one_thread():
            for step, written, dead in zip(self._program.steps, self._written, self._dead, strict=True):
                results = step.call([values[i] for i in step.inputs])
                for slot, value in zip(step.outputs, results, strict=False):
                    values[slot] = value if change is None else change(value)
                for slot, name in written:
                    see(name, values[slot])
                for slot in dead:
                    values[slot] = None

    def run(self, inputs: Mapping[str, Any]) -> TensorValues:
        """Run and keep every tensor."""
        values = self._start(inputs)
        self._execute(values, range(len(self._program.steps)))
        return values

    def run_again(self, state: TensorValues, changed: str, value: Any) -> TensorValues:
        """The state that follows from another value of one tensor; ``state`` is not changed."""
        slot = self._slots[changed]
        if slot not in self._affected:
            self._affected[slot] = self._downstream(slot)
        values = state.copy()
        values[slot] = value
        self._execute(values, self._affected[slot])
        return values

    def value(self, state: TensorValues, name: str) -> Any:
        """A tensor of a state."""
        return state[self._slots[name]]

    def outputs(self, state: TensorValues) -> dict[str, Any]:
        """The model's outputs in a state."""
        return {name: state[self._slots[name]] for name in self._outputs}

    def _start(self, inputs: Mapping[str, Any]) -> TensorValues:
        values = self._program.initial.copy()
        symbols: Symbols = {}
        for feed in self._feeds:
            if feed.has_default:
                continue
            if feed.name not in inputs:
                raise feed.missing()
            values[self._slots[feed.name]] = feed.checked(inputs[feed.name], symbols)
        return values

    def _execute(self, values: TensorValues, steps: Sequence[int]) -> None:
        with bounds.metered(), np.errstate(all="ignore"), one_thread():
            for i in steps:
                step = self._program.steps[i]
                results = step.call([values[s] for s in step.inputs])
                for slot, value in zip(step.outputs, results, strict=False):
                    values[slot] = value

    def _downstream(self, slot: int) -> list[int]:
        """Steps that depend on a slot."""
        touched = {slot}
        found = []
        for i, step in enumerate(self._program.steps):
            if not touched.isdisjoint(step.inputs):
                touched.update(step.outputs)
                found.append(i)
        return found
