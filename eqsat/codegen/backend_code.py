"""The backends' part of a program: a C function for each run, around the statements of a backend, and their files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.backends.asking import emitted
from eqsat.backends.backend import Backend
from eqsat.backends.code import Code, Writer
from eqsat.backends.region import RegionOperand, Run, Tensor
from eqsat.codegen import c_types
from eqsat.codegen.buffers import ALIGNMENT
from eqsat.codegen.memory import Allocation, plan_memory
from eqsat.codegen.program_templates import render
from eqsat.codegen.weights import Weights
from eqsat.errors import BackendError
from eqsat.schema.size_questions import greatest, symbols
from eqsat.text import plain


@dataclass
class Served:
    """The runs of one target, with the text of its backend.

    Attributes:
        target: As an identifier.
        backend: The backend that executes them.
        runs: In the order of the program.
        operators: Those that it alone computes, so that the program needs it.
        code: The code that the backend wrote.
        inner: Bytes between the kernels of each run.
    """

    target: str
    backend: Backend
    runs: list[Run]
    operators: tuple[str, ...] = ()
    code: Code = field(default_factory=lambda: Code(()))
    inner: list[int] = field(default_factory=list)

    @property
    def has_source(self) -> bool:
        """Whether the backend has its own C file; otherwise its functions are part of the program's file."""
        return bool(self.code.functions)


class BackendText:
    """Functions, calls and files of one target.

    Args:
        served: The runs whose code is written here.
        name: Prefix of the program.
        model: Name of the model.
        weights: The block that receives its constants.
    """

    def __init__(self, served: Served, name: str, model: str, weights: Weights) -> None:
        self.served = served
        self.prefix = f"{name}_{served.target}"
        self.upper = name.upper()
        writer = _Writer(name, self.prefix, model, weights)
        served.code = emitted(served.backend, writer, served.runs)
        served.inner = [writer.inner_bytes(run) for run in served.runs]

    def scratch(self, number: int) -> int:
        """Bytes that a run needs besides its tensors' memory."""
        code = self.served.code
        return self._start(number) + (code.scratch[number] if code.scratch else 0)

    def _start(self, number: int) -> int:
        return -(-self.served.inner[number] // ALIGNMENT) * ALIGNMENT

    def call(
        self, number: int, inputs: Sequence[str], outputs: Sequence[str], at: int, index: int, *, is_only: bool
    ) -> tuple[list[str], str]:
        """Lines before the portable form of a run, the condition under which that is executed, and the line after it.

        Args:
            number: Of the run.
            inputs: The addresses of its inputs.
            outputs: Likewise.
            at: Offset of its memory in the arena.
            index: Of the target among those with a context.
            is_only: Whether there is no portable form.
        """
        context = f"contexts[{index}]"
        where = {"context": context, "inner": f"arena + {at}", "scratch": f"arena + {at + self._start(number)}"}
        where |= {f"x{i}": text for i, text in enumerate(inputs)} | {f"y{i}": text for i, text in enumerate(outputs)}
        where["weights"] = "weights"
        call = f"{self.prefix}_{number}({', '.join(where.get(n, n) for _, n in self._parameters(number))})"
        macro, failed = f"#ifdef {self.upper}_USE_{self.served.target.upper()}", f"{context} == NULL || !{call}"
        if not self.served.code.stateful:
            return [macro, f"{call};", *([] if is_only else ["#else"])], "#endif"
        if is_only:
            return [macro, f"if ({failed}) return {self.upper}_NO_PORTABLE_CODE;"], "#endif"
        return [macro, f"if ({failed})", "#endif", "{"], "}"

    def _parameters(self, number: int) -> list[tuple[str, str]]:
        """C type and name of the parameters of a run's body."""
        run, body = self.served.runs[number], re.sub(r'"(?:[^"\\]|\\.)*"', "", self.served.code.calls[number])
        known = [(f"{self.prefix} *", "context")] if self.served.code.stateful else []
        known += [(f"const {c_types.storage(t.dtype)} *", f"x{i}") for i, t in enumerate(run.inputs)]
        known += [(f"{c_types.storage(t.dtype)} *", f"y{i}") for i, t in enumerate(run.outputs)]
        known += [("unsigned char *", "inner"), ("unsigned char *", "scratch"), ("const unsigned char *", "weights")]
        known += [("ptrdiff_t ", name) for name in _sizes(run)]
        return [(c, n) for c, n in known if re.search(rf"\b{n}\b", body)]

    def _signature(self, number: int) -> str:
        result = "int" if self.served.code.stateful else "void"
        parameters = ", ".join(f"{c}{n}" for c, n in self._parameters(number)) or "void"
        return f"{result} {self.prefix}_{number}({parameters})"

    def prototypes(self) -> list[str]:
        """Declarations of the runs' functions, for programs in several files."""
        return [f"{self._signature(k)};" for k in range(len(self.served.runs))] if self.served.has_source else []

    def functions(self) -> list[str]:
        """Definitions of the runs' functions."""
        made = []
        for number, run in enumerate(self.served.runs):
            body = self.served.code.calls[number].strip("\n").splitlines()
            lines = [line if line.startswith("#") else f"    {line}" for line in body]
            lines += ["    return 1;"] if self.served.code.stateful else []
            static = "" if self.served.has_source else "static "
            comment = plain(f"{run.region.name}: {', '.join(k.name for k in run.kernels)}")
            made.append("\n".join([f"/* {comment} */", f"{static}{self._signature(number)} {{", *lines, "}"]))
        return made

    def files(self, values: Mapping[str, Any]) -> dict[str, str]:
        """The target's own files, by the end of their names."""
        given = {**values, "target": self.served.target, "code": self.served.code, "text": self}
        files = {f"_{self.served.target}.h": render("backend.h.jinja", **given)}
        if self.served.has_source:
            files[f"_{self.served.target}.c"] = render("backend.c.jinja", **given)
        return files


def _sizes(run: Run) -> list[str]:
    """The variables of the free sizes that a run may read."""
    tensors = (t for k in run.kernels for t in (*k.operands, *k.results, *k.unread) if isinstance(t, Tensor))
    shapes = (t.shape for t in (*run.inputs, *run.outputs, *tensors))
    return sorted({symbol.c_name for shape in shapes for n in shape for symbol in symbols(n)})


class _Writer(Writer):
    def __init__(self, name: str, prefix: str, model: str, weights: Weights) -> None:
        self.name = name
        self.prefix = prefix
        self.model = model
        self._weights = weights
        self._inner: dict[Run, tuple[dict[Tensor, int], int]] = {}

    def offset(self, array: np.ndarray) -> int:
        return self._weights.add(array)[0]

    def constant(self, array: np.ndarray) -> str:
        offset, c = self._weights.add(array)
        return f"((const {c} *)(weights + {offset}))"

    def pointer(self, run: Run, operand: RegionOperand | None) -> str:
        if operand is None:
            return "NULL"
        if isinstance(operand, np.ndarray):
            return self.constant(operand)
        for letter, tensors in (("y", run.outputs), ("x", run.inputs)):
            if operand in tensors:
                return f"{letter}{tensors.index(operand)}"
        offsets, _ = self._planned(run)
        if operand not in offsets:
            raise BackendError(
                "an operand or a result of one of the run's kernels is required",
                place=f"Writer.pointer of {run.region.name}",
                actual=repr(operand.name),
            )
        return f"(({c_types.storage(operand.dtype)} *)(inner + {offsets[operand]}))"

    def c_type(self, operand: RegionOperand) -> str:
        return (
            c_types.storage(operand.dtype)
            if isinstance(operand, Tensor)
            else c_types.c_type(c_types.as_stored(operand))
        )

    def size(self, size: int) -> str:
        return str(size)

    def greatest(self, size: int) -> int:
        return greatest(size)

    def inner_bytes(self, run: Run) -> int:
        """Bytes for the tensors between the kernels of a run; 0 if none were requested."""
        return self._inner[run][1] if run in self._inner else 0

    def _planned(self, run: Run) -> tuple[dict[Tensor, int], int]:
        if run not in self._inner:
            lives: dict[Tensor, Allocation] = {}
            for k, kernel in enumerate(run.kernels):
                for tensor in (*kernel.results, *kernel.unread, *kernel.operands):
                    if isinstance(tensor, Tensor) and tensor not in run.inputs and tensor not in run.outputs:
                        size = max(greatest(tensor.elements) * c_types.size(tensor.dtype), 1)
                        lives[tensor] = Allocation(size, lives[tensor].first if tensor in lives else k, k)
            plan = plan_memory(list(lives.values()), ALIGNMENT)
            self._inner[run] = dict(zip(lives, plan.offsets, strict=True)), plan.size
        return self._inner[run]
