"""A compiled model that callers keep: generated, compiled and loaded once, then called like a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, overload

import numpy as np
import onnx_ir as ir

from eqsat.arguments import require_kind
from eqsat.codegen.generation_options import GenerationOptions
from eqsat.codegen.profile import Profile, measure
from eqsat.codegen.runtime import CModel
from eqsat.errors import ExecutionError
from eqsat.schema.declared_operators import DeclaredOperator, declared
from eqsat.schema.types import OneOrMoreArrays, TensorType

if TYPE_CHECKING:
    from eqsat.backends.coverage import Coverage
    from eqsat.codegen.emitted import Emitted, EntryParameter


class CompiledModel:
    """A model as machine code, made by :func:`eqsat.compile` or ``Result.compile``.

    A call passes arrays without copies and releases the interpreter's lock. Threads may call the same object at the
    same time: each run has its own working memory, which is kept for later runs. With free sizes one program serves the
    whole range; the sizes come from the arrays of a call.

    Args:
        model: A loaded model. Later changes to it have no effect.
        operators: That declarations have declared.
        options: See :func:`eqsat.compile`.

    Raises:
        CodegenError: The model cannot be written as C, or no C compiler accepts it.
        BackendError: A backend cannot be found, or fails.

    Example:
        >>> import eqsat
        >>> x = eqsat.input("x", (2, 3))
        >>> with eqsat.compile(eqsat.graph(eqsat.op.Relu(x))) as relu:
        ...     relu(np.array([[-1, 0, 1], [2, -2, 3]], np.float32))
        array([[0., 0., 1.],
               [2., 0., 3.]], dtype=float32)
    """

    def __init__(
        self, model: ir.Model, operators: tuple[DeclaredOperator, ...] = (), **options: Unpack[GenerationOptions]
    ) -> None:
        with declared(operators):
            self._program: CModel | None = CModel(model, **options)
        self._name = model.graph.name or "model"
        self._profiled: CModel | None = None
        emitted = self._program.emitted
        self._inputs = {x.name: _type(x) for x in emitted.inputs}
        self._outputs = {y.name: _type(y) for y in emitted.outputs}

    # ---- running ---------------------------------------------------------------------------------------

    @overload
    def __call__(
        self, inputs: Mapping[str, Any], /, *, out: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]: ...

    @overload
    def __call__(
        self, *inputs: np.ndarray, out: np.ndarray | Sequence[np.ndarray | None] | None = None
    ) -> OneOrMoreArrays: ...

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Runs the model; the results have the form of the arguments.

        Args:
            inputs: An array for each input, in the order of :attr:`inputs`, or all of them in one dictionary by name.
            out: Where to write the results: for arrays an array, or one for each output in a sequence, with None for a
                new one; for a dictionary a dictionary. Dense, and apart from all other arrays of the call.

        Returns:
            For arrays the array of the only output, or a tuple in the order of :attr:`outputs`; for a dictionary the
            arrays by name. They are new unless given in ``out``.

        Raises:
            ExecutionError: Arrays are missing, unknown, of another type or shape, or of a size outside its range; or
                the model was closed.
        """
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return self.run(inputs[0], out)
        names = tuple(self._inputs)
        if len(inputs) != len(names):
            raise ExecutionError(
                f"{_count(len(names), 'array')} required, for {', '.join(names) or 'no input'}",
                place=f"model {self._name!r}",
                actual=str(len(inputs)),
                hint="or give a dictionary by name",
            )
        results = self.run(dict(zip(names, inputs, strict=True)), None if out is None else self._named(out))
        return next(iter(results.values())) if len(results) == 1 else tuple(results.values())

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Runs the model.

        Args:
            inputs: Arrays by input name, of the types and shapes in :attr:`inputs`.
            out: Arrays to write results to, by output name; the other results are new arrays.

        Returns:
            Arrays by output name.

        Raises:
            ArgumentError: The inputs are not a mapping.
            ExecutionError: As for a call.
            LimitError: The working memory is larger than the memory limit.
        """
        if type(inputs) is not dict:  # the fastest variant for the usual case
            require_kind("inputs", inputs)
        return self._open().run(inputs, out)

    def profile(self, inputs: Mapping[str, Any] | np.ndarray, *, repeat: int = 10) -> Profile:
        """Measures each kernel. The first time, this compiles the program again, with clocks in it.

        Args:
            inputs: Arrays by input name, or a single array if there is one input.
            repeat: Runs, after one that does not count. Each kernel has its median time.

        Returns:
            Kernels in order of execution, with names, operators, microseconds and shares. As text it is a table.

        Raises:
            ExecutionError: As for a call, or ``repeat`` is less than 1.
        """
        program = self._open()
        if repeat < 1:
            raise ExecutionError("at least one run is required", place="repeat", actual=str(repeat))
        given = inputs if isinstance(inputs, Mapping) else dict(zip(self._inputs, (inputs,), strict=False))
        if self._profiled is None:
            self._profiled = program.profiled()
        return Profile.of(self._name, measure(self._profiled, given, repeat=repeat), program.emitted)

    # ---- facts -----------------------------------------------------------------------------------------

    @property
    def coverage(self) -> dict[str, Coverage]:
        """For each target: how many kernels of its regions its backend executes, and why not the others."""
        return dict(self._open().emitted.coverage)

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the inputs by name, in order; free sizes are symbols."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Types of the outputs by name, in order; a size may be an expression in symbols."""
        return dict(self._outputs)

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest value of each free size."""
        return {size.name: (size.least, size.most) for size in self.emitted.sizes}

    @property
    def emitted(self) -> Emitted:
        """The generated program: its text, its kernels and its memory."""
        return self._open().emitted

    # ---- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Frees code, weights and working memory; if a run is in progress, its memory is freed when it ends."""
        self._program = self._profiled = None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._program is None

    def __enter__(self) -> CompiledModel:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ExecutionError(
            "a compiled model stays in its process",
            place=f"model {self._name!r}",
            actual="an attempt to pickle or copy it",
            hint="save the optimized model and call eqsat.compile in each process: the compiled code is cached",
        )

    def __repr__(self) -> str:
        types = ", ".join(f"{name} {kind}" for name, kind in self._inputs.items())
        results = ", ".join(f"{name} {kind}" for name, kind in self._outputs.items())
        return f"<eqsat.CompiledModel {self._name}: ({types}) -> ({results}){', closed' if self.closed else ''}>"

    def _open(self) -> CModel:
        program = self._program
        if program is None:
            raise ExecutionError(
                "a model that is not closed is required",
                place=f"model {self._name!r}",
                hint="call it before `close()` or inside of `with`, or compile it again, which the cache makes cheap",
            )
        return program

    def _named(self, out: Any) -> dict[str, np.ndarray]:
        """The arrays for results, by name."""
        if isinstance(out, Mapping):
            return dict(out)
        given = tuple(out) if isinstance(out, list | tuple) else (out,)
        if len(given) != len(self._outputs):
            raise ExecutionError(
                f"{_count(len(self._outputs), 'array')} required for the results", place="out", actual=str(len(given))
            )
        return {name: array for name, array in zip(self._outputs, given, strict=True) if array is not None}


def _type(argument: EntryParameter) -> TensorType:
    return TensorType(ir.DataType[argument.dtype.upper()], argument.dims)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{' is' if number == 1 else 's are'}"
