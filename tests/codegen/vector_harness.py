"""Vector kernels for every instruction set, with views as the planner would give them, against float64.

Inputs and outputs are placed as the family's wants say: order of axes, halo with its padding, and random gaps (slices
of wider buffers) where dense memory was not asked for. Gaps of inputs hold NaN, so that reading them shows; gaps and
halo of outputs hold a pattern that must survive; behind every tensor lies a page that must not be read. All kernels of
a test are compiled together.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.kernel import Epilogue, Family, Kernel, Step, Task, View, Want, Wants
from eqsat.codegen.kernels import find
from eqsat.model.types import OpKey

INCLUDES = "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n#include <float.h>\n"
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
UNIT = 2.0**-24
"""Half the distance from 1 to the next float32: the error of one rounding, relative."""
_MARK = np.float32(-7777.25)


@dataclass
class Memory:
    """A view and the buffer it looks at."""

    view: View
    buffer: np.ndarray
    offset: int

    def array(self) -> np.ndarray:
        """The elements, writable."""
        strides = tuple(4 * s for s in self.view.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :], self.view.shape, strides)

    def around(self) -> np.ndarray:
        """The elements and the halo."""
        halo, view = self.view.halo or ((0, 0),) * self.view.rank, self.view
        first = self.offset - sum(b * s for (b, _), s in zip(halo, view.strides, strict=True))
        shape = tuple(n + b + a for n, (b, a) in zip(view.shape, halo, strict=True))
        return np.lib.stride_tricks.as_strided(self.buffer[first:], shape, tuple(4 * s for s in view.strides))

    @property
    def pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.buffer.ctypes.data + 4 * self.offset)


def aligned(count: int) -> np.ndarray:
    """Floats at a multiple of 64 bytes."""
    raw = np.zeros(count + 16, np.float32)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + count]


def guarded(count: int) -> np.ndarray:
    """Floats at the end of a page that is followed by one which must not be touched."""
    page = mmap.PAGESIZE
    size = -(-4 * count // page) * page
    block = mmap.mmap(-1, size + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + size), ctypes.c_size_t(page), 0) == 0
    return np.frombuffer(block, np.float32, count, size - 4 * count)


def place(shape: Sequence[int], want: Want, rng: np.random.Generator | None, *, room: bool = False) -> Memory:
    """Memory for a tensor as a kernel would like it.

    Args:
        shape: Of the tensor.
        want: Of the kernel.
        rng: For gaps and more halo than asked for; without it as dense as the wish lets it be.
        room: Whether there may be a halo nobody asked for.
    """
    rank = len(shape)
    order = want.order if want.order is not None else tuple(range(rank))
    if rng is not None and not want.strict:
        order = tuple(int(a) for a in rng.permutation(rank))
    halo = want.halo or ((0, 0),) * rank
    if rng is not None and room:
        halo = tuple(
            (int(rng.integers(0, 3)), int(rng.integers(0, 3))) if a != order[-1] else (0, 0) for a in range(rank)
        )
    strides, step = [0] * rank, 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis] + sum(halo[axis]), 1)
        if rng is not None and not want.dense:
            step += int(rng.integers(0, 9)) * strides[axis] if axis == order[-1] else 0
    buffer = guarded(step)
    buffer[:] = np.nan
    offset = sum(b * s for (b, _), s in zip(halo, strides, strict=True))
    return Memory(View(ir.DataType.FLOAT, tuple(shape), tuple(strides), halo, want.pad), buffer, offset)


@dataclass
class Case:
    """An operator with its data and what must come out."""

    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: Sequence[np.ndarray | None]
    constant: frozenset[int]
    expected: np.ndarray
    tolerance: np.ndarray | float
    steps: Sequence[Step] = ()
    operands: Sequence[np.ndarray] = ()
    constant_operands: frozenset[int] = frozenset()
    rank: int = 1
    memory: dict[str, Memory] | None = None
    task: Task | None = None
    family: Family | None = None

    def build(self, rng: np.random.Generator | None) -> tuple[Family, Task]:
        """Find the family by provisional views, then place everything as it wants."""
        task = self._task(lambda name, shape: View.dense(ir.DataType.FLOAT, shape))
        family = find(task)
        assert family is not None and family.rank >= self.rank, f"{self.operator} {self.attributes}: {family}"
        wants = family.wants(task)
        memory: dict[str, Memory] = {}

        def placed(name: str, shape: tuple[int, ...]) -> View:
            if name == "y0":
                memory[name] = place(shape, wants.output(0), rng, room=True)
            elif name.startswith("e"):
                memory[name] = self._operand(shape, wants)
            else:
                memory[name] = place(shape, wants.input(int(name[1:])), rng)
            return memory[name].view

        self.task = self._task(placed)
        for name, m in memory.items():
            if name == "y0":
                m.buffer[:] = _MARK
            else:
                source = self.inputs if name[0] == "x" else self.operands
                m.around()[...] = m.view.pad
                m.array()[...] = np.asarray(source[int(name[1:])]).reshape(m.view.shape)
        self.memory, self.family = memory, family
        return family, self.task

    def _operand(self, shape: tuple[int, ...], wants: Wants) -> Memory:
        order = wants.output(0).order
        full = (1,) * (self.expected.ndim - len(shape)) + shape
        return place(full, Want(order=order), None)

    def _task(self, view: Callable[[str, tuple[int, ...]], View]) -> Task:
        inputs = [x if x is None or i in self.constant else view(f"x{i}", x.shape) for i, x in enumerate(self.inputs)]
        if self.operator == OpKey("", "Identity"):
            inputs = [v.broadcast(self.expected.shape) if isinstance(v, View) else v for v in inputs]
        operands = [
            x if k in self.constant_operands else view(f"e{k}", x.shape).broadcast(self.expected.shape)
            for k, x in enumerate(self.operands)
        ]
        output = view("y0", self.expected.shape)
        return Task(
            self.operator,
            self.attributes,
            tuple(inputs),
            (output,),
            Epilogue(ir.DataType.FLOAT, tuple(operands), tuple(self.steps)),
        )


def step(name: str, *inputs: int | None, domain: str = "", **attributes: Any) -> Step:
    """A float32 step of an epilogue."""
    return Step(OpKey(domain, name), attributes, inputs, ir.DataType.FLOAT)


def signature(name: str, task: Task, kernel: Kernel, isa: Isa) -> tuple[str, list[str]]:
    """The head of a kernel's function, and the names of its parameters."""
    reads = [f"x{i}" for i, v in enumerate(task.inputs) if isinstance(v, View)]
    reads += [f"e{k}" for k, v in enumerate(task.epilogue.operands) if isinstance(v, View)]
    constants = [f"w{i}" for i in range(len(kernel.constants))]
    text = [f"const float *restrict {n}" for n in reads] + ["float *restrict y0"]
    text += [f"const float *restrict {n}" for n in constants]
    names = [*reads, "y0", *constants]
    if kernel.scratch:
        text.append("void *restrict scratch")
        names.append("scratch")
    target = f'__attribute__((target("{isa.target}"))) ' if isa.target else ""
    return f"{target}void {name}({', '.join(text)})", names


@functools.cache
def runnable() -> tuple[Isa, ...]:
    """Instruction sets that this machine has."""
    checks = ""
    for isa in ALL:
        asked = " && ".join(f'__builtin_cpu_supports("{feature}")' for feature in isa.features)
        checks += f"int has_{isa.name}(void);\nint has_{isa.name}(void) {{ return {asked or 1}; }}\n"
    library = compiled(checks, "-O1", ())
    return tuple(isa for isa in ALL if getattr(library, f"has_{isa.name}")())


def compiled(text: str, optimization: str, flags: Sequence[str]) -> ctypes.CDLL:
    """A library from C text, kept for the next run."""
    folder = Path(tempfile.gettempdir()) / f"eqsat-vectors-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    options = [*FLAGS, optimization, *flags]
    key = hashlib.sha256((text + " ".join(options)).encode()).hexdigest()[:20]
    library = folder / f"{key}.so"
    if not library.exists():
        source = folder / f"{key}.c"
        source.write_text(text)
        partial = folder / f"{key}.{os.getpid()}.tmp"
        made = subprocess.run(
            ["gcc", *options, str(source), "-o", str(partial), "-lm"], capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, f"{source}\n{made.stderr[:6000]}"
        partial.replace(library)
    return ctypes.CDLL(str(library))


def run(
    cases: Sequence[Case],
    *,
    rng: np.random.Generator | None = None,
    isas: Sequence[Isa] | None = None,
    optimization: str = "-O2",
    flags: Sequence[str] = (),
) -> dict[tuple[int, str], np.ndarray]:
    """Generate, compile and call every case on every instruction set; checks values and what lies around them."""
    kernels: dict[tuple[int, str], tuple[Kernel, list[str]]] = {}
    helpers: dict[str, None] = {}
    functions: list[str] = []
    chosen = tuple(isas) if isas is not None else runnable()
    for i, case in enumerate(cases):
        family, task = case.build(rng)
        for isa in chosen:
            kernel = family.generate(task, isa)
            head, names = signature(f"k{i}_{isa.name}", task, kernel, isa)
            helpers.update(dict.fromkeys(kernel.helpers))
            unused = "".join(f"(void){n}; " for n in names)
            functions.append(f"{head};\n{head}\n{{\n{unused}\n{kernel.body}\n}}\n")
            kernels[i, isa.name] = (kernel, names)
    library = compiled(INCLUDES + "\n".join([*helpers, *functions]), optimization, flags)
    results = {}
    for (i, isa), (kernel, names) in kernels.items():
        results[i, isa] = _call(library, f"k{i}_{isa}", cases[i], kernel, names)
    return results


def _call(library: ctypes.CDLL, name: str, case: Case, kernel: Kernel, names: list[str]) -> np.ndarray:
    assert case.memory is not None
    y = case.memory["y0"]
    y.buffer[:] = _MARK
    held = {f"w{i}": aligned(c.size) for i, c in enumerate(kernel.constants)}
    for i, c in enumerate(kernel.constants):
        held[f"w{i}"][:] = c.ravel()
    scratch = aligned(kernel.scratch // 4 + 16)
    arguments = [
        case.memory[n].pointer if n in case.memory else ctypes.c_void_p((held.get(n, scratch)).ctypes.data)
        for n in names
    ]
    getattr(library, name)(*arguments)
    found = y.array().copy()
    y.array()[...] = _MARK
    assert (y.buffer == _MARK).all(), f"{name} writes beside its output"
    assert case.task is not None
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype(np.float64) - case.expected)
    bad = ~(error <= case.tolerance) & ~(np.isnan(found) & np.isnan(case.expected)) & ~(found == case.expected)
    if bad.any():
        at = tuple(int(k) for k in np.argwhere(bad)[0])
        allowed = np.broadcast_to(case.tolerance, found.shape)[at]
        raise AssertionError(
            f"{name}: {case.operator} {dict(case.attributes)} at {at}: {found[at]} instead of {case.expected[at]}, "
            f"off by {error[at]:.3g}, allowed {allowed:.3g}; {int(bad.sum())} of {bad.size} elements"
        )
    return found


__all__ = ["SANITIZERS", "UNIT", "Case", "Memory", "place", "replace", "run", "runnable", "step"]
