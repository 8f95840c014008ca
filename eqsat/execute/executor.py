"""The interface of the numpy executor: checks inputs, compiles at first use, returns arrays by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import ExecutionError
from eqsat.execute.compile_graph import ModelContext, compile_graph
from eqsat.execute.compiled_graph import CompiledGraph
from eqsat.execute.disagreement import explained
from eqsat.execute.feeds import Feed, Symbols, check_expressions, check_ranges, unknown_name
from eqsat.model.optimized_sizes import optimized_sizes
from eqsat.ops.blas import one_thread
from eqsat.schema import opset

if TYPE_CHECKING:
    from eqsat.backends.backend import Backend

_DEFAULT = object()
"""Placeholder for an initializer that is not overridden."""


class Executor:
    """Runs a model.

    Kernels, constant expressions and lifetimes are settled once for each set of outputs (and of initializers that are
    overridden), at its first run.

    Args:
        model: Any valid model; it must not change while the executor is in use.
        backends: Backends by target that execute regions from Python; numpy executes the rest.

    Example:
        >>> import numpy as np, onnx, onnx_ir as ir
        >>> text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) {y = Add(x, x)}'
        >>> Executor(ir.from_proto(onnx.parser.parse_model(text))).run({"x": np.ones(2, np.float32)})
        {'y': array([2., 2.], dtype=float32)}
    """

    def __init__(self, model: ir.Model, backends: Mapping[str, Backend] | None = None) -> None:
        self._model = model
        self._context = ModelContext.of(model, backends)
        self._programs: dict[tuple[tuple[str, ...], tuple[str, ...]], CompiledGraph] = {}
        initializers = model.graph.initializers
        self._inputs = {_name(v): v for v in model.graph.inputs}
        self._feeds = [Feed(v, has_default=_name(v) in initializers) for v in model.graph.inputs]
        self._outputs = {_name(v): v for v in model.graph.outputs}
        self._output_names = tuple(self._outputs)
        self._ranges = optimized_sizes(model)
        self._has_defaults = any(feed.has_default for feed in self._feeds)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Inputs that must be given; those with an initializer may be given."""
        return tuple(feed.name for feed in self._feeds if not feed.has_default)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Outputs of the model, in order."""
        return self._output_names

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Runs the model.

        Args:
            inputs: Array by input name, of exactly the declared element type; lists for sequences, None for an
                empty optional.
            outputs: Names of the tensors to return, also intermediate ones; only what they need is computed.
                All outputs of the model by default.

        Returns:
            Array by name, in the requested order. The caller owns them: no run changes them again.

        Raises:
            ExecutionError: Missing, unknown or unfit inputs, unknown outputs, or an operator that cannot be executed.
            LimitError: The run exceeds the limits of memory, time or operators, as an endless loop does.
        """
        with bounds.metered():
            return self._run(inputs, outputs)

    def _run(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None) -> dict[str, Any]:
        names = self._output_names if outputs is None else tuple(outputs)
        arguments, overridden = self._checked(inputs)
        program = self._program(names, overridden)
        if self._has_defaults:
            arguments = [
                program.initial[slot] if x is _DEFAULT else x
                for slot, x in zip(program.arguments, arguments, strict=True)
            ]
        try:
            with np.errstate(all="ignore"), one_thread():
                results = program.run(arguments)
        except ExecutionError as error:
            raise explained(self._model, inputs, error) from error
        taken = {id(x) for x in arguments}
        return {name: _owned(r, taken, program) for name, r in zip(names, results, strict=True)}

    def _program(self, names: tuple[str, ...], overridden: tuple[str, ...]) -> CompiledGraph:
        program = self._programs.get((names, overridden))
        if program is None:
            graph = self._model.graph
            program = compile_graph(
                graph,
                [self._find(name) for name in names],
                self._model.opset_imports,
                self._context,
                variable=[self._inputs[name] for name in overridden],
            )
            if program.captured:
                raise ExecutionError(
                    "every value must be an input, a constant, or computed before its use",
                    place=f"graph {graph.name or ''!r}",
                    actual=repr(program.captured[0].name),
                )
            self._programs[names, overridden] = program
        return program

    def _find(self, name: str) -> ir.Value:
        if name in self._outputs:
            return self._outputs[name]
        graph = self._model.graph
        known = {v.name: v for node in graph for v in node.outputs if v.name}
        known |= {**graph.initializers, **self._inputs}
        if name not in known:
            raise ExecutionError(
                "the name of a tensor of the model is required",
                place="outputs",
                actual=repr(name),
                hint=opset.did_you_mean(name, [*self._outputs, *(n for n in known if n)])
                or f"the outputs are {', '.join(self._outputs)}",
            )
        return known[name]

    def _checked(self, inputs: Mapping[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
        """Inputs as arrays of the declared types, in order, and the initializers that they override."""
        symbols: Symbols = {}
        checked: list[Any] = []
        overridden: tuple[str, ...] = ()
        known = 0
        for feed in self._feeds:
            if feed.name in inputs:
                known += 1
                checked.append(feed.checked(inputs[feed.name], symbols))
                if feed.has_default:
                    overridden += (feed.name,)
            elif feed.has_default:
                checked.append(_DEFAULT)
            elif feed.optional:
                checked.append(None)
            else:
                raise self._unknown(inputs) or feed.missing()
        if known < len(inputs):
            error = self._unknown(inputs)
            if error is not None:
                raise error
        check_expressions(symbols)
        check_ranges(symbols, self._ranges)
        return checked, overridden

    def _unknown(self, inputs: Mapping[str, Any]) -> ExecutionError | None:
        """The error for a name that is not an input, if any: it tells more than the error for a missing input."""
        unknown = next((name for name in inputs if name not in self._inputs), None)
        if unknown is None:
            return None
        return unknown_name("input", unknown, self._inputs)


def _owned(value: Any, taken: set[int], program: CompiledGraph) -> Any:
    """An array that is not shared: inputs, constants, views and arrays that were returned before are copied."""
    if isinstance(value, list):
        return [_owned(v, taken, program) for v in value]
    if type(value) is np.ndarray and (value.base is not None or id(value) in taken or id(value) in program.constants):
        value = value.copy()
    taken.add(id(value))
    return value


def _name(value: ir.Value) -> str:
    return value.name or ""
