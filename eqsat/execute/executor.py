"""The numpy executor's face: checks what it is given, compiles on first use, returns arrays by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import ExecutionError
from eqsat.execute.program import Context, Program, compile_graph
from eqsat.model import opset
from eqsat.ops.evaluate import describe
from eqsat.ops.kernels.casting import numpy_dtype


class Executor:
    """Runs a model.

    Kernels, constant expressions and lifetimes are settled once for each set of outputs (and of initializers that are
    overridden), at its first run.

    Args:
        model: Any valid model; it must not change while the executor is in use.

    Example:
        >>> import numpy as np, onnx, onnx_ir as ir
        >>> text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) {y = Add(x, x)}'
        >>> Executor(ir.from_proto(onnx.parser.parse_model(text))).run({"x": np.ones(2, np.float32)})
        {'y': array([2., 2.], dtype=float32)}
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._context = Context(model.functions)
        self._programs: dict[tuple[tuple[str, ...], tuple[str, ...]], Program] = {}
        initializers = model.graph.initializers
        self._inputs = {_name(v): v for v in model.graph.inputs}
        self._optional = {name for name in self._inputs if name in initializers}
        self._outputs = {_name(v): v for v in model.graph.outputs}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Inputs that must be given; those with an initializer may be given."""
        return tuple(name for name in self._inputs if name not in self._optional)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Outputs of the model, in order."""
        return tuple(self._outputs)

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run the model.

        Args:
            inputs: Array by input name, of exactly the declared element type; lists for sequences, None for an
                empty optional.
            outputs: Names of the tensors to return, also intermediate ones; only what they need is computed.
                All outputs of the model by default.

        Returns:
            Array by name, in the order asked for. They are the caller's: no run touches them again.

        Raises:
            ExecutionError: Missing, unknown or unfit inputs, unknown outputs, or an operator that cannot be executed.
        """
        arguments = self._checked(inputs)
        overridden = tuple(name for name in self._inputs if name in self._optional and name in arguments)
        program = self._program(self.output_names if outputs is None else tuple(outputs), overridden)
        given = [
            program.initial[slot] if name in self._optional and name not in arguments else arguments.get(name)
            for slot, name in zip(program.arguments, self._inputs, strict=True)
        ]
        with np.errstate(all="ignore"):
            results = program.run(given)
        taken = {id(x) for x in (*arguments.values(), *program.initial)}
        return {_name(v): _owned(r, taken) for v, r in zip(program.outputs, results, strict=True)}

    def _program(self, names: tuple[str, ...], overridden: tuple[str, ...]) -> Program:
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

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs as arrays of the declared types."""
        unknown = [name for name in inputs if name not in self._inputs]
        if unknown:
            raise ExecutionError(
                "the name of an input is required",
                place=f"input {unknown[0]!r}",
                actual="a name that the model does not have",
                hint=opset.did_you_mean(unknown[0], self._inputs)
                or f"the inputs are {', '.join(self._inputs) or 'none'}",
            )
        symbols: dict[str, tuple[int, str]] = {}
        checked = {}
        for name, value in self._inputs.items():
            if name in inputs:
                checked[name] = _check(name, inputs[name], value, symbols)
            elif name not in self._optional and not isinstance(value.type, ir.OptionalType):
                raise ExecutionError(
                    "a value is required", place=f"input {name!r}", actual="nothing", hint=f"it is {_declared(value)}"
                )
        return checked


def _check(name: str, given: Any, value: ir.Value, symbols: dict[str, tuple[int, str]]) -> Any:
    """One input against its declaration; ``symbols`` are the dimensions bound so far and by which input."""
    place = f"input {name!r}"
    if isinstance(value.type, ir.SequenceType | ir.OptionalType):
        if isinstance(value.type, ir.SequenceType) and not isinstance(given, list | tuple):
            raise ExecutionError("a sequence is required", place=place, actual=describe(given))
        return [np.asarray(x) for x in given] if isinstance(given, list | tuple) else given
    if given is None or (isinstance(given, list) and any(isinstance(x, np.ndarray) for x in given)):
        raise ExecutionError(f"{_declared(value)} is required", place=place, actual=describe(given))
    array = np.asarray(given)
    if value.dtype == ir.DataType.STRING:
        if array.dtype.kind not in "OUS":
            raise ExecutionError("strings are required", place=place, actual=describe(array))
        array = array.astype(object)
    elif value.dtype is not None and array.dtype != numpy_dtype(int(value.dtype)):
        wanted = numpy_dtype(int(value.dtype))
        hint = f"convert it: .astype({wanted.name!r})"
        raise ExecutionError(f"an array of {wanted} is required", place=place, actual=describe(array), hint=hint)
    if value.shape is not None:
        if array.ndim != len(value.shape):
            raise ExecutionError(f"{_declared(value)} is required", place=place, actual=describe(array))
        for axis, (have, want) in enumerate(zip(array.shape, value.shape, strict=True)):
            symbol = want if isinstance(want, int) else want.value
            if isinstance(symbol, int) and have != symbol:
                raise ExecutionError(f"{_declared(value)} is required", place=place, actual=describe(array))
            if isinstance(symbol, str) and symbol:
                bound, by = symbols.setdefault(symbol, (have, name))
                if bound != have:
                    raise ExecutionError(
                        f"dimension {axis} must be {symbol}, which is {bound} in input {by!r}",
                        place=place,
                        actual=describe(array),
                    )
    return array


def _declared(value: ir.Value) -> str:
    """Type and shape that the model declares."""
    if value.dtype is None:
        return "a value"
    dtype = "string" if value.dtype == ir.DataType.STRING else numpy_dtype(int(value.dtype)).name
    if value.shape is None:
        return f"an array of {dtype}"
    dims = [str(d) if isinstance(d, int) else d.value or "?" for d in value.shape]
    return f"{dtype}[{', '.join(dims)}]"


def _owned(value: Any, taken: set[int]) -> Any:
    """An array that nothing else holds: inputs, constants, views and what was returned before are copied."""
    if isinstance(value, list):
        return [_owned(v, taken) for v in value]
    if isinstance(value, np.ndarray) and (value.base is not None or id(value) in taken):
        value = value.copy()
    taken.add(id(value))
    return value


def _name(value: ir.Value) -> str:
    return value.name or ""
